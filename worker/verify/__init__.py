"""Checks servers and data: ``precheck`` before a task starts, ``compare`` while it runs."""

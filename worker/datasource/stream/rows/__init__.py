"""Reads the parts of a batch in Spark's tasks, and makes their rows."""

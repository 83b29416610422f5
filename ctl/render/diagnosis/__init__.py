"""Answers of `why` and `top` as tables for a terminal; pure."""

"""Counts the restarts of the worker in place: the counter is handed on in the environment."""

from __future__ import annotations

import os

RESTARTS = "SHARDMERGE_SPARK_RESTARTS"
"""The variable that the process gives to the one that replaces it."""


def restarts_so_far() -> int:
    """How often this process has replaced itself because its Spark driver was lost; 0 if the variable is no number."""
    given = os.environ.get(RESTARTS, "")
    return int(given) if given.isascii() and given.isdigit() else 0

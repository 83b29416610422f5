"""Reads what Spark reports about a failed job: one line for a message, and the host of the executor. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shardmerge.proto.errors import ShardmergeError

_CALL = re.compile(r"An error occurred while calling \S+")
_HOST = re.compile(r"\(TID \d+\) \((\S+) executor \S+\)")
_PYTHON = re.compile(
    r"\[PYTHON_VERSION_MISMATCH\].*?different version: (\S+) than that in driver: ([^\s,]+)", re.DOTALL
)
_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
_CODED = f"{ShardmergeError.__module__}.{ShardmergeError.__qualname__}: "


@dataclass(frozen=True, slots=True)
class Differs:
    """Something that the process of an executor has in another version. ``there`` "": it is not installed there."""

    host: str
    what: str
    there: str


def first_line(error: BaseException) -> str:
    """The line of an error's text that says most: a coded error of a Python process, else the first line."""
    text = str(error).strip()
    lines = [line for line in text.splitlines() if line.strip()]
    # Spark reports the exception that ended a Python process as the text of its traceback.
    for line in lines:
        if line.startswith(_CODED):
            return line.removeprefix(_CODED)
    # Py4J begins with the call; what has failed follows.
    if len(lines) > 1 and _CALL.match(lines[0]):
        return lines[1].removeprefix(": ")
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def difference_in(error: BaseException) -> Differs | None:
    """The other version that has ended a Python process, before it could report its versions; None: another reason.

    Python compares its version before it reads a task, and a module that is missing ends the process at its start.
    """
    text = str(error)
    host = found.group(1) if (found := _HOST.search(text)) else "(unknown)"
    if python := _PYTHON.search(text):
        return Differs(host, "Python", python.group(1))
    if module := _MODULE.search(text):
        return Differs(host, module.group(1), "")
    return None

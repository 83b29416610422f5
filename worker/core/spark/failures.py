"""Reads what Spark reports about a failed job or task: one line for a message, or another version. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError

JVM_ERRORS = (Py4JError, PySparkException, OSError)
"""What a call of the JVM raises when it fails, or when the JVM has ended."""

NOT_INSTALLED = "not installed"
_CALL = re.compile(r"An error occurred while calling \S+")
_PYTHON = re.compile(
    r"\[PYTHON_VERSION_MISMATCH\].*?different version: (\S+) than that in driver: ([^\s,]+)", re.DOTALL
)
_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
_CODED = f"{ShardmergeError.__module__}.{ShardmergeError.__qualname__}: "


@dataclass(frozen=True, slots=True)
class Differs:
    """Something that the process of an executor has in another version. ``there`` "": it is not installed there."""

    what: str
    there: str


def first_line(error: BaseException) -> str:
    """:func:`first_line_of` an exception's text, else the first line with the kind of the exception."""
    text = str(error).strip()
    found = first_line_of(text)
    return found if found != text.partition("\n")[0] else f"{type(error).__name__}: {found}"


def first_line_of(text: str) -> str:
    """The line of Spark's text that says most: the coded error of a Python process, else the first one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Spark reports the exception that ended a Python process as the text of its traceback.
    for line in lines:
        if line.startswith(_CODED):
            return line.removeprefix(_CODED)
    # Py4J begins with the call; what has failed follows.
    if len(lines) > 1 and _CALL.match(lines[0]):
        return lines[1].removeprefix(": ")
    return lines[0] if lines else ""


def difference_in(text: str) -> Differs | None:
    """The other version that has ended a Python process, before it could report its versions; None: another reason.
    ``text``: of the failed task.

    Python compares its version before it reads a task, and a module that is missing ends the process at its start.
    """
    if python := _PYTHON.search(text):
        return Differs("Python", python.group(1))
    if module := _MODULE.search(text):
        return Differs(module.group(1), "")
    return None


def difference(host: str, there: Mapping[str, str], here: Mapping[str, str]) -> ShardmergeError | None:
    """SPARK_VERSIONS_DIFFER for the first version on ``host`` that is not the worker's; None: all are equal."""
    for what, version in here.items():
        found = there.get(what, NOT_INSTALLED)
        if found != version:
            return errors.worker.SPARK_VERSIONS_DIFFER(host=host, what=what, there=found, here=version)
    return None

"""What is told of an error of Spark's: its class, and where in which expression.

Spark's own words hold pieces of rows, of files and of settings, so that they stay in the JVM. Its classes of errors are
listed in its documentation, "Error Conditions".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException

JvmError = PySparkException | Py4JJavaError
"""What the JVM answers with where it answers with no value."""

_THROWABLE = "org.apache.spark.SparkThrowable"
_SHORT = (
    "java.lang.VirtualMachineError",
    "java.io.IOException",
    "java.io.UncheckedIOException",
    "org.apache.arrow.memory.OutOfMemoryException",
)
_ABOUT_THE_EXPRESSION = "java.lang.StackOverflowError"
"""Of those above: an expression of too many parts."""


@dataclass(frozen=True, slots=True)
class Place:
    """In a text of Spark SQL. ``start``, ``stop``: of its first and its last character, from 0. ``fragment``: what
    Spark takes for that piece: it numbers characters, but cuts where as many units of UTF-16 are."""

    start: int
    stop: int
    fragment: str


def told(error: JvmError, texts: Sequence[str] = ()) -> str:
    """The error's class, and in which of ``texts``, the expressions that it may be about, and where."""
    java = _java(error)
    name = _condition(java) or (java.getClass().getSimpleName() if java is not None else type(error).__name__)
    return f"{name}{_where(java, texts)}"


def is_short_of_something(error: JvmError) -> bool:
    """Whether the JVM lacked memory, files or the like: that says nothing of the expression."""
    java, gateway = _java(error), SparkContext._gateway
    if java is None or is_instance_of(gateway, java, _ABOUT_THE_EXPRESSION):
        return False
    return any(is_instance_of(gateway, java, name) for name in _SHORT)


def shown_place(place: Place, texts: Sequence[str]) -> str:
    """Where it is, and in which of ``texts``; the fragment is shown only if it is a part of one of them. Pure."""
    if place.stop < place.start:
        return _in_only(texts)
    numbers = f"characters {place.start + 1} to {place.stop + 1}"
    for text in texts:
        if _cut_by_spark(text, place) == place.fragment:
            piece = text[place.start : place.stop + 1]
            return f" in {text}" if piece == text else f" in {text}, {numbers} ({piece})"
    return _in_only(texts)


def _in_only(texts: Sequence[str]) -> str:
    return f" in {texts[0]}" if len(texts) == 1 else ""


def _cut_by_spark(text: str, place: Place) -> str:
    return text.encode("utf-16-le")[2 * place.start : 2 * (place.stop + 1)].decode("utf-16-le", "replace")


def _java(error: JvmError) -> Any:
    """The exception in the JVM; None: there is none."""
    return error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)


def _condition(java: Any) -> str:
    if java is None or not is_instance_of(SparkContext._gateway, java, _THROWABLE):
        return ""
    return str(java.getCondition() or "")


def _where(java: Any, texts: Sequence[str]) -> str:
    if java is None or not is_instance_of(SparkContext._gateway, java, _THROWABLE):
        return _in_only(texts)
    for context in java.getQueryContext():
        if context.contextType().toString() == "SQL":
            return shown_place(Place(context.startIndex(), context.stopIndex(), context.fragment()), texts)
    found = _in_only(texts)
    if found and is_instance_of(SparkContext._gateway, java, "org.apache.spark.sql.AnalysisException"):
        line, start = java.line(), java.startPosition()
        if line.isDefined() and start.isDefined():
            return f"{found}, line {line.get()}, character {start.get() + 1}"
    return found

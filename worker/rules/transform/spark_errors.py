"""Spark's errors are reduced to their class and their place in an expression.

Spark's error messages can contain parts of rows, files and settings, so the messages stay in the JVM. Spark's
documentation lists the error classes under "Error Conditions".
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
"""What PySpark and Py4J raise when a call into the JVM fails."""

_THROWABLE = "org.apache.spark.SparkThrowable"
_RESOURCE_ERRORS = (
    "java.lang.VirtualMachineError",
    "java.io.IOException",
    "java.io.UncheckedIOException",
    "org.apache.arrow.memory.OutOfMemoryException",
)
_EXPRESSION_TOO_DEEP = "java.lang.StackOverflowError"
"""A subclass of VirtualMachineError that means: the expression is nested too deeply."""


@dataclass(frozen=True, slots=True)
class TextRange:
    """A range in a Spark SQL text. ``start``, ``stop``: indexes of its first and its last character, from 0.
    ``fragment``: the text that Spark reports for the range. Spark counts ``start`` and ``stop`` in characters, but cuts
    the fragment at UTF-16 code units."""

    start: int
    stop: int
    fragment: str


def error_summary(error: JvmError, texts: Sequence[str] = ()) -> str:
    """The class of ``error`` and its place. ``texts``: the expressions that may have caused it."""
    java = _java_exception(error)
    name = _condition(java) or (java.getClass().getSimpleName() if java is not None else type(error).__name__)
    return f"{name}{_location(java, texts)}"


def lacks_resources(error: JvmError) -> bool:
    """Whether the JVM lacked memory, files or the like. Such an error does not mean that the expression is wrong."""
    java, gateway = _java_exception(error), SparkContext._gateway
    if java is None or is_instance_of(gateway, java, _EXPRESSION_TOO_DEEP):
        return False
    return any(is_instance_of(gateway, java, name) for name in _RESOURCE_ERRORS)


def place_text(place: TextRange, texts: Sequence[str]) -> str:
    """The place as text, with the expression of ``texts`` that contains it. The fragment is shown only if one of the
    expressions contains it, so that no part of a row is shown. Pure."""
    if place.stop < place.start:
        return _in_single_text(texts)
    numbers = f"characters {place.start + 1} to {place.stop + 1}"
    for text in texts:
        if _fragment_of_spark(text, place) == place.fragment:
            piece = text[place.start : place.stop + 1]
            return f" in {text}" if piece == text else f" in {text}, {numbers} ({piece})"
    return _in_single_text(texts)


def _in_single_text(texts: Sequence[str]) -> str:
    return f" in {texts[0]}" if len(texts) == 1 else ""


def _fragment_of_spark(text: str, place: TextRange) -> str:
    return text.encode("utf-16-le")[2 * place.start : 2 * (place.stop + 1)].decode("utf-16-le", "replace")


def _java_exception(error: JvmError) -> Any:
    """The exception object in the JVM; None when there is none."""
    return error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)


def _condition(java: Any) -> str:
    if java is None or not is_instance_of(SparkContext._gateway, java, _THROWABLE):
        return ""
    return str(java.getCondition() or "")


def _location(java: Any, texts: Sequence[str]) -> str:
    if java is None or not is_instance_of(SparkContext._gateway, java, _THROWABLE):
        return _in_single_text(texts)
    for context in java.getQueryContext():
        if context.contextType().toString() == "SQL":
            return place_text(TextRange(context.startIndex(), context.stopIndex(), context.fragment()), texts)
    found = _in_single_text(texts)
    if found and is_instance_of(SparkContext._gateway, java, "org.apache.spark.sql.AnalysisException"):
        line, start = java.line(), java.startPosition()
        if line.isDefined() and start.isDefined():
            return f"{found}, line {line.get()}, character {start.get() + 1}"
    return found

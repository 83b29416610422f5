"""Compiles a transform once and applies it to rows: in the driver's JVM, without a plan or a job for each call.

Spark's analyzer and optimizer make expressions of the texts, its projections evaluate them row by row
(org.apache.spark.sql.catalyst.expressions.UnsafeProjection, interpreted), its converters read and write Arrow
(worker/rules/transform/evaluation.py).

Rows are exchanged through files in memory that both processes open: over Py4J's socket an answer beyond 8 KiB waits
40 ms, for Nagle's algorithm (RFC 896) at one end and the delayed acknowledgement (RFC 1122, 4.2.3.2) at the other.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyarrow import ipc
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StructField, TimestampNTZType, TimestampType

from shardmerge.proto import errors, relay_pb2
from shardmerge.proto.config.rules.transform import TransformRefused
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.rules.transform.client import as_stream
from shardmerge.worker.rules.transform.evaluation import evaluation
from shardmerge.worker.rules.transform.expressions import Expressions
from shardmerge.worker.rules.transform.permitted import check_filter, check_item, check_plan
from shardmerge.worker.rules.transform.session import relation, session
from shardmerge.worker.rules.transform.spark_errors import JvmError, error_summary, lacks_resources


@lru_cache(maxsize=1)
def _projections() -> Any:
    """The Scala object UnsafeProjection."""
    jvm: Any = session()._jvm
    return getattr(getattr(jvm.org.apache.spark.sql.catalyst.expressions, "UnsafeProjection$"), "MODULE$")


class NoResult(Exception):
    """The expressions are refused, or have no result for a row. The text gives the reason and no part of a row."""


class Projection:
    """``items`` (of a SELECT list in Spark SQL, each of one column) and ``condition`` ("": none) over rows of a schema.

    The answer has a column for each item; if there is a condition, the first column is whether the row meets it,
    and the items of a row that does not meet it are NULL, without having been evaluated.
    Thread-safe. Raises :class:`NoResult`, EVALUATION_LOST, and the errors of Py4J if the JVM does not answer.
    """

    def __init__(self, schema: pa.Schema, items: tuple[str, ...], condition: str) -> None:
        self._texts = (*([condition] if condition else []), *items)
        try:
            if condition:
                check_filter(condition)
            for item in items:
                check_item(item)
            given = relation(schema)
            answer = _plain(given.select(*_columns(items, condition)))
            check_plan(answer._jdf.queryExecution().analyzed(), ", ".join(self._texts))
            self._steps = tuple(_steps(answer))
            self._given: Any = given._jdf.schema()
            self._answer: Any = answer._jdf.schema()
        except (PySparkException, Py4JJavaError) as error:
            raise self._no_result(error) from error
        except TransformRefused as reason:
            raise NoResult(str(reason)) from reason
        # Spark's projections have a state, so that each thread uses its own.
        self._idle: deque[Any] = deque()

    def of(self, rows: bytes) -> bytes:
        """An Arrow stream for an Arrow stream, row by row."""
        try:
            return self._evaluate(rows)
        except (PySparkException, Py4JJavaError) as error:
            # The JVM answers, but it failed before it read the rows.
            raise errors.replicate.EVALUATION_LOST(reason=error_summary(error)) from error

    def _evaluate(self, rows: bytes) -> bytes:
        made = self._evaluation()
        with _memory_file(rows) as source, _memory_file(b"") as sink:
            try:
                made.evaluate(_path(source), _path(sink))
            except (PySparkException, Py4JJavaError) as error:
                if made.hasRead():
                    raise self._no_result(error) from error
                raise
            found = os.pread(sink, os.fstat(sink).st_size, 0)
        # Not used again after an error: its projections may contain half a row.
        self._idle.append(made)
        return found

    def _evaluation(self) -> Any:
        """What one thread evaluates with."""
        try:
            return self._idle.pop()
        except IndexError:
            create: Any = _projections().create
            steps = [create(step.projectList(), step.child().output()) for step in self._steps]
            return evaluation(steps, self._given, self._answer)

    def _no_result(self, error: JvmError) -> NoResult | ShardmergeError:
        """The error to raise for an error of the JVM."""
        if lacks_resources(error):
            return errors.replicate.EVALUATION_LOST(reason=error_summary(error))
        return NoResult(error_summary(error, self._texts))


@lru_cache(maxsize=1024)
def projection(schema: pa.Schema, items: tuple[str, ...], condition: str) -> Projection:
    """The cached projection for these arguments. Raises what :class:`Projection` raises."""
    return Projection(schema, items, condition)


def evaluate(expressions: Expressions, rows: bytes) -> relay_pb2.EvaluateResponse:
    """Evaluate the expressions over ``rows``, an Arrow IPC stream. Several threads may call it at the same time.

    Raises ROWS_UNREADABLE, EVALUATION_LOST, and the errors of Py4J if the JVM does not answer.
    """
    checked = _validated(expressions.schema, rows)
    try:
        made = projection(expressions.schema, expressions.items, expressions.filter).of(checked)
    except NoResult as reason:
        return relay_pb2.EvaluateResponse(refused=str(reason))
    return relay_pb2.EvaluateResponse(rows=made)


def _validated(schema: pa.Schema, rows: bytes) -> bytes:
    """The rows, decoded, validated and encoded again, so that the JVM reads only validated bytes. Raises
    ROWS_UNREADABLE."""
    try:
        with ipc.open_stream(rows) as reader:
            if not reader.schema.equals(schema):
                raise errors.replicate.ROWS_UNREADABLE(reason="their columns are not those of the expressions")
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise errors.replicate.ROWS_UNREADABLE(reason=type(error).__name__) from error
    return as_stream(table)


def _columns(items: tuple[str, ...], condition: str) -> list[Column]:
    found = [sql.expr(item) for item in items]
    if condition:
        passes = sql.expr(condition)
        found = [sql.coalesce(passes, sql.lit(False)), *(sql.when(passes, item) for item in found)]
    return [column.alias(f"c{at}") for at, column in enumerate(found)]


def _plain(frame: DataFrame) -> DataFrame:
    """The frame with points in time as TIMESTAMP_NTZ in UTC, the session's time zone."""

    def plain(field: StructField) -> Column:
        column = sql.col(field.name)
        return column.cast(TimestampNTZType()) if isinstance(field.dataType, TimestampType) else column

    return frame.select(*(plain(field) for field in frame.schema.fields))


def _steps(frame: DataFrame) -> Iterator[Any]:
    """The projections of an optimized plan, in the order of evaluation; more than one if a value is used several
    times."""
    plan: Any = frame._jdf.queryExecution().optimizedPlan()
    found: list[Any] = []
    while plan.getClass().getSimpleName() == "Project":
        found.append(plan)
        plan = plan.child()
    if plan.getClass().getSimpleName() != "LocalRelation":
        raise AssertionError(f"a plan of projections alone was expected: {plan.toString()}")
    return reversed(found)


@contextmanager
def _memory_file(content: bytes) -> Generator[int]:
    """The descriptor of a file in memory, which is deleted at the end of the block."""
    descriptor = os.memfd_create("shardmerge-rows", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        yield descriptor
    finally:
        os.close(descriptor)


def _path(descriptor: int) -> str:
    """The path by which other processes of the same user open it (proc(5))."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"

"""A transform made ready once, and what it makes of rows: in the driver's JVM, without a plan or a job for each.

Spark's analyzer and optimizer make expressions of the texts, its projections evaluate them row by row
(org.apache.spark.sql.catalyst.expressions.UnsafeProjection, interpreted), its converters read and write Arrow
(org.apache.spark.sql.execution.arrow.ArrowConverters).

Rows come and go through files in memory that both processes open: over Py4J's socket an answer beyond 8 KiB waits
40 ms, for Nagle's algorithm (RFC 896) at one end and the delayed acknowledgement (RFC 1122, 4.2.3.2) at the other.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StructField, TimestampNTZType, TimestampType

from proto import errors
from proto.config.transform import Refused
from proto.errors import ShardmergeError
from worker.transform.permitted import check_filter, check_item, check_plan
from worker.transform.session import activate, relation, session
from worker.transform.spark_errors import JvmError, error_summary, lacks_resources

_ZONE = "UTC"
_ALL_ROWS = 0
"""Of one batch of Arrow."""


@dataclass(frozen=True, slots=True)
class _Jvm:
    """Classes and objects of Spark's: each step of their names' paths is a question to the JVM."""

    projections: Any
    files: Any
    converters: Any
    writer: Any
    output: Any


@lru_cache(maxsize=1)
def _jvm() -> _Jvm:
    jvm: Any = session()._jvm
    arrow: Any = jvm.org.apache.spark.sql.execution.arrow
    return _Jvm(
        projections=_object(jvm.org.apache.spark.sql.catalyst.expressions, "UnsafeProjection"),
        files=jvm.PythonSQLUtils,
        converters=_object(arrow, "ArrowConverters"),
        writer=arrow.ArrowBatchStreamWriter,
        output=jvm.java.io.FileOutputStream,
    )


def _object(package: Any, name: str) -> Any:
    """The object of Scala of that name."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


class NoResult(Exception):
    """The expressions are refused, or have no result for a row. The text gives the reason and no part of a row."""


class Projection:
    """``items`` (of a SELECT list in Spark SQL, each of one column) and ``condition`` ("": none) over rows of a schema.

    The answer has a column for each item; where there is a condition, one before them says whether the row meets it,
    and the items of a row that does not are NULL, and were not evaluated.
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
        except Refused as reason:
            raise NoResult(str(reason)) from reason
        # What is evaluated has a state of its own, so that each thread takes one.
        self._idle: deque[tuple[Any, ...]] = deque()

    def of(self, rows: bytes) -> bytes:
        """An Arrow stream for an Arrow stream, row by row."""
        try:
            return self._evaluate(rows)
        except (PySparkException, Py4JJavaError) as error:
            # The JVM answers, but it failed before it read the rows.
            raise errors.replicate.EVALUATION_LOST(reason=error_summary(error)) from error

    def _evaluate(self, rows: bytes) -> bytes:
        jvm = _jvm()
        activate()
        with _memory_file(rows) as source, _memory_file(b"") as sink, self._projections() as projections:
            batches = jvm.files.readArrowStreamFromFile(_path(source))
            reading = jvm.converters.fromBatchIterator(batches, self._given, _ZONE, False, False, None)
            found = reading
            for projection in projections:
                found = found.map(projection)
            with closing(jvm.output(_path(sink))) as stream:
                writer = jvm.writer(self._answer, stream, _ZONE, False, False)
                writing = jvm.converters.toBatchIterator(found, self._answer, _ALL_ROWS, _ZONE, False, False, None)
                try:
                    writer.writeBatches(writing)
                except Exception as error:
                    _free(reading)  # which frees itself only when it is read to its end
                    if isinstance(error, (PySparkException, Py4JJavaError)):
                        raise self._no_result(error) from error
                    raise
                finally:
                    writing.close()
                writer.end()
            return os.pread(sink, os.fstat(sink).st_size, 0)

    def _no_result(self, error: JvmError) -> NoResult | ShardmergeError:
        """The error to raise for an error of the JVM."""
        if lacks_resources(error):
            return errors.replicate.EVALUATION_LOST(reason=error_summary(error))
        return NoResult(error_summary(error, self._texts))

    @contextmanager
    def _projections(self) -> Generator[tuple[Any, ...]]:
        """For one thread, while the block lasts."""
        try:
            projections = self._idle.pop()
        except IndexError:
            create: Any = _jvm().projections.create
            projections = tuple(create(step.projectList(), step.child().output()) for step in self._steps)
        yield projections
        # Not after an error: half a row may be in them.
        self._idle.append(projections)


@lru_cache(maxsize=1024)
def projection(schema: pa.Schema, items: tuple[str, ...], condition: str) -> Projection:
    """The one for these arguments. Raises as :class:`Projection`."""
    return Projection(schema, items, condition)


def _columns(items: tuple[str, ...], condition: str) -> list[Column]:
    found = [sql.expr(item) for item in items]
    if condition:
        passes = sql.expr(condition)
        found = [sql.coalesce(passes, sql.lit(False)), *(sql.when(passes, item) for item in found)]
    return [column.alias(f"c{at}") for at, column in enumerate(found)]


def _plain(frame: DataFrame) -> DataFrame:
    """Points in time as their text in UTC, the session's time zone."""

    def plain(field: StructField) -> Column:
        column = sql.col(field.name)
        return column.cast(TimestampNTZType()) if isinstance(field.dataType, TimestampType) else column

    return frame.select(*(plain(field) for field in frame.schema.fields))


def _steps(frame: DataFrame) -> Iterator[Any]:
    """The projections of an optimized plan, from the rows on; more than one where a value is used several times."""
    plan: Any = frame._jdf.queryExecution().optimizedPlan()
    found: list[Any] = []
    while plan.getClass().getSimpleName() == "Project":
        found.append(plan)
        plan = plan.child()
    if plan.getClass().getSimpleName() != "LocalRelation":
        raise AssertionError(f"a plan of projections alone was expected: {plan.toString()}")
    return reversed(found)


def _free(reading: Any) -> None:
    """The memory of rows that were not read to their end, which frees it."""
    resources = reading.resources()
    for at in reversed(range(resources.size())):
        resources.apply(at).close()


@contextmanager
def _memory_file(content: bytes) -> Generator[int]:
    """Its descriptor; it is gone behind the block."""
    descriptor = os.memfd_create("shardmerge-rows", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        yield descriptor
    finally:
        os.close(descriptor)


def _path(descriptor: int) -> str:
    """Under which other processes of the same user open it (proc(5))."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"

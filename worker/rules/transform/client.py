"""The client side of transforms: lanes and chunk readers send rows to the worker's evaluator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import grpc
import pyarrow as pa
from pyarrow import ipc

from shardmerge.proto import errors, relay_pb2, relay_pb2_grpc
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc import client
from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.rules.transform.expressions import Expressions, expressions_of
from shardmerge.worker.rules.transform.values import BadValue, Value, literal_of, reading

_ROWS = 8192
_BYTES = 4 << 20
"""Limits of one request: well below the limits of a Spark plan and of a gRPC message."""
_ANSWER_SECONDS = 300.0
_UNARY_BYTES = 6 << 20
"""Largest size of rows for one Evaluate request, which may have 8 MiB. Larger rows use EvaluateLarge."""
_PIECE_BYTES = 2 << 20
"""Size of the rows in one request of EvaluateLarge."""

ComputedRows = Sequence[Literals | None]
"""For each row the literals of its computed columns; None for a row that the filter removes."""


class Evaluate(Protocol):
    """Calls the worker's evaluator. Raises catalogue errors."""

    def __call__(self, request: relay_pb2.EvaluateRequest) -> relay_pb2.EvaluateResponse: ...


class TransformClient:
    """Calls the evaluator over gRPC. Close it."""

    def __init__(self, address: str, who: relay_pb2.TaskIdentity) -> None:
        self._address, self._who = address, who
        self._channel: grpc.Channel | None = None

    def __call__(self, request: relay_pb2.EvaluateRequest) -> relay_pb2.EvaluateResponse:
        if self._channel is None:
            self._channel = client.channel(self._address)
        request.who.CopyFrom(self._who)
        stub = relay_pb2_grpc.RelayStub(self._channel)
        try:
            if len(request.rows) <= _UNARY_BYTES:
                return stub.Evaluate(request, timeout=_ANSWER_SECONDS)
            return stub.EvaluateLarge(_in_pieces(request), timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise client.coded_from_rpc(error, f"worker at {self._address}", self._address) from error

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()


def _in_pieces(request: relay_pb2.EvaluateRequest) -> Iterator[relay_pb2.EvaluateRequest]:
    yield relay_pb2.EvaluateRequest(who=request.who, expressions=request.expressions)
    for start in range(0, len(request.rows), _PIECE_BYTES):
        yield relay_pb2.EvaluateRequest(rows=request.rows[start : start + _PIECE_BYTES])


@dataclass(frozen=True, slots=True)
class _NoResult(Exception):
    """``row``: the first row without a result."""

    row: int
    reason: str


class Transformer:
    """The transform of one table. ``slots``: indexes of the transform's input columns in decoded rows."""

    def __init__(self, plan: TablePlan, slots: Sequence[int], evaluator: Evaluate) -> None:
        assert plan.transform is not None  # noqa: S101 - for the type checker: only such plans come here
        self._plan, self._transform = plan, plan.transform
        self._evaluator = evaluator
        self._expressions = expressions_of(plan)
        self._readings = tuple(reading(plan.table.columns[at]) for at in plan.transform.inputs)
        self._slots = tuple(slots)

    def computed(
        self, rows: Sequence[Literals], place: Callable[[int], object], key: Callable[[int], str]
    ) -> ComputedRows:
        """The computed columns of each decoded row. ``place``, ``key``: of a row, for messages. Raises TRANSFORM_FAILED
        and the errors of :class:`Evaluate`."""
        expressions = self._expressions
        if expressions is None:
            return [()] * len(rows)
        found: list[Literals | None] = []
        try:
            for start, piece in _pieces(rows, self._slots):
                found += self._answered(expressions, start, piece)
        except _NoResult as why:
            raise errors.replicate.TRANSFORM_FAILED(
                source=self._plan.source,
                rule=self._transform.rule,
                schema=self._plan.table.schema,
                table=self._plan.table.name,
                key=key(why.row),
                position=place(why.row),
                reason=why.reason,
            ) from why
        return found

    def _answered(self, expressions: Expressions, start: int, rows: Sequence[Literals]) -> list[Literals | None]:
        """``start``: the number of the first row. Raises :class:`_NoResult`."""
        answer = self._evaluator(
            relay_pb2.EvaluateRequest(rows=self._as_arrow(expressions, start, rows), expressions=expressions.identifier)
        )
        if answer.refused:
            if len(rows) == 1:
                raise _NoResult(start, answer.refused)
            # Find the row by bisection.
            half = len(rows) // 2
            self._answered(expressions, start, rows[:half])
            self._answered(expressions, start + half, rows[half:])
            raise _NoResult(start, answer.refused)  # each half alone has a result
        return _of_arrow(expressions, start, len(rows), answer.rows)

    def _as_arrow(self, expressions: Expressions, start: int, rows: Sequence[Literals]) -> bytes:
        schema = expressions.schema
        columns: list[pa.Array] = [pa.array(range(len(rows)), schema.field(0).type)]
        for at_field, (read, slot) in enumerate(zip(self._readings, self._slots, strict=True), start=1):
            values: list[Value] = []
            for at, row in enumerate(rows):
                try:
                    values.append(read(row[slot]))
                except BadValue as reason:
                    raise _NoResult(start + at, str(reason)) from reason
            columns.append(pa.array(values, schema.field(at_field).type))
        return as_stream(pa.Table.from_arrays(columns, schema=schema))


def _of_arrow(expressions: Expressions, start: int, count: int, answer: bytes) -> list[Literals | None]:
    """``start``: the number of the first row. Raises :class:`_NoResult`."""
    table = ipc.open_stream(answer).read_all()
    columns = table.columns
    passing = columns.pop(0).to_pylist() if expressions.filter else [True] * count
    if not table.num_rows == len(passing) == count or len(columns) != len(expressions.items):
        raise AssertionError("values of an evaluation are missing")
    literals = zip(*(_literals(start, column) for column in columns), strict=True) if columns else [()] * count
    return [row if passes else None for passes, row in zip(passing, literals, strict=True)]


def as_stream(table: pa.Table) -> bytes:
    """The table in Arrow's IPC streaming format."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _literals(start: int, column: pa.ChunkedArray) -> list[bytes]:
    """``start``: the number of the first row. Raises :class:`_NoResult`."""
    try:
        return [literal_of(value) for value in column.to_pylist()]
    except (BadValue, ValueError, OverflowError):
        # Find the row. Not only the literals can fail: Python has no dates beyond the year 9999.
        for at in range(len(column)):
            try:
                literal_of(column[at].as_py())
            except (BadValue, ValueError, OverflowError) as reason:
                raise _NoResult(start + at, str(reason)) from reason
        raise


def _pieces(rows: Sequence[Literals], slots: Sequence[int]) -> Iterator[tuple[int, Sequence[Literals]]]:
    """Yields (number of the first row, rows)."""
    for start in range(0, len(rows), _ROWS):
        yield from _of_size(start, rows[start : start + _ROWS], slots)


def _of_size(start: int, rows: Sequence[Literals], slots: Sequence[int]) -> Iterator[tuple[int, Sequence[Literals]]]:
    """Split the rows in halves until each part is small enough or one row."""
    size = sum(sum([len(row[slot]) for row in rows]) for slot in slots)
    if size <= _BYTES or len(rows) == 1:
        yield start, rows
        return
    half = len(rows) // 2
    yield from _of_size(start, rows[:half], slots)
    yield from _of_size(start + half, rows[half:], slots)


def no_transforms(request: relay_pb2.EvaluateRequest) -> relay_pb2.EvaluateResponse:
    """For stages whose plans have no transforms."""
    raise errors.worker.INTERNAL(kind="evaluation", where="row stage", reason="the stage has no evaluator")


def failed_to_answer(error: Exception) -> ShardmergeError:
    """A coded error for a JVM that does not answer; the expressions are not the cause. The result names only the class
    of ``error``, because its message may contain parts of rows or settings."""
    return errors.worker.SPARK_LOST(reason=f"{type(error).__name__} while a transform was evaluated")

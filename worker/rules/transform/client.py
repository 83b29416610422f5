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
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.core.uncomputed import Inputs
from shardmerge.worker.rules.transform.columns import InputColumn, NoValue, literals_of
from shardmerge.worker.rules.transform.expressions import Expressions, expressions_of

_ROWS = 8192
_BYTES = 4 << 20
"""Limits of one request: well below the limits of a Spark plan and of a gRPC message."""
_ANSWER_SECONDS = 300.0
_UNARY_BYTES = 6 << 20
"""Largest size of rows for one Evaluate request, which may have 8 MiB. Larger rows use EvaluateLarge."""
_PIECE_BYTES = 2 << 20
"""Size of the rows in one request of EvaluateLarge."""


@dataclass(frozen=True, slots=True)
class TransformResult:
    """``passing``: whether each row passes the transform's filter, None if it has none. ``columns``: for each computed
    column the literals of all rows; those of a row that does not pass have no meaning."""

    passing: list[bool] | None
    columns: list[list[bytes]]


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


class ComputesRows(Protocol):
    """The transform of one table."""

    def computed(
        self, rows: Sequence[Inputs], place: Callable[[int], object], key: Callable[[int], str]
    ) -> TransformResult:
        """The computed columns of rows. ``place``, ``key``: of a row, for messages. Raises coded errors."""
        ...


class Transformer:
    """The transform of one table, computed by the worker's evaluator."""

    def __init__(self, plan: TablePlan, evaluator: Evaluate) -> None:
        assert plan.transform is not None  # noqa: S101 - for the type checker: only such plans come here
        self._plan, self._transform = plan, plan.transform
        self._evaluator = evaluator
        self._expressions = expressions_of(plan)
        self._inputs = tuple(InputColumn(plan.table.columns[at]) for at in plan.transform.inputs)

    def computed(
        self, rows: Sequence[Inputs], place: Callable[[int], object], key: Callable[[int], str]
    ) -> TransformResult:
        """The computed columns of rows. ``place``, ``key``: of a row, for messages. Raises TRANSFORM_FAILED and the
        errors of :class:`Evaluate`."""
        expressions = self._expressions
        if expressions is None:
            return TransformResult(None, [])
        passing: list[bool] = []
        columns: list[list[bytes]] = [[] for _ in expressions.items]
        for start, piece in pieces(rows):
            try:
                found = self._answered(expressions, self._table(expressions, piece))
            except NoValue as why:
                row = start + why.row
                raise errors.replicate.TRANSFORM_FAILED(
                    source=self._plan.source,
                    rule=self._transform.rule,
                    schema=self._plan.table.schema,
                    table=self._plan.table.name,
                    key=key(row),
                    position=place(row),
                    reason=why,
                ) from why
            passing.extend(found.passing or [])
            for column, values in zip(columns, found.columns, strict=True):
                column.extend(values)
        return TransformResult(passing if expressions.filter else None, columns)

    def _table(self, expressions: Expressions, rows: Sequence[Inputs]) -> pa.Table:
        """Raises :class:`NoValue`."""
        columns = [column.array([row[at] for row in rows]) for at, column in enumerate(self._inputs)]
        return pa.Table.from_arrays([_numbers(expressions, len(rows)), *columns], schema=expressions.schema)

    def _answered(self, expressions: Expressions, table: pa.Table) -> TransformResult:
        """Raises :class:`NoValue`."""
        answer = self._evaluator(relay_pb2.EvaluateRequest(rows=as_stream(table), expressions=expressions.identifier))
        if not answer.refused:
            return _computed(expressions, table.num_rows, answer.rows)
        if table.num_rows == 1:
            raise NoValue(0, answer.refused)
        # Find the row by bisection.
        half = table.num_rows // 2
        self._answered(expressions, _part(expressions, table, 0, half))
        try:
            self._answered(expressions, _part(expressions, table, half, table.num_rows))
        except NoValue as why:
            raise NoValue(half + why.row, str(why)) from why
        raise NoValue(0, answer.refused)  # each half alone has a result


def _numbers(expressions: Expressions, count: int) -> pa.Array:
    """The column that numbers the rows of a request."""
    return pa.array(range(count), expressions.schema.field(0).type)


def _part(expressions: Expressions, table: pa.Table, start: int, stop: int) -> pa.Table:
    part = table.slice(start, stop - start)
    return part.set_column(0, expressions.schema.field(0), _numbers(expressions, part.num_rows))


def _computed(expressions: Expressions, count: int, answer: bytes) -> TransformResult:
    """Raises :class:`NoValue`."""
    table = ipc.open_stream(answer).read_all()
    columns = table.columns
    passing: list[bool] | None = columns.pop(0).to_pylist() if expressions.filter else None
    if table.num_rows != count or len(columns) != len(expressions.items):
        raise AssertionError("values of an evaluation are missing")
    return TransformResult(passing, [literals_of(column) for column in columns])


def as_stream(table: pa.Table) -> bytes:
    """The table in Arrow's IPC streaming format."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def pieces(rows: Sequence[Inputs]) -> Iterator[tuple[int, Sequence[Inputs]]]:
    """Split rows into requests of a limited size: yields (number of the first row, rows)."""
    for start in range(0, len(rows), _ROWS):
        yield from _of_size(start, rows[start : start + _ROWS])


def _of_size(start: int, rows: Sequence[Inputs]) -> Iterator[tuple[int, Sequence[Inputs]]]:
    """Split the rows in halves until each part is small enough or one row."""
    size = sum([len(text) for row in rows for text in row if text is not None])
    if size <= _BYTES or len(rows) == 1:
        yield start, rows
        return
    half = len(rows) // 2
    yield from _of_size(start, rows[:half])
    yield from _of_size(start + half, rows[half:])


def no_transforms(request: relay_pb2.EvaluateRequest) -> relay_pb2.EvaluateResponse:
    """For stages whose plans have no transforms."""
    raise errors.worker.INTERNAL(kind="evaluation", where="row stage", reason="the stage has no evaluator")


def failed_to_answer(error: Exception) -> ShardmergeError:
    """A coded error for a JVM that does not answer; the expressions are not the cause. The result names only the class
    of ``error``, because its message may contain parts of rows or settings."""
    return errors.worker.SPARK_LOST(reason=f"{type(error).__name__} while a transform was evaluated")

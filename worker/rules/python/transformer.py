"""Computes rows with a user's function, in the process that reads them: a lane or a chunk reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.table_plan import PythonFunction, TablePlan
from shardmerge.worker.core.uncomputed import Inputs
from shardmerge.worker.rules.python.functions import BatchFunction, Unusable, load
from shardmerge.worker.rules.python.results import BadResult, Outputs, checked
from shardmerge.worker.rules.transform.client import TransformResult, pieces
from shardmerge.worker.rules.transform.columns import InputColumn, NoValue
from shardmerge.worker.rules.transform.values import arrow_type


class CallFailed(Exception):
    """``row``: the first row of the batch for which the call fails. The text has no part of a row. ``raised``: the
    function itself has raised an exception; the text is the exception's type."""

    def __init__(self, row: int, reason: str, *, raised: bool) -> None:
        super().__init__(reason)
        self.row = row
        self.raised = raised


def call(function: BatchFunction, batch: pa.RecordBatch, outputs: Outputs) -> TransformResult:
    """The checked result of one call. Raises :class:`CallFailed` for row 0."""
    try:
        returned = function(batch)
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        raise CallFailed(0, type(error).__name__, raised=True) from error
    try:
        return TransformResult(*checked(returned, batch.num_rows, outputs))
    except BadResult as reason:
        raise CallFailed(0, str(reason), raised=False) from reason


def call_by_halves(function: BatchFunction, batch: pa.RecordBatch, outputs: Outputs) -> TransformResult:
    """Like :func:`call`, but the error names the first row for which the call fails alone, if there is one."""
    try:
        return call(function, batch, outputs)
    except CallFailed:
        if batch.num_rows <= 1:
            raise
        half = batch.num_rows // 2
        call_by_halves(function, batch.slice(0, half), outputs)
        try:
            call_by_halves(function, batch.slice(half), outputs)
        except CallFailed as later:
            raise CallFailed(half + later.row, str(later), raised=later.raised) from later
        raise  # each half alone has a result


class PythonTransformer:
    """The transform of one table. ``function``: of its plan."""

    def __init__(self, plan: TablePlan, function: PythonFunction) -> None:
        assert plan.transform is not None  # noqa: S101 - for the type checker: only such plans come here
        self._plan, self._transform, self._function = plan, plan.transform, function
        self._loaded: BatchFunction | None = None
        columns = [plan.table.columns[at] for at in plan.transform.inputs]
        self._inputs = tuple(InputColumn(column) for column in columns)
        self._schema = pa.schema([pa.field(column.name, arrow_type(column), column.nullable) for column in columns])
        computed = tuple(column.column for column in plan.columns if column.is_computed)
        self._outputs = Outputs(computed, function.has_filter)

    def computed(
        self, rows: Sequence[Inputs], place: Callable[[int], object], key: Callable[[int], str]
    ) -> TransformResult:
        """The computed columns of rows. ``place``: of a row, for messages; ``key`` is not used: messages about a
        function name no part of a row. Raises FUNCTION_UNUSABLE, FUNCTION_RAISED, FUNCTION_RESULT."""
        if self._loaded is None:
            try:
                self._loaded = load(self._function)
            except Unusable as reason:
                raise errors.replicate.FUNCTION_UNUSABLE(**self._names(), reason=reason) from reason
        passing: list[bool] = []
        columns: list[list[bytes]] = [[] for _ in self._outputs.columns]
        for start, piece in pieces(rows):
            batch = self._batch(piece, lambda row, start=start: place(start + row))
            try:
                found = call_by_halves(self._loaded, batch, self._outputs)
            except CallFailed as why:
                raise self._failed(why, place(start + why.row)) from why
            passing.extend(found.passing or [])
            for column, values in zip(columns, found.columns, strict=True):
                column.extend(values)
        return TransformResult(passing if self._outputs.has_filter else None, columns)

    def _batch(self, rows: Sequence[Inputs], place: Callable[[int], object]) -> pa.RecordBatch:
        arrays: list[pa.Array] = []
        for at, column in enumerate(self._inputs):
            try:
                arrays.append(column.array([row[at] for row in rows]))
            except NoValue as why:
                field = self._schema.field(at)
                reason = f"column {field.name} has a value that {field.type} does not have"
                raise errors.replicate.FUNCTION_RESULT(**self._names(), position=place(why.row), reason=reason) from why
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _failed(self, why: CallFailed, position: object) -> ShardmergeError:
        if why.raised:
            return errors.replicate.FUNCTION_RAISED(**self._names(), position=position, exception=why)
        return errors.replicate.FUNCTION_RESULT(**self._names(), position=position, reason=why)

    def _names(self) -> dict[str, object]:
        table = self._plan.table
        return {
            "source": self._plan.source,
            "rule": self._transform.rule,
            "schema": table.schema,
            "table": table.name,
            "function": self._function,
        }

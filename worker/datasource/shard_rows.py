"""Reads the pieces of a partition in a Spark task: SELECT, then the changes since the position are undone."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shardmerge.proto import failpoints
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.process.periodic import Backoff
from shardmerge.worker.core.mysql.connection import Endpoint, Side, coded_errors
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.table_plan import ColumnPlan
from shardmerge.worker.datasource.arrow_library import pa
from shardmerge.worker.datasource.plan.read_plan import ReadOptions, ReadPlan, ReadTable, SourcePlan
from shardmerge.worker.datasource.plan.where import condition_of, is_met
from shardmerge.worker.datasource.values.arrow_values import ValueReader, array_of
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.source.chunk_source import ChunkSource, chunk_select
from shardmerge.worker.snapshot.source.raw_query import column_batches

if TYPE_CHECKING:
    from shardmerge.worker.datasource.state.undo import Undo
    from shardmerge.worker.datasource.state.undone_rows import TableUndo, Texts

_ATTEMPTS = 4
_BACKOFF = Backoff(0.4)
_BATCH_BYTES = 32 << 20
_KEPT_LINKS = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk of a table. ``source``, ``table``: their numbers in the plan."""

    source: int
    table: int
    chunk: Chunk


class _Link:
    """One process's connection to a source, and the rows that changed there since the position."""

    def __init__(self, plan: ReadPlan, source: SourcePlan) -> None:
        self._plan, self._source_plan = plan, source
        self._endpoint = source.source.connection()
        self.source = ChunkSource(self._endpoint, source.source.source)
        self._undo: Undo | None = None
        self._tables: dict[int, TableUndo] = {}

    def close(self) -> None:
        self.source.close()

    def rows(self, table: ReadTable, chunk: Chunk, condition: bytes) -> list[Texts]:
        """The rows of a chunk at the position. Raises the errors of the source and of proto/errors/read.py."""
        statement = chunk_select(table.plan, chunk, condition)
        try:
            session, _ = self.source.opened()
            with coded_errors(self._endpoint, Side.SOURCE, self._source_plan.source.source):
                cut = list(column_batches(session, statement, _BATCH_BYTES))
        except ShardmergeError:
            self.source.close()
            check_statements(self._source_plan, self._plan.options, self._endpoint)
            raise
        failpoints.hit("datasource.after_select")
        batches = [[array_of(column) for column in columns] for columns in cut]
        return self._at_position(table, chunk, batches, self.source.end())

    def _at_position(self, table: ReadTable, chunk: Chunk, batches: list[Texts], end: SourcePosition) -> list[Texts]:
        """``batches`` with the changes up to ``end`` undone."""
        position = self._source_plan.position
        if end.same_server(position) and end.file_order() == position.file_order():
            return batches
        # Imported here: a process that reads a quiet source needs none of the binlog's modules.
        from shardmerge.worker.datasource.state.undo import Undo
        from shardmerge.worker.datasource.state.undone_rows import TableUndo

        if self._undo is None:
            self._undo = Undo(self._source_plan, self._plan.options, self._endpoint)
        number = table.plan.shard
        before = self._undo.before(number, end)
        if not before:
            return batches
        undo = self._tables.setdefault(number, TableUndo(table.plan, before))
        return undo.undone(batches, chunk, self.source.in_chunk)


@dataclass(slots=True)
class _Links:
    """The links of this process, the last used ones: Spark's Python processes serve many tasks."""

    held: OrderedDict[tuple[str, int], _Link] = field(default_factory=OrderedDict[tuple[str, int], _Link])

    def of(self, plan: ReadPlan, number: int) -> _Link:
        key = (plan.number, number)
        link = self.held.pop(key, None)
        if link is None:
            link = _Link(plan, plan.sources[number])
        self.held[key] = link
        while len(self.held) > _KEPT_LINKS:
            self.held.popitem(last=False)[1].close()
        return link

    def drop(self, plan: ReadPlan, number: int) -> None:
        link = self.held.pop((plan.number, number), None)
        if link is not None:
            link.close()


_LINKS = _Links()


def check_statements(source: SourcePlan, options: ReadOptions, endpoint: Endpoint) -> None:
    """After an error of a source: raise ``read.STATEMENT`` if a statement on the tables may be the cause."""
    from shardmerge.worker.datasource.state.undo import Undo

    reader = ChunkSource(endpoint, source.source.source)
    try:
        Undo(source, options, endpoint).before(0, reader.end())
    finally:
        reader.close()


def read_piece(plan: ReadPlan, piece: Piece, schema: Any) -> Iterator[Any]:
    """The rows of a piece at the position, as record batches of Arrow's ``schema``; retryable errors are retried."""
    table = plan.sources[piece.source].tables[piece.table]
    columns = [value.column for value in table.values]
    condition = condition_of(plan.options.where, columns)
    for texts in _rows(plan, piece, table, condition):
        count = len(texts[0])
        if count:
            arrays = _arrays(plan, piece, table, texts, schema)
            yield _met(plan, columns, pa.RecordBatch.from_arrays(arrays, schema=schema))


def _met(plan: ReadPlan, columns: Sequence[ColumnPlan], batch: Any) -> Any:
    """The rows of a batch that meet the option ``where``."""
    places = {column.target_name.lower(): number for number, column in enumerate(columns)}
    for each in plan.options.where:
        place = places[each.column.lower()]
        batch = batch.filter(is_met(each, columns[place], batch.column(place)))
    return batch


def _rows(plan: ReadPlan, piece: Piece, table: ReadTable, condition: bytes) -> list[Texts]:
    attempt = 0
    while True:
        try:
            return _LINKS.of(plan, piece.source).rows(table, piece.chunk, condition)
        except ShardmergeError as error:
            # Its connections may be in the middle of an answer, and its binlog is read to an unknown place.
            _LINKS.drop(plan, piece.source)
            attempt += 1
            if not error.spec.retryable or attempt == _ATTEMPTS:
                raise
            from shardmerge.proto.log import get_logger

            log = get_logger()
            log.warning("chunk is read again", table=table.plan.table.full_name, error=str(error))
        time.sleep(_BACKOFF.seconds(attempt))


def _arrays(plan: ReadPlan, piece: Piece, table: ReadTable, texts: Texts, schema: Any) -> list[Any]:
    source = plan.sources[piece.source].source.source
    made: list[Any] = []
    for number, value in enumerate(table.values):
        reader = ValueReader(source, table.plan.table, value, schema.field(number).type, plan.options.zero_is_null)
        made.append(reader.constant(len(texts[0])) if value.slot < 0 else reader.read(texts[value.slot]))
    return made

"""What Spark's tasks read of a batch, and how: a part of the binlog of one source, or chunks of its tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import Backoff
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.binlog.events import FormatDescription
from shardmerge.worker.core import inflation
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.datasource.group_reader import Described, EventBlock, GroupReader, Stated, gone
from shardmerge.worker.datasource.plan.read_plan import ReadOptions, ReadPlan, ReadSource
from shardmerge.worker.datasource.shard_rows import Piece, read_piece
from shardmerge.worker.datasource.stream.binlog.transactions import Transaction, transactions_of
from shardmerge.worker.datasource.stream.model.ddl import ChangesTables, meaning_of, shown, wanted_by
from shardmerge.worker.datasource.stream.model.offset import StreamTable, TableName
from shardmerge.worker.datasource.stream.rows.change_batches import RowMaker
from shardmerge.worker.datasource.stream.tables.plans import StreamPlans

_ATTEMPTS = 6
_BACKOFF = Backoff(0.4)


class ChangesPart(InputPartition):
    """The groups between two positions. ``tables``: by which their rows are decoded. ``before``: the tables before the
    statement that the part has; None: it has none."""

    def __init__(
        self,
        source: ReadSource,
        options: ReadOptions,
        begin: SourcePosition,
        end: SourcePosition,
        made: int,
        tables: Mapping[TableName, StreamTable],
        before: Mapping[TableName, StreamTable] | None,
    ) -> None:
        super().__init__(None)
        self.source, self.options = source, options
        self.begin, self.end, self.made = begin, end, made
        self.tables, self.before = tables, before

    def __repr__(self) -> str:
        return f"ChangesPart({self.source.source}, {self.begin} to {self.end})"


class HistoryPart(InputPartition):
    """Chunks of tables at the position of a snapshot. ``tables``: of the source that the pieces have."""

    def __init__(self, plan: ReadPlan, pieces: tuple[Piece, ...], tables: Mapping[TableName, StreamTable]) -> None:
        super().__init__(None)
        self.plan, self.pieces, self.tables = plan, pieces, tables

    def __repr__(self) -> str:
        return f"HistoryPart({len(self.pieces)} chunks)"


def read_changes(part: ChangesPart, schema: StructType, arrow_schema: Any) -> Iterator[Any]:
    """The changes of a part as record batches. After a retryable error it goes on at the last whole block, but not
    inside a transaction of which rows were returned: then Spark repeats the task, or the batch."""
    place, made, attempt = part.begin, part.made, 0
    while True:
        reading = _Reading(part, schema, arrow_schema, place, made)
        try:
            yield from reading.batches()
        except ShardmergeError as error:
            attempt = 1 if reading.place != place else attempt + 1
            if not error.spec.retryable or attempt == _ATTEMPTS or reading.is_torn:
                raise
            get_logger().warning("changes are read again", source=part.source.source, error=str(error))
            place, made = reading.place, reading.made
        else:
            return
        time.sleep(_BACKOFF.seconds(attempt))


@dataclass(slots=True)
class _Reading:
    """One connection's reading. ``place``: the end of the last group whose rows were all returned. ``is_torn``: rows of
    the next group were returned, but not all."""

    part: ChangesPart
    schema: StructType
    arrow_schema: Any
    place: SourcePosition
    made: int
    is_torn: bool = field(init=False, default=False)
    _maker: RowMaker = field(init=False)
    _decoder: BlockDecoder = field(init=False)
    _checksum: bool = field(init=False, default=False)
    _carried: Transaction = field(init=False)
    _counted: int = field(init=False, default=0)
    _stated: Stated | None = field(init=False, default=None)
    _shift: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        part = self.part
        plans = StreamPlans(part.source, part.options, self.schema, part.tables, self.place)
        inflation.use(self.part.options.most_inflated)
        self._maker = RowMaker(plans, self.arrow_schema)
        self._decoder = BlockDecoder(plans.resolve, source=part.source.source)
        self._carried = Transaction(0, self.place.pos, "", 0)

    def batches(self) -> Iterator[Any]:
        source = self.part.source
        reader = GroupReader(source.source, source.connection(), self.place, self.made)
        try:
            for item in reader.items(end=self.part.end):
                match item:
                    case Described(event):
                        self._decoder.open(event)
                        self._checksum = FormatDescription.parse(event, source.source).checksum
                    case Stated():
                        self._note(item)
                    case EventBlock():
                        self.is_torn = True
                        yield from self._of_block(item)
                        self.is_torn = item.end is None
                        if item.end is not None:
                            self.place, self.made = item.end, reader.made
        except ShardmergeError as error:
            if error.spec is errors.relay.DUMP_ENDED:
                raise gone(source.source, self.place, f"the source's binlog ends before {self.part.end}") from error
            if error.spec is errors.decode.PREPARED_ROWS:
                reason = f"it has rows of the tables ({error.message})"
                raise errors.read.STREAM_XA(source=source.source, position=self.place, reason=reason) from error
            raise

    def _note(self, stated: Stated) -> None:
        """Remember the statement of the part; others do not concern the stream."""
        part = self.part
        known = part.tables if part.before is None else part.before
        wanted = wanted_by(part.source, part.options.target)
        meaning = meaning_of(stated.statement, wanted, known)
        if meaning is None:
            return
        if part.before is None or not isinstance(meaning, ChangesTables):
            raise errors.read.STREAM_STATEMENT(
                source=part.source.source, position=stated.statement.position, statement=shown(stated.statement)
            )
        self._stated = stated

    def _of_block(self, block: EventBlock) -> Iterator[Any]:
        source = self.part.source.source
        changes = self._decoder.decode(block.events)
        begun = transactions_of(block.events, block.begin, self._checksum, source)
        transactions = [self._carried, *begun]
        if self._stated is not None:
            yield self._statement(self._stated, transactions[-1], block.begin.file)
            self._stated = None
        if changes:
            yield self._maker.changes(changes, transactions, block.begin.file, self._counted, self._shift)
        if block.end is None:
            since = transactions[-1].at if begun else 0
            own = sum(change.byte >= since for change in changes)
            self._counted = own if begun else self._counted + own
            self._carried = transactions[-1]._replace(at=0)
        else:
            self._counted = 0

    def _statement(self, stated: Stated, transaction: Transaction, file: str) -> Any:
        before = self.part.before or {}
        after = self.part.tables
        changed: list[tuple[TableName, int]] = [
            (name, table.version) for name, table in sorted(after.items()) if table != before.get(name)
        ]
        self._shift = len(changed)
        return self._maker.statement(changed, stated.statement.text, file, transaction)


def read_history(part: HistoryPart, schema: StructType, arrow_schema: Any) -> Iterator[Any]:
    """The rows of a part's chunks at the position of the snapshot."""
    image = arrow_schema.field("after").type
    columns = _fields_schema(image)
    for piece in part.pieces:
        source = part.plan.sources[piece.source]
        table = source.tables[piece.table].plan.table
        name = (table.schema, table.name)
        plans = StreamPlans(source.source, part.plan.options, schema, part.tables, source.position)
        maker = RowMaker(plans, arrow_schema)
        try:
            for rows in read_piece(part.plan, piece, columns):
                yield maker.history(rows, name, part.tables[name].version, source.position)
        except ShardmergeError as error:
            if error.spec in (errors.read.STATEMENT, errors.read.XA, errors.read.BINLOG_GONE):
                raise errors.read.STREAM_SNAPSHOT(
                    source=source.source.source, position=source.position, reason=error.message
                ) from error
            raise


def _fields_schema(image: Any) -> Any:
    from shardmerge.worker.datasource.arrow_library import pa

    return pa.schema(list(image))

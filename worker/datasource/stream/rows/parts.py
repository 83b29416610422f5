"""What Spark's tasks read of a batch: a part of the binlog of one source, or chunks of its tables. Picklable."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import InputPartition

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.datasource.plan.read_plan import ReadOptions, ReadPlan, ReadSource
from shardmerge.worker.datasource.shard_rows import Piece
from shardmerge.worker.datasource.stream.model.offset import StreamTable, TableName


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

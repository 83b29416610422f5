"""Follows one source in the process of the query: where its next batch ends, and its tables there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pyspark.sql.types import StructType

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import Backoff
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.datasource.group_reader import gone, other_server
from shardmerge.worker.datasource.plan.read_plan import ReadSource
from shardmerge.worker.datasource.stream.binlog.scan import TableStatement, scan
from shardmerge.worker.datasource.stream.model.batch_end import cuts_of
from shardmerge.worker.datasource.stream.model.ddl import Meaning, meaning_of, shown, wanted_by
from shardmerge.worker.datasource.stream.model.offset import SourceOffset
from shardmerge.worker.datasource.stream.model.options import OnDdl, StreamOptions
from shardmerge.worker.datasource.stream.tables.plans import StreamPlans
from shardmerge.worker.datasource.stream.tables.structures import structures_after
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.snapshot.source.chunk_source import ChunkSource

_ATTEMPTS = 6
_BACKOFF = Backoff(0.4)

T = TypeVar("T")


@dataclass(slots=True)
class SourceFollower:
    """One source of a stream with the columns of ``schema``. Methods raise the errors of proto/errors/read.py, of the
    connection and of the binlog."""

    source: ReadSource
    options: StreamOptions
    schema: StructType
    _reader: ChunkSource | None = field(init=False, default=None)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def end(self, start: SourceOffset) -> SourcePosition:
        """The end of the source's binlog, which is not before ``start``."""
        end = retried(self.source.source, self._end)
        if start.server and end.server != start.server:
            raise other_server(self.source.source, start.position, end.server)
        if end.file_order() < start.position.file_order():
            raise gone(self.source.source, start.position, f"the source's binlog ends at {end}")
        return end

    def _end(self) -> SourcePosition:
        if self._reader is None:
            self._reader = ChunkSource(self.source.connection(), self.source.source)
        try:
            return self._reader.end()
        except ShardmergeError:
            self.close()
            raise

    def next_offset(self, start: SourceOffset, most_bytes: int, until: SourcePosition) -> SourceOffset:
        """The end of the next batch, at ``until`` at most; ``start`` if there is nothing to read yet."""
        if start.position.file_order() >= until.file_order():
            return start
        name = self.source.source
        endpoint = self.source.connection()
        found = retried(
            name,
            lambda: scan(
                name, endpoint, start.position, start.made, start.prepared, self._judge(start), most_bytes, until
            ),
        )
        place = replace(found.end, server=start.server, gtid_set="")
        if found.statement is None or place.file_order() > start.position.file_order():
            cuts = cuts_of(found.size, found.ends, self.options.tasks)
            if place.file_order() == start.position.file_order():
                return start
            return SourceOffset(place, found.made, start.tables, cuts=cuts, prepared=found.prepared)
        return self._after_statement(start, found.statement, found.made, found.prepared)

    def _judge(self, start: SourceOffset) -> Callable[[Statement], Meaning]:
        wanted = wanted_by(self.source, self.options.read.target)
        known = tuple(start.tables)
        return lambda statement: meaning_of(statement, wanted, known)

    def _after_statement(
        self, start: SourceOffset, found: TableStatement, made: int, prepared: tuple[str, ...]
    ) -> SourceOffset:
        """The offset after a statement that follows ``start``."""
        statement = found.stated.statement
        if self.options.on_ddl is OnDdl.STOP:
            raise errors.read.STREAM_DDL(
                source=self.source.source, position=statement.position, statement=shown(statement)
            )
        endpoint = self.source.connection()
        tables = retried(
            self.source.source,
            lambda: structures_after(self.source, endpoint, self.options.read.target, start.tables, found),
        )
        place = replace(found.stated.end, server=start.server, gtid_set="")
        StreamPlans(self.source, self.options.read, self.schema, tables, place).check()
        return SourceOffset(place, made, tables, is_statement=True, prepared=prepared)


def retried(source: str, action: Callable[[], T]) -> T:
    """The result of ``action``, which is repeated after retryable errors."""
    attempt = 0
    while True:
        try:
            return action()
        except ShardmergeError as error:
            attempt += 1
            if not error.spec.retryable or attempt == _ATTEMPTS:
                raise
            get_logger().warning("source is asked again", source=source, error=str(error))
        time.sleep(_BACKOFF.seconds(attempt))

"""Reads chunks from the source in three ways, each of which determines exactly which state was read.

consistent   MariaDB: a consistent snapshot whose position is known; low = high, rows are streamed
watermarks   any server: low watermark, SELECT, high watermark; the caller fixes the rows up
locked       where neither is possible: the shortest possible LOCK TABLES of that one table
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import pymysql

from shardmerge.proto import failpoints
from shardmerge.worker.binlog.rows.row_filter import compile_filters
from shardmerge.worker.binlog.rows.row_literals import RowWriter
from shardmerge.worker.core.mysql.cancellable_session import ANSWER_SECONDS, close_quietly
from shardmerge.worker.core.mysql.connection import (
    Endpoint,
    ServerInfo,
    Session,
    Side,
    coded_errors,
    connect,
    execute,
    quote_name,
    rows,
    server_info,
    text_of,
    to_coded,
)
from shardmerge.worker.core.mysql.information_schema import select_written
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.row_change import JoinedLiterals, Literals
from shardmerge.worker.core.table import Column
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.snapshot.chunks import Bound, Chunk
from shardmerge.worker.snapshot.key_order import (
    bound_columns,
    columns_in_range,
    is_numeric,
    key_bound,
    numeric_places,
    typed_at_or_above,
)
from shardmerge.worker.snapshot.source.raw_query import joined_rows, raw_rows
from shardmerge.worker.snapshot.source.text_rows import RowJoiner
from shardmerge.worker.snapshot.source.watermarks import (
    committed_position,
    end_of_binlog,
    high_watermark,
    low_watermark,
    open_consistent,
)
from shardmerge.worker.snapshot.table_planner import is_versioned, is_whole

if TYPE_CHECKING:
    from shardmerge.worker.rules.stage.row_stage import TableStage

LOCK_WAIT_SECONDS = 5
"""How long a statement waits for another session's lock on the table before it is retried later. Short, because new
writers of the table wait while LOCK TABLES waits, and because a stop waits for the statement."""

_KEYS_PER_QUESTION = 200


def chunk_select(plan: TablePlan, chunk: Chunk, condition: bytes = b"") -> bytes:
    """The SELECT of a chunk: the written columns, in plan order, as ``select_expression`` reads them. ``condition``: of
    the rows, b"" for all."""
    table = plan.table
    columns = select_written(plan.columns).encode()
    name = table.quoted.encode()
    where = columns_in_range(bound_columns(table), chunk.lower, chunk.upper)
    # A range is always read along the key: a full scan per chunk would read the table once per chunk.
    index = b" FORCE INDEX (%s)" % quote_name(table.key_name).encode() if where else b""
    if condition:
        where += (b" AND (%s)" if where else b" WHERE (%s)") % condition
    return b"SELECT %s FROM %s%s%s" % (columns, name, index, where)


def open_source(endpoint: Endpoint, source_id: str) -> Session:
    """A raw session to the source that waits for locks LOCK_WAIT_SECONDS at most. Raises what connect() raises."""
    session = connect(endpoint, Side.SOURCE, name=source_id, raw=True, read_timeout=ANSWER_SECONDS)
    try:
        execute(session, f"SET SESSION lock_wait_timeout = {LOCK_WAIT_SECONDS}")
    except pymysql.MySQLError as error:
        close_quietly(session)
        raise to_coded(error, endpoint, Side.SOURCE, source_id) from error
    return session


@contextmanager
def source_session(endpoint: Endpoint, source_id: str) -> Generator[Session]:
    """A session of :func:`open_source` for the block; server errors of the block are raised as coded errors."""
    session = open_source(endpoint, source_id)
    try:
        with coded_errors(endpoint, Side.SOURCE, source_id):
            yield session
    finally:
        close_quietly(session)


class SourceConnection:
    """A connection to the source, opened when it is needed. Methods raise catalogue errors; then :meth:`close` it."""

    def __init__(self, endpoint: Endpoint, source_id: str) -> None:
        self._endpoint, self._source_id = endpoint, source_id
        self._session: Session | None = None
        self._info: ServerInfo | None = None

    def close(self) -> None:
        session, self._session = self._session, None
        close_quietly(session)

    def opened(self) -> tuple[Session, ServerInfo]:
        """The connection, and the server's description of itself."""
        if self._session is None or self._info is None:
            session = self._session = self._connect()
            with self._coded_errors():
                self._info = server_info(session)
        return self._session, self._info

    def _connect(self) -> Session:
        return open_source(self._endpoint, self._source_id)

    def _coded_errors(self) -> AbstractContextManager[None]:
        return coded_errors(self._endpoint, Side.SOURCE, self._source_id)


class ChunkSource(SourceConnection):
    """One reader's connections to the source."""

    def __init__(self, endpoint: Endpoint, source_id: str) -> None:
        super().__init__(endpoint, source_id)
        self._reports_position: bool | None = None

    def close(self) -> None:
        self._reports_position = None
        super().close()

    @property
    def reports_position(self) -> bool:
        """Whether this server reports the positions by which that of a consistent snapshot is found."""
        if self._reports_position is None:
            session, info = self.opened()
            with self._coded_errors():
                self._reports_position = committed_position(session, info) is not None
        return self._reports_position

    def end(self) -> SourcePosition:
        """The present end of the source's binlog."""
        session, info = self.opened()
        with self._coded_errors():
            return end_of_binlog(session, info)

    @contextmanager
    def exact(
        self,
        plan: TablePlan,
        chunk: Chunk,
        is_unchanged: Callable[[SourcePosition, SourcePosition], bool],
        stage: TableStage | None = None,
    ) -> Generator[tuple[SourcePosition, Iterator[list[JoinedLiterals]]]]:
        """Read a chunk at one exact position: yields the position and, in batches as they arrive, the mapped rows that
        pass the filters.

        ``is_unchanged``: whether the source's changes between two positions leave the table as it is. ``stage``:
        evaluates the filters, unless every filter of the plan can be evaluated here.

        Reads a consistent snapshot if the server reports positions and the engine keeps versions; else under a lock.
        Raises UnknownPosition if the table changes while the snapshot is opened; not for a table that is one chunk.
        """
        if is_versioned(plan.table) and self.reports_position:
            session, info = self.opened()
            with self._coded_errors():
                position = open_consistent(session, info, self._source_id, is_unchanged, always=is_whole(plan))
                yield position, self._joined(session, plan, chunk, stage)
                session.rollback()
            return
        with self._locked(plan, chunk, stage) as found:
            yield found

    @contextmanager
    def _locked(
        self, plan: TablePlan, chunk: Chunk, stage: TableStage | None
    ) -> Generator[tuple[SourcePosition, Iterator[list[JoinedLiterals]]]]:
        """Read under a lock: no transaction that writes the table is in progress, so the state is that of the
        position."""
        session, info = self.opened()
        locker = self._connect()
        try:
            with self._coded_errors():
                with locker.cursor() as cursor:
                    cursor.execute(f"LOCK TABLES {plan.table.quoted} READ")
                if is_versioned(plan.table):
                    with session.cursor() as cursor:
                        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
                    position = end_of_binlog(locker, info)
                    close_quietly(locker)
                    yield position, self._joined(session, plan, chunk, stage)
                    session.rollback()
                else:
                    position = end_of_binlog(locker, info)
                    yield position, self._joined(locker, plan, chunk, stage)
        finally:
            close_quietly(locker)  # also releases the lock

    def _joined(
        self, session: Session, plan: TablePlan, chunk: Chunk, stage: TableStage | None
    ) -> Iterator[list[JoinedLiterals]]:
        if stage is not None:
            # Imported here: the rules' modules take longer to import than all the others of a reader without rules.
            from shardmerge.worker.rules.stage.row_stage import as_decoded

            return stage.joined_history(raw_rows(session, chunk_select(as_decoded(plan), chunk)))
        joiner = RowJoiner(RowWriter(plan, self._source_id).codecs, compile_filters(plan))
        return joined_rows(session, chunk_select(plan, chunk), joiner)

    def _rows(self, session: Session, plan: TablePlan, chunk: Chunk) -> Iterator[list[Literals]]:
        literals = RowWriter(plan, self._source_id).literals
        for batch in raw_rows(session, chunk_select(plan, chunk)):
            yield [literals(values) for values in batch]

    def between_watermarks(
        self, plan: TablePlan, chunk: Chunk
    ) -> tuple[SourcePosition, list[Literals], SourcePosition]:
        """(low watermark, the chunk's mapped rows at some moment after it, high watermark)."""
        session, info = self.opened()
        with self._coded_errors():
            low = low_watermark(session, info, self._source_id)
            failpoints.hit("snapshot.after_low")
            found: list[Literals] = []
            for batch in self._rows(session, plan, chunk):
                found += batch
            failpoints.hit("snapshot.after_select")
            return low, found, high_watermark(session, info)

    def in_chunk(self, plan: TablePlan, chunk: Chunk, keys: Sequence[Literals]) -> list[bool]:
        """For each source key (unmapped literals of all key columns): does it belong to the chunk?"""
        columns = bound_columns(plan.table)
        bounds = [bound for bound in (chunk.lower, chunk.upper) if bound]
        places = self.places(columns, bounds, [key_bound(columns, key) for key in keys])
        wanted = 1 if chunk.lower else 0
        return [place == wanted for place in places]

    def places(self, columns: Sequence[Column], bounds: Sequence[Bound], keys: Sequence[Bound]) -> list[int]:
        """For each key how many of the ascending ``bounds`` are not above it, by the server's order.

        The server compares them, with one statement per step of a binary search over all keys.
        """
        if not bounds or is_numeric(columns):
            return numeric_places(bounds, keys) if bounds else [0] * len(keys)
        session, _ = self.opened()
        found: list[int] = []
        with self._coded_errors():
            for start in range(0, len(keys), _KEYS_PER_QUESTION):
                found += _search(session, columns, bounds, keys[start : start + _KEYS_PER_QUESTION])
        return found


def _search(session: Session, columns: Sequence[Column], bounds: Sequence[Bound], keys: Sequence[Bound]) -> list[int]:
    low = [0] * len(keys)
    high = [len(bounds)] * len(keys)
    while True:
        open_keys = [index for index in range(len(keys)) if low[index] < high[index]]
        if not open_keys:
            return low
        middles = [(low[index] + high[index]) // 2 for index in open_keys]
        asked = b", ".join(
            typed_at_or_above(columns, keys[index], bounds[middle])
            for index, middle in zip(open_keys, middles, strict=True)
        )
        [answers] = rows(session, (b"SELECT " + asked).decode("utf-8", "surrogateescape"))
        for index, middle, answer in zip(open_keys, middles, answers, strict=True):
            if text_of(answer) == "1":
                low[index] = middle + 1
            else:
                high[index] = middle

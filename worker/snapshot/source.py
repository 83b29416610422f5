"""Reading chunks from the source: three ways to know exactly which state was read.

consistent   MariaDB: a consistent snapshot tells its own position; low = high, rows stream through
watermarks   any server: low watermark, SELECT, high watermark; the caller fixes the rows up
locked       no way around it: the shortest possible LOCK TABLES of that one table
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import pymysql
from pymysql.constants import CR

from proto import hooks
from worker.binlog.literal import RowWriter
from worker.connection import (
    Endpoint,
    ServerInfo,
    Session,
    Side,
    coded,
    coding,
    connect,
    execute,
    quote_name,
    rows,
    server_info,
    text_of,
)
from worker.cutoff import ANSWER_SECONDS, let_go
from worker.plan import TablePlan
from worker.position import SourcePosition
from worker.rows import Joined, Literals
from worker.rowstage.drops import row_drops
from worker.rowstage.stage import TableStage, as_decoded
from worker.schema import select_written
from worker.snapshot.chunks import Bound, Chunk
from worker.snapshot.order import (
    bound_columns,
    column_names,
    in_range,
    is_numeric,
    key_bound,
    numeric_places,
    typed_from_on,
)
from worker.snapshot.plan import is_versioned
from worker.snapshot.rawquery import joined_rows, raw_rows
from worker.snapshot.textrows import RowJoiner
from worker.snapshot.watermarks import high_watermark, low_watermark, open_consistent, place_now
from worker.table import Column

LOCK_WAIT_SECONDS = 5
"""How long a statement waits for somebody's lock on the table before it is tried again later. Short: whoever waits
for LOCK TABLES makes new writers of the table wait, too, and a stop waits for the statement."""

_KEYS_PER_QUESTION = 200


def chunk_select(plan: TablePlan, chunk: Chunk) -> bytes:
    """The SELECT of a chunk: the written columns, in plan order, as ``select_expression`` reads them."""
    table = plan.table
    columns = select_written(plan.columns).encode()
    name = f"{quote_name(table.schema)}.{quote_name(table.name)}".encode()
    where = in_range(column_names(bound_columns(table)), chunk.lower, chunk.upper)
    # A range is always read along the key: a full scan per chunk would read the table once per chunk.
    index = b" FORCE INDEX (%s)" % quote_name(table.key_name).encode() if where else b""
    return b"SELECT %s FROM %s%s%s" % (columns, name, index, where)


def open_source(endpoint: Endpoint, source_id: str) -> Session:
    """A raw session to the source that waits for locks LOCK_WAIT_SECONDS at most. Raises what connect() raises."""
    session = connect(endpoint, Side.SOURCE, name=source_id, raw=True, read_timeout=ANSWER_SECONDS)
    try:
        execute(session, f"SET SESSION lock_wait_timeout = {LOCK_WAIT_SECONDS}")
    except pymysql.MySQLError as error:
        let_go(session)
        raise coded(error, endpoint, Side.SOURCE, source_id) from error
    return session


class ChunkSource:
    """One reader's connections to the source. Methods raise catalogue errors; then :meth:`close` it."""

    def __init__(self, endpoint: Endpoint, source_id: str) -> None:
        self._endpoint = endpoint
        self._source_id = source_id
        self._session: Session | None = None
        self._info: ServerInfo | None = None
        self._tells_position: bool | None = None

    def close(self) -> None:
        session, self._session = self._session, None
        self._tells_position = None
        let_go(session)

    def _opened(self) -> tuple[Session, ServerInfo]:
        if self._session is None or self._info is None:
            session = self._session = self._connect()
            with self._coding():
                self._info = server_info(session)
        return self._session, self._info

    def _connect(self) -> Session:
        return open_source(self._endpoint, self._source_id)

    def _coding(self) -> AbstractContextManager[None]:
        return coding(self._endpoint, Side.SOURCE, self._source_id)

    @property
    def tells_position(self) -> bool:
        """Whether a consistent snapshot of this server tells its own position."""
        if self._tells_position is None:
            session, _ = self._opened()
            with self._coding():
                self._tells_position = open_consistent(session) is not None
                session.rollback()
        return self._tells_position

    @contextmanager
    def exact(
        self, plan: TablePlan, chunk: Chunk, stage: TableStage | None = None
    ) -> Generator[tuple[SourcePosition, Iterator[list[Joined]]]]:
        """A chunk at one exact position: that, and its rows, mapped, that filters let pass, in batches as they arrive.

        ``stage``: by which they pass, if not every filter of the plan is evaluated here.

        By consistent snapshot where the server tells the position and the engine keeps versions, else locked.
        """
        if is_versioned(plan.table) and self.tells_position:
            session, info = self._opened()
            with self._coding():
                position = open_consistent(session)
                if position is None:  # it told before: a fail-over to another kind of server
                    raise pymysql.OperationalError(CR.CR_SERVER_LOST, "the server no longer tells binlog_snapshot_*")
                yield replace(position, server=info.identity), self._joined(session, plan, chunk, stage)
                session.rollback()
            return
        with self._locked(plan, chunk, stage) as found:
            yield found

    @contextmanager
    def _locked(
        self, plan: TablePlan, chunk: Chunk, stage: TableStage | None
    ) -> Generator[tuple[SourcePosition, Iterator[list[Joined]]]]:
        """While the lock is held no writer of the table is under way: what it shows is the state at that position."""
        session, info = self._opened()
        locker = self._connect()
        try:
            with self._coding():
                name = f"{quote_name(plan.table.schema)}.{quote_name(plan.table.name)}"
                with locker.cursor() as cursor:
                    cursor.execute(f"LOCK TABLES {name} READ")
                if is_versioned(plan.table):
                    with session.cursor() as cursor:
                        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
                    position = place_now(locker, info)
                    let_go(locker)
                    yield position, self._joined(session, plan, chunk, stage)
                    session.rollback()
                else:
                    position = place_now(locker, info)
                    yield position, self._joined(locker, plan, chunk, stage)
        finally:
            let_go(locker)  # ends the lock, too

    def _joined(
        self, session: Session, plan: TablePlan, chunk: Chunk, stage: TableStage | None
    ) -> Iterator[list[Joined]]:
        if stage is not None:
            found = self._rows(session, as_decoded(plan), chunk)
            return ([b",".join(row) for row in stage.history(batch)] for batch in found)
        joiner = RowJoiner(RowWriter(plan, self._source_id).codecs, row_drops(plan))
        return joined_rows(session, chunk_select(plan, chunk), joiner)

    def _rows(self, session: Session, plan: TablePlan, chunk: Chunk) -> Iterator[list[Literals]]:
        literals = RowWriter(plan, self._source_id).literals
        for batch in raw_rows(session, chunk_select(plan, chunk)):
            yield [literals(values) for values in batch]

    def between_watermarks(
        self, plan: TablePlan, chunk: Chunk
    ) -> tuple[SourcePosition, list[Literals], SourcePosition]:
        """(low watermark, the chunk's mapped rows at some moment after it, high watermark)."""
        session, info = self._opened()
        with self._coding():
            low = low_watermark(session, info, self._source_id)
            hooks.reach("snapshot.after_low")
            found: list[Literals] = []
            for batch in self._rows(session, plan, chunk):
                found += batch
            hooks.reach("snapshot.after_select")
            return low, found, high_watermark(session, info)

    def inside(self, plan: TablePlan, chunk: Chunk, keys: Sequence[Literals]) -> list[bool]:
        """For each source key (unmapped literals of all key columns): does it belong to the chunk?"""
        columns = bound_columns(plan.table)
        bounds = [bound for bound in (chunk.lower, chunk.upper) if bound]
        places = self.places(columns, bounds, [key_bound(columns, key) for key in keys])
        wanted = 1 if chunk.lower else 0
        return [place == wanted for place in places]

    def places(self, columns: Sequence[Column], bounds: Sequence[Bound], keys: Sequence[Bound]) -> list[int]:
        """For each key how many of the ascending ``bounds`` are not above it, by the server's order.

        The server compares, in one statement per step of a binary search over all keys.
        """
        if not bounds or is_numeric(columns):
            return numeric_places(bounds, keys) if bounds else [0] * len(keys)
        session, _ = self._opened()
        found: list[int] = []
        with self._coding():
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
            typed_from_on(columns, keys[index], bounds[middle])
            for index, middle in zip(open_keys, middles, strict=True)
        )
        [answers] = rows(session, (b"SELECT " + asked).decode("utf-8", "surrogateescape"))
        for index, middle, answer in zip(open_keys, middles, answers, strict=True):
            if text_of(answer) == "1":
                low[index] = middle + 1
            else:
                high[index] = middle

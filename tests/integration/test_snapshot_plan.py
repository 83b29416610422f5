"""Tests how tables are cut and read on real servers: each row in one chunk, by index, at a known position."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import closing

import pymysql
import pytest

from shardmerge.worker.binlog.rows.literal_text import literals_of
from shardmerge.worker.core.mysql.connection import Session, Side, connect, rows, server_info, text_of
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.key_order import bound_columns, key_bound
from shardmerge.worker.snapshot.source.chunk_source import ChunkSource, chunk_select
from shardmerge.worker.snapshot.source.raw_query import raw_rows
from shardmerge.worker.snapshot.source.watermarks import UnknownPosition, low_watermark, open_consistent
from shardmerge.worker.snapshot.table_planner import TablePlanner
from tests.integration.snapshot_rig import SOURCE, count_rows, endpoint
from tests.integration.snapshot_tables import TABLES, make_table, make_tables, plan_of, servers, source, target
from tests.support.database import Database

__all__ = ["servers", "source", "target"]


_ONE_CHUNK = frozenset({"empty", "one", "nullable_unique", "hidden_alone"})


@pytest.mark.parametrize("name", TABLES)
def test_every_row_is_in_exactly_one_chunk(source: Database, name: str) -> None:
    make_table(source, name)
    plan = plan_of(source, "shard", "t")
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE, raw=True)
    reader = ChunkSource(endpoint(source), SOURCE)
    try:
        chunks = list(TablePlanner(session, plan, 50).chunks())
        # After a restart in the middle the planner plans the same remaining chunks.
        resumed = [*chunks[:3], *TablePlanner(session, plan, 50).chunks(chunks[2])] if len(chunks) > 3 else chunks
        assert resumed[-1].is_last
        columns = bound_columns(plan.table)
        bounds = [chunk.upper for chunk in chunks[:-1]]
        seen: list[tuple[bytes, ...]] = []
        for chunk in chunks:
            with reader.exact(plan, chunk, lambda low, end: True) as (_, batches):
                found = [literals_of(row) for batch in batches for row in batch]
            assert len(found) <= 101 or not columns, f"chunk {chunk} is too full"
            seen += found
            if len(chunks) > 1:
                keys = [tuple(row[index] for index in plan.key) for row in found]
                places = reader.places(columns, bounds, [key_bound(columns, key) for key in keys])
                assert places == [chunk.number] * len(found), "the server finds the keys' chunk again"
                assert reader.in_chunk(plan, chunk, keys) == [True] * len(keys)
        total = count_rows(source, "shard.t")
        assert len(seen) == total
        assert len(set(seen)) == total
        if name in _ONE_CHUNK:
            assert len(chunks) == 1
        else:
            assert len(chunks) >= 5
    finally:
        session.close()
        reader.close()


def _touched(session: Session) -> int:
    """Return the number of rows that the session's statements have touched so far."""
    with session.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read_%'")
        return sum(int(value) for name, value in cursor.fetchall() if name != b"Handler_read_rnd_deleted")


def test_composite_keys_are_planned_and_read_by_index_range(source: Database) -> None:
    make_table(source, "composite")
    plan = plan_of(source, "shard", "t")
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE, raw=True)
    try:
        chunks = list(TablePlanner(session, plan, 50).chunks())
        planned = _touched(session)
        assert planned < 1300, "planning passes each of the 1000 rows about once"
        for chunk in chunks:
            before = _touched(session)
            rows = sum(len(batch) for batch in raw_rows(session, chunk_select(plan, chunk)))
            assert _touched(session) - before <= rows + 10, "a chunk reads its own rows only"
    finally:
        session.close()


def test_chunk_zero_is_open_below_and_the_last_above(source: Database) -> None:
    make_tables(
        source,
        "CREATE TABLE shard.t (k INT PRIMARY KEY)",
        "INSERT INTO shard.t SELECT seq FROM seq_1_to_500",
        "ANALYZE TABLE shard.t",
    )
    plan = plan_of(source, "shard", "t")
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE, raw=True)
    try:
        chunks = list(TablePlanner(session, plan, 100).chunks())
    finally:
        session.close()
    assert chunks[0] == Chunk(0, (), (b"101",))
    assert chunks[-1] == Chunk(4, (b"401",), ())


# --- watermarks and raw reading


def _open(session: Session, *, unchanged: bool = False, always: bool = False) -> SourcePosition:
    return open_consistent(session, server_info(session), SOURCE, lambda low, end: unchanged, always=always)


def test_a_consistent_snapshot_has_a_known_position(source: Database) -> None:
    make_tables(source, "CREATE TABLE shard.t (k INT PRIMARY KEY)", "INSERT INTO shard.t VALUES (1)")
    if source.flavor == "mysql":
        pytest.skip("MySQL does not report positions of commits")
    file, before = source.binlog_end()
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE, raw=True)
    try:
        position = _open(session)
        source.execute("INSERT INTO shard.t VALUES (2)")
        assert (position.file, position.pos) == (file, before)
        assert [row for batch in raw_rows(session, b"SELECT k FROM shard.t") for row in batch] == [[b"1"]]
    finally:
        session.close()


def test_positions_of_other_sessions_are_not_taken_for_that_of_a_snapshot(source: Database) -> None:
    """MariaDB's SHOW STATUS may return the position of another session's snapshot, or of the last commit. The number
    of rows that a snapshot sees belongs to one position, which is computed here from the binlog's end."""
    make_tables(source, "CREATE TABLE shard.t (k INT PRIMARY KEY AUTO_INCREMENT)")
    if source.flavor == "mysql":
        pytest.skip("MySQL does not report positions of commits")
    stop = threading.Event()
    ends: dict[tuple[str, int], int] = {source.binlog_end(): 0}
    written = threading.Lock()

    def write() -> None:
        writer = source.connect()
        with closing(writer), writer.cursor() as cursor:
            count = 0
            while not stop.wait(0.0005):
                with written:
                    cursor.execute("INSERT INTO shard.t VALUES ()")
                    writer.commit()
                    count += 1
                    ends[source.binlog_end()] = count

    def monitor() -> None:
        other = source.connect()
        with closing(other), other.cursor() as cursor:
            while not stop.is_set():
                cursor.execute("SHOW GLOBAL STATUS LIKE 'Threads_running'")

    threads = [threading.Thread(target=work) for work in (write, monitor, monitor)]
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE, raw=True, read_timeout=60)
    seen: list[tuple[SourcePosition, int]] = []
    unknown, deadline = 0, time.monotonic() + 120
    try:
        for thread in threads:
            thread.start()
        for number in itertools.count():
            # On a busy machine the other sessions may not come in between for a while.
            if number >= 600 and (unknown or time.monotonic() > deadline):
                break
            try:
                position = _open(session, always=number % 20 == 0)
            except UnknownPosition:
                unknown += 1
                continue
            [(count,)] = rows(session, "SELECT COUNT(*) FROM shard.t")
            session.rollback()
            seen.append((position, int(text_of(count))))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        session.close()
    assert len(seen) > 30
    assert [(str(at), count) for at, count in seen if ends[at.file, at.pos] != count] == []
    assert unknown > 0


def test_a_low_watermark_waits_for_no_writer_that_has_not_committed(source: Database) -> None:
    make_tables(source, "CREATE TABLE shard.t (k INT PRIMARY KEY)")
    writer = source.connect()
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE, raw=True, read_timeout=300)
    try:
        writer.begin()
        with writer.cursor() as cursor:
            cursor.execute("INSERT INTO shard.t VALUES (1)")
        file, pos = source.binlog_end()
        position = low_watermark(session, server_info(session), SOURCE)
        assert (position.file, position.pos) == (file, pos)
    finally:
        session.close()
        writer.close()


def test_large_values_nulls_and_late_errors_come_through_raw(source: Database) -> None:
    source.execute("SET GLOBAL max_allowed_packet = 1073741824")
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE, raw=True)
    try:
        statement = b"SELECT REPEAT('x', 17000000), NULL, '' UNION ALL SELECT 'y', 'z', NULL"
        assert [row for batch in raw_rows(session, statement) for row in batch] == [
            [b"x" * 17_000_000, None, b""],
            [b"y", b"z", None],
        ]
        # The connection's protocol is in sync again.
        assert [row for batch in raw_rows(session, b"SELECT 1 WHERE FALSE") for row in batch] == []
        late = "SELECT seq, IF(seq < 90000, 1, (SELECT 1 UNION SELECT seq)) FROM mysql.seq_1_to_100000"
        rows = 0
        with pytest.raises(pymysql.MySQLError) as caught:
            for batch in raw_rows(session, source.spelt(late).encode()):
                rows += len(batch)
        assert caught.value.args[0] == 1242
        assert [row for batch in raw_rows(session, b"SELECT 1") for row in batch] == [[b"1"]]
    finally:
        session.close()
        source.execute("SET GLOBAL max_allowed_packet = DEFAULT")

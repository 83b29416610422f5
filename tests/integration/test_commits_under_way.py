"""Tests that a low watermark waits on MySQL: a transaction in the binlog may not be visible yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql
import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, Side, connect, rows, server_info, text_of
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.snapshot.source import watermarks
from shardmerge.worker.snapshot.source.watermarks import low_watermark
from tests.integration.snapshot_rig import SOURCE, endpoint
from tests.support.database import Database
from tests.support.mysql import MySQL
from tests.support.wait import until

_THREADS = 6
_LOOKS = 20


@pytest.fixture(params=[True, False], ids=["gtid", "no-gtid"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    server = MySQL(tmp_path / "source", 101, ("--sync-binlog=1",), gtid=request.param)
    try:
        server.start().execute(
            "CREATE DATABASE shard", "CREATE TABLE shard.t (k BIGINT PRIMARY KEY AUTO_INCREMENT, v INT)"
        )
        yield server
    finally:
        server.stop()


@pytest.fixture
def session(source: Database) -> Iterator[Session]:
    made = connect(endpoint(source), Side.SOURCE, name=SOURCE, raw=True, read_timeout=60)
    yield made
    made.close()


def _count(session: Session) -> int:
    [(count,)] = rows(session, "SELECT COUNT(*) FROM shard.t")
    return int(count)


def _stall_commits(source: Database, seconds: int) -> None:
    """Let each commit wait so long for a replica, while its transaction is in the binlog already.

    MySQL 8.4 Reference Manual, "Semisynchronous Replication": rpl_semi_sync_source_wait_point AFTER_SYNC.
    """
    source.execute(
        "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
        f"SET GLOBAL rpl_semi_sync_source_timeout = {seconds * 1000}",
        "SET GLOBAL rpl_semi_sync_source_enabled = 1",
    )


@pytest.mark.turns
def test_it_waits_for_a_commit_that_waits_for_a_replica(
    source: Database, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermarks, "_COMMIT_SECONDS", 600.0)
    asked: list[bool] = []
    poll = watermarks._poll  # pyright: ignore[reportPrivateUsage]

    def let_it_commit(condition: Callable[[], bool], position: SourcePosition, name: str) -> None:
        """Allow the commit only after the wait was observed: on a slow machine any fixed time would end before it."""
        if not asked:
            asked.append(condition())
            source.execute("SET GLOBAL rpl_semi_sync_source_enabled = 0")
        poll(condition, position, name)

    monkeypatch.setattr(watermarks, "_poll", let_it_commit)
    _stall_commits(source, 600)
    before = source.binlog_end()
    writer = threading.Thread(target=lambda: source.execute("INSERT INTO shard.t VALUES (1, 1)"))
    writer.start()
    try:
        until(lambda: source.binlog_end() > before, "the row is in the binlog")
        assert _count(session) == 0, "it is not visible yet, or this shows nothing"
        low = low_watermark(session, server_info(session), SOURCE)
        assert (low.file, low.pos) > before
        assert _count(session) == 1
        assert asked == [False]
    finally:
        source.execute("SET GLOBAL rpl_semi_sync_source_enabled = 0")
        writer.join()


def test_it_does_not_wait_for_ever(source: Database, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watermarks, "_COMMIT_SECONDS", 0.5)
    _stall_commits(source, 600)
    before = source.binlog_end()

    def write() -> None:
        with pytest.raises(pymysql.OperationalError):
            source.execute("INSERT INTO shard.t VALUES (1, 1)")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until(lambda: source.binlog_end() > before, "the row is in the binlog")
        with pytest.raises(ShardmergeError) as caught:
            low_watermark(session, server_info(session), SOURCE)
    finally:
        source.kill()
        writer.join()
    assert caught.value.spec is errors.snapshot.COMMITS_PENDING
    assert caught.value.spec.retryable
    assert SOURCE in caught.value.message


def test_under_load_all_that_the_binlog_holds_is_visible(source: Database, session: Session) -> None:
    """Other sessions commit all the time: the wait must end nevertheless."""

    over = threading.Event()
    written: list[int] = []

    def write() -> None:
        connection = source.connect()
        with connection.cursor() as cursor:
            while not over.is_set():
                written.append(cursor.execute("INSERT INTO shard.t (v) VALUES (1)"))
        connection.close()

    start = low_watermark(session, server_info(session), SOURCE)
    writers = [threading.Thread(target=write) for _ in range(_THREADS)]
    for writer in writers:
        writer.start()
    seen: list[tuple[SourcePosition, int]] = []
    try:
        # At least some polls on a fast machine, and some load between them.
        while len(seen) < _LOOKS or len(written) < _LOOKS * _THREADS:
            low = low_watermark(session, server_info(session), SOURCE)
            seen.append((low, _count(session)))
    finally:
        over.set()
        for writer in writers:
            writer.join()
    events = rows(session, f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.pos}")
    ends = [int(event[4]) for event in events if text_of(event[2]) == "Xid"]
    assert len(ends) == len(written)
    for low, visible in seen:
        assert low.file == start.file
        assert visible >= sum(end <= low.pos for end in ends), low

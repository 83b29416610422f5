"""Tests that a busy source, or a replica with lag, is read again only when its load or lag is low enough."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pymysql
import pytest

from shardmerge.proto import errors
from shardmerge.worker.core.mysql.connection import Endpoint, Side, server_info
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.snapshot.dispenser import Dispenser
from shardmerge.worker.snapshot.limits.rate_limiter import ChunkSize, RateLimiter, RateLimits
from shardmerge.worker.snapshot.limits.source_load import LoadLimits
from shardmerge.worker.snapshot.load_monitor import LoadMonitor, read_load
from shardmerge.worker.snapshot.progress import SnapshotProgress
from shardmerge.worker.snapshot.unit import SnapshotUnit
from shardmerge.worker.unit.contract import Finished, Outcome, Stopped
from tests.integration.snapshot_rig import Rig, count_rows, subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database
from tests.support.wait import until
from tests.unit.worker.snapshot.statements import no_statements

__all__ = ["servers", "source", "target"]

ROWS = 900


def make(source: Database) -> None:
    make_tables(
        source,
        "CREATE TABLE t (id INT PRIMARY KEY)",
        f"INSERT INTO t SELECT seq FROM seq_1_to_{ROWS}",
        "ANALYZE TABLE t",
    )


@contextmanager
def running(unit: SnapshotUnit) -> Generator[list[Outcome]]:
    """Run the unit; its outcome is in the list after the block."""
    outcome: list[Outcome] = []
    stop = StopSignal()
    run = threading.Thread(target=lambda: outcome.append(unit.run(stop)))
    run.start()
    try:
        yield outcome
    except BaseException:
        stop.set()
        raise
    finally:
        run.join(300)


@contextmanager
def busy(source: Database, threads: int) -> Generator[None]:
    """Keep so many statements running at the source."""
    connections = [source.connect() for _ in range(threads)]
    numbers = [_number(connection) for connection in connections]

    def sleep(connection: pymysql.Connection) -> None:
        with suppress(pymysql.MySQLError), connection.cursor() as cursor:  # the statement is killed
            cursor.execute("SELECT SLEEP(3000)")

    sleepers = [threading.Thread(target=sleep, args=(connection,)) for connection in connections]
    for sleeper in sleepers:
        sleeper.start()

    def asleep() -> int:
        return sum(thread.statement.startswith("SELECT SLEEP(") for thread in source.threads())

    until(lambda: asleep() == threads, "they run")
    try:
        yield
    finally:
        for number in numbers:
            source.execute(f"KILL {number}")
        for sleeper in sleepers:
            sleeper.join(300)


def _number(connection: pymysql.Connection) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        [(number,)] = cursor.fetchall()
    return int(number)


def test_busy(source: Database, target: Database, tmp_path: Path) -> None:
    make(source)
    config = subtask_config(target, threads=2, chunk_rows=100, max_threads_running=12)
    with Rig(source, target, tmp_path, config) as rig:
        unit = rig.unit()
        with ExitStack() as rest, busy(source, 13):
            outcome = rest.enter_context(running(unit))
            until(lambda: unit.activity().startswith("snapshot.max-threads-running: "), "it is told why")
            assert count_rows(target, "shard.t") == 0
        assert isinstance(outcome[0], Finished)
        assert unit.activity() == ""
    assert count_rows(target, "shard.t") == ROWS


def test_nothing_is_read_before_the_source_was_asked(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def idle(_: LoadMonitor) -> None:
        pass

    monkeypatch.setattr(LoadMonitor, "start", idle)
    make(source)
    with Rig(source, target, tmp_path, subtask_config(target, chunk_rows=100, max_threads_running=9000)) as rig:
        unit, stop, outcome = rig.unit(), StopSignal(), list[Outcome]()
        run = threading.Thread(target=lambda: outcome.append(unit.run(stop)))
        run.start()
        until(lambda: unit.status().plan_complete and "has not been read" in unit.activity(), "chunks wait")
        assert count_rows(target, "shard.t") == 0
        stop.set()
        run.join(300)
    assert outcome == [Stopped()]


STATEMENTS = {
    "mariadb": (
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='root', MASTER_DELAY=3600",
        "START SLAVE",
        "STOP SLAVE",
        "RESET SLAVE ALL",
    ),
    "mysql": (
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, SOURCE_USER='root', "
        "SOURCE_DELAY=3600, GET_SOURCE_PUBLIC_KEY=1",
        "START REPLICA",
        "STOP REPLICA",
        "RESET REPLICA ALL",
    ),
}


def _lag(rig: Rig) -> int:
    """Return the lag in seconds that the source reports; 0: none."""
    with closing(rig.session(Side.SOURCE)) as session:
        load = read_load(session, server_info(session), LoadLimits(replica_lag=1))
    return max((lag for lag in load.replica_lags if lag is not None), default=0)


def test_a_replica_that_lags(source: Database, target: Database, tmp_path: Path) -> None:
    """The source follows the target with a lag of an hour; then its replication stops; then it is no replica any
    more."""
    make(source)
    change, start, halt, reset = STATEMENTS[source.flavor]
    config = subtask_config(target, threads=2, chunk_rows=100, max_replica_lag=1)
    with Rig(source, target, tmp_path, config) as rig:
        unit = rig.unit()
        try:
            target.execute("DROP DATABASE IF EXISTS never_made")
            source.execute(change.format(port=target.port), start)
            # A replica reports no lag at first: the copy would end before there is any.
            until(lambda: _lag(rig) > 1, "the source has a lag")
            with running(unit) as outcome:
                until(lambda: outcome or "the source has a lag of" in unit.activity(), "the unit reports the lag")
                assert not outcome, outcome
                source.execute(halt)
                what = "the unit reports that replication is stopped"
                until(lambda: outcome or "replication is stopped" in unit.activity(), what)
                assert not outcome, outcome
                assert count_rows(target, "shard.t") == 0
                source.execute(reset)
                until(lambda: outcome, "it goes on")
        finally:
            source.execute(halt, reset)
        assert isinstance(outcome[0], Finished)
    assert count_rows(target, "shard.t") == ROWS


def test_limits_that_nothing_speaks_against(source: Database, target: Database, tmp_path: Path) -> None:
    make(source)
    config = subtask_config(target, threads=2, chunk_rows=100, max_threads_running=10_000, max_replica_lag=1)
    with Rig(source, target, tmp_path, config) as rig:
        assert isinstance(rig.run(), Finished)
    assert count_rows(target, "shard.t") == ROWS


def test_a_user_who_may_not_see_it(source: Database) -> None:
    """A limit that cannot be checked fails the snapshot, and the error names the way out."""
    source.execute("DROP USER IF EXISTS 'poor'@'%'", "CREATE USER 'poor'@'%'", "GRANT SELECT ON *.* TO 'poor'@'%'")
    stop = StopSignal()
    dispenser = Dispenser(SnapshotProgress(()), stop, RateLimiter(RateLimits(), ChunkSize(0, 0)), no_statements())
    gauge = LoadMonitor(
        Endpoint(source.host, source.port, "poor"), "s1", LoadLimits(replica_lag=1), dispenser, stop.child()
    )
    gauge.start()
    failure = until(lambda: dispenser.failure, "it fails")
    gauge.end()
    assert failure.spec is errors.snapshot.PRESSURE_UNSEEN
    assert "poor" in failure.message


def test_threads_are_seen_by_everybody(source: Database) -> None:
    source.execute("DROP USER IF EXISTS 'poor'@'%'", "CREATE USER 'poor'@'%'", "GRANT SELECT ON *.* TO 'poor'@'%'")
    stop = StopSignal()
    dispenser = Dispenser(SnapshotProgress(()), stop, RateLimiter(RateLimits(), ChunkSize(0, 0)), no_statements())
    dispenser.throttle("not asked yet")
    gauge = LoadMonitor(
        Endpoint(source.host, source.port, "poor"), "s1", LoadLimits(threads_running=5000), dispenser, stop.child()
    )
    gauge.start()
    until(lambda: not dispenser.is_throttled, "it is asked")
    gauge.end()
    assert dispenser.failure is None

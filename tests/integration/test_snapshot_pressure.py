"""A source that is busy, or lags as a replica, is read on only when it is at ease again."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pymysql
import pytest

from proto import errors
from tests.integration.snapshot_rig import Rig, count_rows, subtask_config
from tests.integration.snapshot_tables import make_tables, servers, source, target
from tests.support.database import Database
from tests.support.wait import until
from worker.connection import Endpoint
from worker.snapshot.dispenser import Dispenser
from worker.snapshot.gauge import Gauge
from worker.snapshot.pace import Amount, Limits, Pace
from worker.snapshot.pressure import Bearable
from worker.snapshot.progress import Progress
from worker.snapshot.unit import SnapshotUnit
from worker.unit import Finished, Outcome, Stopped, StopSignal

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
    """Its outcome is in the list once the block is left."""
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
    """So many statements run at the source."""
    connections = [source.connect() for _ in range(threads)]
    numbers = [_number(connection) for connection in connections]

    def sleep(connection: pymysql.Connection) -> None:
        with suppress(pymysql.MySQLError), connection.cursor() as cursor:  # it is killed
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
            until(lambda: unit.doing().startswith("snapshot.max-threads-running: "), "it is told why")
            assert count_rows(target, "shard.t") == 0
        assert isinstance(outcome[0], Finished)
        assert unit.doing() == ""
    assert count_rows(target, "shard.t") == ROWS


def test_nothing_is_read_before_the_source_was_asked(
    source: Database, target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def idle(_: Gauge) -> None:
        pass

    monkeypatch.setattr(Gauge, "start", idle)
    make(source)
    with Rig(source, target, tmp_path, subtask_config(target, chunk_rows=100, max_threads_running=9000)) as rig:
        unit, stop, outcome = rig.unit(), StopSignal(), list[Outcome]()
        run = threading.Thread(target=lambda: outcome.append(unit.run(stop)))
        run.start()
        until(lambda: unit.status().plan_complete and "not been asked" in unit.doing(), "chunks wait")
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


def test_a_replica_that_lags(source: Database, target: Database, tmp_path: Path) -> None:
    """The source follows the target, an hour late; then it stands still; then it is no replica any more."""
    make(source)
    change, start, halt, reset = STATEMENTS[source.flavor]
    config = subtask_config(target, threads=2, chunk_rows=100, max_replica_lag=1)
    with Rig(source, target, tmp_path, config) as rig:
        unit = rig.unit()
        try:
            source.execute(change.format(port=target.port), start)
            with running(unit) as outcome:
                until(lambda: "the source lags" in unit.doing(), "it is told that it lags")
                source.execute(halt)
                until(lambda: "stands still" in unit.doing(), "it is told that it stands still")
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
    """A limit that cannot be kept fails the snapshot, and the way out is told."""
    source.execute("DROP USER IF EXISTS 'poor'@'%'", "CREATE USER 'poor'@'%'", "GRANT SELECT ON *.* TO 'poor'@'%'")
    stop = StopSignal()
    dispenser = Dispenser(Progress(()), stop, Pace(Limits(), Amount(0, 0)))
    gauge = Gauge(Endpoint(source.host, source.port, "poor"), "s1", Bearable(replica_lag=1), dispenser, stop.child())
    gauge.start()
    failure = until(lambda: dispenser.failure, "it fails")
    gauge.end()
    assert failure.spec is errors.snapshot.PRESSURE_UNSEEN
    assert "poor" in failure.message


def test_threads_are_seen_by_everybody(source: Database) -> None:
    source.execute("DROP USER IF EXISTS 'poor'@'%'", "CREATE USER 'poor'@'%'", "GRANT SELECT ON *.* TO 'poor'@'%'")
    stop = StopSignal()
    dispenser = Dispenser(Progress(()), stop, Pace(Limits(), Amount(0, 0)))
    dispenser.hold("not asked yet")
    gauge = Gauge(
        Endpoint(source.host, source.port, "poor"), "s1", Bearable(threads_running=5000), dispenser, stop.child()
    )
    gauge.start()
    until(lambda: not dispenser.is_held, "it is asked")
    gauge.end()
    assert dispenser.failure is None

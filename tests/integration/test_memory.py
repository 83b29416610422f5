"""Tests that memory stays bounded, for any backlog and any size of a transaction."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster, SubTask
from tests.support.hooks import Hooks
from tests.support.mariadb import MariaDB
from tests.support.memory import MIB, peak_mib
from tests.support.wait import until

pytestmark = pytest.mark.spark

SOURCE = "mysql-01"
LANE_MIB = 200
JVM_MIB = 700
WORKER_MIB = 300

BACKLOG = 1 << 30
TRANSACTION = 300 * MIB
WIDE = 100_000
"""Bytes of a wide row; an UPDATE logs it twice."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MariaDB, MariaDB]]:
    folder = tmp_path_factory.mktemp("servers")
    source, target = MariaDB(folder / "source", 101), MariaDB(folder / "target", 102)
    try:
        yield source.start(), target.start()
    finally:
        source.stop()
        target.stop()


@pytest.fixture(scope="module")
def shared_cluster(servers: tuple[MariaDB, MariaDB], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("memory") / "cluster", workers=1)
    try:
        made.start()
        made.create_source(SOURCE, servers[0])
        yield made
    finally:
        made.stop()


@pytest.fixture
def cluster(shared_cluster: Cluster, watch_logs: Callable[[Path], None]) -> Cluster:
    watch_logs(shared_cluster.directory)
    shared_cluster.hooks.release_all()
    return shared_cluster


@pytest.fixture
def source(servers: tuple[MariaDB, MariaDB]) -> MariaDB:
    return servers[0]


@pytest.fixture
def target(servers: tuple[MariaDB, MariaDB]) -> MariaDB:
    return servers[1]


def _task(name: str, target: MariaDB) -> str:
    return (
        f"name: {name}\ntask-mode: incremental\nmeta-schema: dm_meta\n"
        f'target-database: {{host: {target.host}, port: {target.port}, user: root, password: ""}}\n'
        f"mysql-instances:\n  - source-id: {SOURCE}\n    block-allow-list: own\n"
        f'block-allow-list:\n  own: {{do-dbs: ["{name}"]}}\nreplicate:\n  lanes: 2\n'
    )


def _start(cluster: Cluster, name: str, target: MariaDB) -> None:
    cluster.start_task(_task(name, target))
    cluster.wait_replicating(name)


def _assert_small(cluster: Cluster) -> None:
    """Check the processes' own peak memory since they were started."""
    worker = cluster.worker_of(SOURCE)
    lanes = [peak_mib(pid) for pid in worker.spark_task_pids()]
    found = f"lanes {lanes}, worker {peak_mib(worker.pid)}, JVM {peak_mib(worker.jvm_pid())} MiB"
    print(found)
    assert max(lanes) <= LANE_MIB, found
    assert peak_mib(worker.pid) <= WORKER_MIB, found
    assert peak_mib(worker.jvm_pid()) <= JVM_MIB, found


def _same(source: MariaDB, target: MariaDB, statement: str) -> None:
    assert source.query(statement) == target.query(statement)


def test_a_backlog_in_front_of_a_stalled_target(cluster: Cluster, source: MariaDB, target: MariaDB) -> None:
    """Wide and narrow rows; the target hangs, then continues."""
    source.execute(
        "CREATE DATABASE stalled",
        "CREATE TABLE stalled.wide (id BIGINT PRIMARY KEY, v MEDIUMTEXT)",
        "CREATE TABLE stalled.narrow (id BIGINT PRIMARY KEY, k INT, v VARCHAR(60))",
        "CREATE TABLE stalled.log (id BIGINT, v VARCHAR(60))",
    )
    _start(cluster, "stalled", target)
    rows = 500
    source.execute(
        "USE stalled",
        f"INSERT INTO stalled.wide SELECT seq, REPEAT('a', {WIDE}) FROM seq_1_to_{rows}",
        "INSERT INTO stalled.narrow SELECT seq, seq, REPEAT('n', 40) FROM seq_1_to_50000",
    )
    cluster.wait_caught_up("stalled", {SOURCE: source})
    target.signal(signal.SIGSTOP)
    try:
        for number in range(1 + BACKLOG // (2 * rows * WIDE)):
            source.execute(
                f"UPDATE stalled.wide SET v = REPEAT('{chr(98 + number % 20)}', {WIDE})",
                "UPDATE stalled.narrow SET k = k + 1",
                "USE stalled",
                "INSERT INTO stalled.log SELECT seq, 'x' FROM seq_1_to_2000",
            )

        def held_back(sub: SubTask) -> bool:
            """Return whether the whole backlog is in the relay log, and every lane reports that its stream waits for
            it."""
            sync: dict[str, Any] = sub.raw.get("sync") or {}
            lanes: list[Any] = sync.get("lanes", [])
            return (
                int(sync.get("bytesBehind") or 0) >= BACKLOG
                and not sub.raw["sync"]["synced"]
                and len(lanes) == 2
                and all("held back" in lane["waitsFor"] for lane in lanes)
            )

        [held] = cluster.wait_subtasks("stalled", held_back, "is held back").values()
        _assert_small(cluster)
        assert held.raw["sync"]["oldestMs"] > 0
        assert held.raw["sync"]["secondsBehindMaster"] > 0
        assert "the target, which has been committing" in held.raw["waitingFor"]
    finally:
        target.signal(signal.SIGCONT)
    cluster.wait_caught_up("stalled", {SOURCE: source}, 1500)
    _assert_small(cluster)
    _same(source, target, "SELECT id, MD5(v) FROM stalled.wide ORDER BY id")
    _same(source, target, "SELECT COUNT(*), SUM(k), SUM(CRC32(v)) FROM stalled.narrow")
    _same(source, target, "SELECT id, v, COUNT(*) FROM stalled.log GROUP BY id, v ORDER BY id")
    cluster.dmctl("stop-task", "stalled")


def _standing(target: MariaDB, task: str) -> dict[int, tuple[int, int, int, int]]:
    """Return (segment, byte, skip_events, seq) by lane."""
    found = target.query(
        f"SELECT lane, segment, byte, skip_events, seq FROM dm_meta.lane_checkpoint WHERE task = '{task}'"
    )
    return {
        int(str(lane)): (int(str(segment)), int(str(byte)), int(str(skip)), int(str(seq)))
        for lane, segment, byte, skip, seq in found
    }


def _into_the_transaction(hooks: Hooks, target: MariaDB, lane: int) -> None:
    """Let the held lane do one commit after the other until one of them was a part of a transaction.

    It is always held at one of two moments and never runs freely: it could complete the transaction before it is held
    again.
    """
    before, inside = f"lane{lane}.commit", f"lane{lane}.before_commit"
    hooks.reached(before)
    while _standing(target, "large")[lane][2] <= 1:
        for held, then in ((before, inside), (inside, before)):
            hooks.hold(then)
            hooks.release(held)
            hooks.reached(then)


def test_a_transaction_larger_than_memory_is_resumed_inside(cluster: Cluster, source: MariaDB, target: MariaDB) -> None:
    """A lane is killed in the middle of the transaction: the next one resumes there. The applied changes are in tables
    where a repeated change is visible: inserts with keys, and rows without any key."""
    source.execute(
        "CREATE DATABASE large",
        "CREATE TABLE large.wide (id BIGINT PRIMARY KEY, v MEDIUMTEXT)",
        "CREATE TABLE large.log (id BIGINT, v VARCHAR(60))",
    )
    _start(cluster, "large", target)
    hooks = cluster.hooks
    for lane in range(2):
        hooks.hold(f"lane{lane}.commit")
    rows = TRANSACTION // WIDE
    connection = source.connect("large")
    connection.begin()
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO large.log SELECT seq, 'first' FROM seq_1_to_20000")
        cursor.execute(f"INSERT INTO large.wide SELECT seq, REPEAT('a', {WIDE}) FROM seq_1_to_{rows}")
        cursor.execute("INSERT INTO large.log SELECT seq, 'last' FROM seq_1_to_20000")
    connection.commit()
    connection.close()
    for lane in range(2):
        _into_the_transaction(hooks, target, lane)
    assert all(skip > 1 for _, _, skip, _ in _standing(target, "large").values())
    hooks.release("lane1.commit")
    [pid] = hooks.reached("lane0.commit")
    _, place, skip, seq = before = _standing(target, "large")[0]
    assert skip > 1
    _assert_small(cluster)
    os.kill(pid, signal.SIGKILL)
    again = until(lambda: set(hooks.reached("lane0.commit")) - {pid}, "a new lane is about to commit")
    assert _standing(target, "large")[0] == before, "it stands where the killed one stood"
    hooks.release("lane0.commit")
    until(lambda: _standing(target, "large")[0][3] > seq, "it commits")
    segment_now, place_now, skip_now, _ = _standing(target, "large")[0]
    assert (segment_now, place_now) > (before[0], place) or skip_now > skip
    cluster.wait_caught_up("large", {SOURCE: source}, 1500)
    assert again
    _assert_small(cluster)
    _same(source, target, "SELECT id, MD5(v) FROM large.wide ORDER BY id")
    _same(source, target, "SELECT id, v, COUNT(*) FROM large.log GROUP BY id, v ORDER BY id, v")
    cluster.dmctl("stop-task", "large")

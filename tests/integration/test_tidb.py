"""Tests a TiDB target: kills under load, types, planted differences, transactions that are too large.

It has a world of its own: sources of both kinds, and TiDB.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardmerge.proto import errors
from tests.support.kills import VICTIMS, kill_while_copying, kill_while_replicating
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.tidb import TiDB
from tests.support.world import World


@pytest.fixture(scope="module")
def module_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("tidb"), sources=(MariaDB, MySQL), targets=(TiDB,))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.mark.parametrize("victim", ["target", "tasks"])
def test_kill_while_replicating(world: World, victim: str) -> None:
    kill_while_replicating(world, victim)


@pytest.mark.grid
@pytest.mark.parametrize("victim", [name for name in VICTIMS if name not in ("target", "tasks")])
def test_kill_any_while_replicating(world: World, victim: str) -> None:
    kill_while_replicating(world, victim)


# A moment, and who is killed then.
_COPYING = {
    "snapshot.after_select": "target",
    "snapshot.before_commit": "target",
    "snapshot.after_commit": "tasks",
    "handover": "target",
}


def test_kill_at_moments_of_a_snapshot(world: World) -> None:
    kill_while_copying(world, "tidb", _COPYING)


def test_a_transaction_that_is_too_large_is_repeated_in_smaller_ones(world: World) -> None:
    """TiDB ends it with error 8175 when its memory limit is reached."""
    source_id, source = world.sources[0]
    source.execute(
        "CREATE DATABASE tidb_large",
        "CREATE TABLE tidb_large.t (id INT PRIMARY KEY, v VARCHAR(2000)) CHARSET=utf8mb4",
    )
    task = "\n".join(
        (
            "name: tidb_large",
            "task-mode: all",
            "meta-schema: dm_meta",
            f"target-database: {{host: 127.0.0.1, port: {world.target.port}, user: root, password: '', "
            "session: {tidb_mem_quota_query: 8000000}}",
            "mysql-instances:",
            f"  - {{source-id: {source_id}, block-allow-list: own}}",
            "block-allow-list: {own: {do-dbs: [tidb_large]}}",
            "",
        )
    )
    world.cluster.start_task(task)
    world.cluster.wait_replicating("tidb_large")
    source.execute(
        "INSERT INTO tidb_large.t SELECT seq, REPEAT('x', 1000) FROM tidb_large.seq_1_to_20000",
        "UPDATE tidb_large.t SET v = CONCAT(v, id)",
    )
    world.settle(["tidb_large"])
    assert world.target.query("SELECT COUNT(*), SUM(v = CONCAT(REPEAT('x', 1000), id)) FROM tidb_large.t") == [
        (20000, 20000)
    ]
    logs = b"".join(worker.log.read_bytes() for worker in world.cluster.workers)
    assert errors.replicate.TARGET_TRANSACTION_TOO_LARGE.name.encode() in logs
    world.cluster.dmctl("stop-task", "tidb_large")

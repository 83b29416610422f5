"""Tests a sharding DDL of an optimistic task while a source's report of its shard tables is older than its records."""

from __future__ import annotations

from typing import cast

import pytest

from tests.support.cluster import Json
from tests.support.kills import locks_of
from tests.support.wait import until
from tests.support.world import Family, World

pytestmark = pytest.mark.turns

NAME = "old_report"
TABLE = f"{NAME}_01.order_01"


def _started(world: World) -> Family:
    """Two shard tables with a unique index, and the target without it: the first one has dropped it."""
    family = world.family(NAME, tables=1)
    for instance, (_, server) in enumerate(world.sources, 1):
        server.execute(
            f"CREATE DATABASE {NAME}_01",
            f"CREATE TABLE {TABLE} (id BIGINT PRIMARY KEY, v INT, UNIQUE KEY u (v))",
            f"INSERT INTO {TABLE} VALUES (1, {instance})",
        )
    world.cluster.start_task(family.task(extra="shard-mode: optimistic\n"))
    world.cluster.wait_replicating(NAME)
    assert _has_index(world)
    world.sources[0][1].execute(f"ALTER TABLE {TABLE} DROP KEY u")
    until(lambda: not _has_index(world), "the target has dropped the index")
    world.settle([NAME])
    return family


def _has_index(world: World) -> bool:
    found = world.target.query(
        f"SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = '{NAME}' AND index_name = 'u'"
    )
    return found != [(0,)]


def _lock(world: World) -> tuple[str, str] | None:
    """The stage of the lock, and why its first table waits."""
    listed = locks_of(world, NAME) or []
    if not listed:
        return None
    [lock] = listed
    tables = cast("list[Json]", lock["tables"])
    reasons = [str(each.get("reason", "")) for each in tables if each["standing"] == "ready"]
    return str(lock["stage"]), "; ".join(reasons)


def test_a_lock_waits_for_a_table_that_has_left_the_structure_after_its_statement(world: World) -> None:
    """Its worker has recorded DROP INDEX and died before it published that: the master regards the table as past the
    other one's ADD UNIQUE INDEX, which the target would have run. Then it would refuse the table's rows."""
    family, hooks = _started(world), world.cluster.hooks
    (first, one), (second, other) = world.sources
    hooks.hold("ddl.passed")
    other.execute(
        f"ALTER TABLE {TABLE} DROP KEY u",
        f"INSERT INTO {TABLE} VALUES (2, 5), (3, 5)",
    )
    hooks.reached("ddl.passed")
    worker = world.cluster.worker_of(second)
    worker.kill()
    hooks.release("ddl.passed")
    one.execute(f"ALTER TABLE {TABLE} ADD UNIQUE KEY u (v)")

    def decided() -> bool:
        lock = _lock(world)
        return _has_index(world) or (lock is not None and lock[0] == "gathering" and f"of {second}" in lock[1])

    until(decided, "the statement has run, or the lock waits for the other table", 120)
    assert not _has_index(world)
    until(lambda: not worker.session(), "what the killed worker has started ends by itself", 300)
    worker.start()
    world.cluster.wait_bound([second])
    rows = f"SELECT COUNT(*) FROM {NAME}.orders WHERE v = 5"
    until(lambda: world.target.query(rows) == [(2,)], "the other table's rows are applied", 300)
    assert not _has_index(world)
    other.execute(f"UPDATE {TABLE} SET v = id + 5 WHERE v = 5", f"ALTER TABLE {TABLE} ADD UNIQUE KEY u (v)")
    one.execute(f"INSERT INTO {TABLE} VALUES (9, 9)")
    until(lambda: locks_of(world, NAME) == [], f"the tables of {first} and {second} continue", 300)
    world.cluster.wait_joined(NAME)
    world.settle([NAME])
    assert _has_index(world)
    assert world.target.query(f"SELECT * FROM dm_meta.statement_begun WHERE task = '{NAME}'") == []
    world.judge(family)
    world.cluster.dmctl("stop-task", NAME)

"""Tests stop-task while the indexes of an existing target table are dropped for its load: they come back."""

from __future__ import annotations

from dataclasses import replace

from tests.support.wait import until
from tests.support.world import Family, World
from tests.support.writer import ORDERS

_SHAPE = replace(ORDERS, definition=ORDERS.definition + ", KEY by_state (state, amount), KEY by_note (note(9))")
_EMPTY = "load: {defer-indexes: empty}\n"
_SLOWLY = _EMPTY + "snapshot: {rows-per-second: 500, chunk-rows: 100, threads: 1}\n"


def _creation(world: World, name: str) -> str:
    return str(world.target.query(f"SHOW CREATE TABLE {name}.orders")[0][1]).partition(") ENGINE")[0]


def _made(world: World, name: str) -> tuple[Family, str]:
    """Return a family and the CREATE TABLE of its target table, which exists."""
    family = world.family(name)
    shards = family.create(12_000, _SHAPE)
    for _, server in world.sources:
        server.execute(*(f"ANALYZE TABLE {shard.name}" for shard in shards if shard.connect == server.connect))
    world.target.execute(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.orders ({_SHAPE.definition}) CHARSET=utf8mb4")
    return family, _creation(world, name)


def _load(world: World, family: Family) -> None:
    world.cluster.start_task(family.task(extra=_SLOWLY))
    until(lambda: world.target.query(f"SELECT 1 FROM {family.name}.orders LIMIT 1"), "rows are loaded", 120)
    assert "by_state" not in _creation(world, family.name)


def _owed(world: World, name: str) -> list[tuple[object, ...]]:
    return world.target.query(f"SELECT index_name FROM dm_meta.deferred_index WHERE target_schema = '{name}'")


def test_a_stopped_task_names_the_statement_and_continues(world: World) -> None:
    family, before = _made(world, "lacking")
    cluster = world.cluster
    _load(world, family)
    answer = cluster.dmctl("stop-task", "lacking")
    statement = "ALTER TABLE `lacking`.`orders` ADD KEY `by_state` (`state`,`amount`), ADD KEY `by_note` (`note`(9));"
    assert statement in answer.json["msg"].splitlines(), answer.text
    assert "start the task lacking again" in answer.json["msg"]
    assert "by_state" not in _creation(world, "lacking")
    cluster.start_task(family.task(extra=_EMPTY))
    cluster.wait_replicating("lacking")
    until(lambda: not _owed(world, "lacking"), "the indexes are there", 60)
    assert _creation(world, "lacking") == before
    world.judge(family)
    answer = cluster.dmctl("stop-task", "lacking")
    assert answer.json["msg"] == ""


def test_a_forgotten_task_has_them_added(world: World) -> None:
    family, before = _made(world, "forgotten_load")
    cluster = world.cluster
    _load(world, family)
    answer = cluster.dmctl("stop-task", "forgotten_load", "--remove-meta")
    assert "ALTER TABLE" not in answer.json["msg"], answer.text
    assert [one["lacksIndexes"] for one in answer.json["remaining"]] == [False]
    assert _creation(world, "forgotten_load") == before
    assert not _owed(world, "forgotten_load")


def test_what_the_target_refuses_is_named_and_can_be_repeated(world: World) -> None:
    family, before = _made(world, "refused_load")
    cluster, target = world.cluster, world.target
    file = cluster.write("refused_load.yaml", family.task())
    _load(world, family)
    target.execute("INSERT INTO dm_meta.deferred_index VALUES ('refused_load', 'orders', 9, 'x', 'KEY `x` (`gone`)')")
    answer = cluster.dmctl("stop-task", "refused_load", "--remove-meta")
    assert "ADD KEY `by_note` (`note`(9)), ADD KEY `x` (`gone`);" in answer.json["msg"], answer.text
    assert [one["lacksIndexes"] for one in answer.json["remaining"]] == [True]
    target.execute("DELETE FROM dm_meta.deferred_index WHERE index_name = 'x'")
    answer = cluster.dmctl("stop-task", file, "--remove-meta")
    assert "ALTER TABLE" not in answer.json["msg"], answer.text
    assert _creation(world, "refused_load") == before
    assert not _owed(world, "refused_load")

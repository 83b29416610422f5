"""Tests deferred indexes of a target table that joins a running task: they are added without a new start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.wait import until
from tests.support.world import World
from tests.support.writer import ORDERS

_SHAPE = replace(ORDERS, definition=ORDERS.definition + ", KEY by_state (state, amount)")


@pytest.mark.parametrize("existing", [False, True])
def test_they_are_added_when_the_table_has_joined(world: World, existing: bool) -> None:
    name, cluster, target = f"joins_{'existing' if existing else 'created'}", world.cluster, world.target
    family = world.family(name, tables=1)
    shards = family.create(12_000, _SHAPE)
    setting = "load: {defer-indexes: empty}\n"
    cluster.start_task(family.task(extra=setting))
    cluster.wait_replicating(name)
    for _, server in world.sources:
        # The estimates of the next load: large.
        own = [shard.name for shard in shards if shard.connect == server.connect]
        server.execute(
            *(
                f"INSERT INTO {table} ({', '.join(_SHAPE.columns)}) SELECT {', '.join(_SHAPE.columns)} FROM {table}"
                for table in own
            )
        )
        server.execute(*(f"ANALYZE TABLE {table}" for table in own))
    if existing:
        target.execute(
            f"CREATE DATABASE {name}_2", f"CREATE TABLE {name}_2.orders ({_SHAPE.definition}) CHARSET=utf8mb4"
        )
    cluster.hooks.hold("snapshot.before_commit")
    there = family.task(extra=setting).replace(f"    target-schema: {name}\n", f"    target-schema: {name}_2\n")
    cluster.dmctl("update-task", cluster.write("updated.task.yaml", there), "--move-tables")
    cluster.hooks.reached("snapshot.before_commit")
    assert [row[2] for row in target.query(f"SHOW INDEX FROM {name}_2.orders")] == ["PRIMARY"]
    cluster.hooks.release("snapshot.before_commit")
    cluster.wait_joined(name)
    cluster.wait_replicating(name)
    owed = f"SELECT 1 FROM dm_meta.deferred_index WHERE target_schema = '{name}_2'"
    until(lambda: not target.query(owed), "the indexes are there", 60)
    assert {row[2] for row in target.query(f"SHOW INDEX FROM {name}_2.orders")} == {"PRIMARY", "by_state"}
    cluster.dmctl("stop-task", name)

"""Tests the ways out of statements on tables whose cascades are derived."""

from __future__ import annotations

from tests.integration.ways_out.printed import Operator
from tests.support.wait import until
from tests.support.world import Family, World

SOURCE = "mysql-01"
CASCADES = """cascades: derive
references:
  - {from: orders.parent, to: orders.id}
"""


def _family(world: World, name: str) -> tuple[Family, str]:
    """Create a shard table whose rows refer to each other, and return it with its name."""
    family, shard = Family(name, world.sources[:1], world.target, tables=1), f"{name}_01.order_01"
    family.create(200)
    world.sources[0][1].execute(
        f"ALTER TABLE {shard} ADD COLUMN parent BIGINT NULL, "
        f"ADD CONSTRAINT own FOREIGN KEY (parent) REFERENCES {shard} (id) ON DELETE CASCADE",
        f"UPDATE {shard} SET parent = 1 WHERE id BETWEEN 2 AND 10",
    )
    return family, shard


def _operator(world: World, name: str) -> Operator:
    return Operator(world.cluster, name, str(world.cluster.directory / f"{name}.task.yaml"))


def _children(world: World, name: str) -> int:
    [(count,)] = world.target.query(f"SELECT COUNT(*) FROM {name}.orders WHERE parent IS NOT NULL")
    return int(str(count))


def test_a_cascading_key_is_dropped(world: World) -> None:
    """50067. Before the statement, its cascades are derived."""
    name, server = "way_50067", world.sources[0][1]
    family, shard = _family(world, name)
    try:
        world.cluster.start_task(family.task(extra=CASCADES))
        world.cluster.wait_replicating(name)
        world.settle([name])
        assert _children(world, name) == 9
        server.execute(f"DELETE FROM {shard} WHERE id = 1")
        until(lambda: _children(world, name) == 0, "the cascade is derived", 60)
        server.execute(f"ALTER TABLE {shard} DROP FOREIGN KEY own", f"UPDATE {shard} SET amount = 11 WHERE id < 20")
        operator = _operator(world, name)
        printed = operator.stopped(50067, SOURCE)
        assert shard in printed.message
        operator.runs(printed, "stop-task")
        operator.runs(printed, "start-task")
        world.settle([name])
        assert family.verdict().differences == 0
    finally:
        world.cluster.dmctl("stop-task", name, check=False)


def _two_tables(world: World, name: str) -> str:
    """Create a parent of several chunks and its child, and return the task file."""
    world.sources[0][1].execute(
        f"CREATE DATABASE {name}_1",
        f"CREATE TABLE {name}_1.p (id BIGINT PRIMARY KEY, v INT)",
        f"CREATE TABLE {name}_1.c (id BIGINT PRIMARY KEY, p BIGINT NULL, "
        f"CONSTRAINT own FOREIGN KEY (p) REFERENCES {name}_1.p (id) ON DELETE CASCADE)",
        f"INSERT INTO {name}_1.p SELECT seq, seq FROM {name}_1.seq_1_to_500",
        f"INSERT INTO {name}_1.c SELECT seq, seq FROM {name}_1.seq_1_to_500",
    )
    rules = "route-rules: [merge], column-mapping-rules: [ids]"
    return "\n".join(
        (
            *world.head_of_task(name, rules),
            f"block-allow-list: {{own: {{do-dbs: [{name}_1]}}}}",
            f'routes: {{merge: {{schema-pattern: "{name}_*", target-schema: {name}}}}}',
            f'column-mappings: {{ids: {{schema-pattern: "{name}_*", table-pattern: "*", source-column: id, '
            f'target-column: id, expression: partition id, arguments: ["1", "{name}", "", _]}}}}',
            "cascades: derive",
            "references: [{from: c.p, to: p.id}]",
            "snapshot: {chunk-rows: 100, threads: 1}\n",
        )
    )


def test_a_parent_is_altered_while_it_is_copied(world: World) -> None:
    """40093."""
    name, server, hooks, cluster = "way_40093", world.sources[0][1], world.cluster.hooks, world.cluster
    text = _two_tables(world, name)
    ids = [f"SELECT id & ((1 << 44) - 1) FROM {name}.{table} ORDER BY id" for table in ("p", "c")]
    try:
        hooks.hold("snapshot.before_commit")
        cluster.start_task(text)
        hooks.reached("snapshot.before_commit")
        server.execute(f"ALTER TABLE {name}_1.p ADD COLUMN more INT DEFAULT 1")
        hooks.release("snapshot.before_commit")
        operator = _operator(world, name)
        printed = operator.stopped(40093, SOURCE)
        assert f"`{name}_1`.`p`" in printed.message
        world.target.execute(f"ALTER TABLE {name}.p ADD COLUMN more INT DEFAULT 1")
        operator.runs(printed, "stop-task")
        operator.runs(printed, "start-task")
        cluster.wait_replicating(name)
        server.execute(f"DELETE FROM {name}_1.p WHERE id % 3 = 0")
        cluster.wait_caught_up(name, {SOURCE: server})
        left = [(number,) for number in range(1, 501) if number % 3]
        assert [world.target.query(one) for one in ids] == [left, left]
    finally:
        hooks.release_all()
        cluster.dmctl("stop-task", name, check=False)

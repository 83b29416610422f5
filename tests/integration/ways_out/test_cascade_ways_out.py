"""Tests the ways out of statements on tables whose cascades are derived."""

from __future__ import annotations

from tests.integration.ways_out.printed import Operator
from tests.support.wait import until
from tests.support.world import Family, World

SOURCE = "mysql-01"
REFERENCES = """references:
  - {from: orders.parent, to: orders.id}
"""
CASCADES = f"cascades: derive\n{REFERENCES}"


def _family(world: World, name: str, *, cascades: bool = True) -> tuple[Family, str]:
    """Create a shard table whose rows refer to each other, and return it with its name."""
    family, shard = Family(name, world.sources[:1], world.target, tables=1), f"{name}_01.order_01"
    family.create(200)
    world.sources[0][1].execute(
        f"ALTER TABLE {shard} ADD COLUMN parent BIGINT NULL",
        *([_key(shard)] if cascades else []),
        f"UPDATE {shard} SET parent = 1 WHERE id BETWEEN 2 AND 10",
    )
    return family, shard


def _key(shard: str) -> str:
    return f"ALTER TABLE {shard} ADD CONSTRAINT own FOREIGN KEY (parent) REFERENCES {shard} (id) ON DELETE CASCADE"


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


def test_each_key_that_is_refused(world: World) -> None:
    """12093: each reason leads to a file, or a key, that the check accepts; then the task merges."""
    name, server, cluster = "way_12093", world.sources[0][1], world.cluster
    right, operator = _two_tables(world, name), _operator(world, name)
    filters = f"filters: {{keep: {{schema-pattern: {name}_1, table-pattern: p, events: [delete], action: Ignore}}}}\n"
    filtered = right.replace("column-mapping-rules:", "filter-rules: [keep], column-mapping-rules:") + filters
    without_reference = right.replace("references: [{from: c.p, to: p.id}]\n", "")
    for text, reason in (
        (
            without_reference.replace("do-dbs: [", f"do-tables: [{{db-name: {name}_1, tbl-name: c}}], do-dbs: ["),
            "add it",
        ),
        (without_reference, "add an entry of `references`"),
        (right.replace('table-pattern: "*"', "table-pattern: p"), "give a column of it a `partition id`"),
        (filtered, f"a filter or transform applies to {name}_1.p"),
    ):
        cluster.write(f"{name}.task.yaml", text)
        printed = operator.refused(12093, "check-task", operator.file)
        assert reason in printed.message, printed.message
    cluster.write(f"{name}.task.yaml", right)
    cluster.dmctl("check-task", operator.file)
    child = f"ALTER TABLE {name}_1.c"
    server.execute(
        f"ALTER TABLE {name}_1.p ADD COLUMN name VARCHAR(9) UNIQUE",
        f"{child} ADD COLUMN name VARCHAR(9)",
        f"{child} ADD CONSTRAINT named FOREIGN KEY (name) REFERENCES {name}_1.p (name) ON UPDATE CASCADE",
    )
    printed = operator.refused(12093, "start-task", operator.file)
    assert "only integers are derived" in printed.message
    server.execute(
        f"{child} ADD CONSTRAINT named_only FOREIGN KEY (name) REFERENCES {name}_1.p (name)",
        f"{child} DROP FOREIGN KEY named",
    )
    try:
        cluster.dmctl("start-task", operator.file)
        cluster.wait_replicating(name)
        _merges(world, name)
    finally:
        cluster.dmctl("stop-task", name, check=False)


def _merges(world: World, name: str) -> None:
    """Check that a deletion of parents deletes their children, and nothing else."""
    server = world.sources[0][1]
    server.execute(f"DELETE FROM {name}_1.p WHERE id % 3 = 0")
    world.cluster.wait_caught_up(name, {SOURCE: server})
    left = [(number,) for number in range(1, 501) if number % 3]
    for table in ("p", "c"):
        assert world.target.query(f"SELECT id & ((1 << 44) - 1) FROM {name}.{table} ORDER BY id") == left


def test_a_parent_is_altered_while_it_is_copied(world: World) -> None:
    """40093."""
    name, server, hooks, cluster = "way_40093", world.sources[0][1], world.cluster.hooks, world.cluster
    text = _two_tables(world, name)
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
        _merges(world, name)
    finally:
        hooks.release_all()
        cluster.dmctl("stop-task", name, check=False)


def _derives(world: World, name: str, shard: str) -> None:
    """Check that the task derives cascades: nine rows refer to row 1."""
    world.settle([name])
    assert _children(world, name) == 9
    world.sources[0][1].execute(f"DELETE FROM {shard} WHERE id = 1")
    until(lambda: _children(world, name) == 0, "the cascade is derived", 60)


def test_the_setting_is_changed(world: World) -> None:
    """40092: a cascading key is added (50065), and the operator starts the task again with `cascades: derive`."""
    name, server, cluster = "way_40092", world.sources[0][1], world.cluster
    family, shard = _family(world, name, cascades=False)
    operator = _operator(world, name)
    try:
        cluster.start_task(family.task(extra=REFERENCES))
        cluster.wait_replicating(name)
        server.execute(_key(shard), f"UPDATE {shard} SET amount = 11 WHERE id < 20")
        operator.stopped(50065, SOURCE)
        cluster.dmctl("stop-task", name)
        cluster.write(f"{name}.task.yaml", family.task(extra=CASCADES))
        cluster.dmctl("start-task", operator.file, check=False)
        printed = operator.stopped(40092, SOURCE)
        # The setting is set back, and the key is replaced: the task continues where it was.
        cluster.write(f"{name}.task.yaml", family.task(extra=REFERENCES))
        operator.runs(printed, "stop-task", 0)
        operator.refused(12013, "start-task", operator.file)
        server.execute(
            f"ALTER TABLE {shard} ADD CONSTRAINT plain FOREIGN KEY (parent) REFERENCES {shard} (id)",
            f"ALTER TABLE {shard} DROP FOREIGN KEY own",
        )
        operator.runs(printed, "start-task", 0)
        skipped = operator.stopped(50065, SOURCE)
        operator.runs(skipped, "binlog skip")
        world.settle([name])
        operator.runs(skipped, "compare")
        cluster.compare(name)
        # The history is copied again, with the setting.
        server.execute(_key(shard), f"ALTER TABLE {shard} DROP FOREIGN KEY plain")
        operator.stopped(50065, SOURCE)
        cluster.dmctl("stop-task", name)
        cluster.write(f"{name}.task.yaml", family.task(extra=CASCADES))
        cluster.dmctl("start-task", operator.file, check=False)
        printed = operator.stopped(40092, SOURCE)
        operator.runs(printed, "stop-task", 1)
        operator.runs(printed, "start-task", 1)
        cluster.wait_replicating(name)
        _derives(world, name, shard)
        world.settle([name])
        assert family.verdict().differences == 0
    finally:
        cluster.dmctl("stop-task", name, check=False)


def test_a_key_that_the_check_left_out(world: World) -> None:
    """40091: `ignore-checking-items` omits the check of the tables, and a key is of texts."""
    name, server, cluster = "way_40091", world.sources[0][1], world.cluster
    family, shard = _family(world, name)
    operator = _operator(world, name)
    server.execute(
        f"ALTER TABLE {shard} ADD COLUMN code VARCHAR(9) NULL, ADD COLUMN other VARCHAR(9) NULL, ADD KEY (code)",
        f"ALTER TABLE {shard} ADD CONSTRAINT texts FOREIGN KEY (other) REFERENCES {shard} (code) ON UPDATE CASCADE",
    )
    try:
        text = family.task(extra=CASCADES + "ignore-checking-items: [table_schema]\n")
        cluster.dmctl("start-task", cluster.write(f"{name}.task.yaml", text), check=False)
        printed = operator.stopped(40091, SOURCE)
        assert "texts" in printed.message
        server.execute(
            f"ALTER TABLE {shard} ADD CONSTRAINT again FOREIGN KEY (other) REFERENCES {shard} (code)",
            f"ALTER TABLE {shard} DROP FOREIGN KEY texts",
        )
        cluster.write(f"{name}.task.yaml", family.task(extra=CASCADES))
        operator.runs(printed, "check-task")
        operator.runs(printed, "stop-task")
        operator.runs(printed, "start-task")
        cluster.wait_replicating(name)
        _derives(world, name, shard)
        assert family.verdict().differences == 0
    finally:
        cluster.dmctl("stop-task", name, check=False)

"""Tests the printed ways out of errors that stop the copy of the history, and of a start before a change of a table."""

from __future__ import annotations

from tests.integration.ways_out.printed import Operator
from tests.support.world import World

SOURCE = "mysql-01"


def _file(world: World, name: str, *, meta: tuple[str, int] | None = None) -> str:
    """The text of a task file. ``meta``: where an incremental task begins."""
    rules = "route-rules: []" if meta is None else f"meta: {{binlog-name: {meta[0]}, binlog-pos: {meta[1]}}}"
    text = "\n".join((*world.head_of_task(name, rules), f"block-allow-list: {{own: {{do-dbs: [{name}]}}}}"))
    if meta is not None:
        text = text.replace("task-mode: all", "task-mode: incremental")
    return text + "\nsnapshot: {chunk-rows: 100, threads: 1}\n"


def _operator(world: World, name: str) -> Operator:
    return Operator(world.cluster, name, str(world.cluster.directory / f"{name}.task.yaml"))


def _held_copy(world: World, name: str, statement: str) -> Operator:
    """Start a task, and run ``statement`` at its source, without the binlog, while its first chunk is copied."""
    source, hooks = world.sources[0][1], world.cluster.hooks
    source.execute(
        f"CREATE DATABASE {name}",
        *(f"CREATE TABLE {name}.{table} (id INT PRIMARY KEY, v INT)" for table in ("t", "u")),
        *(f"INSERT INTO {name}.{table} SELECT seq, seq FROM {name}.seq_1_to_500" for table in ("t", "u")),
    )
    hooks.hold("snapshot.before_commit")
    world.cluster.start_task(_file(world, name))
    hooks.reached("snapshot.before_commit")
    source.execute("SET SESSION sql_log_bin = 0", statement)
    hooks.release("snapshot.before_commit")
    return _operator(world, name)


def _same(world: World, name: str, *tables: str) -> None:
    """Check that the target has the rows of the source."""
    world.cluster.wait_caught_up(name, {SOURCE: world.sources[0][1]})
    for table in tables:
        query = f"SELECT * FROM {name}.{table} ORDER BY id"
        assert world.target.query(query) == world.sources[0][1].query(query)
    world.cluster.dmctl("stop-task", name)


def test_a_table_is_altered_without_the_binlog(world: World) -> None:
    """30002."""
    name, source = "way_30002", world.sources[0][1]
    operator = _held_copy(world, name, f"ALTER TABLE {name}.u MODIFY v BIGINT")
    printed = operator.stopped(30002)
    source.execute("SET SESSION sql_log_bin = 0", f"ALTER TABLE {name}.u MODIFY v INT")
    operator.runs(printed, "resume-task")
    world.cluster.wait_joined(name)
    source.execute(f"UPDATE {name}.u SET v = 7 WHERE id % 3 = 0")
    _same(world, name, "t", "u")


def test_a_task_begins_before_a_table_was_altered(world: World) -> None:
    """21005: the structure is read from the source, and is newer than the rows."""
    name, source, cluster = "way_21005", world.sources[0][1], world.cluster
    created = f"CREATE TABLE {name}.t (id INT PRIMARY KEY, v INT)"
    source.execute(f"CREATE DATABASE {name}", created)
    begin = source.binlog_end()
    source.execute(
        f"INSERT INTO {name}.t SELECT seq, seq FROM {name}.seq_1_to_50",
        f"ALTER TABLE {name}.t ADD COLUMN w VARCHAR(9) DEFAULT 'w'",
        f"INSERT INTO {name}.t SELECT seq, seq, 'new' FROM {name}.seq_51_to_90",
        f"UPDATE {name}.t SET w = 'changed' WHERE id % 7 = 0",
    )
    cluster.start_task(_file(world, name, meta=begin))
    operator = _operator(world, name)
    printed = operator.stopped(21005)
    structure = Operator(cluster, name, cluster.write("structure.sql", created))
    structure.runs(printed, "binlog-schema update")
    operator.runs(printed, "resume-task")
    printed = operator.stopped(50004)
    operator.runs(printed, "binlog skip")
    _same(world, name, "t")

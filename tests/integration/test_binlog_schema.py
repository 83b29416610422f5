"""Tests `dmctl binlog-schema`: an operator shows, replaces and deletes the structure by which row events are read."""

from __future__ import annotations

from typing import cast

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec
from tests.support.cluster import Answer, Json
from tests.support.wait import until
from tests.support.world import World

OLD = "CREATE TABLE t (id BIGINT PRIMARY KEY, v INT NOT NULL)"
SOURCE = "mysql-01"


def _task(world: World, name: str, *more: str, meta: tuple[str, int] | None = None, tables: str = "t") -> str:
    target = world.target
    lines = [
        f"name: {name}",
        f"task-mode: {'all' if meta is None else 'incremental'}",
        f"target-database: {target.login}",
        "mysql-instances:",
        f"  - source-id: {SOURCE}",
        "    block-allow-list: own",
        "    route-rules: [merge]",
        *([f"    meta: {{binlog-name: {meta[0]}, binlog-pos: {meta[1]}}}"] if meta is not None else []),
        "block-allow-list:",
        f"  own: {{do-tables: [{{db-name: {name}, tbl-name: '{tables}'}}]}}",
        "routes:",
        f"  merge: {{schema-pattern: {name}, table-pattern: '{tables}',",
        f"    target-schema: {name}_merged, target-table: t}}",
        *more,
    ]
    return "\n".join(lines) + "\n"


def _schema(world: World, op: str, task: str, *more: str, table: str = "t", check: bool = True) -> Answer:
    return world.cluster.dmctl("binlog-schema", op, task, task, table, *more, check=check)


def _file(world: World, text: str) -> str:
    return world.cluster.write("structure.sql", text)


def _refused(answer: Answer, spec: ErrorSpec) -> str:
    assert answer.code == 1, answer.text
    assert f"[{spec.code} {spec.name}]" in answer.text, answer.text
    [one] = cast("list[Json]", answer.json["sources"])
    assert (one["result"], one["source"]) == (False, SOURCE), answer.text
    return str(one["msg"])


def _shown(answer: Answer) -> Json:
    [one] = cast("list[Json]", answer.json["sources"])
    return one


def _paused_by(world: World, task: str, spec: ErrorSpec) -> None:
    world.cluster.wait_subtasks(
        task, lambda sub: sub.stage == "Paused" and str(spec.code) in str(sub.raw), f"paused by {spec.name}"
    )


def _resume(world: World, task: str) -> None:
    world.cluster.dmctl("resume-task", task)


def _pause(world: World, task: str) -> None:
    world.cluster.dmctl("pause-task", task)
    world.cluster.wait_paused(task)


def _caught_up(world: World, task: str) -> None:
    world.cluster.wait_caught_up(task, {SOURCE: world.sources[0][1]})


def _same(world: World, name: str, rows: int, columns: str) -> None:
    wanted = world.sources[0][1].query(f"SELECT {columns} FROM {name}.t ORDER BY id")
    assert len(wanted) == rows
    assert world.target.query(f"SELECT {columns} FROM {name}_merged.t ORDER BY id") == wanted


def _earlier(world: World, name: str) -> tuple[str, int]:
    """Create a table that is altered after the returned position, with rows before and after it."""
    source = world.sources[0][1]
    source.execute(f"CREATE DATABASE {name}")
    source.execute(OLD.replace("TABLE t", f"TABLE {name}.t"))
    place = source.binlog_end()
    source.execute(f"INSERT INTO {name}.t VALUES (1, 1), (2, 2), (3, 3)")
    source.execute(f"ALTER TABLE {name}.t ADD COLUMN note VARCHAR(20) DEFAULT 'was', MODIFY v BIGINT NOT NULL")
    source.execute(f"INSERT INTO {name}.t VALUES (4, 4000000000, 'new')")
    source.execute(f"UPDATE {name}.t SET v = v + 1, note = 'changed' WHERE id = 2")
    source.execute(f"DELETE FROM {name}.t WHERE id = 3")
    return place


def test_a_task_that_begins_before_the_table_was_changed(world: World) -> None:
    name, cluster = "earlier", world.cluster
    place = _earlier(world, name)
    cluster.start_task(_task(world, name, meta=place))
    _paused_by(world, name, errors.decode.STRUCTURE_MISMATCH)
    now = _shown(_schema(world, "list", name))
    assert str(now["msg"]).startswith(f"CREATE TABLE `{name}`.`t` (")
    assert "`note` varchar(20)" in str(now["msg"])
    assert now["target"] == f"`{name}_merged`.`t`"
    assert "`note` varchar(20)" in str(now["targetSchema"])

    # Invalid input changes nothing.
    update = _file(world, OLD)
    _refused(_schema(world, "update", name, update, table="other", check=False), errors.ddl.SCHEMA_TABLE_UNKNOWN)
    for text, spec in (
        (f"{OLD}; DROP TABLE t", errors.ddl.SCHEMA_STATEMENT),
        ("DROP TABLE t", errors.ddl.SCHEMA_STATEMENT),
        ("CREATE TABLE t LIKE u", errors.ddl.SCHEMA_STATEMENT),
        ("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT NOT)", errors.ddl.SCHEMA_REFUSED),
        ("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT NOT NULL, z INT)", errors.replicate.TARGET_TABLE_DIFFERS),
        ("CREATE TABLE t (id BIGINT PRIMARY KEY, v JSON)", errors.replicate.TARGET_TABLE_DIFFERS),
    ):
        _refused(_schema(world, "update", name, _file(world, text), check=False), spec)
    assert _shown(_schema(world, "list", name)) == now
    assert _schema(world, "update", name, check=False).code == 2
    assert _schema(world, "update", name, update, "--from-source", check=False).code == 2

    # The task has created the target with the source's current structure: created again, it gets the recorded one.
    world.target.execute(f"DROP TABLE {name}_merged.t")
    epoch = next(iter(cluster.subtasks(name).values())).raw["epoch"]
    answer = _shown(_schema(world, "update", name, _file(world, OLD), "--flush", "--sync"))
    assert "note" not in str(answer["msg"])
    _resume(world, name)
    _caught_up(world, name)
    _same(world, name, 3, "id, v, note")
    assert "`note` varchar(20)" in str(_shown(_schema(world, "list", name))["msg"])
    assert int(str(next(iter(cluster.subtasks(name).values())).raw["epoch"])) > int(str(epoch))
    for op in (("update", _file(world, OLD)), ("update", "--from-source"), ("delete",)):
        _refused(_schema(world, op[0], name, *op[1:], check=False), errors.ddl.SCHEMA_RUNNING)
    cluster.dmctl("stop-task", name)


def test_the_target_has_the_structure_that_the_rows_have(world: World) -> None:
    name, cluster = "loaded", world.cluster
    place = _earlier(world, name)
    world.target.execute(f"CREATE DATABASE {name}_merged")
    world.target.execute(OLD.replace("TABLE t", f"TABLE {name}_merged.t"))
    text = _task(world, name, "ignore-checking-items: [schema_of_shard_tables]", meta=place)
    cluster.dmctl("start-task", cluster.write("loaded.task.yaml", text), check=False)
    _paused_by(world, name, errors.replicate.TARGET_TABLE_DIFFERS)
    _schema(world, "update", name, "--from-target")
    _resume(world, name)
    _caught_up(world, name)
    _same(world, name, 3, "id, v, note")
    cluster.dmctl("stop-task", name)


@pytest.mark.parametrize("way", [("delete",), ("update", "--from-source")], ids=["delete", "from-source"])
def test_the_source_was_changed_without_its_binlog(world: World, way: tuple[str, ...]) -> None:
    name, cluster, source = f"unlogged_{way[0]}", world.cluster, world.sources[0][1]
    source.execute(f"CREATE DATABASE {name}")
    source.execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY, v INT)")
    source.execute(f"INSERT INTO {name}.t VALUES (1, 1)")
    cluster.start_task(_task(world, name))
    cluster.wait_replicating(name)
    added = "ADD COLUMN note VARCHAR(10) DEFAULT 'x'"
    with source.connect() as session, session.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute(f"ALTER TABLE {name}.t {added}")
    world.target.execute(f"ALTER TABLE {name}_merged.t {added}")
    source.execute(f"INSERT INTO {name}.t VALUES (2, 2, 'two')")
    _paused_by(world, name, errors.decode.STRUCTURE_MISMATCH)
    answer = _shown(_schema(world, way[0], name, *way[1:]))
    assert ("note" in str(answer["msg"])) == (way[0] == "update")
    assert bool(answer.get("note")) == (way[0] == "delete")
    _resume(world, name)
    _caught_up(world, name)
    _same(world, name, 2, "id, v, note")
    later = _shown(_schema(world, "list", name))
    assert "`note` varchar(10)" in str(later["msg"])
    assert not later.get("note")
    source.execute(f"ALTER TABLE {name}.t ADD COLUMN more INT")
    source.execute(f"INSERT INTO {name}.t VALUES (3, 3, 'three', 33)")
    _caught_up(world, name)
    _same(world, name, 3, "id, v, note, more")
    cluster.dmctl("stop-task", name)


def test_a_deleted_record_of_a_table_that_is_gone(world: World) -> None:
    name, cluster, source = "gone", world.cluster, world.sources[0][1]
    source.execute(f"CREATE DATABASE {name}")
    source.execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY, v INT)")
    source.execute(f"INSERT INTO {name}.t VALUES (1, 1)")
    cluster.start_task(_task(world, name))
    cluster.wait_replicating(name)
    _pause(world, name)
    _schema(world, "delete", name)
    source.execute(f"INSERT INTO {name}.t VALUES (2, 2)")
    source.execute(f"DROP TABLE {name}.t")
    cluster.dmctl("resume-task", name, check=False)
    _paused_by(world, name, errors.ddl.SCHEMA_TABLE_GONE)
    _refused(_schema(world, "update", name, "--from-source", check=False), errors.ddl.SCHEMA_TABLE_GONE)
    _schema(world, "update", name, _file(world, "CREATE TABLE t (id INT PRIMARY KEY, v INT)"))
    _resume(world, name)
    _caught_up(world, name)
    assert not world.target.query(f"SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{name}_merged'")
    cluster.dmctl("stop-task", name)


def test_another_key_only_where_all_lanes_stand_at_one_place(world: World) -> None:
    name, cluster, source, target = "otherkey", world.cluster, world.sources[0][1], world.target
    source.execute(f"CREATE DATABASE {name}")
    source.execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY, u INT NOT NULL UNIQUE)")
    source.execute(f"INSERT INTO {name}.t VALUES (1, 10)")
    cluster.start_task(_task(world, name, "syncers: {}"))
    cluster.wait_replicating(name)
    _caught_up(world, name)
    _pause(world, name)
    other = _file(world, "CREATE TABLE t (id INT NOT NULL, u INT PRIMARY KEY)")
    of_lane = f"WHERE task = '{name}' AND lane = 1"
    target.execute(f"UPDATE dm_meta.lane_checkpoint SET skip_events = skip_events + 1 {of_lane}")
    said = _refused(_schema(world, "update", name, other, check=False), errors.ddl.SCHEMA_KEY)
    assert "u int" in said
    target.execute(f"UPDATE dm_meta.lane_checkpoint SET skip_events = skip_events - 1 {of_lane}")
    first = f"WHERE task = '{name}' AND lane = 0"
    [(segment, byte)] = target.query(f"SELECT segment, byte FROM dm_meta.lane_checkpoint {first}")
    target.execute(f"UPDATE dm_meta.lane_checkpoint SET segment = {segment}, byte = {byte} {of_lane}")
    _schema(world, "update", name, other)
    _resume(world, name)
    cluster.wait_replicating(name)
    source.execute(f"INSERT INTO {name}.t VALUES (2, 20)")
    _caught_up(world, name)
    _same(world, name, 2, "id, u")
    cluster.dmctl("stop-task", name)


def test_of_a_table_that_waits_before_a_sharding_ddl(world: World) -> None:
    name, cluster, source = "waiting", world.cluster, world.sources[0][1]
    source.execute(f"CREATE DATABASE {name}")
    for table in ("t_1", "t_2"):
        source.execute(f"CREATE TABLE {name}.{table} (id INT PRIMARY KEY, v INT)")
    cluster.start_task(_task(world, name, "shard-mode: pessimistic", tables="t_*"))
    cluster.wait_replicating(name)
    source.execute(f"ALTER TABLE {name}.t_1 ADD COLUMN note INT")
    until(
        lambda: "t_1" in cluster.dmctl("shard-ddl-lock", name).text,
        "the table waits",
    )
    _pause(world, name)
    for op in (("update", "--from-source"), ("delete",)):
        said = _refused(_schema(world, op[0], name, *op[1:], table="t_1", check=False), errors.ddl.SCHEMA_TABLE_WAITS)
        assert f"{name}-`{name}_merged`.`t`" in said
    # The other table is altered by hand, without the binlog: the lock sees the change in the table's record.
    with source.connect() as session, session.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute(f"ALTER TABLE {name}.t_2 ADD COLUMN note INT")
    world.target.execute(f"ALTER TABLE {name}_merged.t ADD COLUMN note INT")
    _schema(world, "update", name, "--from-source", "--sync", table="t_2")
    _resume(world, name)
    cluster.dmctl("shard-ddl-lock", "unlock", f"{name}-`{name}_merged`.`t`", "--force-remove", check=False)
    until(lambda: not cluster.dmctl("shard-ddl-lock", name).json["locks"], "the lock has come to its end")
    source.execute(f"INSERT INTO {name}.t_1 VALUES (1, 1, 1)")
    source.execute(f"INSERT INTO {name}.t_2 VALUES (2, 2, 2)")
    _caught_up(world, name)
    assert world.target.query(f"SELECT id, v, note FROM {name}_merged.t ORDER BY id") == [(1, 1, 1), (2, 2, 2)]
    cluster.dmctl("stop-task", name)

"""Tests an operator's commands while shard tables are parked at a sharding DDL, and overrides of future statements."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from shardmerge.proto import errors
from tests.integration.ways_out.printed import Operator, Printed
from tests.support.cluster import Answer, Json
from tests.support.judge import PartitionIds, Shard, Target, compare
from tests.support.kills import locks_of
from tests.support.wait import until
from tests.support.world import Family, World

ADD = "ADD COLUMN added INT NOT NULL DEFAULT 7"


def _update(world: World, name: str, text: str, *more: str, check: bool = True) -> Answer:
    return world.cluster.dmctl("update-task", world.cluster.write(f"{name}.update.yaml", text), *more, check=check)


def _only(family: Family, table: str, extra: str) -> str:
    plain = f'    do-dbs: ["{family.name}_*"]'
    few = f'{plain}\n    do-tables: [{{db-name: "{family.name}_*", tbl-name: "{table}"}}]'
    return family.task(extra=extra).replace(plain, few)


def _give(world: World, family: Family, text: str, *places: tuple[int, int]) -> None:
    """Execute a statement on the shard tables with these (source, number)."""
    for source, table in places:
        _, server = world.sources[source - 1]
        server.execute(f"ALTER TABLE {family.name}_01.order_{table:02d} {text}")


def _insert(world: World, family: Family, source: int, table: int, columns: str, values: str) -> None:
    world.sources[source - 1][1].execute(
        f"INSERT INTO {family.name}_01.order_{table:02d} ({columns}) VALUES ({values})"
    )


def _make(world: World, family: Family, *tables: int) -> None:
    for _, server in world.sources:
        server.execute(f"CREATE DATABASE IF NOT EXISTS {family.name}_01")
        for table in tables:
            name = f"{family.name}_01.order_{table:02d}"
            server.execute(
                f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, {table})"
            )


def _judge(world: World, family: Family) -> None:
    world.settle([family.name])
    shards = [
        Shard(server.connect, f"{family.name}_01", f"order_{table:02d}", PartitionIds(instance, 1, table))
        for instance, (_, server) in enumerate(family.sources, 1)
        for table in range(1, family.tables + 1)
    ]
    verdict = compare(shards, Target(family.target.connect, family.name, "orders"))
    assert verdict.differences == 0 and verdict.rows, verdict


def _waits(world: World, name: str, ready: int, members: int = 0) -> Json:
    """Return the only lock, once so many shard tables are parked at it, and it has ``members`` tables, unless that is
    0."""

    def found() -> Json | None:
        listed = locks_of(world, name) or []
        tables = cast("list[Json]", listed[0]["tables"]) if len(listed) == 1 else []
        waiting = sum(each["standing"] == "ready" for each in tables)
        return listed[0] if waiting == ready and (not members or len(tables) == members) else None

    return until(found, f"{ready} shard tables wait")


def test_an_update_while_shard_tables_wait(world: World) -> None:
    family = world.family("locked", tables=2)
    name, mode = "locked", "shard-mode: pessimistic\n"
    _make(world, family, 1, 2)
    world.cluster.start_task(_only(family, "order_01", mode))
    world.cluster.wait_replicating(name)
    _give(world, family, ADD, (1, 1))
    _waits(world, name, 1)
    _insert(world, family, 1, 1, "id, v, added", "2, 2, 2")

    # Another shard mode is refused: parked tables wait by the rules of the current one.
    for other in ("", "shard-mode: optimistic\n"):
        for more in ((), ("--dry-run",)):
            refused = _update(world, name, _only(family, "order_01", other), *more, check=False)
            assert refused.code == 1
            assert f"[{errors.master.UPDATE_SHARD_MODE.code} " in refused.text, refused.text
    assert _waits(world, name, 1)["stage"] == "gathering"

    # Settings may change, and tables may join: the lock waits for those that have not reached the statement.
    _update(world, name, _only(family, "order_01", mode + "replicate: {lanes: 3}\n"))
    _waits(world, name, 1)
    _update(world, name, family.task(extra=mode + "replicate: {lanes: 3}\n"))
    _insert(world, family, 2, 1, "id, v", "2, 2")
    _insert(world, family, 2, 2, "id, v", "2, 2")

    world.cluster.wait_joined(name)
    _waits(world, name, 1, members=4)
    _give(world, family, ADD, (2, 1), (2, 2), (1, 2))
    _insert(world, family, 2, 2, "id, v, added", "3, 3, 3")
    until(lambda: locks_of(world, name) == [], "the lock has come to its end", 300)
    world.cluster.wait_joined(name)
    _judge(world, family)

    # Without parked tables the mode may change: later statements follow the new one.
    _update(world, name, family.task(extra="shard-mode: optimistic\nreplicate: {lanes: 3}\n"))
    world.cluster.wait_replicating(name)
    _give(world, family, "ADD COLUMN more INT", (1, 1))
    _insert(world, family, 1, 1, "id, v, more", "4, 4, 4")
    world.settle([name])
    assert locks_of(world, name) == []
    assert world.target.query(f"SELECT COUNT(*) FROM {name}.orders WHERE more = 4") == [(1,)]
    _give(world, family, "ADD COLUMN more INT", (1, 2), (2, 1), (2, 2))
    _judge(world, family)
    world.cluster.dmctl("stop-task", name)


def test_a_waiting_table_leaves(world: World) -> None:
    family = world.family("left", tables=2)
    name, mode = "left", "shard-mode: pessimistic\n"
    _make(world, family, 1, 2)
    world.cluster.start_task(family.task(extra=mode))
    world.cluster.wait_replicating(name)
    _give(world, family, ADD, (1, 1))
    _insert(world, family, 1, 1, "id, v, added", "2, 2, 2")
    _waits(world, name, 1)
    _update(world, name, _only(family, "order_02", mode))
    world.cluster.wait_replicating(name)
    until(lambda: locks_of(world, name) == [], "there is no lock without the table")
    for source in (1, 2):
        _insert(world, family, source, 2, "id, v", "3, 3")
    world.settle([name])
    assert world.target.query(f"SELECT v, COUNT(*) FROM {name}.orders GROUP BY v") == [(1, 2), (2, 2), (3, 2)]
    assert world.target.query(f"SELECT * FROM dm_meta.parked_table WHERE task = '{name}'") == []
    _give(world, family, ADD, (1, 2))
    assert len(cast("list[Json]", _waits(world, name, 1)["tables"])) == 2
    _give(world, family, ADD, (2, 2))
    _insert(world, family, 2, 2, "id, v, added", "4, 4, 4")
    world.settle([name])
    assert world.target.query(f"SELECT COUNT(*), SUM(added) FROM {name}.orders") == [(7, 46)]
    world.cluster.dmctl("stop-task", name)


def test_a_task_without_shard_mode_gets_one_before_a_sharding_ddl(world: World) -> None:
    family = world.family("modeless", tables=1)
    name = "modeless"
    _make(world, family, 1)
    world.cluster.start_task(family.task())
    world.cluster.wait_replicating(name)
    _give(world, family, ADD, (1, 1))
    source = world.sources[0][0]

    def paused_with() -> list[int]:
        found = world.cluster.subtasks(name).get(source)
        return [code for code, _ in found.errors] if found is not None and found.stage == "Paused" else []

    assert until(paused_with, "it stands before the statement") == [errors.ddl.NEEDS_SHARD_MODE.code]
    _update(world, name, family.task(extra="shard-mode: pessimistic\n"))
    _waits(world, name, 1)
    _give(world, family, ADD, (2, 1))
    _insert(world, family, 2, 1, "id, v, added", "2, 2, 2")
    until(lambda: locks_of(world, name) == [], "the lock has come to its end", 300)
    _judge(world, family)
    _update(world, name, family.task())
    world.cluster.wait_replicating(name)
    _insert(world, family, 1, 1, "id, v, added", "5, 5, 5")
    _judge(world, family)
    world.cluster.dmctl("stop-task", name)


def test_revert_on_a_running_task(world: World) -> None:
    family = world.family("reverted", tables=1)
    name = "reverted"
    source, server = world.sources[0]
    server.execute(f"CREATE DATABASE {name}_01", f"CREATE TABLE {name}_01.order_01 (id BIGINT PRIMARY KEY, v INT)")
    server.execute(f"INSERT INTO {name}_01.order_01 VALUES (1, 1)")
    world.cluster.start_task(replace(family, sources=family.sources[:1]).task())
    world.cluster.wait_replicating(name)

    def binlog(*arguments: str, check: bool = True) -> Answer:
        return world.cluster.dmctl("binlog", *arguments, "-s", source, check=check)

    def until_known() -> None:
        """Wait until the worker has read the overrides: it reads them by itself a moment later, and a resume waits for
        that."""
        world.cluster.dmctl("resume-task", name)

    def structure() -> list[tuple[object, ...]]:
        return world.target.query(f"SHOW COLUMNS FROM {name}.orders")

    # The task has not stopped at a statement, and there is no override.
    assert f"[{errors.master.BINLOG_NO_ERROR.code} " in binlog("revert", name, check=False).text
    file, position = server.binlog_end()
    place = ("-b", f"{file}:{position}")
    assert f"[{errors.master.BINLOG_NOTHING_SAID.code} " in binlog("revert", name, *place, check=False).text
    # An override of a future statement has no effect after it is reverted.
    binlog("skip", name, *place)
    assert "skip" in binlog("list", name).text
    binlog("revert", name, *place)
    assert "there are no overrides" in binlog("list", name).text
    world.cluster.wait_subtasks(name, lambda sub: sub.stage == "Running", "still runs")
    until_known()
    server.execute(
        f"ALTER TABLE {name}_01.order_01 ADD COLUMN one INT", f"INSERT INTO {name}_01.order_01 VALUES (2, 2, 2)"
    )
    world.cluster.wait_caught_up(name, {source: server})
    assert [row[0] for row in structure()] == ["id", "v", "one"]
    # A statement that was skipped by an override stays skipped.
    file, position = server.binlog_end()
    place = ("-b", f"{file}:{position}")
    binlog("skip", name, *place)
    until_known()
    server.execute(
        f"ALTER TABLE {name}_01.order_01 ADD INDEX by_v (v)", f"INSERT INTO {name}_01.order_01 VALUES (3, 3, 3)"
    )
    world.cluster.wait_caught_up(name, {source: server})
    binlog("revert", name, *place)
    server.execute(f"INSERT INTO {name}_01.order_01 VALUES (4, 4, 4)")
    world.cluster.wait_caught_up(name, {source: server})
    assert [row[3] for row in structure()] == ["PRI", "", ""]
    assert world.target.query(f"SELECT COUNT(*), SUM(one) FROM {name}.orders") == [(4, 9)]
    world.cluster.dmctl("stop-task", name)


def _parked_at_the_first_source(world: World, name: str) -> Family:
    """Start a task of one shard table per source; that of the first source is parked, so this source owns the lock."""
    family = world.family(name, tables=1)
    _make(world, family, 1)
    world.cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
    world.cluster.wait_replicating(name)
    _give(world, family, ADD, (1, 1))
    assert _waits(world, name, 1)["owner"] == world.sources[0][0]
    return family


def test_another_source_runs_the_statement_when_the_owner_is_paused(world: World) -> None:
    name, first = "unable", world.sources[0][0]
    family = _parked_at_the_first_source(world, name)
    world.cluster.dmctl("pause-task", name, "-s", first)
    _give(world, family, ADD, (2, 1))
    _insert(world, family, 2, 1, "id, v, added", "3, 3, 3")
    arrived = f"SELECT COUNT(*) FROM {name}.orders WHERE v = 3"
    until(lambda: world.target.query(arrived) == [(1,)], "the other source has run it and its table has resumed")
    [lock] = locks_of(world, name) or []
    assert (lock["owner"], lock["stage"]) == (world.sources[1][0], "released")
    world.cluster.dmctl("resume-task", name, "-s", first)
    until(lambda: locks_of(world, name) == [], "the lock has come to its end")
    _judge(world, family)
    world.cluster.dmctl("stop-task", name)


def test_the_next_owner_finds_that_the_statement_has_run(world: World) -> None:
    """The first owner is killed right after the target has run the statement: it runs once."""
    name, first = "heir", world.sources[0][0]
    family = _parked_at_the_first_source(world, name)
    hooks = world.cluster.hooks
    hooks.hold("ddl.run")
    _give(world, family, ADD, (2, 1))
    hooks.reached("ddl.run")
    [(count,)] = world.target.query(f"SELECT COUNT(*) FROM dm_meta.statement_begun WHERE task = '{name}'")
    assert count == 1
    worker = world.cluster.worker_of(first)
    worker.kill()
    hooks.release("ddl.run")
    second = world.sources[1][0]
    until(
        lambda: [(lock["owner"], lock["stage"]) for lock in locks_of(world, name) or []] == [(second, "released")],
        "the other source has found that the statement has run",
        300,
    )
    worker.start()
    world.cluster.wait_bound([first])
    until(lambda: locks_of(world, name) == [], "the lock has come to its end", 300)
    assert world.target.query(f"SELECT COUNT(*) FROM dm_meta.statement_begun WHERE task = '{name}'") == [(0,)]
    _judge(world, family)
    world.cluster.dmctl("stop-task", name)


@pytest.mark.parametrize("kind", ["INT", "BIGINT"])
def test_unlock_of_a_statement_that_may_change_values(world: World, kind: str) -> None:
    """50108, and its printed way out: without the statement, and with a repair of the rows."""
    name = f"exchanging_{kind.lower()}"
    family = world.family(name, tables=1)
    _make(world, family, 1)
    world.cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
    world.cluster.wait_replicating(name)
    text = f"DROP COLUMN v, ADD COLUMN v {kind}"
    _give(world, family, text, (1, 1))
    lock = _waits(world, name, 1)
    refused = world.cluster.dmctl("shard-ddl-lock", "unlock", str(lock["ID"]), check=False)
    assert f"[{errors.ddl.LOCK_KEEPS_STRUCTURE.code} " in refused.text, refused.text
    printed = Printed(errors.ddl.LOCK_KEEPS_STRUCTURE.code, "", refused.text)
    operator = Operator(world.cluster, name, "")
    operator.runs(printed, "shard-ddl-lock unlock")
    if kind != "INT":
        differs = operator.stopped(errors.replicate.TARGET_TABLE_DIFFERS.code)
        assert "ALTER the target table" in differs.way_out
        world.target.execute(f"ALTER TABLE {name}.orders MODIFY v {kind}")
        operator.runs(differs, "resume-task")
    until(lambda: locks_of(world, name) == [], "the lock has come to its end")
    _insert(world, family, 1, 1, "id, v", "2, 2")
    _insert(world, family, 2, 1, "id, v", "2, 2")
    _give(world, family, text, (2, 1))
    _insert(world, family, 2, 1, "id, v", "3, 3")
    world.settle([name])
    assert world.target.query(f"SELECT COUNT(*) FROM {name}.orders WHERE v IS NULL") == [(0,)], "it does not run"
    operator.runs(printed, "compare")
    _judge(world, family)
    world.cluster.dmctl("stop-task", name)


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
@pytest.mark.parametrize(
    "change", ["DROP COLUMN v, ADD COLUMN v INT DEFAULT 5", "RENAME COLUMN v TO w, RENAME COLUMN w TO v"]
)
def test_a_table_that_begins_with_the_structure_after_a_statement(world: World, mode: str, change: str) -> None:
    """Its rows are at the target as they are after the statement, and must not get it."""
    name = f"begins_{mode[0]}_{change[0].lower()}"
    family = Family(name, world.sources[:1], world.target, tables=3)
    (_, source) = world.sources[0]
    source.execute(f"CREATE DATABASE {name}_01")
    for table in (1, 2):
        place = f"{name}_01.order_{table:02d}"
        source.execute(
            f"CREATE TABLE {place} (id BIGINT PRIMARY KEY, v INT, w INT DEFAULT 3)",
            f"INSERT INTO {place} VALUES (1, {table}, 10)",
        )
    world.cluster.start_task(family.task(extra=f"shard-mode: {mode}\n"))
    world.cluster.wait_replicating(name)
    _give(world, family, change, (1, 1))
    _waits(world, name, 1)
    [(_, text)] = source.query(f"SHOW CREATE TABLE {name}_01.order_01")
    source.execute(f"USE {name}_01", str(text).replace("order_01", "order_03"))
    _insert(world, family, 1, 3, "id, v, w", "1, 111, 222")
    _give(world, family, change, (1, 2))
    lock = _waits(world, name, 2, members=3)
    refused = world.cluster.dmctl("shard-ddl-lock", "unlock", str(lock["ID"]), check=False)
    assert f"[{errors.ddl.LOCK_KEEPS_STRUCTURE.code} " in refused.text, refused.text
    printed = Printed(errors.ddl.LOCK_KEEPS_STRUCTURE.code, "", refused.text)
    operator = Operator(world.cluster, name, "")
    operator.runs(printed, "shard-ddl-lock unlock")
    until(lambda: locks_of(world, name) == [], "the lock has come to its end")
    for table in (1, 2, 3):
        _insert(world, family, 1, table, "id, v, w", "2, 2, 22")
    world.settle([name])
    assert world.target.query(f"SELECT v, w FROM {name}.orders WHERE v = 111") == [(111, 222)], "it has not run"
    operator.runs(printed, "compare")
    _judge(world, family)
    world.cluster.dmctl("stop-task", name)


def test_a_new_table_with_a_column_that_only_the_waiting_statement_gives(world: World) -> None:
    """40030, then 50004, each with its printed way out."""
    name = "new_column"
    family = Family(name, world.sources[:1], world.target, tables=3)
    _make(world, family, 1, 2)
    (_, source) = world.sources[0]
    world.cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
    world.cluster.wait_replicating(name)
    _give(world, family, "RENAME COLUMN v TO w", (1, 1))
    _waits(world, name, 1)
    source.execute(f"CREATE TABLE {name}_01.order_03 (id BIGINT PRIMARY KEY, w INT)")
    _insert(world, family, 1, 3, "id, w", "1, 3")
    _give(world, family, "RENAME COLUMN v TO w", (1, 2))
    operator = Operator(world.cluster, name, "")
    differs = operator.stopped(errors.replicate.TARGET_TABLE_DIFFERS.code)
    world.target.execute(f"ALTER TABLE {name}.orders ADD COLUMN w INT")
    operator.runs(differs, "resume-task")
    refused = operator.stopped(errors.ddl.DDL_REFUSED.code)
    operator.runs(refused, "binlog skip")
    for table in (1, 2, 3):
        _insert(world, family, 1, table, "id, w", "2, 2")
    world.settle([name])
    operator.runs(refused, "compare")
    world.target.execute(f"ALTER TABLE {name}.orders DROP COLUMN v")
    _judge(world, family)
    world.cluster.dmctl("stop-task", name)


def test_the_target_has_a_part_of_the_statement(world: World) -> None:
    """50004 at the owner, whose tables wait: the printed `binlog skip` is for the whole lock."""
    name = "a_part"
    family = world.family(name, tables=2)
    _make(world, family, 1, 2)
    world.cluster.start_task(family.task(extra="shard-mode: pessimistic\n"))
    world.cluster.wait_replicating(name)
    world.target.execute(f"ALTER TABLE {name}.orders {ADD}")
    _give(world, family, f"{ADD}, ADD COLUMN more INT DEFAULT 8", (1, 1), (1, 2), (2, 1), (2, 2))
    for source in (1, 2):
        _insert(world, family, source, 2, "id, v, added, more", "2, 2, 3, 4")
    operator = Operator(world.cluster, name, "")
    refused = operator.stopped(errors.ddl.DDL_REFUSED.code)
    assert "run the rest at the target by hand" in refused.way_out
    world.target.execute(f"ALTER TABLE {name}.orders ADD COLUMN more INT DEFAULT 8")
    operator.runs(refused, "binlog skip")
    until(lambda: locks_of(world, name) == [], "the lock has come to its end")
    _judge(world, family)
    world.cluster.dmctl("stop-task", name)


def test_an_update_with_a_table_that_has_the_structure_after_the_statement(world: World) -> None:
    """The pre-check names the lock: when it has ended, the same command adds the table."""
    name, mode = "new_structure", "shard-mode: pessimistic\n"
    family = world.family(name, tables=2)
    _make(world, family, 1)
    world.cluster.start_task(_only(family, "order_01", mode))
    world.cluster.wait_replicating(name)
    _give(world, family, ADD, (1, 1))
    _waits(world, name, 1)
    for source in (1, 2):
        _, server = world.sources[source - 1]
        server.execute(f"CREATE TABLE {name}_01.order_02 (id BIGINT PRIMARY KEY, v INT, added INT NOT NULL DEFAULT 7)")
        _insert(world, family, source, 2, "id, v, added", "1, 2, 3")
    wanted = family.task(extra=mode)
    refused = _update(world, name, wanted, check=False)
    assert refused.code == 1
    checks = cast("list[Json]", refused.json["checkResult"])
    [differs] = {str(one["instruction"]) for one in checks if one["code"] == errors.check.TARGET_TABLE.code}
    listed = Operator(world.cluster, name, "").runs(Printed(0, "", differs), "shard-ddl-lock").json["locks"]
    assert [one["DDLs"] for one in listed]
    _give(world, family, ADD, (2, 1))
    until(lambda: locks_of(world, name) == [], "the lock has come to its end")
    _update(world, name, wanted)
    world.cluster.wait_joined(name)
    _insert(world, family, 2, 2, "id, v, added", "2, 2, 4")
    _judge(world, family)
    world.cluster.dmctl("stop-task", name)


def test_unlock_when_the_target_is_about_to_refuse(world: World) -> None:
    """The operator's decision arrives after the owner has read the lock, and before the target's error."""
    name = "refusing"
    family = _parked_at_the_first_source(world, name)
    world.target.execute(f"ALTER TABLE {name}.orders {ADD}")  # the target refuses the lock's statement
    hooks = world.cluster.hooks
    hooks.hold("lock.executing")
    _give(world, family, ADD, (2, 1))
    hooks.reached("lock.executing")
    [lock] = locks_of(world, name) or []
    world.cluster.dmctl("shard-ddl-lock", "unlock", str(lock["ID"]), "--force-remove")
    hooks.release("lock.executing")
    until(lambda: locks_of(world, name) == [], "the lock has come to its end without resume-task")
    _insert(world, family, 2, 1, "id, v, added", "3, 3, 3")
    _judge(world, family)
    world.cluster.dmctl("stop-task", name)

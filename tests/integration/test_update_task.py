"""Tests `dmctl update-task`: tables join a running task with their history, leave it, move, and settings change."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import pytest

from shardmerge.proto import errors
from tests.integration.ways_out.printed import Operator, Printed
from tests.support.cluster import Cluster, Json, SubTask
from tests.support.judge import PartitionIds, Shard, Target, compare
from tests.support.wait import until
from tests.support.world import Family, World
from tests.support.writer import Writer


def _only(family: Family, *tables: str, extra: str = "") -> str:
    """Return the family's task file, for these of its shard tables only."""
    do_tables = "".join(f'\n      - {{db-name: "{family.name}_*", tbl-name: "{table}"}}' for table in tables)
    plain = f'    do-dbs: ["{family.name}_*"]'
    return family.task(extra=extra).replace(plain, f"{plain}\n    do-tables:{do_tables}")


def _update(cluster: Cluster, text: str, *more: str) -> Json:
    return cluster.dmctl("update-task", cluster.write("updated.task.yaml", text), *more).json


def _changes(answer: Json) -> set[tuple[str, str]]:
    sources = cast("list[Json]", answer["sources"])
    tables = [table for source in sources for table in cast("list[Json]", source["tables"])]
    return {(table["kind"], table["sourceTable"]) for table in tables}


def _join(sub: SubTask) -> Json:
    """Return the status of the tables that are joining; {} if there are none."""
    return cast("Json", sub.raw.get("join") or {})


def _count(world: World, query: str) -> int:
    return int(str(world.target.query(query)[0][0]))


def test_tables_join_with_their_history_while_everybody_writes(world: World) -> None:
    family = world.family("joins", tables=3)
    shards = family.create(3000)
    cluster = world.cluster
    with Writer(shards, seed=31) as writer:
        cluster.start_task(_only(family, "order_01"))
        cluster.wait_replicating("joins")
        before = _count(world, "SELECT COUNT(*) FROM joins.orders")
        dry = _update(cluster, family.task(), "--dry-run")
        assert _changes(dry) == {("joins", f"`joins_01`.`order_{number:02d}`") for number in (2, 3)}
        assert _count(world, "SELECT COUNT(*) FROM dm_meta.subtask WHERE joining <> ''") == 0
        epochs = {sub.raw["epoch"] for sub in cluster.subtasks("joins").values()}
        answer = _update(cluster, family.task())
        assert answer["result"], answer
        cluster.wait_joined("joins")
        # The writers never pause: it ends when what they had committed at its begin is applied.
        assert cluster.dmctl("query-status", "joins", "--until", "synced").json["result"]
        cluster.wait_replicating("joins")
        writer.go_on(500)
        writer.stop()
    world.settle(["joins"])
    assert {sub.raw["epoch"] for sub in cluster.subtasks("joins").values()} != epochs
    verdict = family.verdict()
    assert verdict.differences == 0, verdict
    assert verdict.rows > before
    assert _changes(_update(cluster, family.task(), "--dry-run")) == set()
    cluster.dmctl("stop-task", "joins")


def test_a_table_leaves_and_comes_back(world: World) -> None:
    family = world.family("leaves", tables=2)
    shards = family.create(500)
    cluster = world.cluster
    cluster.start_task(family.task())
    cluster.wait_replicating("leaves")
    answer = _update(cluster, _only(family, "order_01"))
    assert _changes(answer) == {("leaves", "`leaves_01`.`order_02`")}
    cluster.wait_replicating("leaves")
    world.settle(["leaves"])
    before = world.target.query("SELECT COUNT(*) FROM leaves.orders")
    with Writer([shard for shard in shards if shard.table == "order_02"], seed=32) as writer:
        until(lambda: writer.counts.changes > 200, "the table that has left changes")
        writer.stop()
    world.settle(["leaves"])
    assert world.target.query("SELECT COUNT(*) FROM leaves.orders") == before
    # Its old rows collide with its new ones: the other table continues, and query-status reports the way out.
    again = family.task(extra="ignore-checking-items: [downstream_table_empty]\n")
    assert _changes(_update(cluster, again)) == {("joins", "`leaves_01`.`order_02`")}
    failed = cluster.wait_subtasks("leaves", lambda sub: _join(sub).get("phase") == "failed", "says why nothing joins")
    for sub in failed.values():
        assert sub.stage == "Running"
        assert _join(sub)["error"]["code"] == errors.replicate.COLLISION.code
    with Writer([shard for shard in shards if shard.table == "order_01"], seed=33) as writer:
        until(lambda: writer.counts.changes > 100, "the table that has stayed changes")
        writer.stop()
    world.settle(["leaves"])
    for instance in (1, 2):
        part = (instance << 59) + (1 << 52) + (2 << 44)
        world.target.execute(f"DELETE FROM leaves.orders WHERE id BETWEEN {part} AND {part + (1 << 44) - 1}")
    # The task runs: the tables are tried again without a stop of its lanes.
    cluster.dmctl("resume-task", "leaves")
    cluster.wait_joined("leaves")
    cluster.wait_replicating("leaves")
    world.judge(family)
    cluster.dmctl("stop-task", "leaves")


def test_settings_change_and_fixed_keys_do_not(world: World) -> None:
    family = world.family("sets")
    family.create(100)
    cluster = world.cluster
    cluster.start_task(family.task())
    cluster.wait_replicating("sets")
    answer = _update(cluster, family.task(extra="replicate: {lanes: 3}\n"))
    sources = cast("list[Json]", answer["sources"])
    assert [(one["key"], one["before"], one["after"]) for one in cast("list[Json]", sources[0]["settings"])] == [
        ("replicate.lanes", "2", "3")
    ]
    lanes = "SELECT COUNT(*) FROM dm_meta.lane_checkpoint WHERE task = 'sets' AND source = 'mysql-01'"
    until(lambda: _count(world, lanes) == 3, "three lanes")
    for text, code in (
        (family.task().replace("meta-schema: dm_meta", "meta-schema: other_meta"), errors.master.UPDATE_FIXED.code),
        (family.task(mode="full"), errors.master.UPDATE_FULL.code),
        (family.task().replace("name: sets", "name: nobody", 1), errors.master.TASK_UNKNOWN.code),
        (
            family.task().replace('["1", "sets_", "order_"]', '["5", "sets_", "order_"]'),
            errors.replicate.UPDATE_REMAPS.code,
        ),
    ):
        refused = cluster.dmctl("update-task", cluster.write("updated.task.yaml", text), check=False)
        assert refused.code == 1
        assert f"[{code} " in refused.text, refused.text
    cluster.wait_replicating("sets")
    world.judge(family)
    # stop-task and start-task are no update: they do not search for new tables.
    tokens = world.target.query("SELECT update_token FROM dm_meta.subtask WHERE task = 'sets'")
    cluster.dmctl("stop-task", "sets")
    cluster.start_task(family.task(extra="replicate: {lanes: 3}\n"))
    cluster.wait_replicating("sets")
    assert world.target.query("SELECT update_token FROM dm_meta.subtask WHERE task = 'sets'") == tokens != [("",)] * 2
    cluster.dmctl("stop-task", "sets")


def test_the_others_continue_while_a_table_is_copied(world: World) -> None:
    family = world.family("beside", tables=2)
    shards = family.create(300)
    cluster = world.cluster
    cluster.start_task(_only(family, "order_01"))
    cluster.wait_replicating("beside")
    cluster.hooks.hold("snapshot.before_commit")
    _update(cluster, family.task())
    cluster.hooks.reached("snapshot.before_commit")
    with Writer(shards, seed=34) as writer:
        until(lambda: writer.counts.changes > 200, "there is load")
        writer.stop()
    world.settle(["beside"])
    cluster.wait_subtasks("beside", lambda sub: _join(sub).get("phase") == "copying", "copies the table still")
    cluster.hooks.release("snapshot.before_commit")
    cluster.wait_joined("beside")
    cluster.wait_replicating("beside")
    world.judge(family)
    cluster.dmctl("stop-task", "beside")


def test_an_update_of_a_task_that_copies_takes_effect_when_it_replicates(world: World) -> None:
    family = world.family("early", tables=2)
    shards = family.create(300)
    cluster = world.cluster
    cluster.hooks.hold("snapshot.before_commit")
    cluster.start_task(_only(family, "order_01"))
    cluster.hooks.reached("snapshot.before_commit")
    with Writer(shards, seed=35) as writer:
        _update(cluster, family.task())
        cluster.hooks.release("snapshot.before_commit")
        cluster.wait_replicating("early")
        cluster.wait_joined("early")
        writer.go_on()
        writer.stop()
    cluster.wait_replicating("early")
    world.judge(family)
    cluster.dmctl("stop-task", "early")


def test_an_update_is_taken_back_while_its_tables_are_copied(world: World) -> None:
    """No record of the tables remains, the readers' writes are refused, and the tables may join again later."""
    family = world.family("back", tables=2)
    shards = family.create(1500)
    cluster = world.cluster
    slowly = "snapshot: {chunk-rows: 50, threads: 1, rows-per-second: 100}\n"
    cluster.start_task(_only(family, "order_01"))
    cluster.wait_replicating("back")
    # Held, so that the copy is not complete even if the next command is slow.
    cluster.hooks.hold("snapshot.after_commit")
    assert _changes(_update(cluster, family.task(extra=slowly))) == {("joins", "`back_01`.`order_02`")}
    of_second = "id >> 44 & 255 = 2"
    until(lambda: _count(world, f"SELECT COUNT(*) FROM back.orders WHERE {of_second}") > 0, "some rows are copied", 300)
    _update(cluster, _only(family, "order_01"))
    cluster.hooks.release("snapshot.after_commit")
    cluster.wait_joined("back")
    cluster.wait_replicating("back")
    copied = _count(world, f"SELECT COUNT(*) FROM back.orders WHERE {of_second}")
    assert copied < 3000
    owed = "SELECT COUNT(*) FROM dm_meta.{} WHERE task = 'back'"
    assert _count(world, owed.format("snapshot_table")) == 2
    assert _count(world, owed.format("join_checkpoint")) == 0
    with Writer(shards, seed=37) as writer:
        writer.go_on()
        writer.stop()
    world.settle(["back"])
    assert _count(world, f"SELECT COUNT(*) FROM back.orders WHERE {of_second}") == copied
    world.target.execute(f"DELETE FROM back.orders WHERE {of_second}")
    assert _changes(_update(cluster, family.task())) == {("joins", "`back_01`.`order_02`")}
    cluster.wait_joined("back")
    cluster.wait_replicating("back")
    world.judge(family)
    cluster.dmctl("stop-task", "back")


def test_a_table_that_is_made_meanwhile_comes_in(world: World) -> None:
    """It is added by its CREATE TABLE, with its rows; a later update has nothing to add."""
    whole = world.family("made", tables=3)
    family = replace(whole, tables=2)
    family.create(200)
    cluster = world.cluster
    cluster.start_task(family.task())
    cluster.wait_replicating("made")
    for _, server in world.sources:
        server.execute(
            "CREATE TABLE made_01.order_03 LIKE made_01.order_01",
            "INSERT INTO made_01.order_03 SELECT * FROM made_01.order_02",
        )
    world.judge(whole)
    assert _changes(_update(cluster, family.task())) == set()
    world.judge(whole)
    cluster.dmctl("stop-task", "made")


def test_a_table_moves_to_another_target(world: World) -> None:
    family = world.family("moves", tables=1)
    shards = family.create(400)
    cluster = world.cluster
    cluster.start_task(family.task())
    cluster.wait_replicating("moves")
    there = family.task().replace("    target-schema: moves\n", "    target-schema: moved\n")
    with Writer(shards, seed=36) as writer:
        refused = cluster.dmctl("update-task", cluster.write("updated.task.yaml", there), check=False)
        assert (refused.code, f"[{errors.master.UPDATE_MOVES.code} " in refused.text) == (1, True), refused.text
        assert _changes(_update(cluster, there, "--dry-run")) == {("moves", "`moves_01`.`order_01`")}
        assert _changes(_update(cluster, there, "--move-tables")) == {("moves", "`moves_01`.`order_01`")}
        cluster.wait_joined("moves")
        writer.go_on()
        writer.stop()
    cluster.wait_replicating("moves")
    world.settle(["moves"])
    places = [
        Shard(server.connect, "moves_01", "order_01", PartitionIds(instance, 1, 1))
        for instance, (_, server) in enumerate(world.sources, 1)
    ]
    verdict = compare(places, Target(world.target.connect, "moved", "orders"))
    assert verdict.differences == 0, verdict
    assert _count(world, "SELECT COUNT(*) FROM moves.orders") > 0
    cluster.dmctl("stop-task", "moves")


def _refused(cluster: Cluster, text: str, code: int, *more: str) -> list[str]:
    """Check that the update is refused with this code; return the ways out that the sources print."""
    path = cluster.write("updated.task.yaml", text)
    for options in (more, (*more, "--dry-run")):
        answer = cluster.dmctl("update-task", path, *options, check=False)
        sources = [one for one in cast("list[Json]", answer.json["sources"]) if one.get("error")]
        assert answer.code == 1, answer.text
        assert {int(cast("Json", one["error"])["code"]) for one in sources} == {code}, answer.text
    return [str(cast("Json", one["error"])["workaround"]) for one in sources]


def test_a_table_does_not_move_back_onto_its_own_rows(world: World) -> None:
    """40099. The rows that the source has deleted meanwhile would stay, and the others collide. The printed statements
    remove the rows of these shard tables only."""
    family = world.family("returns", tables=2)
    shards = family.create(300)
    cluster = world.cluster
    cluster.start_task(family.task())
    cluster.wait_replicating("returns")
    world.settle(["returns"])
    there = family.task().replace("    target-schema: returns\n", "    target-schema: returns_there\n")
    there = there.replace(
        '    table-pattern: "order_*"\n    target-schema', "    table-pattern: order_02\n    target-schema"
    )
    there = there.replace("route-rules: [merge]", "route-rules: [merge, first]")
    first = "schema-pattern: returns_01, table-pattern: order_01, target-schema: returns, target-table: orders"
    there = there.replace("routes:\n", f"routes:\n  first: {{{first}}}\n", 1)
    assert _changes(_update(cluster, there, "--move-tables")) == {("moves", "`returns_01`.`order_02`")}
    cluster.wait_joined("returns")
    cluster.wait_replicating("returns")
    with Writer(shards, seed=35) as writer:
        until(lambda: writer.counts.changes > 300, "both tables change")
        writer.stop()
    world.settle(["returns"])
    before = _count(world, "SELECT COUNT(*) FROM returns.orders")
    printed = _refused(cluster, family.task(), errors.replicate.UPDATE_OWN_ROWS.code, "--move-tables")
    assert len(printed) == 2 and _count(world, "SELECT COUNT(*) FROM returns.orders") == before
    for text in printed:
        found = re.search(r"(DELETE FROM .*?;)", text)
        assert found is not None, text
        world.target.execute(found[1])
    assert 0 < _count(world, "SELECT COUNT(*) FROM returns.orders") < before
    assert _changes(_update(cluster, family.task(), "--move-tables")) == {("moves", "`returns_01`.`order_02`")}
    cluster.wait_joined("returns")
    cluster.wait_replicating("returns")
    world.judge(family)
    cluster.dmctl("stop-task", "returns")


def _of_tables(world: World, task: str, *tables: str, target: str = "") -> str:
    """Return the file of a task of one source without a column mapping. ``target``: the table that all are merged into;
    "": each into one of its own."""
    route = f"{{schema-pattern: {task}, target-schema: {task}, table-pattern: '*', target-table: {target}}}"
    lines = world.head_of_task(task, "route-rules: [merge]" if target else "route-rules: []")
    text = "\n".join((*lines, f"block-allow-list: {{own: {{do-dbs: [{task}], do-tables: ["))
    text += ", ".join(f"{{db-name: {task}, tbl-name: {table}}}" for table in tables) + "]}}\n"
    return text + (f"routes: {{merge: {route}}}\n" if target else "")


def test_a_table_without_a_key_does_not_get_its_rows_twice(world: World) -> None:
    """No key of it collides."""
    task, cluster, (_, source) = "twice", world.cluster, world.sources[0]
    source.execute(
        f"CREATE DATABASE {task}",
        *(f"CREATE TABLE {task}.{table} (v INT)" for table in ("t", "u")),
        *(f"INSERT INTO {task}.{table} VALUES (1), (1), (2)" for table in ("t", "u")),
    )
    cluster.start_task(_of_tables(world, task, "t", "u"))
    cluster.wait_replicating(task)
    _update(cluster, _of_tables(world, task, "t"))
    cluster.wait_replicating(task)
    source.execute(f"DELETE FROM {task}.u WHERE v = 2")
    [printed] = _refused(cluster, _of_tables(world, task, "t", "u"), errors.replicate.UPDATE_OWN_ROWS.code)
    found = re.search(r"(DELETE FROM .*?;)", printed)
    assert found is not None, printed
    world.target.execute(found[1])
    _update(cluster, _of_tables(world, task, "t", "u"))
    cluster.wait_joined(task)
    source.execute(f"INSERT INTO {task}.u VALUES (3)", f"INSERT INTO {task}.t VALUES (3)")
    world.settle([task])
    assert [row for (row,) in world.target.query(f"SELECT v FROM {task}.u ORDER BY v")] == [1, 1, 3]
    assert [row for (row,) in world.target.query(f"SELECT v FROM {task}.t ORDER BY v")] == [1, 1, 2, 3]
    cluster.dmctl("stop-task", task)


def test_a_table_does_not_come_back_into_mixed_rows(world: World) -> None:
    """40101. Nothing shows which rows are its own: all are copied again, with the printed commands."""
    task, cluster, (_, source) = "mixed_back", world.cluster, world.sources[0]
    source.execute(
        f"CREATE DATABASE {task}",
        *(f"CREATE TABLE {task}.{table} (id INT PRIMARY KEY)" for table in ("t", "u")),
        f"INSERT INTO {task}.t VALUES (1), (2)",
        f"INSERT INTO {task}.u VALUES (11), (12)",
    )
    cluster.start_task(_of_tables(world, task, "t", "u", target="merged"))
    cluster.wait_replicating(task)
    _update(cluster, _of_tables(world, task, "t", target="merged"))
    cluster.wait_replicating(task)
    source.execute(f"DELETE FROM {task}.u", f"INSERT INTO {task}.u VALUES (13)")
    text = _of_tables(world, task, "t", "u", target="merged")
    [way_out] = _refused(cluster, text, errors.replicate.UPDATE_MIXED_ROWS.code)
    printed = Printed(errors.replicate.UPDATE_MIXED_ROWS.code, "", way_out)
    operator = Operator(cluster, task, str(cluster.directory / "updated.task.yaml"))
    operator.runs(printed, "stop-task")
    world.target.execute(f"DELETE FROM {task}.merged")
    operator.runs(printed, "start-task")
    cluster.wait_replicating(task)
    world.settle([task])
    assert [row for (row,) in world.target.query(f"SELECT id FROM {task}.merged ORDER BY id")] == [1, 2, 13]
    cluster.dmctl("stop-task", task)


def _renamed(family: Family, table: str) -> str:
    return family.task().replace("target-table: orders", f"target-table: {table}")


def _rename_refused(cluster: Cluster, text: str, code: int) -> None:
    answer = cluster.dmctl(
        "update-task", cluster.write("updated.task.yaml", text), "--rename-target", "--yes", check=False
    )
    assert answer.code == 1, answer.text
    assert f"[{code} " in answer.text, answer.text


def _judge_renamed(world: World, family: Family, table: str) -> None:
    """The table has every row under its new name, and no record has the old one. All writers have stopped."""
    world.settle([family.name])
    places = [
        Shard(server.connect, f"{family.name}_01", f"order_{number:02d}", PartitionIds(instance, 1, number))
        for instance, (_, server) in enumerate(world.sources, 1)
        for number in range(1, family.tables + 1)
    ]
    verdict = compare(places, Target(world.target.connect, family.name, table))
    assert verdict.differences == 0, verdict
    assert world.cluster.compare(family.name).rows == verdict.rows
    assert world.target.query(f"SHOW TABLES FROM {family.name}") == [(table,)]
    for (name,) in world.target.query(
        "SELECT TABLE_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'dm_meta' "
        "AND COLUMN_NAME = 'target_table'"
    ):
        of_old = f"target_schema = '{family.name}' AND target_table <> '{table}'"
        assert _count(world, f"SELECT COUNT(*) FROM dm_meta.{name} WHERE {of_old}") == 0, name
    assert _count(world, f"SELECT COUNT(*) FROM dm_meta.target_rename WHERE task = '{family.name}'") == 0
    for (dealing,) in world.target.query(f"SELECT dealing FROM dm_meta.subtask WHERE task = '{family.name}'"):
        recorded = json.loads(str(dealing))
        assert [route["targetTable"] for route in json.loads(recorded["rules"])["routes"]] == [table]
        assert recorded["former_names"] == []


def test_a_target_table_is_renamed_in_place(world: World) -> None:
    """While the sources change rows, and after each refusal the task continues unchanged. Later sharding DDLs wait for
    the shard tables of all sources."""
    family = world.family("title")
    extra = "shard-mode: pessimistic\nreplicate: {lanes: 3}\n"
    shards = family.create(400)
    cluster = world.cluster
    cluster.start_task(family.task(extra=extra))
    cluster.wait_replicating("title")
    text = _renamed(family, "all_orders") + extra
    with Writer(shards, seed=38) as writer:
        writer.go_on()
        assert "--rename-target" in str(_update(cluster, text, "--dry-run")["msg"])
        unasked = cluster.dmctl("update-task", cluster.write("updated.task.yaml", text), "--rename-target", check=False)
        assert "--yes" in unasked.text
        _rename_refused(cluster, _renamed(family, "all_orders"), errors.master.RENAME_NOT_ALONE.code)
        _rename_refused(cluster, family.task(extra=extra), errors.master.RENAME_NOTHING.code)
        world.target.execute("CREATE VIEW title.all_orders AS SELECT * FROM title.orders")
        _rename_refused(cluster, text, errors.master.RENAME_EXISTS.code)
        world.target.execute("RENAME TABLE title.all_orders TO title.seen")
        assert _update(cluster, text, "--rename-target", "--dry-run")["rename"] == {
            "before": "`title`.`orders`",
            "after": "`title`.`all_orders`",
            "statement": "RENAME TABLE `title`.`orders` TO `title`.`all_orders`",
            "mentions": ["view `title`.`seen`"],
        }
        world.target.execute("DROP VIEW title.seen")
        cluster.wait_subtasks("title", lambda sub: sub.stage == "Running", "still runs")
        chunks = _count(world, "SELECT COUNT(*) FROM dm_meta.snapshot_chunk WHERE task = 'title'")
        _update(cluster, text, "--rename-target", "--yes")
        cluster.wait_replicating("title")
        for shard in shards:
            with shard.connect() as session, session.cursor() as cursor:
                cursor.execute(f"ALTER TABLE {shard.schema}.{shard.table} ADD COLUMN later INT NOT NULL DEFAULT 7")
            writer.go_on()
        writer.stop()
    _judge_renamed(world, family, "all_orders")
    assert _count(world, "SELECT COUNT(*) FROM dm_meta.snapshot_chunk WHERE task = 'title'") == chunks
    cluster.dmctl("stop-task", "title")


_GRID = [
    pytest.param("rename_target.renamed", False, marks=pytest.mark.grid),
    *(
        pytest.param(f"rename_target.{moment}", True, marks=pytest.mark.grid)
        for moment in ("paused", "begun", "renamed", "moved")
    ),
]


@pytest.mark.parametrize(("point", "kills"), [("rename_target.unpublished", True), *_GRID])
def test_a_rename_that_fails_is_completed_or_undone(world: World, point: str, *, kills: bool) -> None:
    """``kills``: the process, with SIGKILL; else the command alone fails."""
    moment = point.removeprefix("rename_target.") + ("_killed" if kills else "")
    family = world.family(f"title_{moment}", tables=1)
    shards = family.create(300)
    cluster, hooks = world.cluster, world.cluster.hooks
    cluster.start_task(family.task())
    cluster.wait_replicating(family.name)
    file = cluster.write("renamed.task.yaml", _renamed(family, "all_orders"))
    command = ("update-task", file, "--rename-target", "--yes")
    with Writer(shards, seed=39) as writer, ThreadPoolExecutor(1) as pool:
        writer.go_on()
        if kills:
            hooks.hold(point)
            answer = pool.submit(cluster.dmctl, *command, check=False)
            [victim] = hooks.reached(point)
            [daemon] = [one for one in cluster.daemons if one.pid == victim]
            daemon.kill()
            assert answer.result().code != 0
            hooks.release_all()
            daemon.start()
            world.heal()
        else:
            hooks.fail(point)
            assert cluster.dmctl(*command, check=False).code != 0
            hooks.release_all()
        cluster.dmctl("resume-task", family.name, check=False)
        if moment in ("paused_killed", "begun_killed"):  # undone: the task continues with the old name
            cluster.wait_replicating(family.name)
            assert world.target.query(f"SHOW TABLES FROM {family.name}") == [("orders",)]
        else:  # completed: nothing is written until the file has the new name
            cluster.wait_subtasks(
                family.name,
                lambda sub: [code for code, _ in sub.errors] == [errors.replicate.RENAME_UNPUBLISHED.code],
                "names the rename",
            )
        cluster.dmctl(*command)
        cluster.dmctl("resume-task", family.name)
        cluster.wait_replicating(family.name)
        writer.go_on()
        writer.stop()
    _judge_renamed(world, family, "all_orders")
    cluster.dmctl("stop-task", family.name)


@pytest.mark.grid  # the command does the same
def test_a_target_table_gets_another_name_without_a_copy(world: World) -> None:
    """As docs/how-to/update-a-task.md describes it, while the sources change rows."""
    family = world.family("named", tables=1)
    shards = family.create(400)
    cluster = world.cluster
    file = cluster.write("named.task.yaml", family.task())
    cluster.start_task(family.task())
    cluster.wait_replicating("named")
    with Writer(shards, seed=37) as writer:
        writer.go_on()
        cluster.dmctl("stop-task", "named")
        ends = {source: server.query("SHOW MASTER STATUS")[0][:2] for source, server in world.sources}
        writer.go_on()
        for source, (name, pos) in ends.items():
            cluster.dmctl("start-task", file, "-s", source, "--stop-at", f"{name}:{pos}")
        cluster.wait_subtasks("named", lambda sub: sub.stage == "Finished", "is finished")
        cluster.dmctl("stop-task", file, "--remove-meta")
        world.target.execute("RENAME TABLE named.orders TO named.all_orders")
        text = family.task(mode="incremental").replace("target-table: orders", "target-table: all_orders")
        for source, (name, pos) in ends.items():
            meta = f"    meta: {{binlog-name: {name}, binlog-pos: {pos}}}\n"
            text = text.replace(f"  - source-id: {source}\n", f"  - source-id: {source}\n{meta}")
        before = _count(world, "SELECT COUNT(*) FROM named.all_orders")
        assert before > 0
        cluster.start_task(text)
        cluster.wait_replicating("named")
        writer.go_on()
        writer.stop()
    world.settle(["named"])
    places = [
        Shard(server.connect, "named_01", "order_01", PartitionIds(instance, 1, 1))
        for instance, (_, server) in enumerate(world.sources, 1)
    ]
    verdict = compare(places, Target(world.target.connect, "named", "all_orders"))
    assert verdict.differences == 0, verdict
    assert world.target.query("SHOW TABLES FROM named LIKE 'orders'") == []
    cluster.dmctl("stop-task", "named")


def test_no_table_joins_a_task_that_is_to_end(world: World) -> None:
    family = world.family("ends", tables=2)
    family.create(50)
    cluster = world.cluster

    def ending(text: str) -> str:
        for source, _ in world.sources:
            line = f"  - source-id: {source}\n"
            text = text.replace(line, f'{line}    stop-at: "2099-01-01T00:00:00+00:00"\n')
        return text

    cluster.start_task(ending(_only(family, "order_01")))
    cluster.wait_replicating("ends")
    refused = cluster.dmctl("update-task", cluster.write("updated.task.yaml", ending(family.task())), check=False)
    assert refused.code == 1
    assert f"[{errors.replicate.UPDATE_OF_ENDING.code} " in refused.text, refused.text
    cluster.dmctl("stop-task", "ends")

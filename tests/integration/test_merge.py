"""Tests history and live changes of many shards in one table (I1), while applications continue to write."""

from __future__ import annotations

import pytest

from shardmerge.proto import errors
from tests.support.cluster import Cluster, SubTask
from tests.support.wait import until
from tests.support.world import World
from tests.support.writer import Writer

pytestmark = pytest.mark.turns


def _progress(cluster: Cluster, task: str) -> int:
    return sum(int(sub.raw.get("sync", {}).get("totalRows", 0)) for sub in cluster.subtasks(task).values())


def test_full_and_incremental_merge_with_concurrent_writer(world: World) -> None:
    family = world.family("merge", schemas=2, tables=2)
    shards = family.create(3000)
    with Writer(shards, seed=11) as writer:
        world.cluster.start_task(family.task())
        world.cluster.wait_replicating("merge")
        writer.go_on(1500)
        counts = writer.stop()
    verdict = world.judge(family)
    assert verdict.rows > 1000
    assert min(counts.inserts, counts.updates, counts.deletes, counts.key_changes) > 0
    world.cluster.dmctl("stop-task", "merge")


def test_two_tasks_share_one_relay(world: World) -> None:
    one, two = world.family("first"), world.family("second")
    shards = one.create(500) + two.create(500)
    with Writer(shards, seed=12) as writer:
        world.cluster.start_task(one.task())
        world.cluster.start_task(two.task())
        for task in ("first", "second"):
            world.cluster.wait_replicating(task)
        writer.go_on(500)
        writer.stop()
    world.settle(["first", "second"])
    assert one.verdict().differences == 0, one.verdict()
    assert two.verdict().differences == 0, two.verdict()
    for source_id, server in world.sources:
        # The server shows the dump of a pre-check, or of a lost connection, until it notices the end.
        until(lambda server=server: len(server.dump_threads()) == 1, f"{source_id} has one dump")
    for task in ("first", "second"):
        world.cluster.dmctl("stop-task", task)


def test_pause_and_resume_under_load(world: World) -> None:
    family = world.family("pause")
    shards = family.create(1000)
    with Writer(shards, seed=13) as writer:
        world.cluster.start_task(family.task())
        world.cluster.wait_replicating("pause")
        for _ in range(3):
            world.cluster.dmctl("pause-task", "pause")
            world.cluster.wait_paused("pause")
            before = world.target.query("SELECT SUM(seq) FROM dm_meta.lane_checkpoint WHERE task = 'pause'")
            writer.go_on(100)
            after = world.target.query("SELECT SUM(seq) FROM dm_meta.lane_checkpoint WHERE task = 'pause'")
            assert before == after, "a paused task committed"
            world.cluster.dmctl("resume-task", "pause")
            world.cluster.wait_replicating("pause")
        writer.stop()
    world.judge(family)
    world.cluster.dmctl("stop-task", "pause")


def test_stop_and_start_continues_from_the_checkpoint(world: World) -> None:
    family = world.family("again")
    shards = family.create(500)
    with Writer(shards, seed=14) as writer:
        world.cluster.start_task(family.task())
        world.cluster.wait_replicating("again")
        world.cluster.dmctl("stop-task", "again")
        writer.go_on(100)
        rows = world.target.query("SELECT COUNT(*) FROM again.orders")
        world.cluster.start_task(family.task())
        world.cluster.wait_replicating("again")
        assert rows[0][0] != 0
        writer.stop()
    world.judge(family)
    world.cluster.dmctl("stop-task", "again")


def test_remove_meta_begins_anew(world: World) -> None:
    family = world.family("anew")
    family.create(300)
    world.cluster.start_task(family.task(mode="full"))
    world.cluster.wait_subtasks("anew", lambda sub: sub.stage == "Finished", "is finished")
    world.cluster.dmctl("stop-task", "anew")
    world.target.execute("DROP TABLE anew.orders")
    world.cluster.start_task(family.task(mode="full"), "--remove-meta")
    world.cluster.wait_subtasks("anew", lambda sub: sub.stage == "Finished", "is finished")
    assert family.verdict().differences == 0, family.verdict()
    world.cluster.dmctl("stop-task", "anew")


def test_incremental_from_a_position(world: World) -> None:
    family = world.family("inc")
    shards = family.create(0)
    starts: dict[str, tuple[object, ...]] = {
        source_id: server.query("SHOW MASTER STATUS")[0] for source_id, server in world.sources
    }
    with Writer(shards, seed=15) as writer:
        until(lambda: writer.counts.changes > 500, "there is something before the task starts")
        world.target.execute(
            "CREATE DATABASE inc", f"CREATE TABLE inc.orders ({writer.shape.definition}) DEFAULT CHARSET=utf8mb4"
        )
        text = family.task(mode="incremental")
        for source_id, start in starts.items():
            text = text.replace(
                f"  - source-id: {source_id}\n",
                f"  - source-id: {source_id}\n    meta: {{binlog-name: {start[0]}, binlog-pos: {start[1]}}}\n",
            )
        world.cluster.start_task(text)
        world.cluster.wait_replicating("inc")
        writer.stop()
    world.judge(family)
    until(lambda: _progress(world.cluster, "inc") > 0, "it tells what it has applied")
    world.cluster.dmctl("stop-task", "inc")


def test_ddl_of_a_shard_without_a_mode_pauses_right_before_it(world: World) -> None:
    family = world.family("ddl")
    shards = family.create(200)
    world.cluster.start_task(family.task())
    world.cluster.wait_replicating("ddl")
    server = world.sources[0][1]
    server.execute(
        "CREATE DATABASE elsewhere",
        "CREATE TABLE elsewhere.t (id INT PRIMARY KEY)",
        f"INSERT INTO {shards[0].name} (customer, amount, state, token, created) "
        "VALUES ('before', 1, 'new', '', '2024-01-01')",
        f"ALTER TABLE {shards[0].name} ADD COLUMN extra INT",
        f"INSERT INTO {shards[1].name} (customer, amount, state, token, created) "
        "VALUES ('after', 1, 'new', '', '2024-01-01')",
    )

    def paused() -> dict[str, SubTask] | None:
        found = world.cluster.subtasks("ddl")
        one = found.get(world.sources[0][0])
        return found if one is not None and one.stage == "Paused" else None

    found = until(paused, "the subtask with the DDL is paused")
    [(code, message)] = found[world.sources[0][0]].errors
    assert code == errors.ddl.NEEDS_SHARD_MODE.code
    assert "ADD COLUMN extra INT" in message
    assert "mysql-bin." in message
    other = world.sources[1][0]
    until(
        lambda: other in (seen := world.cluster.subtasks("ddl")) and seen[other].stage == "Running",
        "the other goes on",
    )
    names = {row[0] for row in world.target.query("SELECT customer FROM ddl.orders")}
    assert "before" in names
    assert "after" not in names
    # After a resume the task stops at the same statement: nothing after it is applied, nothing before it twice.
    world.cluster.dmctl("resume-task", "ddl", check=False)
    until(paused, "it is paused again")
    assert world.target.query("SELECT COUNT(*) FROM ddl.orders WHERE customer = 'before'") == [(1,)]
    world.cluster.dmctl("stop-task", "ddl")

"""Tests sharding DDLs during the copy, under load, with kills: no row is lost, no finished chunk is copied again."""

from __future__ import annotations

import itertools

import pytest

from tests.support.kills import Kills, kill_at_each, locks_of
from tests.support.wait import until
from tests.support.world import World
from tests.support.writer import ShardTable, Writer, beside_a_writer

TABLES = 3
CHUNK = "snapshot: {chunk-rows: 400, threads: 2, rows-per-second: 1500}\n"
VICTIMS_AT = {
    "handover": ("worker", "tasks"),
    "ddl.before_passing": ("worker", "target"),
    "ddl.passed": ("tasks", "worker"),
    "snapshot.before_commit": ("tasks", "worker"),
    "copy.before_completed": ("worker", "tasks"),
    "copy.completed": ("tasks", "worker"),
    "replay.begun": ("worker", "tasks"),
    "join.before_adopting": ("tasks", "worker"),
    "join.adopted": ("worker", "tasks"),
}
"""The moments from the end of a copy that statements have interrupted, in the order in which a task reaches them, with
the victims of a pessimistic and an optimistic task."""
OF_COPY = ("handover", "snapshot.before_commit", "copy.before_completed", "copy.completed", "replay.begun")
"""Those of the copy and of its end; other tests have those of a statement and of a join."""


def _alter(shard: ShardTable, column: str) -> None:
    beside_a_writer(
        shard,
        f"UPDATE {shard.name} SET amount = amount + 1 WHERE id % 3 = 0",
        f"ALTER TABLE {shard.name} ADD COLUMN {column} INT NOT NULL DEFAULT 7",
        f"UPDATE {shard.name} SET {column} = id % 5 WHERE id % 2 = 0",
    )


def _loaded(world: World, name: str) -> set[tuple[object, ...]]:
    if not world.target.query("SELECT 1 FROM information_schema.TABLES WHERE TABLE_NAME = 'snapshot_chunk'"):
        return set()
    return set(
        world.target.query(
            "SELECT source, shard, number, source_file, source_pos FROM dm_meta.snapshot_chunk "
            f"WHERE task = '{name}' AND state = 1"
        )
    )


def _interruptions(world: World, name: str) -> int:
    lines = (line for worker in world.cluster.workers for line in worker.log.read_text().splitlines())
    return sum("interrupted the copy" in line and f"task={name}" in line for line in lines)


def _copy_under_statements(world: World, name: str, mode: str, kills: Kills) -> None:
    family = world.family(name, tables=TABLES)
    shards = family.create(2000)
    hooks = world.cluster.hooks
    with Writer(shards, seed=41) as writer:
        world.cluster.start_task(family.task(extra=f"{CHUNK}shard-mode: {mode}\n"))
        until(lambda: len(_loaded(world, name)) >= 3, "some chunks are copied")
        hooks.hold("snapshot.before_commit")
        hooks.reached("snapshot.before_commit")
        before = _loaded(world, name)
        if kills:
            # Before the statements: they end the copy of a source that has no chunk at the moment held above.
            hooks.hold(next(iter(kills)))
        for shard in shards:
            _alter(shard, "added")
        hooks.release("snapshot.before_commit")
        for shard in shards[::2]:
            _alter(shard, "more")
        if kills:
            kill_at_each(world, kills)
        for shard in shards[1::2]:
            _alter(shard, "more")
        world.cluster.wait_replicating(name)
        until(lambda: locks_of(world, name) == [], "there is no lock any more", 400)
        world.cluster.wait_joined(name)
        writer.go_on()
        writer.stop()
    assert before <= _loaded(world, name), "no finished chunk is copied again"
    assert _interruptions(world, name) >= TABLES, "the statements came during the copy"
    world.judge(family)
    left = world.target.query(f"SELECT COUNT(*) FROM dm_meta.snapshot_interrupted WHERE task = '{name}'")
    assert left == [(0,)]
    world.cluster.dmctl("stop-task", name)


@pytest.mark.grid  # the next test does the same with kills
@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
def test_every_shard_table_is_altered_while_it_is_copied(world: World, mode: str) -> None:
    _copy_under_statements(world, f"altered_{mode}", mode, {})


def test_kills_at_moments_of_an_interrupted_copy(world: World) -> None:
    _copy_under_statements(world, "copy_some", "pessimistic", {moment: VICTIMS_AT[moment][0] for moment in OF_COPY})


@pytest.mark.grid
@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
def test_kills_at_every_moment(world: World, mode: str) -> None:
    kills = {moment: victims[mode == "optimistic"] for moment, victims in VICTIMS_AT.items()}
    _copy_under_statements(world, f"copy_{mode}", mode, kills)


@pytest.mark.grid  # the moments of its copy are those of the test before
@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
def test_a_full_task_ends_after_kills_with_what_was_written_before_its_end(world: World, mode: str) -> None:
    name = f"full_{mode}"
    family = world.family(name, tables=TABLES)
    shards = family.create(2000)
    hooks = world.cluster.hooks
    moments = ("handover", "snapshot.before_commit", "replay.begun", "whole.aligned", "full.finishing")
    with Writer(shards, seed=42) as writer:
        world.cluster.start_task(family.task(mode="full", extra=f"{CHUNK}shard-mode: {mode}\n"))
        until(lambda: len(_loaded(world, name)) >= 3, "some chunks are copied")
        hooks.hold("snapshot.before_commit")
        hooks.reached("snapshot.before_commit")
        before = _loaded(world, name)
        hooks.hold(moments[0])
        for shard in shards:
            _alter(shard, "added")
        writer.go_on()
        writer.stop()
    hooks.release("snapshot.before_commit")
    kill_at_each(world, dict(zip(moments, itertools.cycle(("worker", "tasks")), strict=False)))
    world.cluster.wait_subtasks(name, lambda sub: sub.stage == "Finished", "has ended", 400)
    assert _interruptions(world, name) >= TABLES, "the statements came during the copy"
    verdict = family.verdict()
    assert verdict.differences == 0, verdict
    assert before <= _loaded(world, name), "no finished chunk is copied again"
    world.cluster.dmctl("stop-task", name)

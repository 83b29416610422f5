"""Tests what the messages about interrupted copies instruct an operator to do, with dmctl."""

from __future__ import annotations

import re

import pytest

from shardmerge.proto import errors
from tests.support.cluster import Json
from tests.support.wait import until
from tests.support.world import World

ROWS = 2000
STOP_AT = 'stop-at: "2099-01-01T00:00:00+00:00"'


def _file(world: World, task: str, *, mode: str = "all", extra: str = "", without: str = "") -> str:
    lines = world.head_of_task(task, extra or "route-rules: []")
    ignored = f", ignore-tables: [{{db-name: {task}, tbl-name: {without}}}]" if without else ""
    text = "\n".join((*lines, f"block-allow-list: {{own: {{do-dbs: [{task}]{ignored}}}}}"))
    text = text.replace("task-mode: all", f"task-mode: {mode}")
    return text + "\nsnapshot: {chunk-rows: 100, threads: 1}\n"


def _failures(world: World, task: str) -> list[Json]:
    subtasks = world.cluster.subtasks(task).values()
    return [one["error"] for sub in subtasks for one in sub.raw.get("copies", []) if one.get("phase") == "failed"]


def _interrupted(world: World, task: str, statement: str, **options: str) -> None:
    """Start a task, and let the source run ``statement`` while table t is copied."""
    source, hooks = world.sources[0][1], world.cluster.hooks
    source.execute(
        f"CREATE DATABASE {task}",
        *(f"CREATE TABLE {task}.{name} (id INT PRIMARY KEY, v INT)" for name in ("t", "u")),
        *(f"INSERT INTO {task}.{name} SELECT seq, seq FROM {task}.seq_1_to_{ROWS}" for name in ("t", "u")),
    )
    hooks.hold("snapshot.before_commit")
    world.cluster.start_task(_file(world, task, **options))
    hooks.reached("snapshot.before_commit")
    source.execute(statement)
    hooks.release("snapshot.before_commit")


def _rows(world: World, task: str, name: str) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    query = f"SELECT * FROM {task}.{name} ORDER BY id"
    return world.sources[0][1].query(query), world.target.query(query)


@pytest.mark.parametrize("mode", ["all", "full", "stop-at"])
def test_a_table_whose_key_has_changed_is_copied_again(world: World, mode: str) -> None:
    task, cluster = f"changed_key_{mode.replace('-', '_')}", world.cluster
    options = {"all": {}, "full": {"mode": "full"}, "stop-at": {"extra": STOP_AT}}[mode]
    _interrupted(world, task, f"ALTER TABLE {task}.t DROP PRIMARY KEY, ADD PRIMARY KEY (v, id)", **options)
    [failure] = until(lambda: _failures(world, task), "the rest cannot be copied", 120)
    assert failure["code"] == errors.snapshot.COPY_KEY_CHANGED.code
    assert "stop-task, then start-task with task-mode: all and without stop-at" in failure["workaround"]
    chunks = f"SELECT source_file, source_pos FROM dm_meta.snapshot_chunk WHERE task = '{task}' AND shard = 1"
    before = world.target.query(chunks)
    if mode != "all":
        cluster.dmctl("stop-task", task)
        cluster.start_task(_file(world, task))
        until(lambda: _failures(world, task), "the table waits again", 120)
    cluster.dmctl("update-task", cluster.write(f"{task}.less.yaml", _file(world, task, without="t")))
    cluster.wait_joined(task)
    found = re.search(r"delete the rows of this shard table from (\S+) \(", failure["workaround"])
    assert found is not None, failure
    world.target.execute(f"DELETE FROM {found[1]}")
    world.sources[0][1].execute(f"UPDATE {task}.t SET v = v + 1 WHERE id % 3 = 0", f"DELETE FROM {task}.t WHERE id = 5")
    cluster.dmctl("update-task", cluster.write(f"{task}.all.yaml", _file(world, task)))
    cluster.wait_joined(task)
    world.sources[0][1].execute(f"UPDATE {task}.t SET v = 0 WHERE id = 7", f"UPDATE {task}.u SET v = 0 WHERE id = 7")
    world.settle([task])
    for name in ("t", "u"):
        wanted, rows = _rows(world, task, name)
        assert rows == wanted, name
    assert world.target.query(chunks) == before, "the other table keeps its copy"
    cluster.dmctl("stop-task", task)

"""Tests stop-task --remove-meta: the records of all of a task's sources go together, and no row changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.ways_out.printed import Operator
from tests.support.cluster import Answer, Json
from tests.support.wait import until
from tests.support.world import Family, World

ONE = "mysql-01"


def _started(world: World, name: str) -> tuple[Family, Operator]:
    family = world.family(name)
    family.create(300)
    file = world.cluster.write(f"{name}.task.yaml", family.task())
    world.cluster.start_task(family.task())
    world.cluster.wait_replicating(name)
    return family, Operator(world.cluster, name, file)


def _records(world: World, task: str) -> dict[str, int]:
    """Return the tables of the meta schema with rows of the task."""
    tables = world.target.query(
        "SELECT TABLE_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'dm_meta' AND COLUMN_NAME = 'task'"
    )
    counts = {
        str(name): int(str(world.target.query(f"SELECT COUNT(*) FROM dm_meta.{name} WHERE task = '{task}'")[0][0]))
        for (name,) in tables
    }
    return {name: count for name, count in counts.items() if count}


def _remaining(answer: Answer) -> list[Json]:
    return list(answer.json["remaining"])


def _refused(answer: Answer, code: int) -> str:
    assert answer.code != 0, answer.text
    assert f"[{code} " in answer.text, answer.text
    return answer.text


def _copied_anew(world: World, family: Family, operator: Operator) -> None:
    """An empty history and rows: start-task is refused. Without them it copies everything."""
    operator.refused(12037, "start-task", operator.file)
    world.target.execute(f"TRUNCATE TABLE {family.name}.orders")
    answer = world.cluster.dmctl("start-task", operator.file)
    assert not [check for check in answer.json["checkResult"] if int(check["code"]) in (12081, 12082)], answer.text
    world.judge(family)


def test_a_task_is_stopped_and_forgotten(world: World) -> None:
    family, operator = _started(world, "forget")
    other, _ = _started(world, "remembered")
    cluster = world.cluster
    before = _records(world, "remembered")
    _refused(cluster.dmctl("stop-task", "forget", "--remove-meta", "-s", ONE, check=False), 60316)
    assert cluster.subtasks("forget"), "nothing is stopped"
    answer = cluster.dmctl("stop-task", "forget", "--remove-meta")
    assert [(one["target"], int(one["rows"]), one["atLeast"]) for one in _remaining(answer)] == [
        ("forget.orders", 1200, False)
    ], answer.text
    assert "12037" in answer.json["msg"]
    assert _records(world, "forget").keys() == {"subtask", "subtask_version"}, "what fences the earlier run"
    assert _records(world, "remembered") == before
    assert len(world.target.query("SELECT 1 FROM forget.orders")) == 1200
    _refused(cluster.dmctl("stop-task", "forget", "--remove-meta", check=False), 60302)
    again = cluster.dmctl("stop-task", operator.file, "--remove-meta")
    assert (_remaining(again), "has no records" in again.json["msg"]) == ([], True)
    _copied_anew(world, family, operator)
    cluster.dmctl("stop-task", "forget")
    # With its file, a task that is stopped already.
    answer = cluster.dmctl("stop-task", operator.file, "--remove-meta")
    assert len(_remaining(answer)) == 1
    _copied_anew(world, family, operator)
    world.judge(other)
    cluster.dmctl("stop-task", "remembered", "--remove-meta")
    cluster.dmctl("stop-task", "forget", "--remove-meta")


@pytest.mark.parametrize("moment", ["described", "removed"])
def test_a_failure_leaves_all_records_or_none(world: World, moment: str) -> None:
    name = f"forget_{moment}"
    family, operator = _started(world, name)
    cluster, hooks = world.cluster, world.cluster.hooks
    cluster.dmctl("stop-task", name)
    before = _records(world, name)
    hooks.fail(f"forget_task.{moment}")
    failed = _refused(cluster.dmctl("stop-task", operator.file, "--remove-meta", check=False), 60317)
    hooks.release_all()
    assert "dmctl stop-task <file> --remove-meta" in failed
    left = _records(world, name)
    assert left == before if moment == "described" else left.keys() == {"subtask", "subtask_version"}
    cluster.dmctl("stop-task", operator.file, "--remove-meta")
    _copied_anew(world, family, operator)
    cluster.dmctl("stop-task", name, "--remove-meta")


@pytest.mark.grid
@pytest.mark.parametrize("victim", ["worker", "master"])
@pytest.mark.parametrize("moment", ["described", "removed"])
def test_a_kill_leaves_all_records_or_none(world: World, moment: str, victim: str) -> None:
    """The printed command, with the task's file, ends it."""
    name, held = f"kill_{moment}_{victim}", f"forget_task.{moment}"
    family, operator = _started(world, name)
    cluster, hooks = world.cluster, world.cluster.hooks
    before = _records(world, name)
    hooks.hold(held)
    with ThreadPoolExecutor(1) as pool:
        interrupted = pool.submit(cluster.dmctl, "stop-task", name, "--remove-meta", check=False)
        [pid] = hooks.reached(held)
        [worker] = [one for one in cluster.workers if one.pid == pid]
        killed = worker if victim == "worker" else cluster.masters[0]
        killed.kill()
        hooks.release(held)
        killed.start()
        answer = interrupted.result()
    assert answer.code != 0, answer.text
    forgotten = {"subtask", "subtask_version"}
    if victim == "worker":
        left = _records(world, name)
        assert left == before if moment == "described" else left.keys() == forgotten
    cluster.wait_for_workers(cluster.workers)
    cluster.dmctl("stop-task", operator.file, "--remove-meta")
    until(lambda: _records(world, name).keys() == forgotten, "no record is left", 60)
    assert not cluster.subtasks(name)
    _copied_anew(world, family, operator)
    cluster.dmctl("stop-task", name, "--remove-meta")


def test_a_target_that_does_not_answer_stops_nothing(world: World) -> None:
    family, operator = _started(world, "forget_late")
    cluster = world.cluster
    world.target.execute("RENAME TABLE dm_meta.held_change TO dm_meta.held_change_away")
    try:
        answer = cluster.dmctl("stop-task", "forget_late", "--remove-meta", check=False)
        assert answer.code != 0, answer.text
        assert set(cluster.subtasks("forget_late")) == {ONE, "mysql-02"}
    finally:
        world.target.execute("RENAME TABLE dm_meta.held_change_away TO dm_meta.held_change")
    cluster.dmctl("resume-task", "forget_late")
    world.judge(family)
    cluster.dmctl("stop-task", operator.file, "--remove-meta")

"""Tests a change of the number of lanes in the task file: killed at any moment of it, nothing is lost (I2, I9)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cluster import SubTask
from tests.support.wait import until
from tests.support.world import World
from tests.support.writer import Writer

SOURCE = "mysql-01"
MOMENTS = ("lane0.commit", "lanes.before_dealing", "lanes.dealing", "lanes.dealt")
"""While the old lanes run up to the barrier; before, inside and after the transaction that rewrites the checkpoints."""


def _lanes(count: int) -> str:
    return f"replicate:\n  lanes: {count}\n"


def _recorded(world: World, task: str) -> int:
    [(count,)] = world.target.query(
        f"SELECT COUNT(*) FROM dm_meta.lane_checkpoint WHERE task = '{task}' AND source = '{SOURCE}'"
    )
    assert isinstance(count, int)
    return count


def _meets(sub: SubTask) -> bool:
    sync: dict[str, Any] = sub.raw.get("sync") or {}
    lanes: list[Any] = sync.get("lanes", [])
    return len(lanes) == 2 and lanes[0]["phase"] == "committing"


def _apart(world: World, task: str) -> None:
    """Stop ``task`` while one lane of every source is held before a commit: its other lanes have advanced further."""
    hooks = world.cluster.hooks
    hooks.hold("lane0.commit")
    until(lambda: len(hooks.reached("lane0.commit")) >= len(world.sources), "lane 0 of every source is held")
    until(
        lambda: (
            len(
                world.target.query(
                    "SELECT DISTINCT segment, byte, skip_events FROM dm_meta.lane_checkpoint "
                    f"WHERE task = '{task}' AND source = '{SOURCE}'"
                )
            )
            > 1
        ),
        "the lanes stand apart",
    )
    world.cluster.dmctl("stop-task", task)


@pytest.mark.grid
def test_killed_at_each_moment_of_dealing(world: World) -> None:
    """Change the number once, and kill a worker at each moment in turn."""
    hooks = world.cluster.hooks
    name = "count_all"
    family = world.family(name)
    shards = family.create(300)
    with Writer(shards, seed=52) as writer:
        world.cluster.start_task(family.task(extra=_lanes(2)))
        world.cluster.wait_replicating(name)
        writer.go_on()
        _apart(world, name)
        world.cluster.start_task(family.task(extra=_lanes(3)))
        world.cluster.wait_subtasks(name, _meets, "has two lanes that run to the barrier, one of them held")
        for moment, following in zip(MOMENTS, (*MOMENTS[1:], None), strict=True):
            worker = world.cluster.worker_of(SOURCE)
            if moment != "lane0.commit":
                until(lambda at=moment, one=worker: one.pid in hooks.standing(at), f"the worker stands at {moment}")
            assert _recorded(world, name) == (3 if moment == "lanes.dealt" else 2)
            if following is not None:
                hooks.hold(following)
            worker.kill_all()
            hooks.release(moment)
            worker.start()
        world.cluster.wait_replicating(name)
        until(lambda: _recorded(world, name) == 3, "there are three lanes")
        writer.go_on()
        writer.stop()
    world.judge(family)
    assert _recorded(world, name) == 3
    world.cluster.dmctl("stop-task", name)


@pytest.mark.parametrize(
    "moment", [pytest.param(moment, marks=[pytest.mark.grid] * (moment != "lanes.dealing")) for moment in MOMENTS]
)
def test_killed_while_the_lanes_are_dealt_anew(world: World, moment: str) -> None:
    """Kill only once: no later kill can repair the result of the first."""
    hooks = world.cluster.hooks
    name = f"count_{moment.rpartition('.')[2]}"
    family = world.family(name)
    shards = family.create(300)
    with Writer(shards, seed=51) as writer:
        world.cluster.start_task(family.task(extra=_lanes(2)))
        world.cluster.wait_replicating(name)
        writer.go_on()
        _apart(world, name)
        worker = world.cluster.worker_of(SOURCE)
        if moment == "lane0.commit":
            world.cluster.start_task(family.task(extra=_lanes(3)))
            world.cluster.wait_subtasks(name, _meets, "has two lanes that run to the barrier, one of them held")
            assert _recorded(world, name) == 2
        else:
            hooks.hold(moment)
            hooks.release("lane0.commit")
            world.cluster.start_task(family.task(extra=_lanes(3)))
            until(lambda: worker.pid in hooks.reached(moment), f"the worker stands at {moment}")
            assert _recorded(world, name) == (3 if moment == "lanes.dealt" else 2)
        worker.kill_all()
        hooks.release_all()
        worker.start()
        world.cluster.wait_replicating(name)
        until(lambda: _recorded(world, name) == 3, "there are three lanes")
        writer.go_on()
        writer.stop()
    world.judge(family)
    assert _recorded(world, name) == 3
    world.cluster.dmctl("stop-task", name)

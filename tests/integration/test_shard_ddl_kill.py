"""Tests kills at every moment of a sharding DDL (I9): no row is lost, and no operator must unlock."""

from __future__ import annotations

import pytest

from tests.support.kills import LET_GO, LOCKED, at_each, kill_while_locked, kill_while_queued
from tests.support.world import World

# `bash tests/run.sh grid` combines all victims with all moments; here the moments at which a lock changes its stage
# have one victim each, and the first one of the replay that follows. Those of a join have none: see test_kill.py.
_LOCKED = {
    "ddl.before_passing": "master",
    "lock.executing": "etcd",
    "ddl.begun": "worker",
    "ddl.run": "target",
    "lock.executed": "jvm",
    "lock.released": "worker",
    "replay.begun": "tasks",
}


@pytest.mark.grid  # test_whole_system.py has the same kills, with Spark
def test_kill_at_moments_of_a_lock(world: World) -> None:
    assert tuple(moment for moment in LOCKED if moment in _LOCKED) == tuple(_LOCKED)
    kill_while_locked(world, "mixed", _LOCKED)


def test_kill_while_tables_are_parked_at_queued_statements(world: World) -> None:
    kill_while_queued(world, "mixed", {"park_again.recording": "target", "park_again.recorded": "worker"})


@pytest.mark.grid
@pytest.mark.parametrize("victim", ["tasks", "master", "etcd", "target", "worker", "both workers", "jvm"])
def test_kill_at_every_moment_of_queued_statements(world: World, victim: str) -> None:
    kill_while_queued(world, _label(victim), at_each(victim, ("park_again.recording", "park_again.recorded")))


@pytest.mark.grid
@pytest.mark.parametrize("victim", ["tasks", "master", "etcd", "target", "worker", "both workers", "jvm"])
def test_kill_at_every_moment_of_a_lock(world: World, victim: str) -> None:
    kill_while_locked(world, _label(victim), at_each(victim, LOCKED))


@pytest.mark.grid
@pytest.mark.parametrize("victim", ["tasks", "master", "etcd", "worker", "both workers", "jvm"])
def test_kill_at_every_moment_of_a_lock_that_another_owns(world: World, victim: str) -> None:
    kill_while_locked(world, _label(f"other {victim}"), at_each(victim, LET_GO), owner=False)


def _label(text: str) -> str:
    return text.replace(" ", "_")

"""Tests kills at every moment of a sharding DDL that the target executes at once (I6, I9)."""

from __future__ import annotations

import pytest

from tests.support.kills import at_each
from tests.support.optimistic_kills import (
    ENDED,
    JOINED,
    kill_while_joined,
    kill_while_numbers_were_texts,
    kill_while_renamed_back,
)
from tests.support.world import World

# `bash tests/run.sh grid` combines all victims with all moments; here the moments of what is recorded or executed have
# one victim each.
_ADDING = {"join.held": "worker", "ddl.begun": "etcd", "ddl.run": "target", "ddl.passing": "master"}
_DROPPING = {"join.held": "target", "ddl.run": "worker", "ddl.passed": "tasks"}


@pytest.mark.grid  # test_whole_system.py has the same kills, with Spark
def test_kill_at_moments_of_a_join_at_the_target(world: World) -> None:
    assert tuple(moment for moment in JOINED if moment in _ADDING) == tuple(_ADDING)
    kill_while_joined(world, "mixed", _ADDING, _DROPPING)


_ENDED = {
    "lock.held": "worker",
    "lock.before_release": "etcd",
    "lock.released": "worker",
    "replay.begun": "target",
    "join.adopted": "tasks",
}
_ENDED_VICTIMS = ("worker", "target", "etcd", "worker", "tasks", "target", "master", "tasks")
_CARRIED = {"lock.before_release": "worker", "replay.begun": "tasks", "ddl.before_passing": "worker"}


def test_kill_while_a_column_was_renamed_and_renamed_back(world: World) -> None:
    kill_while_renamed_back(world, _ENDED)


@pytest.mark.grid
def test_kill_at_every_moment_of_a_column_that_was_renamed_and_renamed_back(world: World) -> None:
    kill_while_renamed_back(world, dict(zip(ENDED, _ENDED_VICTIMS, strict=True)), "renamed_all")


@pytest.mark.grid
def test_kill_while_numbers_were_texts_for_a_while(world: World) -> None:
    kill_while_numbers_were_texts(world, _CARRIED)


@pytest.mark.grid
@pytest.mark.parametrize("victim", ["tasks", "master", "etcd", "target", "worker", "jvm"])
def test_kill_at_every_moment_of_a_join_at_the_target(world: World, victim: str) -> None:
    kill_while_joined(world, victim, at_each(victim, JOINED), at_each(victim, JOINED))

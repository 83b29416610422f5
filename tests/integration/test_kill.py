"""Any process may be killed at any time (I9), with load on: at every moment of a snapshot, of a join, and while
replicating."""

from __future__ import annotations

import pytest

from tests.support.kills import (
    VICTIMS,
    kill_while_copying,
    kill_while_indexes_are_added,
    kill_while_joining,
    kill_while_replicating,
)
from tests.support.world import World


@pytest.mark.parametrize("victim", VICTIMS)
def test_kill_while_replicating(world: World, victim: str) -> None:
    kill_while_replicating(world, victim)


_EVERYBODY = ["worker", "jvm", "tasks", "etcd", "target", "source"]


@pytest.mark.parametrize("victim", _EVERYBODY)
def test_kill_at_every_moment_of_a_snapshot(world: World, victim: str) -> None:
    kill_while_copying(world, victim)


@pytest.mark.parametrize("victim", _EVERYBODY)
def test_kill_at_every_moment_of_a_join(world: World, victim: str) -> None:
    kill_while_joining(world, victim)


@pytest.mark.parametrize("victim", ["adder", "target"])
def test_kill_while_indexes_are_added(world: World, victim: str) -> None:
    kill_while_indexes_are_added(world, victim)

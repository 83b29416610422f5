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


# A worker or JVM that starts anew takes most of a minute: these meet only the moments that matter most to them, all of
# them in `bash tests/run.sh grid`.
_COPYING = {"worker": ("snapshot.fixing", "handover"), "jvm": ("snapshot.planning", "snapshot.before_commit")}
_JOINING = {"worker": ("join.before_stream", "join.adopting"), "jvm": ("snapshot.before_commit", "join.near")}
_SLOW = [pytest.param(victim, marks=pytest.mark.grid) for victim in _COPYING]


@pytest.mark.parametrize("victim", ["tasks", "etcd", "target", "source", *_SLOW])
def test_kill_at_every_moment_of_a_snapshot(world: World, victim: str) -> None:
    kill_while_copying(world, victim)


@pytest.mark.parametrize("victim", ["tasks", "etcd", "target", "source", *_SLOW])
def test_kill_at_every_moment_of_a_join(world: World, victim: str) -> None:
    kill_while_joining(world, victim)


@pytest.mark.parametrize("victim", _COPYING)
def test_kill_at_moments_of_a_snapshot(world: World, victim: str) -> None:
    kill_while_copying(world, victim, _COPYING[victim])


@pytest.mark.parametrize("victim", _JOINING)
def test_kill_at_moments_of_a_join(world: World, victim: str) -> None:
    kill_while_joining(world, victim, _JOINING[victim])


@pytest.mark.parametrize("victim", ["adder", "target"])
def test_kill_while_indexes_are_added(world: World, victim: str) -> None:
    kill_while_indexes_are_added(world, victim)

"""A sharding DDL ends right, whoever is killed at whichever of its moments (I9): no row is lost, nobody unlocks."""

from __future__ import annotations

import pytest

from tests.support.kills import LOCKED, VICTIMS, kill_while_locked
from tests.support.world import World

# A worker or JVM that starts anew takes most of a minute: these meet only the moments that matter most to them, all of
# them in `bash tests/run.sh grid`.
_SOME = {
    "worker": ("ddl.passing", "ddl.begun", "lock.executed", "lock.released", "replay.begun", "join.adopting"),
    "jvm": ("ddl.before_passing", "replay.begun"),
}
_SLOW = [pytest.param(victim, marks=pytest.mark.grid) for victim in ("master", "etcd", "target", *_SOME)]


@pytest.mark.parametrize("victim", ["tasks", *_SLOW])
def test_kill_at_every_moment_of_a_lock(world: World, victim: str) -> None:
    assert victim in VICTIMS
    kill_while_locked(world, victim, LOCKED)


@pytest.mark.parametrize("victim", ["worker", pytest.param("jvm", marks=pytest.mark.grid)])
def test_kill_at_moments_of_a_lock(world: World, victim: str) -> None:
    kill_while_locked(world, victim, _SOME[victim])

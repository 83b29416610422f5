"""A sharding DDL that the target takes at once ends right, whoever is killed at whichever of its moments (I6, I9)."""

from __future__ import annotations

import pytest

from tests.support.kills import VICTIMS
from tests.support.optimistic_kills import kill_while_joined
from tests.support.world import World

_SLOW = [pytest.param(victim, marks=pytest.mark.grid) for victim in ("worker", "jvm", "etcd", "target", "master")]


@pytest.mark.parametrize("victim", ["tasks", *_SLOW])
def test_kill_while_the_target_takes_a_join(world: World, victim: str) -> None:
    assert victim in VICTIMS
    kill_while_joined(world, victim)

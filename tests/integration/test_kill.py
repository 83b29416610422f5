"""Any process may be killed at any time (I9): with load on, during the snapshot and while replicating."""

from __future__ import annotations

import pytest

from tests.support.kills import VICTIMS, kill_during_the_snapshot, kill_while_indexes_are_added, kill_while_replicating
from tests.support.world import World


@pytest.mark.parametrize("victim", VICTIMS)
def test_kill_while_replicating(world: World, victim: str) -> None:
    kill_while_replicating(world, victim)


@pytest.mark.parametrize("victim", ["machine", "jvm", "tasks", "etcd", "target", "source"])
def test_kill_during_the_snapshot(world: World, victim: str) -> None:
    kill_during_the_snapshot(world, victim)


@pytest.mark.parametrize("victim", ["adder", "target"])
def test_kill_while_indexes_are_added(world: World, victim: str) -> None:
    kill_while_indexes_are_added(world, victim)

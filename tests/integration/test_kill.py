"""Tests kills of any process at any time (I9), under load: at every moment of a snapshot, of a table join, and while
replicating."""

from __future__ import annotations

import pytest

from tests.support.kills import (
    ADDING,
    COPYING,
    DROPPING,
    JOINING,
    VICTIMS,
    at_each,
    kill_while_copying,
    kill_while_indexes_are_added,
    kill_while_joining,
    kill_while_replicating,
)
from tests.support.metrics import scrape
from tests.support.world import World

_OF_GRID = ("machine", "both workers", "worker", "tasks", "jvm")
"""test_whole_system.py kills the last three, with Spark; the first two are as "worker", and at both sources."""


@pytest.mark.parametrize(
    "victim", [pytest.param(victim, marks=[pytest.mark.grid] * (victim in _OF_GRID)) for victim in VICTIMS]
)
def test_kill_while_replicating(world: World, victim: str) -> None:
    kill_while_replicating(world, victim)
    if victim == "jvm":
        worker = world.cluster.worker_of(world.sources[0][0])
        assert scrape(worker).one("dm_worker_spark_restarts_total") >= 1, "the process that replaced it has the count"


# `bash tests/run.sh grid` combines all victims with all moments; here each moment has one victim. A worker or JVM takes
# longest to restart: they are killed at the moments that matter most to them.
_WHOLE = ("tasks", "etcd", "target", "source", "worker", "jvm")
_COPYING = {
    "snapshot.planning": "jvm",
    "snapshot.after_low": "source",
    "snapshot.after_select": "etcd",
    "snapshot.fixing": "worker",
    "snapshot.before_commit": "target",
    "snapshot.after_commit": "tasks",
    "handover": "worker",
}
_JOINING = {
    "update.begun": "etcd",
    "join.copying": "source",
    "snapshot.before_commit": "jvm",
    "join.stream": "tasks",
    "join.near": "master",
    "join.before_adopting": "target",
    "join.adopted": "tasks",
}
_DROPPING = {
    "deferred.existing_recorded": "adder",
    "deferred.existing_dropped": "target",
    "snapshot.before_commit": "machine",
    "deferred.before_alter": "adder",
    "deferred.added": "target",
}
_ADDING = {"deferred.before_alter": "target", "deferred.added": "adder"}


@pytest.mark.grid  # test_whole_system.py has the same kills, with Spark
def test_kill_at_moments_of_a_snapshot(world: World) -> None:
    assert tuple(_COPYING) == COPYING
    kill_while_copying(world, "mixed", _COPYING)


def test_kill_at_moments_of_a_join(world: World) -> None:
    assert tuple(moment for moment in JOINING if moment in _JOINING) == tuple(_JOINING)
    kill_while_joining(world, "mixed", _JOINING)


@pytest.mark.grid  # the next test has the same moments
def test_kill_while_indexes_are_added(world: World) -> None:
    assert tuple(_ADDING) == ADDING
    kill_while_indexes_are_added(world, "mixed", _ADDING)


def test_kill_while_indexes_of_an_existing_table_are_dropped_and_added(world: World) -> None:
    assert tuple(_DROPPING) == DROPPING
    kill_while_indexes_are_added(world, "existing", _DROPPING, existing=True)


@pytest.mark.grid
@pytest.mark.parametrize("victim", _WHOLE)
def test_kill_at_every_moment_of_a_snapshot(world: World, victim: str) -> None:
    kill_while_copying(world, victim, at_each(victim, COPYING))


@pytest.mark.grid
@pytest.mark.parametrize("victim", _WHOLE)
def test_kill_at_every_moment_of_a_join(world: World, victim: str) -> None:
    kill_while_joining(world, victim, at_each(victim, JOINING))


@pytest.mark.grid
@pytest.mark.parametrize("victim", ["machine", "target"])
def test_kill_whenever_indexes_of_an_existing_table_are_dropped_and_added(world: World, victim: str) -> None:
    kill_while_indexes_are_added(world, f"existing_{victim}", at_each(victim, DROPPING), existing=True)


@pytest.mark.grid
@pytest.mark.parametrize("victim", ["adder", "target"])
def test_kill_whenever_indexes_are_added(world: World, victim: str) -> None:
    kill_while_indexes_are_added(world, victim, at_each(victim, ADDING))

"""Tests the whole system as users start it, with Spark: a source of each kind, kills of everything that may end (I9).

Other files test the same kills at more moments, with workers that have no JVM.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kills import (
    VICTIMS,
    kill_while_copying,
    kill_while_locked,
    kill_while_replicating,
)
from tests.support.mariadb import MariaDB
from tests.support.metrics import scrape
from tests.support.mysql import MySQL
from tests.support.optimistic_kills import kill_while_joined
from tests.support.world import World

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def module_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("whole"), sources=(MariaDB, MySQL))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.mark.parametrize("victim", ["jvm", "tasks", "worker"])
def test_kill_while_replicating(world: World, victim: str) -> None:
    """What Spark runs, what runs Spark, and the worker with both."""
    assert victim in VICTIMS
    kill_while_replicating(world, victim)
    if victim == "jvm":
        worker = world.cluster.worker_of(world.sources[0][0])
        assert scrape(worker).one("dm_worker_spark_restarts_total") >= 1, "the process that replaced it has the count"


def test_kill_everything_during_a_copy(world: World) -> None:
    kill_while_copying(
        world,
        "whole",
        {
            "snapshot.planning": "master",
            "snapshot.after_low": "source",
            "snapshot.after_select": "etcd",
            "snapshot.fixing": "jvm",
            "snapshot.before_commit": "target",
            "handover": "tasks",
        },
    )


def test_kill_during_a_pessimistic_ddl(world: World) -> None:
    kill_while_locked(world, "whole", {"lock.executing": "worker", "ddl.run": "target", "lock.executed": "jvm"})


def test_kill_during_an_optimistic_ddl(world: World) -> None:
    kill_while_joined(
        world, "whole", {"ddl.begun": "jvm", "ddl.passing": "master"}, {"join.held": "target", "ddl.passed": "tasks"}
    )

"""Tests that the printed way out of an error leads to a target without a difference."""

from __future__ import annotations

import pytest

from tests.integration.ways_out.printed import Operator
from tests.integration.ways_out.situations import WAYS_OUT, Merge, WayOut
from tests.support.world import World


@pytest.mark.parametrize("way", WAYS_OUT, ids=lambda way: str(way.code))
def test_the_printed_way_out_loses_no_row(world: World, way: WayOut) -> None:
    name, cluster = way.name, world.cluster
    family = world.family(name)
    family.create(200)
    text = family.task()
    cluster.start_task(text)
    cluster.wait_replicating(name)
    world.settle([name])
    merge = Merge(world, family, Operator(world, name, str(cluster.directory / f"{name}.task.yaml")), text)
    try:
        printed = way.produce(merge)
        assert "{" not in printed.message + printed.way_out
        way.follow(merge, printed)
        world.settle([name])
        assert family.verdict().differences == 0
    finally:  # the next situation needs its sources
        cluster.dmctl("stop-task", name, check=False)

"""Tests that the printed way out of an error leads to a target without a difference."""

from __future__ import annotations

import pytest

from tests.integration.ways_out.printed import Operator
from tests.integration.ways_out.situations.data import DATA_WAYS_OUT
from tests.integration.ways_out.situations.ddl import DDL_WAYS_OUT
from tests.integration.ways_out.situations.situation import WAYS_OUT, Merge, WayOut
from tests.integration.ways_out.situations.transform import TRANSFORM_WAYS_OUT
from tests.support.world import Family, World

# Some of the tasks have transforms, whose JVM a worker starts before everything else.
pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "way", (*DDL_WAYS_OUT, *TRANSFORM_WAYS_OUT, *DATA_WAYS_OUT, *WAYS_OUT), ids=lambda way: f"{way.code}{way.part}"
)
def test_the_printed_way_out_loses_no_row(world: World, way: WayOut) -> None:
    name, cluster = way.name, world.cluster
    family = Family(name, world.sources[: way.sources], world.target, tables=way.tables)
    family.create(200)
    text = way.text(family)
    cluster.start_task(text)
    cluster.wait_replicating(name)
    world.settle([name])
    merge = Merge(world, family, Operator(world.cluster, name, str(cluster.directory / f"{name}.task.yaml")), text)
    try:
        printed = way.produce(merge)
        assert "{" not in printed.message + printed.way_out
        judged = way.follow(merge, printed) or family
        world.settle([name])
        verdict = judged.verdict()
        assert verdict.differences == 0, verdict
    finally:  # the next situation needs its sources
        cluster.dmctl("stop-task", name, check=False)

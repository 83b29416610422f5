"""Tests event filters of a running task: update-task changes them, and they persist over kills and restarts."""

from __future__ import annotations

import pytest

from tests.support.cluster import source_yaml
from tests.support.world import Family, World
from tests.support.writer import Writer


def _filtered(family: Family) -> str:
    """Return the family's task file with a filter for DELETE and TRUNCATE of its shard tables."""
    rule = (
        f'filters:\n  keep: {{schema-pattern: "{family.name}_*", events: [delete, truncate table], action: Ignore}}\n'
    )
    return family.task(extra=rule).replace("    route-rules:", "    filter-rules: [keep]\n    route-rules:")


def _rows(world: World, family: Family, where: str = "1") -> int:
    return int(str(world.target.query(f"SELECT COUNT(*) FROM {family.name}.orders WHERE {where}")[0][0]))


def test_a_filter_takes_effect_at_an_update_and_goes_with_one(world: World) -> None:
    family, cluster = world.family("filtered", tables=2), world.cluster
    family.create(200)
    source = family.sources[0][1]
    cluster.start_task(family.task())
    cluster.wait_replicating("filtered")
    source.execute("DELETE FROM filtered_01.order_01 LIMIT 50")
    world.settle(["filtered"])
    before = _rows(world, family)
    answer = cluster.dmctl("update-task", cluster.write("filtered.task.yaml", _filtered(family))).json
    assert answer["result"], answer
    cluster.wait_replicating("filtered")
    source.execute("DELETE FROM filtered_01.order_01 LIMIT 50", "TRUNCATE TABLE filtered_01.order_01")
    world.settle(["filtered"])
    assert _rows(world, family) == before
    # A restart reads the filters from the record of the partitioning.
    cluster.dmctl("pause-task", "filtered")
    cluster.wait_paused("filtered")
    source.execute("DELETE FROM filtered_01.order_02 LIMIT 5")
    cluster.dmctl("resume-task", "filtered")
    cluster.wait_replicating("filtered")
    world.settle(["filtered"])
    assert _rows(world, family) == before
    answer = cluster.dmctl("update-task", cluster.write("filtered.task.yaml", family.task())).json
    assert answer["result"], answer
    cluster.wait_replicating("filtered")
    source.execute("DELETE FROM filtered_01.order_02 LIMIT 5")
    world.settle(["filtered"])
    assert _rows(world, family) == before - 5
    cluster.dmctl("stop-task", "filtered")


def test_the_filters_of_a_source_change_under_its_tasks(world: World) -> None:
    family, cluster = world.family("of_source", tables=2), world.cluster
    family.create(100)
    cluster.start_task(family.task())
    cluster.wait_replicating("of_source")
    world.settle(["of_source"])
    source_id, source = family.sources[0]
    before = _rows(world, family)
    rule = "filters:\n  - {schema-pattern: of_source_01, events: [delete], action: Ignore}\n"
    file = cluster.write("filters.source.yaml", source_yaml(source_id, source) + rule)
    answer = cluster.dmctl("operate-source", "update", file).json
    assert answer["result"], answer
    assert [(one["key"], one["before"], one["after"]) for one in answer["changes"]] == [
        ("filters", "0 rules", "1 rules")
    ]
    cluster.wait_replicating("of_source")
    for _, server in family.sources:
        server.execute("DELETE FROM of_source_01.order_01 LIMIT 10")
    world.settle(["of_source"])
    assert _rows(world, family) == before - 10  # rows of the other source
    file = cluster.write("filters.source.yaml", source_yaml(source_id, source))
    assert cluster.dmctl("operate-source", "update", file).json["result"]
    cluster.wait_replicating("of_source")
    source.execute("DELETE FROM of_source_01.order_02 LIMIT 7")
    world.settle(["of_source"])
    assert _rows(world, family) == before - 17
    cluster.dmctl("stop-task", "of_source")


@pytest.mark.grid  # test_filtered_ddl_kill.py has a kill at each moment of such a statement
def test_filtered_tables_survive_kills(world: World) -> None:
    """Every row that ever existed is at the target, in its last state."""
    family, cluster = world.family("kept", tables=2), world.cluster
    shards = family.create(500)
    cluster.start_task(_filtered(family))
    cluster.wait_replicating("kept")
    with Writer(shards, seed=71) as writer:
        for source, _ in family.sources:
            writer.go_on(200)
            worker = cluster.worker_of(source)
            worker.kill_all()
            worker.start()
        writer.go_on(200)
        writer.stop()
    cluster.wait_replicating("kept")
    world.settle(["kept"])
    verdict = family.verdict()
    assert verdict.rows > 0
    assert verdict.extra > 0, "nothing was passed over"
    assert (verdict.missing, verdict.changed, verdict.collisions) == (0, 0, 0), verdict
    cluster.dmctl("stop-task", "kept")

"""Tests an update of a task while tables of an earlier update have not joined yet."""

from __future__ import annotations

from tests.support.cluster import Cluster
from tests.support.world import Family, World

NAME = "waits"


def _with_tables(family: Family, *numbers: int) -> str:
    names = "".join(f'\n      - {{db-name: "{NAME}_*", tbl-name: order_{number:02d}}}' for number in numbers)
    text = family.task(extra="ignore-checking-items: [downstream_table_empty]\n")
    databases = f'    do-dbs: ["{NAME}_*"]'
    return text.replace(databases, f"{databases}\n    do-tables:{names}")


def _update(cluster: Cluster, text: str) -> None:
    answer = cluster.dmctl("update-task", cluster.write("waits.task.yaml", text)).json
    assert answer["result"], answer


def test_its_tables_join_after_those_of_the_update_before(world: World) -> None:
    family, cluster = world.family(NAME, tables=3), world.cluster
    family.create(200)
    cluster.start_task(_with_tables(family, 1, 2))
    cluster.wait_replicating(NAME)
    world.settle([NAME])
    _update(cluster, _with_tables(family, 1))
    cluster.wait_replicating(NAME)
    _update(cluster, _with_tables(family, 1, 2))
    cluster.wait_subtasks(
        NAME, lambda sub: dict(sub.raw.get("join") or {}).get("phase") == "failed", "old rows collide"
    )
    _update(cluster, _with_tables(family, 1, 2, 3))
    cluster.wait_subtasks(NAME, lambda sub: dict(sub.raw.get("join") or {}).get("phase") == "failed", "fails again")
    assert "a further update begins when these tables have joined" in cluster.dmctl("query-status", NAME).text
    for instance in (1, 2):
        part = (instance << 59) + (1 << 52) + (2 << 44)
        world.target.execute(f"DELETE FROM {NAME}.orders WHERE id BETWEEN {part} AND {part + (1 << 44) - 1}")
    cluster.dmctl("resume-task", NAME)
    cluster.wait_joined(NAME)
    cluster.wait_replicating(NAME)
    world.judge(family)
    for _, server in world.sources:
        server.execute(f"UPDATE {NAME}_01.order_03 SET amount = 7 WHERE id % 3 = 0")
    world.judge(family)
    cluster.dmctl("stop-task", NAME)

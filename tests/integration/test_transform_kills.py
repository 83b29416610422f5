"""Tests kills between changes of a table with a transform: the target equals its view afterwards (I9)."""

from __future__ import annotations

import pytest

from tests.integration.test_row_filters import GROUPS, killed_between_changes
from tests.support.world import World

pytestmark = pytest.mark.spark

PASSES = "grp <> 3 AND v % 3 <> 1"


@pytest.mark.parametrize(
    "victim", [*(pytest.param(victim, marks=pytest.mark.grid) for victim in ("tasks", "target")), "worker"]
)
def test_a_kill_between_transformed_changes(world: World, victim: str) -> None:
    """Changed rows begin and cease to match the filter."""
    task = f"transformed_{victim}"
    killed_between_changes(world, victim, task, file(world, task))
    server = world.sources[0][1]
    for table in GROUPS:
        expected = server.query(f"SELECT id, v * 2, LOWER(name), v FROM {task}.{table} WHERE {PASSES} ORDER BY id")
        assert len(expected) > 50
        assert world.target.query(f"SELECT id, twice, name, v FROM {task}.{table} ORDER BY id") == expected
    world.cluster.dmctl("stop-task", task)


def file(world: World, task: str) -> str:
    projection = "*, v * 2 AS twice, lower(name) AS name"
    return "\n".join(
        [
            *world.head_of_task(task, "transform-rules: [t]"),
            f"block-allow-list: {{own: {{do-dbs: [{task}]}}}}",
            "transforms:",
            f'  t: {{schema-pattern: {task}, filter: "{PASSES}", projection: "{projection}"}}',
        ]
    )

"""Whoever is killed between changes of a table with a transform: the target is its view all the same (I9)."""

from __future__ import annotations

import pytest

from tests.integration.test_row_filters import GROUPS, row, writing
from tests.support.kills import VICTIMS
from tests.support.world import World

PASSES = "grp <> 3 AND v % 3 <> 1"


@pytest.mark.parametrize("victim", ["tasks", "worker", "target"])
def test_a_kill_between_transformed_changes(world: World, victim: str) -> None:
    """Rows come into the filter and go out of it as they change."""
    task = f"transformed_{victim}"
    server = world.sources[0][1]
    server.execute(f"CREATE DATABASE {task}")
    for table in GROUPS:
        server.execute(
            f"CREATE TABLE {task}.{table} (id INT PRIMARY KEY, grp INT, name VARCHAR(10), v INT) CHARSET utf8mb4"
        )
        server.execute(f"INSERT INTO {task}.{table} VALUES " + ", ".join(row(number) for number in range(200)))
    with writing(server, task) as go_on:
        world.cluster.start_task(file(world, task))
        world.cluster.wait_replicating(task)
        for _ in range(2):
            go_on(150)
            world.cluster.hooks.hold("lane0.before_commit")
            world.cluster.hooks.reached("lane0.before_commit")
            try:
                VICTIMS[victim](world)
            finally:
                world.cluster.hooks.release("lane0.before_commit")
            go_on(150)
    world.settle([task])
    for table in GROUPS:
        expected = server.query(f"SELECT id, v * 2, LOWER(name), v FROM {task}.{table} WHERE {PASSES} ORDER BY id")
        assert len(expected) > 50
        assert world.target.query(f"SELECT id, twice, name, v FROM {task}.{table} ORDER BY id") == expected
    world.cluster.dmctl("stop-task", task)


def file(world: World, task: str) -> str:
    target = world.target
    projection = "*, v * 2 AS twice, lower(name) AS name"
    return "\n".join(
        [
            f"name: {task}",
            "task-mode: all",
            "meta-schema: dm_meta",
            f'target-database: {{host: {target.host}, port: {target.port}, user: root, password: ""}}',
            "mysql-instances:",
            f"  - source-id: {world.sources[0][0]}",
            "    block-allow-list: own",
            "    transform-rules: [t]",
            f"block-allow-list: {{own: {{do-dbs: [{task}]}}}}",
            "transforms:",
            f'  t: {{schema-pattern: {task}, filter: "{PASSES}", projection: "{projection}"}}',
        ]
    )

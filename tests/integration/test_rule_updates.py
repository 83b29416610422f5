"""Tests that update-task adds, changes and removes expression filters of a running task."""

from __future__ import annotations

from tests.support.database import Database
from tests.support.world import World


def file(world: World, task: str, condition: str, tables: str = "") -> str:
    """Return the task file. ``condition``: rows of table `some` that are left out when they are inserted, "" for none;
    ``tables``: pattern of the tables in the task, "" for all."""
    only = f', do-tables: [{{db-name: {task}, tbl-name: "{tables}"}}]' if tables else ""
    target = world.target
    rules = f'expression-filter:\n  gone: {{schema: {task}, table: some, insert-value-expr: "{condition}"}}\n'
    return (
        f"name: {task}\ntask-mode: all\nmeta-schema: dm_meta\n"
        f'target-database: {{host: {target.host}, port: {target.port}, user: root, password: ""}}\n'
        f"mysql-instances:\n  - source-id: {world.sources[0][0]}\n    block-allow-list: own\n"
        + ("    expression-filters: [gone]\n" if condition else "")
        + f"block-allow-list: {{own: {{do-dbs: [{task}]{only}}}}}\n"
        + (rules if condition else "")
    )


def update(world: World, task: str, condition: str) -> None:
    text = file(world, task, condition)
    answer = world.cluster.dmctl("update-task", world.cluster.write(f"{task}.update.yaml", text)).json
    assert answer["result"], answer
    world.cluster.wait_replicating(task)


def test_a_filtered_table_joins_and_its_filter_goes(world: World) -> None:
    """The filter applies to its history and, after a kill, to its stream; later changes of left-out rows are
    accepted."""
    task, cluster, source = "rule_joins", world.cluster, world.sources[0][1]
    source.execute(
        f"CREATE DATABASE {task}",
        *(f"CREATE TABLE {task}.{table} (id INT PRIMARY KEY, n INT, v INT)" for table in ("some", "all_")),
        f"INSERT INTO {task}.some VALUES (1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 3, 0), (5, 3, 0)",
    )
    cluster.start_task(file(world, task, "n = 3", "all_"))
    cluster.wait_replicating(task)
    cluster.hooks.hold("join.before_stream")
    text = cluster.write(f"{task}.update.yaml", file(world, task, "n = 3"))
    cluster.dmctl("update-task", text, check=False)
    cluster.hooks.reached("join.before_stream")
    source.execute(
        f"UPDATE {task}.some SET v = 1 WHERE id <= 3",
        f"DELETE FROM {task}.some WHERE id IN (2, 4)",
        f"INSERT INTO {task}.some VALUES (6, 1, 1), (7, 3, 1)",
    )
    cluster.worker_of("mysql-01").restart()
    cluster.hooks.release("join.before_stream")
    cluster.wait_joined(task)
    world.settle([task])
    assert rows(world.target, task) == [(1, 1, 1), (6, 1, 1)]
    update(world, task, "")
    source.execute(f"UPDATE {task}.some SET v = 2", f"DELETE FROM {task}.some WHERE id = 5")
    world.settle([task])
    assert rows(world.target, task) == [(1, 1, 2), (6, 1, 2)]
    cluster.dmctl("stop-task", task)


def rows(server: Database, task: str, table: str = "some") -> list[tuple[object, ...]]:
    return list(server.query(f"SELECT id, n, v FROM {task}.{table} ORDER BY id"))


def test_an_expression_filter_comes_changes_and_goes(world: World) -> None:
    """Rows that the filter has left out may be missing at the target: the table's row counts stay unchecked. Those of
    the other table are always checked."""
    task, cluster, source = "rule_updates", world.cluster, world.sources[0][1]
    source.execute(
        f"CREATE DATABASE {task}",
        *(f"CREATE TABLE {task}.{table} (id INT PRIMARY KEY, n INT, v INT)" for table in ("some", "all_")),
        *(f"INSERT INTO {task}.{table} VALUES (1, 1, 0), (2, 2, 0), (3, 3, 0)" for table in ("some", "all_")),
    )
    cluster.start_task(file(world, task, ""))
    cluster.wait_replicating(task)
    update(world, task, "n = 3")
    source.execute(f"INSERT INTO {task}.some VALUES (11, 1, 0), (13, 3, 0), (14, 4, 0), (15, 3, 0), (16, 3, 0)")
    world.settle([task])
    assert rows(world.target, task) == [(1, 1, 0), (2, 2, 0), (3, 3, 0), (11, 1, 0), (14, 4, 0)]
    update(world, task, "n = 4")
    source.execute(
        f"INSERT INTO {task}.some VALUES (23, 3, 0), (24, 4, 0)",
        f"UPDATE {task}.some SET v = 1",
        f"DELETE FROM {task}.some WHERE id = 13",
    )
    world.settle([task])
    kept = [(1, 1, 1), (2, 2, 1), (3, 3, 1), (11, 1, 1), (14, 4, 1), (23, 3, 1)]
    assert rows(world.target, task) == kept
    update(world, task, "")
    source.execute(
        f"UPDATE {task}.some SET v = 2",
        f"DELETE FROM {task}.some WHERE id = 15",
        f"INSERT INTO {task}.some VALUES (33, 3, 2), (34, 4, 2)",
    )
    world.settle([task])
    kept = [(key, number, 2) for key, number, _ in kept] + [(33, 3, 2), (34, 4, 2)]
    assert rows(world.target, task) == kept
    # The same over a restart, and after a statement on the table.
    cluster.dmctl("pause-task", task)
    cluster.wait_paused(task)
    source.execute(
        f"ALTER TABLE {task}.some ADD COLUMN w INT",
        f"UPDATE {task}.some SET v = 3",
        f"DELETE FROM {task}.some WHERE id = 16",
    )
    cluster.dmctl("resume-task", task)
    cluster.wait_replicating(task)
    world.settle([task])
    kept = [(key, number, 3) for key, number, _ in kept]
    assert rows(world.target, task) == kept
    # The other table's row counts are checked.
    world.target.execute(f"DELETE FROM {task}.all_ WHERE id = 2")
    source.execute(f"UPDATE {task}.all_ SET v = 1 WHERE id = 2")
    [stopped] = cluster.wait_paused(task).values()
    assert [code for code, _ in stopped.errors] == [40002]
    cluster.dmctl("stop-task", task)

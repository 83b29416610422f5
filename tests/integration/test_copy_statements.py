"""Tests statements on a table while its history is copied: no row is lost when the stream meets them again (I1, I5)."""

from __future__ import annotations

import pytest

from tests.integration.replicated_rig import Replicated, module_replicated, replicated

__all__ = ["module_replicated", "replicated"]

COPY = "snapshot: {chunk-rows: 50, threads: 1, position: watermark}\n"
SERIES = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 200) SELECT i, i FROM n"


@pytest.mark.parametrize(
    ("name", "statements"),
    [
        ("cut", ("TRUNCATE TABLE {}", "INSERT INTO {} (id, v) VALUES (1, 1), (120, 2), (190, 3)")),
        ("new", ("DROP TABLE {}", "CREATE TABLE {} (id BIGINT PRIMARY KEY, v INT)", "INSERT INTO {} VALUES (120, 2)")),
    ],
)
def test_a_shard_table_loses_its_rows_while_it_is_copied(
    replicated: Replicated, name: str, statements: tuple[str, ...]
) -> None:
    """The first chunk was read before the statement. Both shard tables have rows in one target."""
    task = f"copy_{name}"
    cluster, source, target, hooks = replicated.cluster, replicated.old, replicated.target, replicated.cluster.hooks
    table = f"{task}_01.order_01"
    source.execute(f"CREATE DATABASE {task}_01")
    for each in (table, f"{task}_01.order_02"):
        source.execute(f"CREATE TABLE {each} (id BIGINT PRIMARY KEY, v INT)", f"INSERT INTO {each} {SERIES}")
    family = replicated.family(task, source)
    loaded = f"SELECT * FROM dm_meta.snapshot_chunk WHERE task = '{task}' AND state = 1 ORDER BY 1, 2, 3, 4"
    hooks.hold("snapshot.planned")
    cluster.start_task(family.task(extra=COPY))
    hooks.reached("snapshot.planned")
    hooks.hold("snapshot.before_commit")
    hooks.release("snapshot.planned")
    hooks.reached("snapshot.before_commit")
    source.execute(*(each.format(table) for each in statements))
    hooks.release("snapshot.before_commit")
    cluster.wait_replicating(task)
    cluster.wait_joined(task)
    replicated.judge(task, source)
    found = target.query(loaded)
    assert len(found) >= 4, "the other table was copied"
    assert target.query(f"SELECT COUNT(*) FROM dm_meta.snapshot_interrupted WHERE task = '{task}'") == [(0,)]
    cluster.dmctl("stop-task", task)

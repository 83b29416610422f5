"""Tests statements on a table while its history is copied: no row is lost when the stream meets them again (I1, I5)."""

from __future__ import annotations

import pytest

from shardmerge.proto import errors
from tests.integration.replicated_rig import SOURCE, Replicated, module_replicated, replicated

__all__ = ["module_replicated", "replicated"]

COPY = "snapshot: {chunk-rows: 50, threads: 1, position: watermark}\n"
SERIES = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 200) SELECT i, i FROM n"


@pytest.mark.parametrize(
    ("name", "statements"),
    [
        ("cut", ("TRUNCATE TABLE {}", "INSERT INTO {} (id, v) VALUES (1, 1), (120, 2), (190, 3)")),
        ("back", ("ALTER TABLE {} DROP COLUMN v", "ALTER TABLE {} ADD COLUMN v INT", "UPDATE {} SET v = id + 7")),
        ("wider", ("ALTER TABLE {} MODIFY v BIGINT", "ALTER TABLE {} MODIFY v INT", "UPDATE {} SET v = id + 7")),
        ("new", ("DROP TABLE {}", "CREATE TABLE {} (id BIGINT PRIMARY KEY, v INT)", "INSERT INTO {} VALUES (120, 2)")),
    ],
)
def test_rows_that_were_copied_after_a_statement_are_not_lost(
    replicated: Replicated, name: str, statements: tuple[str, ...]
) -> None:
    """The first chunk was read before the statements, the others after them."""
    task = f"copy_{name}"
    cluster, source, target, hooks = replicated.cluster, replicated.old, replicated.target, replicated.cluster.hooks
    table = f"{task}_01.order_01"
    source.execute(f"CREATE DATABASE {task}_01")
    for each in (table, f"{task}_01.order_02"):
        source.execute(f"CREATE TABLE {each} (id BIGINT PRIMARY KEY, v INT)", f"INSERT INTO {each} {SERIES}")
    family = replicated.family(task, source)
    file = family.task(extra=COPY)
    hooks.hold("snapshot.planned")
    cluster.start_task(file)
    hooks.reached("snapshot.planned")
    hooks.hold("snapshot.before_commit")
    hooks.release("snapshot.planned")
    hooks.reached("snapshot.before_commit")
    source.execute(*(each.format(table) for each in statements))
    hooks.release("snapshot.before_commit")
    found = cluster.wait_subtasks(task, lambda sub: sub.stage == "Paused", "stops before the statement")
    [(code, message)] = found[SOURCE].errors
    assert code == errors.ddl.COPIED_LATER.code, found
    assert table in message

    # The printed way out: the table is copied again, the other one is not.
    chunks = f"SELECT * FROM dm_meta.snapshot_chunk WHERE task = '{task}' ORDER BY 1, 2, 3, 4"
    allowed = f'    do-dbs: ["{task}_*"]'
    without = f'{allowed}\n    ignore-tables: [{{db-name: "{task}_01", tbl-name: "order_01"}}]'
    cluster.dmctl("update-task", cluster.write(f"{task}.without.yaml", file.replace(allowed, without)))
    cluster.wait_replicating(task)
    cluster.wait_caught_up(task, {SOURCE: source})
    target.execute(f"DELETE FROM {task}.orders WHERE (id >> 44) & 255 = 1")
    before = target.query(chunks)
    cluster.dmctl("update-task", cluster.write(f"{task}.again.yaml", file))
    cluster.wait_joined(task)
    replicated.judge(task, source)
    after = target.query(chunks)
    assert len(after) > len(before)
    assert not set(map(str, before)) - set(map(str, after)), "no other chunk was copied again"
    cluster.dmctl("stop-task", task)

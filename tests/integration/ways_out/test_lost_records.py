"""Tests the printed ways out of 40114: another person drops the records of a task, or some of their tables.

The task has a table without a key: a second copy of its history would double its rows.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.integration.ways_out.printed import Operator, Printed
from tests.integration.ways_out.situations.situation import ONE, TWO, Merge
from tests.support.world import World

pytestmark = pytest.mark.turns

CODE = 40114


def _started(world: World, name: str) -> Merge:
    family = world.family(name)
    family.create(200)
    for _, server in world.sources:
        server.execute(
            f"CREATE TABLE {name}_01.seen (what VARCHAR(20))", f"INSERT INTO {name}_01.seen VALUES ('a'), ('a'), ('b')"
        )
    seen = f'  seen: {{schema-pattern: "{name}_*", table-pattern: seen, target-schema: {name}, target-table: seen}}\n'
    text = family.task().replace("meta-schema: dm_meta", f"meta-schema: {name}_meta")
    text = text.replace("route-rules: [merge]", "route-rules: [merge, seen]").replace("routes:\n", f"routes:\n{seen}")
    world.cluster.start_task(text)
    world.cluster.wait_replicating(name)
    world.settle([name])
    return Merge(world, family, Operator(world.cluster, name, str(world.cluster.directory / f"{name}.task.yaml")), text)


def _stopped(merge: Merge, *missing: str) -> Printed:
    printed = merge.operator.stopped(CODE, ONE)
    merge.operator.stopped(CODE, TWO)
    assert all(name in printed.message for name in (*missing, f"{merge.family.name}_meta")), printed.message
    return printed


def _resume_in_vain(merge: Merge, *missing: str) -> Printed:
    """resume-task alone does not begin another copy of the history."""
    merge.world.cluster.dmctl("resume-task", merge.family.name, check=False)
    printed = _stopped(merge, *missing)
    assert merge.world.target.query(f"SELECT COUNT(*) FROM {merge.family.name}.seen") == [(6,)]
    assert merge.world.target.query(f"SELECT COUNT(*) FROM {merge.merged}") == [(800,)]
    return printed


def _copy_again(merge: Merge, printed: Printed) -> None:
    merge.operator.runs(printed, "stop-task", 1)
    merge.target(f"TRUNCATE TABLE {merge.merged}", f"TRUNCATE TABLE {merge.family.name}.seen")
    merge.operator.runs(printed, "start-task", 1)
    merge.world.cluster.wait_replicating(merge.family.name)


def _ended(merge: Merge) -> None:
    name = merge.family.name
    merge.source(1).execute(f"UPDATE {merge.shard(1)} SET amount = 3 ORDER BY id LIMIT 50")
    merge.source(2).execute(f"INSERT INTO {name}_01.seen VALUES ('c')")
    merge.world.settle([name])
    verdict = merge.family.verdict()
    assert verdict.differences == 0, verdict
    seen = merge.world.target.query(f"SELECT what, COUNT(*) FROM {name}.seen GROUP BY what ORDER BY what")
    assert seen == [("a", 4), ("b", 2), ("c", 1)]
    merge.world.cluster.dmctl("stop-task", name)


def test_the_schema_is_dropped_and_the_history_is_copied_again(world: World) -> None:
    merge = _started(world, "gone")
    merge.target("DROP DATABASE gone_meta")
    merge.insert(1, 1, "late")
    merge.insert(2, 2, "late")
    _stopped(merge)
    printed = _resume_in_vain(merge, "its row of subtask")
    _copy_again(merge, printed)
    _ended(merge)


def test_both_schemas_are_restored(world: World) -> None:
    name = "gone_saved"
    merge = _started(world, name)
    target = merge.world.target
    saved = subprocess.run(
        [
            *("mariadb-dump", "-h127.0.0.1", f"-P{target.port}", "-uroot", "--single-transaction", "--hex-blob"),
            *("--databases", name, f"{name}_meta"),
        ],
        capture_output=True,
        check=True,
    ).stdout
    merge.source(1).execute(f"UPDATE {merge.shard(2)} SET amount = 4 ORDER BY id LIMIT 20")
    merge.world.settle([name])
    merge.target(f"DROP TABLE {name}_meta.table_structure, {name}_meta.parked_table")
    merge.world.cluster.dmctl("pause-task", name)
    printed = _resume_in_vain(merge, "the table table_structure", "the table parked_table")
    merge.operator.runs(printed, "stop-task")
    merge.target(f"DROP DATABASE {name}", f"DROP DATABASE {name}_meta")
    subprocess.run(["mariadb", "-h127.0.0.1", f"-P{target.port}", "-uroot"], input=saved, check=True)
    merge.operator.runs(printed, "start-task")
    _ended(merge)


def test_a_table_is_dropped_and_the_history_is_copied_again(world: World) -> None:
    name = "gone_part"
    merge = _started(world, name)
    merge.world.cluster.dmctl("pause-task", name)
    merge.target(f"DROP TABLE {name}_meta.table_structure")
    printed = _resume_in_vain(merge, "the table table_structure")
    _copy_again(merge, printed)
    _ended(merge)

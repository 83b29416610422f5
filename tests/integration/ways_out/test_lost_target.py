"""Tests the printed ways out of 40097: a merged target table is missing, and is not created again without its rows."""

from __future__ import annotations

import pytest

from tests.integration.ways_out.printed import Operator, Printed
from tests.integration.ways_out.situations.situation import ONE, TWO, Merge
from tests.support.cluster import Json
from tests.support.world import World

pytestmark = pytest.mark.turns

CODE = 40097
_EXTRACT = (
    "    target-table: orders\n"
    '    extract-table: {table-regexp: "order_(.*)", target-column: c_table}\n'
    '    extract-source: {source-regexp: "(.*)", target-column: c_source}\n'
)


def _started(world: World, name: str, *, extracts: bool = False) -> Merge:
    family = world.family(name)
    family.create(200)
    text = family.task()
    if extracts:
        text = text.replace("    target-table: orders\n", _EXTRACT)
    world.cluster.start_task(text)
    world.cluster.wait_replicating(name)
    world.settle([name])
    return Merge(world, family, Operator(world.cluster, name, str(world.cluster.directory / f"{name}.task.yaml")), text)


def _exists(merge: Merge) -> bool:
    name = merge.family.name
    return bool(merge.world.target.query(f"SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{name}'"))


def _lost(merge: Merge) -> Printed:
    """Another person drops the table; both sources have changes of other rows."""
    merge.target(f"DROP TABLE {merge.merged}")
    merge.insert(1, 1, "late")
    merge.insert(2, 2, "late")
    printed = merge.operator.stopped(CODE, ONE)
    merge.operator.stopped(CODE, TWO)
    assert f"{merge.merged} is missing" in printed.message
    return printed


def _create(merge: Merge, printed: Printed) -> None:
    """Create the table by the statement that the printed command shows."""
    [source] = merge.operator.runs(printed, "schema").json["sources"]
    [shown] = source["targets"]
    assert not shown.get("exists")
    merge.target(str(shown["statement"]))


def _resume(merge: Merge, printed: Printed) -> None:
    merge.operator.runs(printed, "resume-task", 1)


def _repair(merge: Merge, printed: Printed) -> Json:
    merge.world.settle([merge.family.name])
    return merge.operator.runs(printed, "compare").json


def _ended(merge: Merge, columns: str = "") -> None:
    """Check that no row differs, and that changes of rows that were lost arrive."""
    name = merge.family.name
    merge.source(1).execute(f"UPDATE {merge.shard(1)} SET amount = 3 ORDER BY id LIMIT 50")
    merge.source(2).execute(f"DELETE FROM {merge.shard(2)} ORDER BY id LIMIT 50")
    merge.world.settle([name])
    if columns:
        groups = merge.world.target.query(f"SELECT {columns}, COUNT(*) FROM {merge.merged} GROUP BY {columns}")
        assert sorted(groups) == [("01", ONE, 200), ("01", TWO, 200), ("02", ONE, 200), ("02", TWO, 151)]
    else:
        verdict = merge.family.verdict()
        assert verdict.differences == 0, verdict
    merge.world.cluster.compare(name)
    merge.world.cluster.dmctl("stop-task", name)


@pytest.mark.parametrize("extracts", [False, True], ids=["partition id", "extracted columns"])
def test_it_is_created_by_hand_and_compared(world: World, extracts: bool) -> None:
    name = "lost_extracted" if extracts else "lost"
    merge = _started(world, name, extracts=extracts)
    printed = _lost(merge)
    for _ in range(2):  # resume-task alone does not create it
        world.cluster.dmctl("resume-task", name, check=False)
        assert merge.operator.stopped(CODE, ONE).commands() == printed.commands()
        merge.operator.stopped(CODE, TWO)
        assert not _exists(merge)
    _create(merge, printed)
    _resume(merge, printed)
    _repair(merge, printed)
    if extracts:
        merge.source(1).execute(f"DELETE FROM {merge.shard(1)} WHERE customer = 'late'")
    _ended(merge, "c_table, c_source" if extracts else "")


def test_the_stream_changes_lost_rows(world: World) -> None:
    """As the way out says: 40002, safe-mode until the comparison has ended."""
    merge = _started(world, "lost_changed")
    printed = _lost(merge)
    merge.source(1).execute(f"UPDATE {merge.shard(1)} SET amount = 5 ORDER BY id LIMIT 20")
    merge.source(2).execute(f"DELETE FROM {merge.shard(2)} ORDER BY id LIMIT 20")
    _create(merge, printed)
    _resume(merge, printed)
    merge.operator.stopped(40002, ONE)
    merge.operator.stopped(40002, TWO)
    safe = merge.text.replace("    route-rules", "    syncer: {safe-mode: true}\n    route-rules")
    merge.file(safe)
    merge.operator.runs(printed, "update-task")
    _repair(merge, printed)
    merge.file(merge.text)
    merge.operator.runs(printed, "update-task")
    _ended(merge)


def test_it_is_emptied_while_the_task_runs(world: World) -> None:
    """As the way out of 40002 says for many rows: safe-mode until the comparison has ended."""
    merge = _started(world, "lost_emptied")
    merge.target(f"TRUNCATE {merge.merged}")
    merge.source(1).execute(f"UPDATE {merge.shard(1)} SET amount = 5 ORDER BY id LIMIT 20")
    merge.source(2).execute(f"DELETE FROM {merge.shard(2)} ORDER BY id LIMIT 20")
    printed = merge.operator.stopped(40002, ONE)
    merge.operator.stopped(40002, TWO)
    merge.file(merge.text.replace("    route-rules", "    syncer: {safe-mode: true}\n    route-rules"))
    merge.operator.runs(printed, "update-task")
    _repair(merge, printed)
    merge.file(merge.text)
    merge.operator.runs(printed, "update-task")
    _ended(merge)


def test_its_shard_tables_are_copied_again(world: World) -> None:
    """The other way out: update-task without them and with them. An update of another kind does not create it."""
    name = "lost_copied"
    for number, (_, server) in enumerate(world.sources, 1):
        server.execute(f"CREATE DATABASE {name}_01", f"CREATE TABLE {name}_01.other_{number} (id INT PRIMARY KEY)")
    merge = _started(world, name)
    merge.target(f"DROP TABLE {merge.merged}")
    merge.file(merge.text + "replicate: {batch-rows: 500}\n")
    world.cluster.dmctl("update-task", merge.operator.file, check=False)
    printed = merge.operator.stopped(CODE, ONE)
    merge.operator.stopped(CODE, TWO)
    assert not _exists(merge)
    merge.source(1).execute(f"UPDATE {merge.shard(1)} SET amount = 5 ORDER BY id LIMIT 20")
    listed = f'do-dbs: ["{name}_*"]\n'
    left_out = f"    ignore-tables: [{{db-name: {name}_01, tbl-name: 'order_*'}}]\n"
    merge.file(merge.text.replace(listed, f"{listed}{left_out}"))
    merge.operator.runs(printed, "update-task")
    world.cluster.wait_replicating(name)
    assert not _exists(merge)
    merge.file(merge.text)
    merge.operator.runs(printed, "update-task")
    world.cluster.wait_joined(name)
    world.settle([name])
    _ended(merge)


def test_a_worker_that_starts_again_does_not_create_it(world: World) -> None:
    merge = _started(world, "lost_restart")
    merge.target(f"DROP TABLE {merge.merged}")
    for worker in world.cluster.workers:
        worker.kill()
    for worker in world.cluster.workers:
        worker.start()
    printed = merge.operator.stopped(CODE, ONE)
    merge.operator.stopped(CODE, TWO)
    assert not _exists(merge)
    world.cluster.dmctl("stop-task", "lost_restart")
    world.cluster.dmctl("start-task", merge.operator.file, check=False)
    merge.operator.stopped(CODE, ONE)
    merge.operator.stopped(CODE, TWO)
    assert not _exists(merge)
    _create(merge, printed)
    _resume(merge, printed)
    _repair(merge, printed)
    _ended(merge)

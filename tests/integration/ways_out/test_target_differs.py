"""Tests the printed way out of a target table that does not fit (40030), however the shard tables' rows are kept apart:
by `partition id`, or by columns that a route extracts from names."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.integration.ways_out.printed import Operator
from tests.integration.ways_out.situations.situation import ONE, TWO, Merge
from tests.support.world import Family, World

_COLUMNS = (
    '    extract-table: {table-regexp: "order_(.*)", target-column: c_table}\n'
    '    extract-source: {source-regexp: "(.*)", target-column: c_source}\n'
)
_IGNORED = "ignore-checking-items: [schema_of_shard_tables]\n"
MAPPED, EXTRACTED = "partition id", "extracted columns"
_KEYS = {MAPPED: "id", EXTRACTED: "id, c_table, c_source"}


def _text(family: Family, apart: str) -> str:
    if apart == MAPPED:
        return family.task()
    text = family.task().replace("    target-table: orders\n", f"    target-table: orders\n{_COLUMNS}")
    lines = text.partition("column-mappings:")[0].splitlines()
    return "\n".join(line for line in lines if "column-mapping-rules" not in line) + "\n"


def _merge(world: World, name: str, apart: str) -> Merge:
    family = world.family(name)
    family.create(200)
    operator = Operator(world.cluster, name, str(world.cluster.directory / f"{name}.task.yaml"))
    return Merge(world, family, operator, _text(family, apart))


def _judge(merge: Merge, apart: str) -> None:
    """Check every row, by SQL and by `dmctl compare`; the sources are quiet."""
    merge.world.settle([merge.family.name])
    if apart == MAPPED:
        verdict = merge.family.verdict()
        assert verdict.differences == 0, verdict
    else:
        assert Counter(_extracted_rows(merge)) == Counter(
            merge.world.target.query(f"SELECT c_source, c_table, {_ROW} FROM {merge.merged}")
        )
    assert merge.world.cluster.compare(merge.family.name).rows >= 600


_ROW = "id, customer, amount, state, note, HEX(token), created"


def _extracted_rows(merge: Merge) -> list[tuple[object, ...]]:
    return [
        (source, f"{table:02d}", *row)
        for source, server in merge.family.sources
        for table in (1, 2)
        for row in server.query(f"SELECT {_ROW} FROM {merge.shard(table)}")
    ]


def _change(merge: Merge) -> None:
    for source in (1, 2):
        merge.insert(source, 1, "late")
        merge.source(source).execute(
            f"UPDATE {merge.shard(2)} SET note = REPEAT('n', 110), amount = amount + 1 ORDER BY id LIMIT 9",
            f"DELETE FROM {merge.shard(1)} WHERE id % 7 = 0",
            f"UPDATE {merge.shard(1)} SET id = id + 100000 WHERE id % 11 = 0",
        )


@pytest.mark.parametrize("apart", [MAPPED, EXTRACTED])
def test_the_target_is_altered_under_the_task(world: World, apart: str) -> None:
    """Another person makes a column of the target too short, then removes the key that identifies a row."""
    merge = _merge(world, f"way_40030_{apart[:3]}", apart)
    cluster, name = world.cluster, merge.family.name
    cluster.start_task(merge.text)
    cluster.wait_replicating(name)
    world.settle([name])
    key = _KEYS[apart]
    for broken, repaired in (
        ("MODIFY note VARCHAR(90) NULL", "MODIFY note VARCHAR(120) NULL"),
        (f"DROP PRIMARY KEY, ADD KEY other ({key})", f"DROP KEY other, ADD PRIMARY KEY ({key})"),
    ):
        cluster.dmctl("pause-task", name)
        merge.target(f"UPDATE {merge.merged} SET note = NULL WHERE CHAR_LENGTH(note) > 90")
        merge.target(f"ALTER TABLE {merge.merged} {broken}")
        for source in (1, 2):
            merge.source(source).execute(
                *(f"UPDATE {merge.shard(table)} SET note = NULL WHERE CHAR_LENGTH(note) > 90" for table in (1, 2))
            )
        _change(merge)
        cluster.dmctl("resume-task", name, check=False)
        printed = merge.operator.stopped(40030, ONE)
        merge.target(f"ALTER TABLE {merge.merged} {repaired}")
        merge.operator.runs(printed, "resume-task")
        merge.operator.runs(merge.operator.stopped(40030, TWO), "resume-task")
        _judge(merge, apart)
    cluster.dmctl("stop-task", name)


@pytest.mark.parametrize("apart", [MAPPED, EXTRACTED])
def test_no_type_holds_the_values_of_all_shard_tables(world: World, apart: str) -> None:
    """Then the shard table is changed, before its copy has begun, and the printed command reads it again."""
    merge = _merge(world, f"way_types_{apart[:3]}", apart)
    cluster, name = world.cluster, merge.family.name
    for table in (1, 2):
        merge.source(2).execute(f"ALTER TABLE {merge.shard(table)} MODIFY amount VARCHAR(20) NOT NULL")
    path = cluster.write(f"{name}.task.yaml", merge.text + _IGNORED)
    assert cluster.dmctl("start-task", path, "-s", ONE, check=False).code == 0
    cluster.dmctl("start-task", path, "-s", TWO, check=False)
    printed = merge.operator.stopped(40030, TWO)
    assert "12105" in printed.way_out
    for table in (1, 2):
        merge.source(2).execute(f"ALTER TABLE {merge.shard(table)} MODIFY amount DECIMAL(12,2) NOT NULL")
    merge.operator.runs(printed, "resume-task")
    cluster.wait_replicating(name)
    _change(merge)
    _judge(merge, apart)
    cluster.dmctl("stop-task", name)

"""Rows that are written for the target before a transform computes their columns, compared with the way row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.lane_hash import Bucket
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.row_change import RowChange
from shardmerge.worker.core.table_plan import (
    ColumnPlan,
    ComputedValue,
    PartitionId,
    PythonFunction,
    RowTransform,
    TablePlan,
)
from shardmerge.worker.core.uncomputed import UncomputedChange
from shardmerge.worker.rules.stage.row_stage import RowStage
from shardmerge.worker.rules.stage.server_filter import ServerFilter
from shardmerge.worker.rules.transform.values import arrow_type, computed_column
from tests.support.binlog import only
from tests.support.capture import KEPT, kept

_FUNCTION = PythonFunction("tests.support.own_functions", "checksum", True)
_FILE = "mysql-bin.000001"


def _plan(flavor: str, *, moved: bool, lacks: bool) -> TablePlan:
    """The kept table with a column that is computed of all columns which Arrow has a type for. ``moved``: the computed
    column is the first one, and the key is mapped."""
    _, plan, _ = kept(flavor)
    inputs = tuple(column.index for column in plan.columns if arrow_type(column.column) is not None)
    assert len(inputs) > 15
    computed = ColumnPlan(-1, computed_column("sum", "string", nullable=True), "sum", ComputedValue("string"))
    columns = list(plan.columns)
    if moved:
        [slot] = plan.key
        columns[slot] = replace(columns[slot], mapping=PartitionId(1 << 59, 44))
        columns.insert(0, computed)
    else:
        columns.append(computed)
    key = tuple(slot + moved for slot in plan.key)
    transform = RowTransform("t", str(_FUNCTION), inputs, True, _FUNCTION)
    return replace(plan, columns=tuple(columns), key=key, transform=transform, may_lack_rows=lacks)


def _contents(batch: Batch) -> object:
    return [
        (name, key, item.existed, item.existence_unknown, item.image, item.plan, item.position)
        for name, keys in batch.targets()
        for key, item in keys.items()
    ], (batch.changes, batch.size)


@pytest.mark.parametrize("flavor", KEPT)
@pytest.mark.parametrize("lacks", [False, True])
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_lane_s_changes_are_those_of_the_way_row_by_row(flavor: str, lanes: int, moved: bool, lacks: bool) -> None:
    binlog, _, _ = kept(flavor)
    plan = _plan(flavor, moved=moved, lacks=lacks)
    for lane in range(lanes):
        found: list[Batch] = []
        for is_written_at_once in (True, False):
            stage = RowStage(cast(ServerFilter, None), Bucket(lane, lanes))
            stage.set_plans([plan])
            read = stage.decoded_by(plan)
            assert read.completed_by is plan
            decoder = BlockDecoder(
                only(read if is_written_at_once else replace(read, completed_by=None)),
                source="s1",
                bucket=Bucket(lane, lanes),
            )
            decoder.open(binlog.format_description)
            batch = Batch(lane, lanes, _FILE)
            decoder.pick(binlog.events, 0, _FILE, batch)
            staged = stage.for_lane(batch.take_staged())
            assert staged
            assert all(isinstance(change, UncomputedChange) is is_written_at_once for change in staged)
            places = {
                id(change): SourcePosition(_FILE, _end_of(change, binlog.events))
                for change in staged
                if isinstance(change, RowChange)
            }
            stage.add_pending(staged, places, batch)
            assert batch.changes
            found.append(batch)
        assert _contents(found[0]) == _contents(found[1])


def _end_of(change: RowChange, events: bytes) -> int:
    return int.from_bytes(events[change.byte + 13 : change.byte + 17], "little")

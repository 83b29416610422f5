"""Changes after a transform, evaluated by a fake: the target is the view of the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from shardmerge.proto import errors, relay_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.lane_hash import Bucket
from shardmerge.worker.core.row_change import ChangeKind, Literals, RowChange
from shardmerge.worker.core.table_plan import ColumnPlan, ComputedValue, PartitionId, RowTransform, TablePlan
from shardmerge.worker.rules.stage.row_stage import RowStage, TableStage, as_decoded
from shardmerge.worker.rules.stage.server_filter import ServerFilter
from shardmerge.worker.rules.transform.client import as_stream
from shardmerge.worker.rules.transform.values import ROW
from tests.support.plans import integer, table_plan, text

SHIFT = 1 << 55


def plan() -> TablePlan:
    """`n AS doubled` of (id, n, v): id mapped, n doubled and left out itself, v renamed; n > 0 passes."""
    made = table_plan((integer(), replace(integer(), name="n"), text("v")), (0,))
    columns = (
        ColumnPlan(-1, replace(integer(), name="doubled"), "doubled", ComputedValue("n * 2 AS doubled")),
        ColumnPlan(2, made.table.columns[2], "word"),
        ColumnPlan(0, made.table.columns[0], "id", PartitionId(SHIFT, 55)),
    )
    return replace(made, columns=columns, key=(2,), transform=RowTransform("t", "n > 0", (1,), has_star=False))


def answered(request: relay_pb2.EvaluateRequest) -> relay_pb2.EvaluateResponse:
    rows = ipc.open_stream(request.rows).read_all().to_pydict()
    assert set(rows) == {ROW, "n"}
    if 13 in rows["n"]:
        return relay_pb2.EvaluateResponse(refused="13 is unlucky")
    passed = [n > 0 for n in rows["n"]]
    doubled = [2 * n if n > 0 else None for n in rows["n"]]
    made = pa.table({"c0": passed, "c1": pa.array(doubled, pa.int64())})
    return relay_pb2.EvaluateResponse(rows=as_stream(made))


def row(key: int, n: int) -> Literals:
    return (b"%d" % key, b"%d" % n, b"'w'")


def viewed(rows: dict[int, int]) -> set[Literals]:
    return {(b"%d" % (2 * n), b"'w'", b"%d" % (SHIFT + key)) for key, n in rows.items() if n > 0}


def stage() -> RowStage:
    made = RowStage(cast(ServerFilter, None), Bucket(0, 1), answered)
    made.set_plans([plan()])
    return made


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2), st.sampled_from(ChangeKind)), max_size=30))
def test_a_filter_is_a_view(steps: Sequence[tuple[int, int, ChangeKind]]) -> None:
    made = stage()
    decoded = made.decoded_by(plan())
    assert [column.target_name for column in decoded.columns] == ["id", "n", "v"]
    rows: dict[int, int] = {}
    changes: list[RowChange] = []
    for at, (key, n, kind) in enumerate(steps):
        if (kind is ChangeKind.INSERT) == (key in rows):
            continue
        before = () if kind is ChangeKind.INSERT else row(key, rows.pop(key))
        after = () if kind is ChangeKind.DELETE else row(key, n)
        if after:
            rows[key] = n
        changes.append(RowChange(at, at, kind, decoded, before, after))
    found, unread = made.evaluate(changes, lambda change: change.byte)
    assert not unread
    held: set[Literals] = set()
    for change in found:
        # As strictly as the target: what goes is there, what comes is not.
        assert (change.before != ()) == (change.kind is not ChangeKind.INSERT)
        assert (change.after != ()) == (change.kind is not ChangeKind.DELETE)
        if change.before:
            held.remove(change.before)
        if change.after:
            assert change.after not in held
            held.add(change.after)
    assert held == viewed(rows)


def test_history_is_the_view() -> None:
    rows = {key: key - 2 for key in range(6)}
    made = TableStage(plan(), cast(ServerFilter, None), answered)
    assert set(made.history([row(key, n) for key, n in rows.items()])) == viewed(rows)
    assert as_decoded(plan()).key == (0,)


def test_the_row_without_a_result_is_named() -> None:
    made = stage()
    decoded = made.decoded_by(plan())
    changes = [RowChange(at, at, ChangeKind.INSERT, decoded, (), row(at, 13 if at == 37 else 1)) for at in range(100)]
    with pytest.raises(ShardmergeError) as caught:
        made.evaluate(changes, lambda change: change.byte)
    assert caught.value.spec is errors.replicate.TRANSFORM_FAILED
    assert (caught.value.values["key"], caught.value.values["position"]) == ("(id = 37)", "37")


def test_a_row_that_an_operator_passes_over_is_not_evaluated() -> None:
    made = stage()
    change = RowChange(5, 0, ChangeKind.INSERT, made.decoded_by(plan()), (), row(1, 13))
    [found], _ = made.evaluate([change], lambda change: change.byte, lambda _: True)
    assert found.after == (b"NULL", b"'w'", b"%d" % (SHIFT + 1))


def test_lanes_take_their_own() -> None:
    changes: list[tuple[RowChange, ...]] = []
    for lane in range(3):
        made = RowStage(cast(ServerFilter, None), Bucket(lane, 3), answered)
        made.set_plans([plan()])
        decoded = made.decoded_by(plan())
        given_ = [RowChange(at, at, ChangeKind.INSERT, decoded, (), row(at, 1)) for at in range(50)]
        assert made.batches
        own = made.for_lane(given_)
        found, _ = made.evaluate(given_, lambda change: change.byte)
        assert [change.byte for change in found] == [change.byte for change in own if isinstance(change, RowChange)]
        changes.append(tuple(found))
    assert sorted(change.byte for lane in changes for change in lane) == list(range(50))
    assert all(changes)


def test_rows_are_decoded_in_the_source_s_character_sets() -> None:
    decoded = as_decoded(replace(plan(), text_as_utf8=True))
    assert decoded == as_decoded(plan())
    assert not decoded.text_as_utf8

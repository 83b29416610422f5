"""The lane's batch: compaction by key is exact, and never hides a collision (I8)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.batch import Batch, ChangeCounts
from shardmerge.worker.core.lane_hash import hash_indexes, lane_of
from shardmerge.worker.core.row_change import ChangeKind, Literals, RowChange
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.target.apply.dml import (
    DeleteKeys,
    InsertRows,
    ReplaceRows,
    keyed_statements,
    unkeyed_statements,
)
from tests.support.plans import integer, table_plan, text

COLUMNS = (integer(), text("v"))
SHARD_A = table_plan(COLUMNS, (0,), shard=0)
SHARD_B = table_plan(COLUMNS, (0,), shard=1, name="order_02")
NO_KEY = table_plan(COLUMNS, (), shard=2, name="log_01")

Rows = dict[bytes, Literals]


def insert(plan: TablePlan, key: int, value: str) -> RowChange:
    return RowChange(0, 0, ChangeKind.INSERT, plan, (), row(key, value))


def update(plan: TablePlan, before: tuple[int, str], after: tuple[int, str]) -> RowChange:
    return RowChange(0, 0, ChangeKind.UPDATE, plan, row(*before), row(*after))


def delete(plan: TablePlan, key: int, value: str) -> RowChange:
    return RowChange(0, 0, ChangeKind.DELETE, plan, row(key, value), ())


def row(key: int, value: str) -> Literals:
    return (str(key).encode(), f"'{value}'".encode())


def batch_of(changes: Iterable[RowChange], lane: int = 0, lanes: int = 1) -> Batch:
    batch = Batch(lane, lanes, "mysql-bin.000001")
    for change in changes:
        batch.add(change, 4)
    return batch


def apply(target: Rows, batch: Batch, overwrite: bool) -> None:
    """What the statements do at a server, with the counts the writer demands."""
    for _, keys in batch.targets():
        for statement in keyed_statements(keys, 200, overwrite=overwrite):
            match statement:
                case DeleteKeys(keys=gone):
                    for key in gone:
                        assert target.pop(key, None) is not None, "a row that must exist is missing"
                case ReplaceRows(sql=sql, count=count):
                    assert overwrite
                    images = sql.split(b" VALUES (")[1].removesuffix(b")").split(b"),(")
                    assert len(images) == count
                    for image in images:
                        key = image.split(b",")[0]
                        assert key in target, "a row that must exist is missing"
                        target[key] = tuple(image.split(b","))
                case InsertRows(keys=new):
                    for key in new:
                        assert key not in target, "a row that must not exist is there"
                        image = keys[key].image
                        assert image is not None
                        target[key] = tuple(image.split(b","))
                case _:
                    raise AssertionError("a statement of a table without a key")


@st.composite
def histories(draw: st.DrawFn) -> tuple[Rows, list[RowChange], Rows]:
    """Rows before, valid changes of one shard, rows after."""
    rows: dict[int, str] = dict.fromkeys(draw(st.sets(st.integers(0, 8), max_size=5)), "old")
    before = {str(key).encode(): row(key, value) for key, value in rows.items()}
    changes: list[RowChange] = []
    for number in range(draw(st.integers(0, 30))):
        value = f"v{number}"
        free = sorted(set(range(9)) - set(rows))
        kind = draw(st.sampled_from(["insert", "update", "move", "delete"]))
        if kind == "insert" and free:
            key = draw(st.sampled_from(free))
            changes.append(insert(SHARD_A, key, value))
            rows[key] = value
        elif rows and kind != "insert":
            key = draw(st.sampled_from(sorted(rows)))
            if kind == "delete":
                changes.append(delete(SHARD_A, key, rows.pop(key)))
            elif kind == "update":
                changes.append(update(SHARD_A, (key, rows[key]), (key, value)))
                rows[key] = value
            elif free:
                other = draw(st.sampled_from(free))
                changes.append(update(SHARD_A, (key, rows.pop(key)), (other, value)))
                rows[other] = value
    return before, changes, {str(key).encode(): row(key, value) for key, value in rows.items()}


@given(histories(), st.integers(1, 4), st.lists(st.integers(1, 7), min_size=1), st.booleans())
def test_lanes_with_any_cuts_make_the_source_rows(
    history: tuple[Rows, list[RowChange], Rows], lanes: int, cuts: list[int], overwrite: bool
) -> None:
    target, changes, expected = history
    for lane in range(lanes):
        start = turn = 0
        while start < len(changes):
            # Each lane cuts its batches elsewhere: lanes are not in step.
            size = cuts[(turn + lane) % len(cuts)]
            apply(target, batch_of(changes[start : start + size], lane, lanes), overwrite)
            start, turn = start + size, turn + 1
    assert target == expected


@given(histories())
def test_one_batch_touches_each_key_at_most_twice(history: tuple[Rows, list[RowChange], Rows]) -> None:
    _, changes, _ = history
    batch = batch_of(changes)
    for _, keys in batch.targets():
        statements = keyed_statements(keys, 1 << 20, overwrite=False)
        touched = [key for statement in statements for key in getattr(statement, "keys", ())]
        assert len(touched) <= 2 * len(set(touched))


@given(histories())
def test_a_batch_counts_what_it_holds(history: tuple[Rows, list[RowChange], Rows]) -> None:
    """A row that changes a thousand times is one row of the target transaction, and one in memory."""
    _, changes, _ = history
    batch = batch_of(changes)
    held = [(key, state.image or b"") for _, keys in batch.targets() for key, state in keys.items()]
    assert batch.changes >= len(changes)
    assert batch.rows == len(held)
    assert batch.size == sum(len(key) + len(image) for key, image in held)


@given(st.sets(st.integers(0, 100_000)), st.sets(st.integers(0, 100_000)))
def test_keys_go_to_the_target_in_ascending_order(new: set[int], gone: set[int]) -> None:
    """The order of their rows' pages; a statement's end may be anywhere."""
    new -= gone
    batch = batch_of([delete(SHARD_A, key, "old") for key in gone] + [insert(SHARD_A, key, "new") for key in new])
    sent: dict[type[object], list[int]] = {DeleteKeys: [], InsertRows: []}
    for _, keys in batch.targets():
        for statement in keyed_statements(keys, 200, overwrite=True):
            assert isinstance(statement, DeleteKeys | InsertRows)
            sent[type(statement)] += [int(key) for key in statement.keys]
    assert sent == {DeleteKeys: sorted(gone), InsertRows: sorted(new)}


def test_insert_of_a_key_another_shard_holds_is_a_collision() -> None:
    with pytest.raises(ShardmergeError) as caught:
        batch_of([insert(SHARD_A, 1, "a"), insert(SHARD_B, 1, "b")])
    assert caught.value.spec is errors.replicate.COLLISION
    assert "order_02" in caught.value.message
    assert "order_01" in caught.value.message
    assert "`id` = 1" in caught.value.message


def test_update_of_another_shards_row_is_a_collision() -> None:
    with pytest.raises(ShardmergeError) as caught:
        batch_of([insert(SHARD_A, 1, "a"), update(SHARD_B, (1, "x"), (1, "b"))])
    assert caught.value.spec is errors.replicate.COLLISION


def test_a_key_may_move_from_one_shard_to_another() -> None:
    target: Rows = {b"1": row(1, "a")}
    apply(target, batch_of([delete(SHARD_A, 1, "a"), insert(SHARD_B, 1, "b")]), overwrite=True)
    assert target == {b"1": row(1, "b")}


def test_update_after_delete_is_divergence() -> None:
    with pytest.raises(ShardmergeError) as caught:
        batch_of([delete(SHARD_A, 1, "a"), update(SHARD_A, (1, "a"), (1, "b"))])
    assert caught.value.spec is errors.replicate.DIVERGED


def test_tables_without_a_key_keep_order_and_stay_in_one_lane() -> None:
    changes = [
        RowChange(0, 0, ChangeKind.INSERT, NO_KEY, (), row(1, "a")),
        RowChange(0, 0, ChangeKind.UPDATE, NO_KEY, row(1, "a"), row(1, "b")),
        RowChange(0, 0, ChangeKind.DELETE, NO_KEY, row(1, "b"), ()),
    ]
    batches = [batch_of(changes, lane, 3) for lane in range(3)]
    [busy] = [batch for batch in batches if not batch.is_empty]
    statements = [statement.sql.split()[0] for statement in unkeyed_statements(busy.unkeyed)]
    assert statements == [b"INSERT", b"DELETE", b"INSERT", b"DELETE"]


def test_no_key_delete_finds_a_null() -> None:
    change = RowChange(0, 0, ChangeKind.DELETE, NO_KEY, (b"1", b"NULL"), ())
    [statement] = unkeyed_statements(batch_of([change]).unkeyed)
    assert b" AND `v` IS NULL LIMIT 1" in statement.sql


def test_no_key_delete_compares_text_as_bytes() -> None:
    [statement] = unkeyed_statements(batch_of([RowChange(0, 0, ChangeKind.DELETE, NO_KEY, (b"1", b"'A'"), ())]).unkeyed)
    assert b"BINARY `v` = BINARY CONVERT('A' USING utf8mb4)" in statement.sql
    assert statement.sql.endswith(b"LIMIT 1")


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (SHARD_A, (0,)),
        (table_plan((text("a"), integer("b")), (0, 1)), (1,)),
        (table_plan((text("a"),), (0,)), ()),
        (table_plan((text("a", "utf8mb4_bin"),), (0,)), (0,)),
        (table_plan(COLUMNS, (0,), one_lane=True), ()),
        (NO_KEY, ()),
    ],
)
def test_only_byte_exact_key_columns_choose_the_lane(plan: TablePlan, expected: tuple[int, ...]) -> None:
    assert hash_indexes(plan) == expected


@given(st.integers(0, 1 << 40), st.integers(1, 16))
def test_exactly_one_lane_owns_a_key(key: int, lanes: int) -> None:
    owners = [lane for lane in range(lanes) if not batch_of([insert(SHARD_A, key, "x")], lane, lanes).is_empty]
    assert owners == [lane_of(SHARD_A, (str(key).encode(),), lanes)]


# --- counts for metrics

OTHER_TARGET = replace(SHARD_B, target_table="other")
UPSERTED = replace(SHARD_A, shard=5, may_lack_rows=True)


def test_changes_are_counted_by_kind_and_target() -> None:
    """The events of two targets alternate; a change of a key is a delete and an insert."""
    batch = batch_of(
        [
            insert(SHARD_A, 1, "a"),
            insert(OTHER_TARGET, 1, "a"),
            update(SHARD_A, (1, "a"), (1, "b")),
            update(SHARD_A, (1, "b"), (2, "b")),
            insert(NO_KEY, 7, "x"),
            delete(OTHER_TARGET, 1, "a"),
            delete(NO_KEY, 7, "x"),
            update(NO_KEY, (8, "x"), (8, "y")),
        ]
    )
    assert NO_KEY.target == SHARD_A.target
    assert batch.counts() == {SHARD_A.target: ChangeCounts(3, 2, 2), OTHER_TARGET.target: ChangeCounts(1, 0, 1)}
    assert batch.changes == 9


def test_counts_may_be_read_twice_and_continue() -> None:
    batch = batch_of([insert(SHARD_A, 1, "a")])
    assert batch.counts() == batch.counts() == {SHARD_A.target: ChangeCounts(1, 0, 0)}
    batch.add(insert(SHARD_A, 2, "a"), 4)
    assert batch.counts() == {SHARD_A.target: ChangeCounts(2, 0, 0)}


def test_changes_of_a_table_that_may_lack_rows_are_counted_by_kind() -> None:
    batch = batch_of(
        [insert(UPSERTED, 1, "a"), update(UPSERTED, (2, "a"), (2, "b")), delete(UPSERTED, 3, "c")],
    )
    assert batch.counts() == {UPSERTED.target: ChangeCounts(1, 1, 1)}


@given(st.lists(st.sampled_from([SHARD_A, OTHER_TARGET]), max_size=20))
def test_counts_of_all_targets_are_the_changes(plans: list[TablePlan]) -> None:
    batch = batch_of(insert(plan, number, "a") for number, plan in enumerate(plans))
    wanted: dict[TargetTable, int] = {}
    for plan in plans:
        wanted[plan.target] = wanted.get(plan.target, 0) + 1
    assert {target: counts.inserts for target, counts in batch.counts().items()} == wanted

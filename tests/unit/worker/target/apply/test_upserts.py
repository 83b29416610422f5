"""Tables that may lack rows: a batch has the same result as its changes one by one, whatever rows the target has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.batch import Batch, Keys, KeyState
from shardmerge.worker.core.row_change import ChangeKind, JoinedLiterals, Literals, RowChange
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.target.apply.dml import (
    DeleteKeys,
    InsertRows,
    ReplaceRows,
    keyed_statements,
    unkeyed_statements,
)
from shardmerge.worker.target.apply.upserts import as_plain, needs_lookup, resolve_upserts_with
from tests.support.examples import examples
from tests.support.plans import integer, table_plan, text

COLUMNS = (integer(), text("v"))
LOOSE = replace(table_plan(COLUMNS, (0,)), may_lack_rows=True)
OWN = replace(LOOSE, own_keys=True)
NO_KEY = replace(table_plan(COLUMNS, (), name="log_01"), may_lack_rows=True)

Rows = dict[JoinedLiterals, JoinedLiterals]


class Collides(Exception):
    """A row is there where one is put."""


@dataclass(frozen=True, slots=True)
class Event:
    """``other``: the key that an UPDATE gives the row; equal to ``key`` for one that keeps it."""

    kind: Literal["insert", "update", "delete"]
    key: int
    other: int
    value: str

    def change(self, plan: TablePlan) -> RowChange:
        before, after = row(self.key, "before"), row(self.other, self.value)
        match self.kind:
            case "insert":
                return RowChange(0, 0, ChangeKind.INSERT, plan, (), after)
            case "update":
                return RowChange(0, 0, ChangeKind.UPDATE, plan, before, after)
            case "delete":
                return RowChange(0, 0, ChangeKind.DELETE, plan, before, ())


def row(key: int, value: str) -> Literals:
    return (str(key).encode(), f"'{value}'".encode())


def one_by_one(target: Rows, events: Iterable[Event], *, own: bool) -> None:
    """The meaning, as worker/core/batch.py states it."""
    for event in events:
        old, new = str(event.key).encode(), str(event.other).encode()
        image = b",".join(row(event.other, event.value))
        if event.kind == "delete" or (event.kind == "update" and old != new):
            target.pop(old, None)
        if event.kind == "update" and old == new and new in target:
            target[new] = image
        if event.kind == "insert" or (event.kind == "update" and old != new):
            if new in target and not own:
                raise Collides
            target[new] = image


class Ambiguous(Exception):
    """A count does not prove that every row was there."""


def commit(target: Rows, groups: Iterable[tuple[str, Keys]]) -> None:
    """What the writer does at a server, with the counts that it demands: first as if every row were there, then anew
    with the question."""
    made = tuple(groups)
    hoped = dict(target)
    try:
        if needs_lookup(made, overwrite=True):
            raise AssertionError("a plain key is asked about")
        run(hoped, made, overwrite=True)
    except Ambiguous:

        def delete(_: TablePlan, keys: Sequence[JoinedLiterals]) -> None:
            for key in keys:
                target.pop(key, None)

        def find(_: TablePlan, keys: Sequence[JoinedLiterals]) -> frozenset[JoinedLiterals]:
            return frozenset(key for key in keys if key in target)

        run(target, resolve_upserts_with(made, delete, find), overwrite=False)
        return
    target.clear()
    target.update(hoped)


def run(target: Rows, groups: Iterable[tuple[str, Keys]], *, overwrite: bool) -> None:
    for _, keys in groups:
        for statement in keyed_statements(keys, 100, overwrite=overwrite):
            match statement:
                case DeleteKeys(keys=gone, may_lack_rows=loose):
                    assert loose
                    for key in gone:
                        target.pop(key, None)
                case InsertRows(keys=new):
                    for key in new:
                        if key in target:
                            raise Collides
                        image = keys[key].image
                        assert image is not None
                        target[key] = image
                case ReplaceRows(sql=sql, count=count, any_count=any_count):
                    images: list[JoinedLiterals] = re.findall(rb"\((\d+,'\w+')\)", sql)
                    assert len(images) == count
                    for image in images:
                        key = image.partition(b",")[0]
                        if target.get(key, image) == image and not any_count:
                            raise Ambiguous
                        target[key] = image
                case _:
                    raise AssertionError("another statement")


def batch_of(plan: TablePlan, events: Iterable[Event], lane: int = 0, lanes: int = 1) -> Batch:
    batch = Batch(lane, lanes, "mysql-bin.000001")
    for event in events:
        batch.add(event.change(plan), 4)
    return batch


EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from(["insert", "update", "delete"]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from("abcdefgh"),
    ).map(lambda event: event if event.kind == "update" else replace(event, other=event.key)),
    max_size=25,
)
TARGETS = st.sets(st.integers(0, 2)).map(lambda keys: {b"%d" % key: b"%d,'held'" % key for key in keys})


@settings(max_examples=examples(1000))
@given(TARGETS, EVENTS, st.lists(st.integers(1, 7), min_size=1))
def test_a_batch_of_own_keys_comes_to_what_its_events_do(target: Rows, events: list[Event], cuts: list[int]) -> None:
    expected = dict(target)
    one_by_one(expected, events, own=True)
    start = turn = 0
    while start < len(events):
        size = cuts[turn % len(cuts)]
        commit(target, batch_of(OWN, events[start : start + size]).targets())
        start, turn = start + size, turn + 1
    assert target == expected


@settings(max_examples=examples(1000))
@given(TARGETS, EVENTS, st.lists(st.integers(1, 7), min_size=1))
def test_a_batch_of_keys_that_may_be_anothers_stops_where_its_events_do(
    target: Rows, events: list[Event], cuts: list[int]
) -> None:
    """Except for a row that is added and removed in one batch: as for every table, its key is not looked up."""
    start = turn = 0
    while start < len(events):
        part = events[start : start + cuts[turn % len(cuts)]]
        start, turn = start + len(part), turn + 1
        expected = dict(target)
        try:
            one_by_one(expected, part, own=False)
        except Collides:
            came_and_went = False
            try:
                batch = batch_of(LOOSE, part)
                came_and_went = any(
                    state.image is None and not state.existed and not state.existence_unknown
                    for _, keys in batch.targets()
                    for state in keys.values()
                )
                commit(dict(target), batch.targets())
            except (Collides, ShardmergeError):
                return
            assert came_and_went, "the events collide, the batch does not"
            return
        commit(target, batch_of(LOOSE, part).targets())
        assert target == expected


@given(EVENTS, st.integers(2, 4))
def test_lanes_together_do_what_one_does(events: list[Event], lanes: int) -> None:
    target: Rows = {}
    expected: Rows = {}
    one_by_one(expected, events, own=True)
    for lane in range(lanes):
        commit(target, batch_of(OWN, events, lane, lanes).targets())
    assert target == expected


@given(EVENTS, st.sampled_from([LOOSE, OWN]))
def test_a_batch_counts_what_it_holds(events: list[Event], plan: TablePlan) -> None:
    try:
        batch = batch_of(plan, events)
    except ShardmergeError:
        return
    held = [(key, state.image or b"") for _, keys in batch.targets() for key, state in keys.items()]
    assert batch.rows == len(held)
    assert batch.size == sum(len(key) + len(image) for key, image in held)


def test_a_row_of_another_shard_is_not_touched_in_a_batch() -> None:
    other = replace(LOOSE, shard=1, table=replace(LOOSE.table, name="order_02"))
    for kind in ("insert", "update", "delete"):
        batch = batch_of(LOOSE, [Event("insert", 1, 1, "a")])
        with pytest.raises(ShardmergeError) as caught:
            batch.add(Event(kind, 1, 1, "b").change(other), 8)
        assert caught.value.spec is errors.replicate.COLLISION
        assert "order_02" in caught.value.message


def test_a_key_may_move_from_a_loose_table_to_a_strict_one() -> None:
    strict = table_plan(COLUMNS, (0,), shard=1, name="order_02")
    batch = batch_of(LOOSE, [Event("delete", 1, 1, "")])
    batch.add(Event("insert", 1, 1, "b").change(strict), 8)
    for held in ({}, {b"1": b"1,'a'"}):
        target: Rows = dict(held)
        commit(target, batch.targets())
        assert target == {b"1": b"1,'b'"}


def test_an_unresolved_update_makes_no_statement() -> None:
    [(_, keys)] = batch_of(LOOSE, [Event("update", 1, 1, "a")]).targets()
    with pytest.raises(ValueError, match="not resolved"):
        list(keyed_statements(keys, 100, overwrite=False))


def test_what_is_put_there_is_not_counted_and_what_changes_is() -> None:
    [(_, keys)] = batch_of(OWN, [Event("insert", 1, 1, "a"), Event("update", 2, 2, "b")]).targets()
    made = list(keyed_statements(keys, 100, overwrite=True))
    assert [statement.any_count for statement in made if isinstance(statement, ReplaceRows)] == [False, True]


@pytest.mark.parametrize("change", [{"one_lane": True}, {"key": (0, 1)}, {"key": (1,)}], ids=["unique", "part", "text"])
def test_a_key_that_may_equal_another_one_is_asked_about(change: dict[str, Any]) -> None:
    """Of text ('a' = 'A'), or where REPLACE may meet a row by another unique key: no count proves whose row it was."""
    plan = replace(LOOSE, **change)
    groups = tuple(batch_of(plan, [Event("update", 1, 1, "before")]).targets())
    assert needs_lookup(groups, overwrite=True)
    [(_, keys)] = batch_of(replace(plan, own_keys=True), [Event("insert", 1, 1, "a")]).targets()
    assert [type(made) for made in keyed_statements(keys, 100, overwrite=True)] == [DeleteKeys, InsertRows]


@pytest.mark.parametrize(
    ("existed", "image", "there", "expected"),
    [
        (True, b"1,'a'", True, (True, b"1,'a'")),
        (True, b"1,'a'", False, None),
        (True, None, True, (True, None)),
        (True, None, False, None),
        (False, b"1,'a'", True, (True, b"1,'a'")),
        (False, b"1,'a'", False, (False, b"1,'a'")),
    ],
)
def test_a_change_whose_row_is_known(
    existed: bool, image: bytes | None, there: bool, expected: tuple[bool, bytes | None] | None
) -> None:
    made = as_plain(KeyState(existed, LOOSE, image, "f", 4, existence_unknown=True), there=there)
    assert (made and (made.existed, made.image)) == expected


def test_an_update_without_a_key_is_one_statement() -> None:
    changes = [
        RowChange(0, 0, ChangeKind.UPDATE, NO_KEY, row(1, "a"), row(1, "b")),
        RowChange(0, 0, ChangeKind.DELETE, NO_KEY, row(1, "b"), ()),
    ]
    batch = Batch(0, 1, "f")
    for change in changes:
        batch.add(change, 4)
    update, delete = unkeyed_statements(batch.unkeyed)
    assert update.sql == (
        b"UPDATE `shop`.`orders` SET `id` = 1,`v` = 'b' "
        b"WHERE `id` = 1 AND BINARY `v` = BINARY CONVERT('a' USING utf8mb4) LIMIT 1"
    )
    assert delete.sql.startswith(b"DELETE FROM")


def test_text_as_utf8_is_compared_as_such() -> None:
    batch = Batch(0, 1, "f")
    batch.add(RowChange(0, 0, ChangeKind.DELETE, replace(NO_KEY, text_as_utf8=True), row(1, "a"), ()), 4)
    [delete] = unkeyed_statements(batch.unkeyed)
    assert delete.sql == (
        b"DELETE FROM `shop`.`orders` WHERE `id` = 1 AND CAST(`v` AS BINARY) = CAST('a' AS BINARY) LIMIT 1"
    )

"""Rows that are passed over by an operator's word: exactly the event named, every row by exactly one lane."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import errors
from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.core.lane_hash import Bucket
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.row_change import ChangeKind, Literals, RowChange
from shardmerge.worker.core.stored_override import OverrideKind, StoredOverride
from shardmerge.worker.target.quarantine.skipped_events import (
    SkippedRow,
    image_text,
    lane_part,
    skip_places,
    skips_in_block,
    with_event_position,
)
from tests.support.plans import integer, table_plan, text

COLUMNS = (integer(), text("v"))
PLAN = table_plan(COLUMNS, (0,))
NO_KEY = table_plan(COLUMNS, (), shard=1, name="log_01")
AT = SourcePosition("bin.000001", 700)
_IN_FIRST = SourcePosition("bin.000001", 900, server="a")

keys = st.integers(-50, 50)


def row(key: int, value: str = "x") -> Literals:
    return (str(key).encode(), f"'{value}'".encode())


def event(kind: EventType, end: int, body: bytes = b"") -> bytes:
    size = 19 + len(body)
    return struct.pack("<IBIIIH", 0, kind, 1, size, end, 0) + body


def parts(change: RowChange, lanes: int) -> list[SkippedRow]:
    found = (lane_part(change, AT, Bucket(lane, lanes)) for lane in range(lanes))
    return [part for part in found if part is not None]


def _skip(end: int, server: str = "") -> StoredOverride:
    return StoredOverride(OverrideKind.SKIP, "bin.000001", end, server=server)


def test_only_skips_are_words_about_rows() -> None:
    ops = [
        StoredOverride(kind=kind, file="bin.000001", pos=pos)
        for pos, kind in enumerate((OverrideKind.SKIP, OverrideKind.REPLACE, OverrideKind.INJECT))
    ]
    assert skip_places(ops) == {ops[0]}


def test_only_the_row_event_that_ends_there_is_named() -> None:
    events = b"".join(
        (
            event(EventType.QUERY, 100),
            event(EventType.TABLE_MAP, 200),
            event(EventType.WRITE_ROWS_V2, 300, struct.pack("<I", 250)),  # bytes that look like a place
            event(EventType.UPDATE_ROWS_COMPRESSED, 400),
            event(EventType.XID, 500),
        )
    )
    for end in range(90, 510):
        expected = frozenset({end} & {300, 400})
        assert skips_in_block(frozenset({_skip(end)}), _IN_FIRST, events) == expected, end
    both = frozenset({_skip(300, "a"), _skip(400), _skip(500)})
    assert skips_in_block(both, _IN_FIRST, events) == {300, 400}
    assert skips_in_block(both, SourcePosition("bin.000002", 900, server="a"), events) == frozenset()
    assert skips_in_block(frozenset({_skip(300 + (1 << 32))}), _IN_FIRST, events) == frozenset()
    other = SourcePosition("bin.000001", 900, server="b")
    assert skips_in_block(both, other, events) == {400}, "a place of another server's binlog"


@given(keys, keys, st.integers(1, 7), st.sampled_from(ChangeKind))
def test_each_side_of_a_row_is_one_lanes(before: int, after: int, lanes: int, kind: ChangeKind) -> None:
    old = row(before, "old") if kind is not ChangeKind.INSERT else ()
    new = row(after, "new") if kind is not ChangeKind.DELETE else ()
    found = parts(RowChange(0, 0, kind, PLAN, old, new), lanes)
    assert [part.before for part in found if part.before] == ([image_text(PLAN, old)] if old else [])
    assert [part.after for part in found if part.after] == ([image_text(PLAN, new)] if new else [])
    assert all(part.operation == kind.name.lower() and part.position == AT for part in found)


@given(st.integers(1, 7))
def test_a_row_without_a_key_is_one_lanes_whole(lanes: int) -> None:
    [part] = parts(RowChange(0, 0, ChangeKind.UPDATE, NO_KEY, row(1, "a"), row(2, "b")), lanes)
    assert (part.before, part.after) == ("`id` = 1, `v` = 'a'", "`id` = 2, `v` = 'b'")


def test_images_that_are_no_text_are_reported_all_the_same() -> None:
    assert image_text(PLAN, (b"1", b"'\xff'")) == "`id` = 1, `v` = '\\xff'"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            errors.decode.MISSING_COLUMN(source="s", schema="d", table="t", position=700, column="c"),
            "s: d.t, event ending at binlog position (bin.000001, 700)",
        ),
        (
            errors.config.ID_OVERFLOW(source="s", schema="d", table="t", column="c", value=9, bits=3, at=""),
            "original id, in the rows at (bin.000001, 700)",
        ),
    ],
)
def test_what_cannot_be_read_names_its_event(error: errors.ShardmergeError, said: str) -> None:
    found = with_event_position(error, "bin.000001", 700)
    assert found.spec is error.spec
    assert said in found.message
    assert found.values["position"] == "(bin.000001, 700)"


def test_an_error_that_names_its_place_is_left_alone() -> None:
    error = errors.replicate.COLLISION(position="(bin.000002, 4)")
    assert with_event_position(error, "bin.000001", 700) is error

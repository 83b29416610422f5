"""A lane finds the same changes in the events that are kept for it as in all events."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.lane_hash import Bucket
from shardmerge.worker.core.row_change import ChangeKind
from shardmerge.worker.core.table_plan import TablePlan
from tests.support.binlog import as_version_2, forge, only, query
from tests.unit.worker.binlog.test_decoder import (
    BINLOG,
    GTID,
    PLAN,
    SMALL,
    XID,
    contents,
    image,
    insert,
    rows_event,
    table_map,
)

_ANNOTATE = forge(EventType.ANNOTATE_ROWS, b"INSERT INTO small VALUES (1)")
_ACTIONS = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["insert", "update", "move", "delete"]), st.lists(st.integers(0, 9), max_size=3)),
        max_size=4,
    ),
    max_size=12,
)


def _picked(plan: TablePlan, events: bytes, lane: int, lanes: int) -> Batch:
    batch = Batch(lane, lanes, "f")
    decoder = BlockDecoder(only(plan), source="s1", bucket=Bucket(lane, lanes), filters=True)
    decoder.open(BINLOG.format_description)
    decoder.pick(events, 0, "f", batch)
    return batch


def _split(plan: TablePlan, events: bytes, lanes: int) -> list[bytes] | None:
    decoder = BlockDecoder(only(plan), source="s1", bucket=Bucket(0, lanes), filters=True)
    decoder.open(BINLOG.format_description)
    return decoder.split_by_lane(events, lanes)


def _check(plan: TablePlan, events: bytes, lanes: int) -> int:
    """Compare each lane's share of its own events with its share of all; returns the bytes of all lanes."""
    parts = _split(plan, events, lanes)
    assert parts is not None and len(parts) == lanes
    for lane, part in enumerate(parts):
        assert contents(_picked(plan, part, lane, lanes)) == contents(_picked(plan, events, lane, lanes))
    return sum(map(len, parts))


def _group(actions: list[tuple[str, list[int]]], *, one_statement: bool) -> bytes:
    """A transaction. ``one_statement``: its rows events have one table map; only the last one ends the statement."""
    made = GTID + _ANNOTATE + (table_map() if one_statement else b"")
    for number, (kind, keys) in enumerate(actions):
        ends = not one_statement or number == len(actions) - 1
        images = [image(key) for key in keys or [1]]
        if kind == "update":
            images = [each for key in keys or [1] for each in (image(key), image(key, b"new"))]
        elif kind == "move":
            images = [each for key in keys or [1] for each in (image(key), image(key + 1))]
        code = {"insert": EventType.WRITE_ROWS_V1, "delete": EventType.DELETE_ROWS_V1}.get(kind)
        made += b"" if one_statement else table_map()
        made += rows_event(code or EventType.UPDATE_ROWS_V1, *images, ends=ends)
    return made + XID


@given(_ACTIONS, st.sampled_from([2, 3, 8]), st.booleans(), st.sampled_from(["keyed", "no key", "loose"]))
def test_any_transactions(
    groups: list[list[tuple[str, list[int]]]], lanes: int, one_statement: bool, kind: str
) -> None:
    plan = {
        "keyed": SMALL,
        "no key": replace(SMALL, key=()),
        # A loose table takes any sequence of changes of a key; others raise where a row exists already.
        "loose": replace(SMALL, may_lack_rows=True),
    }[kind]
    events = b"".join(_group(group, one_statement=one_statement) for group in groups)
    try:
        for lane in range(lanes):
            _picked(plan, events, lane, lanes)
    except ShardmergeError:
        return  # an impossible sequence for this kind of table
    _check(plan, events, lanes)


@pytest.mark.parametrize("lanes", [2, 7])
def test_a_real_servers_events(lanes: int) -> None:
    second = BINLOG.of(as_version_2(event) for event in BINLOG.each())
    for events in (BINLOG.events, second.events):
        _check(PLAN, events, lanes)
        _check(replace(PLAN, key=()), events, lanes)


def test_each_byte_is_sent_about_once() -> None:
    events = b"".join(
        GTID + _ANNOTATE + table_map() + insert(number) + XID + GTID + _ANNOTATE + table_map(8, b"other") + XID
        for number in range(1000)
    )
    total = _check(SMALL, events, 8)
    assert total < len(events)


def test_rows_that_are_filtered_are_sent_to_no_lane_and_rows_that_stop_to_all() -> None:
    events = GTID + table_map() + insert(1) + XID
    skipped = _split(replace(SMALL, skipped_kinds=1 << int(ChangeKind.INSERT)), events, 3)
    assert skipped == [b"", b"", b""]
    stopping = _split(replace(SMALL, stop_kinds=1 << int(ChangeKind.INSERT)), events, 3)
    assert stopping == [events] * 3
    staged = _split(replace(SMALL, staged=True), events, 3)
    assert staged == [events] * 3


def test_all_lanes_get_what_only_they_can_judge() -> None:
    statement = query(b"COMMIT")
    parts = _split(SMALL, GTID + table_map() + insert(1) + statement, 2)
    assert parts is not None and all(part.endswith(statement) for part in parts)
    assert _split(SMALL, GTID + table_map() + insert(1) + query(b"ROLLBACK"), 2) is None
    assert _split(SMALL, forge(EventType.XA_PREPARE, b"\0" * 24), 2) is None


def test_a_damaged_block_is_an_error() -> None:
    events = GTID + table_map() + insert(1) + XID
    with pytest.raises(ShardmergeError):
        _split(SMALL, events[:-1], 2)
    with pytest.raises(ShardmergeError):
        _split(SMALL, GTID + insert(1) + XID, 2)  # without its table map

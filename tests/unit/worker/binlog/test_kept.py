"""Binlogs of real servers, kept in files with what a SELECT showed in the end: every type, JSON values changed in
places, compressed events."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.row_change import Literals, RowChange
from tests.support.binlog import as_version_2, body_of, forge, only, split
from tests.support.capture import KEPT, kept


def decoded(flavor: str, events: bytes = b"") -> list[RowChange]:
    binlog, plan, _ = kept(flavor)
    decoder = BlockDecoder(only(plan), source="s1")
    decoder.open(binlog.format_description)
    return decoder.decode(events or binlog.events)


@pytest.mark.parametrize("flavor", KEPT)
def test_changes_lead_to_what_the_server_shows(flavor: str) -> None:
    _, _, rows = kept(flavor)
    left: dict[bytes, Literals] = {}
    for change in decoded(flavor):
        if change.before:
            assert left.pop(change.before[0]) == change.before
        if change.after:
            left[change.after[0]] = change.after
    assert sorted(left.values(), key=lambda row: int(row[0])) == rows


@pytest.mark.parametrize("flavor", KEPT)
def test_what_a_lane_picks_is_what_is_decoded(flavor: str) -> None:
    binlog, plan, rows = kept(flavor)
    batch = Batch(0, 1)
    decoder = BlockDecoder(only(plan), source="s1")
    decoder.open(binlog.format_description)
    decoder.pick(binlog.events, 0, "mysql-bin.000001", batch)
    images = [state.image for state in batch.keyed[plan.target_name, 0].values() if state.image is not None]
    assert sorted(images) == sorted(b",".join(row) for row in rows)


def test_the_files_hold_what_they_are_kept_for() -> None:
    codes = {flavor: Counter(event[4] for event in split(kept(flavor)[0].events)) for flavor in KEPT}
    assert codes["mysql"][EventType.PARTIAL_UPDATE_ROWS] > 20
    assert codes["mysql"][EventType.WRITE_ROWS_V2] and codes["mysql"][EventType.DELETE_ROWS_V2]
    assert codes["mariadb"][EventType.WRITE_ROWS_V1] and codes["mariadb"][EventType.WRITE_ROWS_COMPRESSED_V1]
    assert codes["mariadb"][EventType.UPDATE_ROWS_COMPRESSED_V1]


def partial_events() -> list[tuple[bytes, bytes]]:
    """Table map and event of each partial update."""
    events = list(split(kept("mysql")[0].events))
    return [
        (before, event) for before, event in itertools.pairwise(events)
        if event[4] == EventType.PARTIAL_UPDATE_ROWS
    ]  # fmt: skip


def test_partial_updates_of_other_tables_are_skipped() -> None:
    binlog, _, _ = kept("mysql")
    decoder = BlockDecoder(lambda schema, table: None, source="s1")
    decoder.open(binlog.format_description)
    assert decoder.decode(binlog.events) == []


def test_a_partial_update_that_is_cut_off_gives_no_row() -> None:
    table_map, event = min(partial_events(), key=lambda pair: len(pair[1]))
    body = body_of(event)
    refused = 0
    for stop in range(0, len(body), 7):
        try:
            found = decoded("mysql", table_map + forge(EventType.PARTIAL_UPDATE_ROWS, body[:stop], log_pos=4711))
        except ShardmergeError as error:
            assert error.spec.name in ("malformed-event", "unreadable-value")
            refused += 1
        else:
            assert found == []  # cut right after the bitmaps
    assert refused > len(body) // 7 - 2


def test_as_version_2_keeps_the_rows() -> None:
    binlog, _, _ = kept("mariadb")
    as_new = b"".join(as_version_2(event, b"extra") for event in split(binlog.events))
    old, new = decoded("mariadb"), decoded("mariadb", as_new)
    assert [change.after for change in old] == [change.after for change in new]

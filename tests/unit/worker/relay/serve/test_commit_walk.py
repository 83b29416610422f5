"""The first group from a time on, and a subscription whose end is set while it runs."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.model import BlockData, ReachedUntil
from shardmerge.worker.relay.serve.commit_walk import CommitWalk
from shardmerge.worker.relay.serve.subscription import subscribe
from tests.support.made_source import TIME, MadeSource
from tests.unit.worker.relay.rig import Rig, bytes_of

GROUPS = 40


def _filled(directory: Path, *, mariadb: bool) -> Rig:
    """Groups of many sizes, number n at TIME + n, over several segments and binlog files."""
    source = MadeSource(mariadb=mariadb)
    rig = Rig(directory, source)
    for number in range(1, GROUPS + 1):
        source.transaction(*([50 * (number % 9)] * (number % 4 + 1)))
        if number % 13 == 0:
            source.rotate()
    rig.fetch()
    return rig


def _walk(rig: Rig, certain_before: float = 0.0) -> CommitWalk:
    return CommitWalk(rig.log, rig.log.require().relay_id, rig.log.first().offset, certain_before)


def _first_time(rig: Rig, at: RelayOffset) -> int:
    """Of the first group from there on."""
    events = b"".join(block.events for block in rig.served(start=at))
    place = 0
    while events[place + 4] not in (EventType.GTID, EventType.MARIADB_GTID):
        place += int.from_bytes(events[place + 9 : place + 13], "little")
    return int.from_bytes(events[place : place + 4], "little") - TIME


@pytest.mark.parametrize("mariadb", [True, False])
def test_each_group_is_found_by_its_time(tmp_path: Path, mariadb: bool) -> None:
    rig = _filled(tmp_path, mariadb=mariadb)
    end = rig.log.head().offset
    assert end.segment > 3
    onward = _walk(rig)
    for number in range(1, GROUPS + 1):
        found = _walk(rig).first(TIME + number, end)
        assert found is not None
        assert _first_time(rig, found) == number
        assert onward.first(TIME + number, end) == found, "a walk continues at its offset"
    assert _walk(rig).first(TIME + GROUPS + 1, end) is None


def test_what_is_published_later_is_looked_at_then(tmp_path: Path) -> None:
    source = MadeSource()
    rig = Rig(tmp_path, source)
    source.transaction(100)
    rig.fetch()
    walk = _walk(rig)
    assert walk.first(TIME + 2, rig.log.head().offset) is None
    assert walk.scanned == rig.log.head().offset
    before = rig.log.head().offset
    source.transaction(100)
    rig.disconnect()
    rig.fetch()
    assert walk.first(TIME + 2, before) is None
    found = walk.first(TIME + 2, rig.log.head().offset)
    assert found is not None and _first_time(rig, found) == 2


def test_a_ddl_of_mariadb_proves_what_is_before_it(tmp_path: Path) -> None:
    source = MadeSource()
    rig = Rig(tmp_path, source)
    source.transaction(10)
    began, took = TIME + 100, 50
    for flags in (1 | 32, 1, 32):  # one statement and DDL; the other two prove nothing
        source.sequence += 1
        source.executed.add(f"0-1-{source.sequence}")
        source.add(EventType.MARIADB_GTID, struct.pack("<QIB6x", source.sequence, 0, flags), time=began)
        source.add(EventType.QUERY, struct.pack("<IIBHH", 7, took, 1, 0, 0) + b"d\0CREATE TABLE t (a INT)", time=began)
        if flags == 32:
            source.add(EventType.XID, bytes(8), time=began)
    source.transaction(10)
    rig.fetch()
    end = rig.log.head().offset
    late, early = _walk(rig, began + took + 3), _walk(rig, began + took + 2)
    assert late.first(TIME + 10**6, end) is None and early.first(TIME + 10**6, end) is None
    assert late.certain is not None
    assert early.certain is None, "the times are whole seconds"
    assert len(bytes_of(rig.served(start=late.certain))) < len(bytes_of(rig.served()))
    rest = b"".join(block.events for block in rig.served(start=late.certain))
    assert rest.count(b"CREATE TABLE") == 2


class _Ends:
    """A limit: before the first group of number ``number``."""

    def __init__(self, rig: Rig, number: int) -> None:
        self._walk = _walk(rig)
        self._moment = TIME + number
        self.found: RelayOffset | None = None

    def __call__(self, end: RelayOffset) -> RelayOffset | None:
        self.found = self.found or self._walk.first(self._moment, end)
        return self.found


@pytest.mark.parametrize("number", [1, 7, 14, GROUPS])
def test_a_subscription_ends_at_its_limit(tmp_path: Path, number: int) -> None:
    rig = _filled(tmp_path, mariadb=True)
    limit = _Ends(rig, number)
    items = list(subscribe(rig.log, rig.log.first().offset, None, None, StopSignal(), limit=limit))
    assert limit.found is not None
    assert _first_time(rig, limit.found) == number
    assert items[-1] == ReachedUntil(limit.found)
    blocks = [item for item in items if isinstance(item, BlockData)]
    assert bytes_of(blocks) == bytes_of(rig.served(until=limit.found))

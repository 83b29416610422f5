"""Commit times of transactions, from binlogs and times of receipt."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from shardmerge.worker.binlog.commit_time import estimated_time, exact_time
from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.relay.serve.commit_walk import first_commit_after
from tests.support.made_source import SERVER, TIME, MadeSource, event
from tests.unit.worker.relay.rig import Rig


@pytest.mark.parametrize(
    ("exact", "timestamp", "received", "expected", "why"),
    [
        (100.25, 100, 100.26, 100.25, "the source has it"),
        (100.25, 100, 0.0, 100.25, "read again from disk"),
        (107.0, 107, 100.5, 100.5, "no commit is later than its receipt"),
        (0.0, 100, 100.7, 100.7, "within the second of the source, the receipt is more exact"),
        (0.0, 100, 160.0, 101.0, "the relay lags behind"),
        (0.0, 107, 100.5, 100.5, "no commit is later than its receipt"),
        (0.0, 100, 0.0, 100.0, "read again from disk"),
    ],
)
def test_estimated_time(exact: float, timestamp: int, received: float, expected: float, why: str) -> None:
    assert estimated_time(exact, timestamp, received) == pytest.approx(expected), why


@pytest.mark.parametrize("original", [b"", (1 << 40).to_bytes(7, "little")])
def test_microseconds_of_mysql(original: bytes) -> None:
    """After flags, server, number, type code, two logical timestamps; a bit means that an original time follows."""
    stamp = 1_700_000_000_123_456 | (bool(original) << 55)
    body = bytes([1]) + SERVER + struct.pack("<QBQQ", 5, 2, 3, 4) + stamp.to_bytes(7, "little") + original + b"\xfb"
    assert exact_time(event(EventType.GTID, body, 500)) == pytest.approx(1_700_000_000.123456)
    old = bytes([1]) + SERVER + struct.pack("<QBQQ", 5, 2, 3, 4)
    assert exact_time(event(EventType.GTID, old, 500)) == 0.0


@pytest.mark.parametrize("mariadb", [True, False])
def test_the_commit_time_of_the_first_transaction_after_an_offset(tmp_path: Path, mariadb: bool) -> None:
    """Over the ends of segments and of the source's files, and between transactions that are no index entries."""
    source = MadeSource(mariadb=mariadb)
    rig = Rig(tmp_path, source)
    rig.fetch()
    ends = [rig.log.head().offset]
    for number in range(12):
        source.transaction(100, 350 if number % 3 == 0 else 20)
        if number == 5:
            source.rotate()
        rig.disconnect()
        rig.fetch()
        ends.append(rig.log.head().offset)
    assert len(rig.log.segments()) > 2
    found = [first_commit_after(rig.log, end) for end in ends]
    assert found == [*(TIME + number + 1 for number in range(12)), None]
    [second, *_] = [segment.number for segment in rig.log.segments()][1:]
    rig.log.drop_before(second)
    assert first_commit_after(rig.log, ends[0]) is not None, "purged: what is left"
    assert first_commit_after(rig.log, RelayOffset(99, 4)) is None


def test_received_now_is_committed_now(tmp_path: Path) -> None:
    source = MadeSource()
    rig = Rig(tmp_path, source)
    source.transaction(20)
    rig.fetch()
    assert rig.log.head().commit_time == TIME + 1
    rig.disconnect()
    rig.connect()
    rig.appender.set_received_at(TIME + 2.5)
    source.transaction(20)
    for made in source.dump(rig.log.head().position):
        rig.appender.feed(memoryview(made))
    rig.appender.flush()
    assert rig.log.head().commit_time == TIME + 2.5
    assert time.time() > TIME

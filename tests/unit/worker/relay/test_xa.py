"""Two-phase transactions: served where they commit, nowhere when they roll back; restart and purge change nothing."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.events import EventType, checksum_matches
from shardmerge.worker.binlog.xa_events import Xid
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.relay.log.files import segment_numbers
from shardmerge.worker.relay.log.xa_tracker import PrepareUnknown
from shardmerge.worker.relay.model import BlockData
from tests.support.binlog import split
from tests.support.made_source import MadeSource, query_body
from tests.unit.worker.binlog.test_transaction_payload import body, inner
from tests.unit.worker.relay.rig import START, Rig

ROWS = EventType.WRITE_ROWS_V1


@pytest.fixture(params=["mariadb", "mysql", "compressed"])
def rig(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Rig]:
    made = Rig(tmp_path, MadeSource(mariadb=request.param == "mariadb"))
    made.compressed = request.param == "compressed"  # type: ignore[attr-defined]
    yield made
    made.appender.close()


def named(name: str) -> Xid:
    return Xid(1, name.encode(), b"")


def prepare_body(name: str, *, one_phase: bool = False) -> bytes:
    return struct.pack("<BIII", one_phase, 1, len(name), 0) + name.encode()


def prepare(rig: Rig, name: str, *marks: int, size: int = 40, one_phase: bool = False, back: bool = False) -> None:
    """An XA group with a rows event per mark, which is its body's first byte."""
    source = rig.source
    source.gtid()
    contents = [(ROWS, bytes([mark]) + random.Random(mark).randbytes(size)) for mark in marks]
    if back:
        contents.append((EventType.QUERY, query_body(b"ROLLBACK TO `s`")))
    contents = [
        (EventType.QUERY, query_body(f"XA START {named(name)}".encode())),
        *contents,
        (EventType.QUERY, query_body(f"XA END {named(name)}".encode())),
        (EventType.XA_PREPARE, prepare_body(name, one_phase=one_phase)),
    ]
    if rig.compressed:  # type: ignore[attr-defined]
        source.add(EventType.TRANSACTION_PAYLOAD, body(b"".join(inner(code, content) for code, content in contents)))
        return
    for code, content in contents[1 if source.mariadb else 0 :]:
        source.add(code, content)


def end(rig: Rig, name: str, what: str = "COMMIT") -> None:
    rig.source.statement(f"XA {what} {named(name)}".encode())


def plain(rig: Rig, mark: int) -> None:
    source = rig.source
    source.gtid()
    if not source.mariadb:
        source.query(b"BEGIN")
    source.add(ROWS, bytes([mark]) + bytes(9))
    source.add(EventType.XID, bytes(8))


def marks(blocks: list[BlockData]) -> list[int]:
    """The first byte of each rows event, in the order served."""
    found: list[int] = []
    for block in blocks:
        for made in split(block.events):
            assert made[4] == EventType.FORMAT_DESCRIPTION or checksum_matches(made)
            assert made[4] not in (EventType.XA_PREPARE, EventType.TRANSACTION_PAYLOAD) or made[19] == 1
            found += [made[19]] if made[4] == ROWS else []
    return found


def test_rows_count_where_they_commit(rig: Rig) -> None:
    plain(rig, 1)
    prepare(rig, "a", 10, 11)
    plain(rig, 2)
    prepare(rig, "b", 20)
    prepare(rig, "c", 30)
    plain(rig, 3)
    end(rig, "b", "ROLLBACK")
    end(rig, "a")
    plain(rig, 4)
    prepare(rig, "a", 12)  # the name is free again
    end(rig, "c")
    end(rig, "a")
    prepare(rig, "one", 40, one_phase=True)
    end(rig, "nobody", "ROLLBACK")
    plain(rig, 5)
    rig.fetch()
    for _ in range(2):
        assert marks(rig.served()) == [1, 2, 3, 10, 11, 4, 30, 12, 40, 5]
        rig.reopen()


def test_every_place_serves_the_rest_whatever_was_restarted(rig: Rig) -> None:
    """A subtask's checkpoint may be between PREPARE and COMMIT; segments end there, too."""
    for number in range(12):
        prepare(rig, f"x{number}", 100 + number, size=400)
        plain(rig, number)
        if number >= 3:
            end(rig, f"x{number - 3}", "ROLLBACK" if number % 4 == 0 else "COMMIT")
    rig.fetch()
    numbers = segment_numbers(rig.directory)
    assert len(numbers) > 5
    whole = marks(rig.served())
    assert len(whole) == 12 + 9 - 2
    served = rig.served()
    for _ in range(2):
        seen: list[int] = []
        for block in served:
            if block.ends_group:
                seen += marks([block])
                assert seen + marks(rig.served(block.end)) == whole
                assert marks(rig.served(until=block.end)) == seen
        rig.reopen()


def test_a_commit_is_on_its_own_side_of_every_group_end(rig: Rig) -> None:
    """The hand-over asks: did the transaction commit before a watermark?"""
    prepare(rig, "a", 10, 11)
    plain(rig, 1)
    rig.fetch()
    before = rig.log.head().offset
    rig.disconnect()
    end(rig, "a")
    plain(rig, 2)
    rig.fetch()
    [block] = [block for block in rig.served() if 10 in marks([block])]
    assert block.start == before
    assert [place.byte for place in block.places] == [before.byte]
    assert block.places[0].at == 0
    assert block.end_position.file_order() <= rig.source.position.file_order()


def test_a_large_one_comes_in_pieces_when_it_commits(rig: Rig) -> None:
    prepare(rig, "large", *range(100), size=9000)
    plain(rig, 200)
    end(rig, "large")
    plain(rig, 201)
    rig.fetch(at_once=3)
    blocks = rig.served()
    pieces = [block for block in blocks if not block.ends_group]
    assert len(pieces) >= 3
    assert marks(blocks) == [200, *range(100), 201]
    assert max(len(block.events) for block in blocks) <= 256 * 1024 + 9100
    counts = [len(list(split(block.events))) for block in pieces]
    assert [block.first_event for block in pieces] == [sum(counts[:number]) for number in range(len(pieces))]
    assert {block.group_start for block in pieces} == {pieces[0].start}
    assert rig.served(pieces[0].group_start)[: len(pieces)] == pieces


def test_one_that_went_back_to_a_savepoint_comes_whole(rig: Rig) -> None:
    prepare(rig, "large", *range(100), size=9000, back=True)
    end(rig, "large")
    rig.fetch(at_once=3)
    assert all(block.ends_group for block in rig.served())
    assert marks(rig.served()) == list(range(100))


def test_purge_keeps_what_a_commit_will_need(rig: Rig) -> None:
    """I7"""
    prepare(rig, "long", 10, size=400)
    for number in range(60):
        plain(rig, number)
    rig.fetch()
    rig.disconnect()
    first, last = segment_numbers(rig.directory)[0], rig.log.head().offset.segment
    assert last > first + 3
    assert rig.log.floor(last) == first
    assert rig.log.drop_before(last) == []
    end(rig, "long")
    for number in range(60, 80):
        plain(rig, number)
    rig.fetch()
    whole = marks(rig.served())
    assert whole == [*range(60), 10, *range(60, 80)]
    # A reader that starts after the commit does not need it, one that starts before does.
    reader = rig.log.enter_reader(last)
    assert rig.log.drop_before(rig.log.head().offset.segment) == []
    rig.log.leave_reader(reader)
    assert first in rig.log.drop_before(rig.log.head().offset.segment)


def test_a_commit_whose_prepare_came_before_the_log_is_asked_for(rig: Rig) -> None:
    prepare(rig, "early", 10)
    rig.source.rotate()
    begin = rig.source.position
    plain(rig, 1)
    end(rig, "early")
    plain(rig, 2)
    rig.log.begin(begin)
    with pytest.raises(PrepareUnknown) as caught:
        rig.fetch(at_once=1)
    assert caught.value.name == str(named("early"))
    assert marks(rig.served()) == [1]  # nothing of it was published
    # One that is nowhere: only who would have to apply it stops.
    rig.log.mark_lost(caught.value.name)
    rig.disconnect()
    rig.fetch()
    with pytest.raises(ShardmergeError) as missing:
        rig.served()
    assert missing.value.spec is errors.relay.XA_PREPARE_MISSING
    assert str(named("early")) in missing.value.message
    assert "XA RECOVER" in missing.value.workaround
    # From an earlier beginning on it is there.
    rig.disconnect()
    rig.log.begin(START)
    rig.fetch()
    assert marks(rig.served()) == [1, 10, 2]


def test_a_commit_with_an_unreadable_name_is_not_skipped(rig: Rig) -> None:
    plain(rig, 1)
    rig.source.statement(b"XA COMMIT 'by hand'")
    with pytest.raises(PrepareUnknown, match="by hand"):
        rig.fetch(at_once=1)


def test_a_tail_cut_between_prepare_and_commit_comes_out_the_same(rig: Rig) -> None:
    prepare(rig, "a", 10)
    plain(rig, 1)
    rig.fetch()
    rig.disconnect()
    rig.source.gtid()
    if not rig.source.mariadb:
        rig.source.query(b"BEGIN")
    rig.fetch()  # an unfinished group after it
    rig.reopen()
    rig.source.add(EventType.XID, bytes(8))
    end(rig, "a")
    rig.fetch()
    assert marks(rig.served()) == [1, 10]
    assert rig.log.index_of(rig.log.segments()[-1]).prepared() == {}


def test_offsets_stay_inside_of_the_log(rig: Rig) -> None:
    prepare(rig, "a", 10)
    end(rig, "a")
    rig.fetch()
    at = rig.log.first().offset
    for block in rig.served():
        assert block.start == at or (block.start.segment > at.segment and block.start.byte == 4)
        at = block.end
    assert at == rig.log.head().offset
    assert isinstance(at, RelayOffset)

"""Compressed transactions are served as the events in them: bounded, counted, resumable, refused when damaged."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.events import EventType, checksum_matches
from shardmerge.worker.binlog.transaction_payload import Payload, parse_payload
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.relay.model import BlockData
from tests.support.binlog import forge, split
from tests.support.examples import examples
from tests.support.made_source import MadeSource, event, query_body
from tests.unit.worker.relay.rig import SPACING, Rig

LARGE = 400_000
"""More than a block, however small the rig's."""


def lenenc(value: int) -> bytes:
    if value < 251:
        return bytes([value])
    size, mark = next((size, mark) for size, mark in ((2, 252), (3, 253), (8, 254)) if value < 1 << 8 * size)
    return bytes([mark]) + value.to_bytes(size, "little")


def field(kind: int, value: int) -> bytes:
    return lenenc(kind) + lenenc(len(lenenc(value))) + lenenc(value)


def body(plain: bytes, *, compression: int = 0, size: int | None = None, stored: int | None = None) -> bytes:
    """The body of a TRANSACTION_PAYLOAD event as MySQL writes it."""
    data = pa.Codec("zstd").compress(plain, asbytes=True) if compression == 0 else plain
    head = field(2, compression) + field(3, len(plain) if size is None else size)
    return head + field(1, len(data) if stored is None else stored) + b"\0" + data


def inner(code: int, content: bytes) -> bytes:
    """An event in a payload: without a checksum, whatever the file's others have."""
    return event(code, content, 0, checksum=False)


def transaction(*sizes: int, begin: bytes = b"BEGIN", end: bytes = b"") -> bytes:
    rows = (inner(EventType.WRITE_ROWS_V2, bytes([number % 251]) * size) for number, size in enumerate(sizes))
    head = inner(EventType.QUERY, query_body(begin)) + inner(EventType.TABLE_MAP, bytes(20))
    return head + b"".join(rows) + (end or inner(EventType.XID, bytes(8)))


@pytest.fixture(params=[True, False], ids=["checksum", "plain"])
def rig(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Rig]:
    made = Rig(tmp_path, MadeSource(mariadb=False, checksum=bool(request.param)))
    yield made
    made.appender.close()


def compressed(rig: Rig, plain: bytes) -> bytes:
    """A group of one payload."""
    rig.source.gtid()
    rig.source.add(EventType.TRANSACTION_PAYLOAD, body(plain))
    return plain


def plain_of(rig: Rig, made: bytes) -> bytes:
    """An event as in the payload, except for ``log_pos``, which is the payload's."""
    content = made[:-4] if rig.source.checksum else made
    assert not rig.source.checksum or checksum_matches(made)
    return content[:9] + struct.pack("<I", len(content)) + bytes(4) + content[17:]


def groups(blocks: list[BlockData]) -> list[list[bytes]]:
    """The events of each group, GTID first; events between groups are left out."""
    found: list[list[bytes]] = []
    for block in blocks:
        for made in split(block.events):
            if made[4] == EventType.GTID:
                found.append([made])
            elif found and made[4] not in (EventType.FORMAT_DESCRIPTION, EventType.ROTATE, EventType.PREVIOUS_GTIDS):
                found[-1].append(made)
    return found


def test_the_events_in_a_payload_are_served_as_if_they_stood_in_the_file(rig: Rig) -> None:
    rig.source.transaction(10)
    wanted = [compressed(rig, transaction(10 * number, 20)) for number in range(30)]
    rig.source.transaction(10)
    rig.source.rotate()
    wanted.append(compressed(rig, transaction(7)))
    rig.fetch()
    for _ in range(2):
        found = groups(rig.served())
        assert len(found) == 33
        for made, plain in zip([*found[1:31], found[32]], wanted, strict=True):
            assert [plain_of(rig, one) for one in made[1:]] == list(split(plain))
            assert len({one[13:17] for one in made[1:]}) == 1 != made[1][13:17].count(0)
        rig.reopen()


def test_places_of_a_block_keep_every_group_on_its_side(rig: Rig) -> None:
    """The hand-over compares an event's relay offset with group ends."""
    for number in range(40):
        rig.source.transaction(5) if number % 3 == 0 else compressed(rig, transaction(30 * number))
    rig.fetch()
    ends: list[RelayOffset] = []
    for block in rig.served():
        if not block.places:
            continue
        assert block.places[0].at == 0 and block.start.byte == block.places[0].byte
        starts = [place.byte for place in block.places]
        assert starts == sorted(set(starts)) and starts[-1] < block.end.byte
        for place in block.places:
            if block.events[place.at + 4] == EventType.GTID:
                ends.append(RelayOffset(block.start.segment, place.byte))
    for end in ends:
        # Each place is a group end that can be asked for.
        assert rig.served(end) if end < rig.log.head().offset else True


def test_a_large_one_comes_in_pieces_that_can_be_resumed(rig: Rig) -> None:
    before = rig.log.head()
    rig.source.transaction(10)
    plain = compressed(rig, transaction(*[LARGE // 40] * 40))
    compressed(rig, transaction(3))
    rig.fetch()
    blocks = rig.served()
    large = [block for block in blocks if len(block.events) > LARGE // 80 or not block.ends_group]
    pieces = [block for block in large if not block.ends_group]
    assert len(pieces) >= 1
    assert max(len(block.events) for block in blocks) <= 256 * 1024 + LARGE // 40 + 100
    start = pieces[0].group_start
    count = 0
    for block in large:
        assert block.group_start == start == block.start
        assert block.first_event == count
        assert block.end == start or block.ends_group
        count += len(list(split(block.events)))
    assert count == len(list(split(plain))) + 1
    # The group ends its block: what follows is another.
    assert large[-1].ends_group and large[-1].end > start
    # From the group's start the same pieces come again.
    assert [block for block in rig.served(start) if block in large] == large
    assert before.offset <= start


def test_a_rollback_in_it_is_judged_as_a_whole(rig: Rig) -> None:
    back = inner(EventType.QUERY, query_body(b"ROLLBACK"))
    compressed(rig, transaction(*[LARGE // 40] * 40, end=back))
    rig.fetch()
    assert all(block.ends_group for block in rig.served())


def test_statements_in_it_stop_with_an_error(rig: Rig) -> None:
    compressed(rig, transaction(1, end=inner(EventType.QUERY, query_body(b"DROP TABLE t"))))
    rig.fetch()
    with pytest.raises(ShardmergeError) as caught:
        rig.served()
    assert caught.value.spec is errors.decode.UNSUPPORTED_EVENT
    assert "DROP TABLE t" in caught.value.message


def payload_of(content: bytes, *, checksum: bool = True) -> Payload:
    made = forge(EventType.TRANSACTION_PAYLOAD, content, checksum=checksum, log_pos=777)
    return parse_payload(lambda at, size: made[at : at + size], len(made), checksum, 777, "s1")


@pytest.mark.parametrize("compression", [0, 255])
@pytest.mark.parametrize("size", [10, 3 << 20])
def test_both_ways_to_read_it(compression: int, size: int) -> None:
    plain = transaction(size)
    found = list(payload_of(body(plain, compression=compression)).events())
    assert [made[4] for made in found] == [EventType.QUERY, EventType.TABLE_MAP, EventType.WRITE_ROWS_V2, EventType.XID]
    assert all(checksum_matches(made) and made[13:17] == struct.pack("<I", 777) for made in found)
    assert payload_of(body(plain, compression=compression)).first_event() == found[0]


PLAIN = transaction(100, 200)
LONG = transaction(3 << 20)


@pytest.mark.parametrize(
    "content",
    [
        body(PLAIN, compression=1),
        body(PLAIN, size=len(PLAIN) - 1),
        body(PLAIN, size=len(PLAIN) + 1),
        body(LONG, size=len(LONG) - 1),
        body(LONG, size=len(LONG) + 1),
        body(LONG)[:-5],
        body(LONG)[:-5] + b"\0" * 5,
        body(PLAIN, stored=3),
        body(b""),
        body(PLAIN[:-1]),
        body(PLAIN + bytes(19)),
        body(forge(EventType.GTID, bytes(42), checksum=False)),
        body(forge(EventType.FORMAT_DESCRIPTION, bytes(100), checksum=False)),
        body(forge(EventType.TRANSACTION_PAYLOAD, body(PLAIN), checksum=False)),
        field(3, 100) + b"\0" + bytes(30),
        field(2, 0) + b"\0",
        b"\x02\xff",
        b"",
    ],
)
def test_what_is_no_payload_gives_a_coded_error_with_its_place(content: bytes) -> None:
    with pytest.raises(ShardmergeError) as caught:
        list(payload_of(content).events())
    assert caught.value.spec is errors.decode.MALFORMED_EVENT
    assert "position 777" in caught.value.message and "s1" in caught.value.message


@settings(max_examples=examples(300), deadline=None)
@given(st.data(), st.booleans())
def test_damaged_payloads_give_events_or_a_coded_error(data: st.DataObject, large: bool) -> None:
    content = bytearray(body(transaction(2 << 20) if large else PLAIN))
    for at in data.draw(st.lists(st.integers(0, min(len(content), 400) - 1), min_size=1, max_size=4)):
        content[at : at + 1] = data.draw(st.binary(max_size=2))
    try:
        for made in payload_of(bytes(content)).events():
            assert checksum_matches(made)
    except ShardmergeError as error:
        assert error.spec is errors.decode.MALFORMED_EVENT


def test_blocks_of_small_ones_are_filled(rig: Rig) -> None:
    for _ in range(2000):
        compressed(rig, transaction(1000))
    rig.fetch(at_once=500)
    blocks = rig.served()
    assert len(groups(blocks)) == 2000
    assert len([block for block in blocks if block.places]) < 2000 / (SPACING / 300)

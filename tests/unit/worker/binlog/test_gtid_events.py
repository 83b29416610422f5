"""GTID events and sets, with tags and without, of both flavors."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.events import EventType, Heartbeat, parse_heartbeat
from shardmerge.worker.binlog.gtid_events import (
    BadMessage,
    GtidEvent,
    MessageReader,
    SetPart,
    encode_set,
    parse_gtid,
    parse_gtid_list,
    parse_tagged,
)
from shardmerge.worker.binlog.xa_events import Xid, parse_xa_prepare, xid_of
from tests.support.binlog import body_of, forge
from tests.support.serialized import number, signed, tagged_gtid

A = uuid.UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")
B = uuid.UUID("4e11fa47-71ca-11e1-9e33-c80aa9429562")
MYSQL_9 = "0f92064a-e58e-11f1-a26b-02fc00000001"
# Bodies as MySQL 9.7.4 wrote them (SET gtid_next = '0f92…:other:7'; FLUSH BINARY LOGS).
REAL_TAGGED = bytes.fromhex(
    "0272000000021e49020c949503390222c5038902d604f10300000002041c060a6f74686572081c0a240c7fd599d4ffc56006109d041283120b"
)
REAL_PREVIOUS = bytes.fromhex(
    "01020000000000010f92064ae58e11f1a26b02fc0000000100010000000000000001000000000000000d00000000000000"
    "0f92064ae58e11f1a26b02fc000000010a6f74686572010000000000000007000000000000000800000000000000"
)

MARIADB_GTID = forge(EventType.MARIADB_GTID, struct.pack("<QIB", 77, 2, 1 | 32) + bytes(6))
MYSQL_GTID = forge(EventType.GTID, b"\1" + A.bytes + struct.pack("<Q", 5) + bytes(17))
TAGGED = forge(EventType.GTID_TAGGED, tagged_gtid(A, "blue", 300, 1_700_000_000_123_456))
GTID_LIST = forge(EventType.MARIADB_GTID_LIST, struct.pack("<IIIQIIQ", 2, 0, 1, 9, 3, 2, 11))
PREVIOUS = forge(EventType.PREVIOUS_GTIDS, struct.pack("<Q", 1) + A.bytes + struct.pack("<QQQQQ", 2, 1, 6, 8, 9))
PREPARE = forge(EventType.XA_PREPARE, struct.pack("<BIII", 0, 7, 3, 2) + b"onebq")
HEARTBEAT_2 = forge(EventType.HEARTBEAT_V2, b"\1\x10mysql-bin.000003\2\x09\xfe\0\0\0\0\1\0\0\0\0", log_pos=0)


def test_both_flavors() -> None:
    assert parse_gtid(MARIADB_GTID, checksum=True) == GtidEvent("2-1-77", standalone=True)
    assert parse_gtid(MYSQL_GTID, checksum=True).text == f"{A}:5"
    assert parse_gtid(forge(EventType.ANONYMOUS_GTID, bytes(42)), checksum=True).text == ""
    assert parse_gtid_list(GTID_LIST, checksum=True) == "0-1-9,3-2-11"
    assert parse_gtid_list(PREVIOUS, checksum=True) == f"{A}:1-5:8"


def test_tagged_as_a_server_wrote_them() -> None:
    event = forge(EventType.GTID_TAGGED, REAL_TAGGED)
    assert parse_gtid(event, checksum=True).text == f"{MYSQL_9}:other:7"
    _, microseconds = parse_tagged(event, checksum=True)
    assert microseconds == 1_795_253_377_210_837
    known = parse_gtid_list(forge(EventType.PREVIOUS_GTIDS, REAL_PREVIOUS, flags=0x80), checksum=True)
    assert known == f"{MYSQL_9}:1-12,{MYSQL_9}:other:7"


def test_a_tagged_gtid_has_its_commit_time() -> None:
    assert parse_tagged(TAGGED, checksum=True) == (f"{A}:blue:300", 1_700_000_000_123_456)


@pytest.mark.parametrize(
    "body",
    [
        tagged_gtid(A, "blue", 300, 1, last_needed=12),  # a field of a later version that must be known
        tagged_gtid(A, "Blue;", 300, 1),
        tagged_gtid(A, "b" * 33, 300, 1),
        tagged_gtid(A, "blue", -1, 1),
        tagged_gtid(A, "blue", 0, 1),
        tagged_gtid(A, "blue", 300, 1)[:20],
        number(2) + tagged_gtid(A, "blue", 300, 1)[1:],
        b"",
        bytes(30),
    ],
)
def test_what_is_no_tagged_gtid(body: bytes) -> None:
    with pytest.raises(ShardmergeError) as caught:
        parse_gtid(forge(EventType.GTID_TAGGED, body), checksum=True)
    assert caught.value.spec is errors.decode.MALFORMED_EVENT


@given(st.integers(0, (1 << 64) - 1))
def test_numbers(value: int) -> None:
    def read(data: bytes) -> MessageReader:
        reader = MessageReader(number(1) + number(4) + number(0) + number(0), 0, 4)
        reader._data, reader.at, reader.end = data, 0, len(data)  # pyright: ignore[reportPrivateUsage]
        return reader

    assert read(number(value)).unsigned() == value
    if value < 1 << 63:
        assert read(signed(value)).signed() == value
        assert read(signed(-value - 1)).signed() == -value - 1
    with pytest.raises(BadMessage):
        read(number(value)[:-1]).unsigned()


@given(
    st.lists(
        st.builds(
            SetPart,
            st.sampled_from([A, B]),
            st.sampled_from(["", "blue", "_x1"]),
            st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=3).map(
                lambda spans: tuple((first, first + more) for first, more in spans)
            ),
        ),
        max_size=4,
    ).map(tuple)
)
def test_an_encoded_dump_set_reads_back_as_a_previous_gtids_set(parts: tuple[SetPart, ...]) -> None:
    text = parse_gtid_list(forge(EventType.PREVIOUS_GTIDS, encode_set(parts)), checksum=True)
    wanted = [
        ":".join(
            [str(part.server), *filter(None, [part.tag])]
            + [f"{first}" if first == last else f"{first}-{last}" for first, last in part.intervals]
        )
        for part in parts
    ]
    assert text == ",".join(wanted)


def test_a_set_without_tags_is_asked_for_as_old_servers_know_it() -> None:
    part = SetPart(A, "", ((1, 5), (8, 8)))
    assert encode_set((part,)) == body_of(PREVIOUS)


def test_xa_names() -> None:
    found = parse_xa_prepare(PREPARE, checksum=True)
    assert (found.xid, found.one_phase) == (Xid(7, b"one", b"bq"), False)
    assert xid_of(b"XA COMMIT X'6f6e65',X'6271',7") == found.xid
    assert xid_of(f"xa  rollback {found.xid}".encode()) == found.xid
    assert parse_xa_prepare(forge(EventType.XA_PREPARE, b"\1" + bytes(12)), checksum=True).one_phase
    for other in (b"XA COMMIT 'one'", b"XA COMMIT X'6f6',X'',1", b"XA RECOVER", b"COMMIT", b"XA COMMIT X'00',X'',1;"):
        assert xid_of(other) is None
    with pytest.raises(ShardmergeError):
        parse_xa_prepare(forge(EventType.XA_PREPARE, struct.pack("<BIII", 0, 7, 65, 0) + bytes(65)), checksum=True)


def test_heartbeats() -> None:
    assert parse_heartbeat(HEARTBEAT_2, checksum=True) == Heartbeat("mysql-bin.000003", 1 << 32)
    short = forge(EventType.HEARTBEAT_V2, b"\2\3\xfc\x29\x0c\1\1a\0", log_pos=0)
    assert parse_heartbeat(short, checksum=True) == Heartbeat("a", 3113)
    old = forge(EventType.HEARTBEAT, b"mysql-bin.000003", log_pos=77)
    assert parse_heartbeat(old, checksum=True) == Heartbeat("mysql-bin.000003", 77)


PARSERS: list[tuple[bytes, Callable[[bytes], object]]] = [
    *((event, lambda event: parse_gtid(event, checksum=True)) for event in (MARIADB_GTID, MYSQL_GTID, TAGGED)),
    *((event, lambda event: parse_gtid_list(event, checksum=True)) for event in (GTID_LIST, PREVIOUS)),
    (forge(EventType.PREVIOUS_GTIDS, REAL_PREVIOUS), lambda event: parse_gtid_list(event, checksum=True)),
    (PREPARE, lambda event: parse_xa_prepare(event, checksum=True)),
    (HEARTBEAT_2, lambda event: parse_heartbeat(event, checksum=True)),
]


@given(st.sampled_from(PARSERS), st.data())
def test_damaged_events_give_a_coded_error_or_a_value(
    case: tuple[bytes, Callable[[bytes], object]], data: st.DataObject
) -> None:
    event, parse = case
    with pytest.raises(ShardmergeError):
        parse(event[: data.draw(st.integers(0, len(event) - 1))])
    body = bytearray(body_of(event)[: data.draw(st.integers(0, len(event)))])
    for at in data.draw(st.lists(st.integers(0, max(len(body) - 1, 0)), max_size=4)):
        body[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1))
    try:
        parse(forge(event[4], bytes(body)))
    except ShardmergeError as error:
        assert error.spec.error_class == "decode"

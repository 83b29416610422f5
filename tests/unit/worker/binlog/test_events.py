"""What bounds rows in the stream: headers, format descriptions, queries."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog import events as ev
from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.core.inflation import inflate
from tests.support.binlog import body_of, forge, query, read_binlog

BINLOG = read_binlog(Path(__file__).parent / "data" / "mariadb-10.11.binlog")

ROTATE = forge(EventType.ROTATE, struct.pack("<Q", 4) + b"mysql-bin.000007", log_pos=0, flags=ev.FLAG_ARTIFICIAL)


def test_header_of_a_real_file() -> None:
    header = ev.parse_header(BINLOG.format_description)
    assert (header.type, header.server_id, header.size) == (15, 1, len(BINLOG.format_description))
    assert header.log_pos == 4 + header.size
    assert not header.is_artificial
    assert ev.parse_header(ROTATE).is_artificial


def test_format_description_of_mariadb() -> None:
    found = ev.FormatDescription.parse(BINLOG.format_description)
    assert found.is_mariadb
    assert found.checksum
    assert found.server_version.startswith("10.11.")
    assert found.post_header_length(EventType.TABLE_MAP) == 8
    assert found.post_header_length(EventType.WRITE_ROWS_V2) == 10
    assert found.post_header_length(250) == 0


def mysql_format(algorithm: int = 1, binlog_version: int = 4, types: int = 42) -> bytes:
    body = struct.pack("<H50sIB", binlog_version, b"8.0.36", 0, 19) + bytes(types) + bytes([algorithm])
    return forge(EventType.FORMAT_DESCRIPTION, body)


def test_format_description_of_mysql() -> None:
    found = ev.FormatDescription.parse(mysql_format())
    assert (found.is_mariadb, found.checksum, found.server_version) == (False, True, "8.0.36")
    assert not ev.FormatDescription.parse(mysql_format(algorithm=0)).checksum


@pytest.mark.parametrize(
    "event", [mysql_format(algorithm=2), mysql_format(binlog_version=3), mysql_format(types=3), mysql_format(types=256)]
)
def test_an_unknown_format_is_refused(event: bytes) -> None:
    with pytest.raises(ShardmergeError):
        ev.FormatDescription.parse(event, "s1")


def test_checksums() -> None:
    assert all(ev.checksum_matches(event) for event in BINLOG.each())
    assert ev.checksum_matches(BINLOG.format_description)
    # The server sets the in-use flag after it computed the checksum.
    in_use = bytearray(BINLOG.format_description)
    in_use[17] |= ev.FLAG_IN_USE
    assert ev.checksum_matches(bytes(in_use))
    in_use[30] ^= 1
    assert not ev.checksum_matches(bytes(in_use))
    assert not ev.checksum_matches(b"short")


def test_query() -> None:
    variables = (
        b"\0" + bytes(4) + b"\1" + struct.pack("<Q", 1 << 21) + b"\6\3std" + b"\4" + struct.pack("<HHH", 28, 8, 8)
    )
    body = struct.pack("<IIBHH", 7, 0, 2, 1062, len(variables)) + variables + b"d1\0" + "DROP TABLE 中".encode("gbk")
    found = ev.parse_query(forge(EventType.QUERY, body), checksum=True)
    assert (found.schema, found.text, found.error_code) == ("d1", "DROP TABLE 中", 1062)
    assert (found.sql_mode, found.variables.collation) == (1 << 21, 28)
    plain = ev.parse_query(query("CREATE TABLE `é`".encode(), checksum=False), checksum=False)
    assert (plain.schema, plain.text, plain.sql_mode) == ("d", "CREATE TABLE `é`", None)


def test_rotate() -> None:
    assert ev.parse_rotate(ROTATE, checksum=True) == ev.RotateEvent("mysql-bin.000007", 4)
    with pytest.raises(ShardmergeError, match="ROTATE to byte"):
        ev.parse_rotate(forge(EventType.ROTATE, struct.pack("<Q", 1 << 63) + b"mysql-bin.000007"), checksum=True)


@given(st.binary(max_size=3000), st.integers(2, 4), st.data())
def test_inflate(plain: bytes, width: int, data: st.DataObject) -> None:
    def unpack(packed: bytes) -> bytes:
        return inflate(packed, "s1", 1)

    length, squeezed = len(plain).to_bytes(width, "big"), zlib.compress(plain)
    packed = bytes([0x80 | width]) + length + squeezed
    assert unpack(packed) == plain
    wrong_length = (len(plain) + data.draw(st.sampled_from((-1, 1)))) % 65536
    for broken in (
        packed[: data.draw(st.integers(0, len(packed) - 1))],
        b"\x90" + packed[1:],
        b"\x85" + packed[1:],
        bytes([0x80 | width]) + wrong_length.to_bytes(width, "big") + squeezed,
        b"\x84\xff\xff\xff\xff" + squeezed,
    ):
        with pytest.raises(ShardmergeError):
            unpack(broken)


PARSERS: list[tuple[bytes, Callable[[bytes], object]]] = [
    (BINLOG.format_description, ev.FormatDescription.parse),
    (query(b"BEGIN"), lambda event: ev.parse_query(event, checksum=True)),
    (ROTATE, lambda event: ev.parse_rotate(event, checksum=True)),
]


@given(st.sampled_from(PARSERS), st.data())
def test_damaged_events_give_a_coded_error_or_a_value(
    case: tuple[bytes, Callable[[bytes], object]], data: st.DataObject
) -> None:
    event, parse = case
    cut = data.draw(st.integers(0, len(event) - 1))
    with pytest.raises(ShardmergeError):
        parse(event[:cut])
    # As above with a header that agrees: only the body is too short, or has other bytes.
    body = bytearray(body_of(event)[: data.draw(st.integers(0, len(event)))])
    for at in data.draw(st.lists(st.integers(0, max(len(body) - 1, 0)), max_size=4)):
        body[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1))
    try:
        parse(forge(event[4], bytes(body)))
    except ShardmergeError as error:
        assert error.spec.error_class == "decode"

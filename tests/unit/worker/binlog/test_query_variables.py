"""A statement's session in the bytes of its event."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.binlog.query_variables import QueryVariables, query_variables

FLAGS = b"\x00\x00\x00\x00\x00"
MODE = b"\x01" + (1411383296 | 1 << 20).to_bytes(8, "little")
CATALOG = b"\x06\x03std"
AUTO = b"\x03\x02\x00\x01\x00"
CHARSET = b"\x04\x21\x00\x21\x00\x08\x00"
ZONE = b"\x05\x06SYSTEM"
MICROSECONDS = b"\x0d\x40\xe2\x01"  # 123456


def test_of_mysql() -> None:
    data = FLAGS + MODE + CATALOG + AUTO + CHARSET + ZONE
    data += b"\x07\x01\x00" + b"\x08\x08\x00" + b"\x09" + bytes(8) + b"\x0a\x00\x00\x00\x00"
    data += b"\x0b\x04root\x09localhost" + b"\x0c\x02one\x00two\x00" + MICROSECONDS
    data += b"\x10\x01" + b"\x11" + (7).to_bytes(8, "little") + b"\x12\xff\x00" + b"\x13\x01" + b"\x14\x01"
    assert query_variables(data) == QueryVariables(
        1411383296 | 1 << 20,
        0x21,
        "SYSTEM",
        True,
        123456,
        connection=0x21,
        server=8,
        increment=(2, 1),
        time_names=1,
        database=8,
        utf8mb4_collation=255,
    )


def test_of_mariadb() -> None:
    data = FLAGS + MODE + CATALOG + CHARSET + b"\x05\x0dEurope/Berlin" + b"\x80\x0f\x42\x0f" + b"\x81" + bytes(8)
    assert query_variables(data) == QueryVariables(
        1411383296 | 1 << 20, 0x21, "Europe/Berlin", None, 999951, connection=0x21, server=8
    )


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", QueryVariables()),
        (b"\x10\x00", QueryVariables(explicit_timestamp=False)),
        (b"\x05\x00", QueryVariables()),
        (b"\x0c\xfe" + MICROSECONDS, QueryVariables(microseconds=123456)),  # too many schemas to name
        (b"\x0c\x00" + MICROSECONDS, QueryVariables(microseconds=123456)),
        (b"\x0b\x00\x00" + MICROSECONDS, QueryVariables(microseconds=123456)),
        (
            ZONE + b"\xc8\x01" + MICROSECONDS,
            QueryVariables(time_zone="SYSTEM", unknown=0xC8),
        ),  # its size is unknown
        (ZONE + MICROSECONDS[:-1], QueryVariables(time_zone="SYSTEM", unknown=0x0D)),
        (ZONE[:-1], QueryVariables(unknown=5)),
        (b"\x02\x03std\x00" + MICROSECONDS, QueryVariables(microseconds=123456)),  # the catalog of old servers
    ],
)
def test_ends_and_sizes(data: bytes, found: QueryVariables) -> None:
    assert query_variables(data) == found


@pytest.mark.parametrize(
    ("phase", "has_ended"),
    [(b"\x82\x02", False), (b"\x82\x04" + bytes(8), True), (b"\x82\x08" + bytes(8), False), (b"", True)],
)
def test_an_alter_that_mariadb_logs_twice(phase: bytes, has_ended: bool) -> None:
    found = query_variables(FLAGS + phase + ZONE)
    assert found == QueryVariables(time_zone="SYSTEM", has_ended=has_ended)


def test_mariadbs_flag_of_timestamps() -> None:
    assert query_variables(b"\x00\x00\x00\x00\x01").explicit_flag
    assert not query_variables(FLAGS).explicit_flag


_CAPTURED = (
    # (bytes, what the session had set): CREATE TABLE statements of MariaDB 10.11 and 11.8, and of MySQL 9.7.
    (
        "0000000001 01 0000205400000000 0603737464 03 0a000500 042d002d000800 812b00000000000000",
        QueryVariables(0x54200000, 45, explicit_flag=True, connection=45, server=8, increment=(10, 5)),
    ),
    (
        "0000008001 01 0000205400000000 0603737464 042d002d000800 812300000000000000",
        QueryVariables(0x54200000, 45, explicit_flag=True, connection=45, server=8, checks_constraints=False),
    ),
    (
        "0000000001 01 0ee2001002000000 0603737464 042d002d000800 070400 813100000000000000",
        QueryVariables(0x21000E20E, 45, explicit_flag=True, connection=45, server=8, time_names=4),
    ),
    (
        "0000000001 01 0000205400000000 0603737464 83 02 08002f00 2d000309 04000900090009 811200000000000000",
        QueryVariables(
            0x54200000,
            2304,
            explicit_flag=True,
            connection=2304,
            server=2304,
            charset_collations=((8, 47), (45, 2307)),
        ),
    ),
    (
        "0000000000 01 2000a04500000000 0603737464 04ff002f00ff00 082f00 0c017000 1001 111400000000000000 122d00 1301",
        QueryVariables(
            0x45A00020, 255, explicit_timestamp=True, connection=47, server=255, utf8mb4_collation=45, database=47
        ),
    ),
)


@pytest.mark.parametrize(("data", "found"), _CAPTURED)
def test_events_of_servers(data: str, found: QueryVariables) -> None:
    assert query_variables(bytes.fromhex(data)) == found


@given(st.binary(max_size=60))
def test_any_bytes_are_read(data: bytes) -> None:
    query_variables(data)

"""The events of MariaDB 11.4 get the positions that older servers write."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.binlog.events import FormatDescription
from shardmerge.worker.relay.fetch.event_feed import omits_positions, with_position

_ROWS = 23


def _event(log_pos: int, body: bytes, *, checksum: bool) -> bytes:
    size = 19 + len(body) + 4 * checksum
    event = struct.pack("<IBIIIH", 1700000000, _ROWS, 101, size, log_pos % (1 << 32), 0) + body
    return event + struct.pack("<I", zlib.crc32(event)) if checksum else event


@given(st.binary(max_size=300), st.integers(4, 1 << 34), st.booleans())
def test_an_event_without_its_position_becomes_one_with_it(body: bytes, before: int, checksum: bool) -> None:
    omitted = _event(0, body, checksum=checksum)
    made, log_pos = with_position(memoryview(omitted), before, checksum=checksum)
    assert log_pos == (before + len(omitted)) % (1 << 32)
    assert bytes(made) == _event(log_pos, body, checksum=checksum)
    assert omitted == _event(0, body, checksum=checksum), "the received bytes are unchanged"


@pytest.mark.parametrize(
    ("version", "is_mariadb", "omits"),
    [
        ("11.4.5-MariaDB-log", True, True),
        ("12.1.2-MariaDB", True, True),
        ("5.5.5-10.11.6-MariaDB", True, False),
        ("11.3.2-MariaDB", True, False),
        ("9.7.0", False, False),
    ],
)
def test_which_servers_omit_positions(version: str, is_mariadb: bool, omits: bool) -> None:
    description = FormatDescription(4, "", True, b"", False)
    assert omits_positions(replace(description, server_version=version, is_mariadb=is_mariadb)) is omits

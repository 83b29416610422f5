"""An event's checksum, computed in each way, compared with zlib's."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.binlog.crc32 import Crc32

WAYS = {"by what the processor has": Crc32(), "by tables": Crc32(tables_only=True)}


@pytest.mark.parametrize("crc", WAYS.values(), ids=WAYS)
def test_every_length_and_place(crc: Crc32) -> None:
    data = random.Random(1).randbytes(3000)
    for size in (*range(400), 511, 512, 513, 2047, 2048, 2049, 2900):
        for start in (0, 1, 7, 16, 33):
            assert crc.of_part(data, data, start, start + size) == zlib.crc32(data[start : start + size]), (start, size)


@given(st.binary(max_size=500), st.integers(0, 499), st.integers(0, 255))
def test_one_byte_makes_a_difference(data: bytes, at: int, byte: int) -> None:
    for crc in WAYS.values():
        changed = bytearray(data)
        if at < len(changed):
            changed[at] = byte
        same = bytes(changed) == data
        assert (crc.of_part(data, data, 0, len(data)) == crc.of_part(bytes(changed), changed, 0, len(data))) == same

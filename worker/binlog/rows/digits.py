"""Reads big-endian numbers, writes decimal digits into a buffer, and copies parts of a buffer.

The caller has checked that the bytes exist, that the buffer has room, and that the value has no more digits than
written. Compiled modules use the same functions of worker/binlog/rows/digits.pxd, inline.
"""

from __future__ import annotations


class Unreadable(Exception):
    """Bytes that are not a value of their column's type; ColumnCodec converts it to a coded error."""


def big(data: bytes | bytearray, at: int, size: int) -> int:
    """``size`` bytes as a big-endian number."""
    return int.from_bytes(data[at : at + size], "big")


def power(digits: int) -> int:
    """10 to the power of ``digits``: every number of so many digits is lower."""
    return 10**digits


def put(out: bytearray, at: int, value: int, width: int) -> int:
    """Write ``value`` as ``width`` digits; returns the index after them."""
    out[at : at + width] = b"%0*d" % (width, value)
    return at + width


def put_digits(out: bytearray, at: int, value: int) -> int:
    """Write ``value`` without leading zeros; returns the index after its digits."""
    return put(out, at, value, len(str(value)))


def cut(out: bytes | bytearray, start: int, stop: int) -> bytes:
    """A copy of a part of a buffer."""
    return bytes(out[start:stop])

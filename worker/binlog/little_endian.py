"""Reads little-endian numbers of binlog events; the caller has checked that their bytes exist.

Compiled modules use the same functions of worker/binlog/little_endian.pxd, inline.
"""

from __future__ import annotations


def u32(data: bytes | bytearray, at: int) -> int:
    """Four bytes."""
    return int.from_bytes(data[at : at + 4], "little")


def u64(data: bytes | bytearray, at: int) -> int:
    """Eight bytes."""
    return int.from_bytes(data[at : at + 8], "little")


def event_size(data: bytes | bytearray, at: int = 0) -> int:
    """Bytes of the event at byte ``at``, its header included."""
    return u32(data, at + 9)


def event_end(data: bytes | bytearray, at: int = 0) -> int:
    """The byte in the source's file at which the event at byte ``at`` ends (log_pos)."""
    return u32(data, at + 13)


def little(data: bytes | bytearray, at: int, size: int) -> int:
    """``size`` bytes."""
    return int.from_bytes(data[at : at + size], "little")

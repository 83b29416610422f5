# cython: language_level=3
"""Computes the CRC-32 of many short byte strings.

Compiled by Cython; plain Python where it is not compiled.
"""

from __future__ import annotations

import sys
import zlib
from typing import Any

import cython

_ONES = cython.declare(cython.uint, 0xFFFFFFFF)  # a literal this large would make its expression one of Python objects
_LONG = cython.declare(cython.Py_ssize_t, 2048)  # bytes from which on zlib is faster than the tables
_FOLDED = cython.declare(cython.Py_ssize_t, 64)  # the fewest bytes that crc_fold accepts

if not cython.compiled:

    def crc_can_fold() -> bool:
        """Whether the processor multiplies without carries (crc32_fold.h)."""
        return False

    def crc_fold(data: Any, size: int, value: int) -> int:
        """See crc32_fold.h."""
        raise NotImplementedError


def _crc_tables() -> bytes:
    """Sixteen tables of 256 words, which process sixteen bytes per step ("slicing-by-16", Intel 2006).

    Table k has the effect of a byte on the remainder k bytes later. CRC-32 of ISO 3309, as in zlib; words in the
    machine's byte order.
    """
    first: list[int] = []
    for number in range(256):
        value = number
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        first.append(value)
    tables = [first]
    for _ in range(15):
        tables.append([first[value & 0xFF] ^ value >> 8 for value in tables[-1]])
    return b"".join(value.to_bytes(4, sys.byteorder) for table in tables for value in table)


@cython.final
@cython.cclass
class Crc32:
    """Other compiled modules call it without making objects: a call of zlib takes longer than the computation.

    ``tables_only``: compute as on a processor that cannot multiply without carries.
    """

    def __init__(self, *, tables_only: bool = False) -> None:
        self.tables = _crc_tables()
        self.folds = crc_can_fold() and not tables_only

    @cython.ccall
    def of_part(
        self, buffer: Any, data: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.longlong:
        """zlib.crc32(buffer[start:stop]), for few bytes or many. ``data``: the bytes of ``buffer``.

        Uncompiled modules can call it too.
        """
        if self.folds and stop - start >= _FOLDED:
            return self._folded(data, start, stop)
        if stop - start > _LONG:
            return zlib.crc32(memoryview(buffer)[start:stop])
        return self.of(data, start, stop, 0)

    @cython.cfunc
    @cython.exceptval(check=False)
    def of(
        self, data: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, value: cython.uint
    ) -> cython.uint:
        """zlib.crc32(data[start:stop], value)."""
        if not cython.compiled:
            return zlib.crc32(memoryview(data)[start:stop], value)
        words: cython.p_uchar = self.tables
        table: cython.p_uint = cython.cast(cython.p_uint, words)
        at: cython.Py_ssize_t = start
        value = value ^ _ONES
        while stop - at >= 16:
            value ^= data[at] | data[at + 1] << 8 | data[at + 2] << 16 | cython.cast(cython.uint, data[at + 3]) << 24
            value = (
                table[15 * 256 + (value & 0xFF)]
                ^ table[14 * 256 + (value >> 8 & 0xFF)]
                ^ table[13 * 256 + (value >> 16 & 0xFF)]
                ^ table[12 * 256 + (value >> 24)]
                ^ table[11 * 256 + data[at + 4]]
                ^ table[10 * 256 + data[at + 5]]
                ^ table[9 * 256 + data[at + 6]]
                ^ table[8 * 256 + data[at + 7]]
                ^ table[7 * 256 + data[at + 8]]
                ^ table[6 * 256 + data[at + 9]]
                ^ table[5 * 256 + data[at + 10]]
                ^ table[4 * 256 + data[at + 11]]
                ^ table[3 * 256 + data[at + 12]]
                ^ table[2 * 256 + data[at + 13]]
                ^ table[256 + data[at + 14]]
                ^ table[data[at + 15]]
            )
            at += 16
        while at < stop:
            value = value >> 8 ^ table[(value ^ data[at]) & 0xFF]
            at += 1
        return value ^ _ONES

    @cython.cfunc
    @cython.exceptval(check=False)
    def _folded(self, data: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.uint:
        """:meth:`of_part` for at least ``_FOLDED`` bytes."""
        size: cython.Py_ssize_t = stop - start
        size -= size % 16
        return self.of(data, start + size, stop, crc_fold(data + start, size, _ONES) ^ _ONES)

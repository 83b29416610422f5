# cython: language_level=3, cdivision=True
"""Cuts the rows of a text-protocol result into columns: for each column one buffer of values and one of offsets.

The buffers have Arrow's format of a binary array (Apache Arrow, "Columnar Format", "Variable-size Binary Layout"), so
that no Python object is made for a value. Compiled by Cython (types of the classes in text_columns.pxd); plain Python
where it is not compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

import cython

from shardmerge.worker.snapshot.source.text_rows import END, FAILED, ROWS, joined_packets, long_row

if not cython.compiled:
    from shardmerge.worker.snapshot.source.text_rows import value_length

_ROOM = cython.declare(cython.Py_ssize_t, 1 << 14)
_ROWS = cython.declare(cython.Py_ssize_t, 1 << 10)


@dataclass(frozen=True, slots=True)
class CutColumn:
    """The values of one column. ``offsets``: 32-bit little-endian, one more than rows. ``marks``: one byte per row, 0
    for NULL. Only the first ``used`` bytes of ``values`` count."""

    rows: int
    offsets: bytearray
    values: bytearray
    used: int
    marks: bytearray


@cython.final
@cython.cclass
class ColumnBuffer:
    """One column's growing buffers; one thread at a time."""

    def __init__(self) -> None:
        self.held = bytearray(_ROOM)
        self.size = int(_ROOM)
        self.used = 0
        self.offsets = bytearray(4 * int(_ROWS) + 4)
        self.marks = bytearray(_ROWS)
        self.rows = 0
        self.most_rows = int(_ROWS)

    @cython.cfunc
    def make_room(self, more: cython.Py_ssize_t) -> cython.int:
        """Room for one row of ``more`` bytes."""
        if self.used + more > self.size:
            self.held += bytearray(max(self.size, more))
            self.size = len(self.held)
        if self.rows == self.most_rows:
            self.offsets += bytearray(4 * self.most_rows)
            self.marks += bytearray(self.most_rows)
            self.most_rows *= 2
        return 0

    @cython.cfunc
    def add(
        self, data: cython.p_uchar, place: cython.Py_ssize_t, count: cython.Py_ssize_t, mark: cython.int
    ) -> cython.int:
        """Add the value of ``count`` bytes at ``place``; ``mark`` 0: NULL."""
        if self.used + count > self.size or self.rows == self.most_rows:
            self.make_room(count)
        out: cython.p_uchar = self.held
        at: cython.Py_ssize_t
        used: cython.Py_ssize_t = self.used
        if cython.compiled:
            for at in range(count):
                out[used + at] = data[place + at]
        else:
            out[used : used + count] = data[place : place + count]
        used += count
        self.used = used
        marks: cython.p_uchar = self.marks
        marks[self.rows] = mark
        self.rows += 1
        offsets: cython.p_uchar = self.offsets
        at = 4 * self.rows
        offsets[at] = used & 255
        offsets[at + 1] = used >> 8 & 255
        offsets[at + 2] = used >> 16 & 255
        offsets[at + 3] = used >> 24 & 255
        return 0

    def column(self) -> CutColumn:
        """What was added; nothing may be added after it."""
        return CutColumn(self.rows, self.offsets, self.held, self.used, self.marks)


@cython.final
@cython.cclass
class ColumnCutter:
    """Cuts rows of so many columns; one thread at a time."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.buffers = [ColumnBuffer() for _ in range(columns)]

    @property
    def held_bytes(self) -> int:
        """The bytes of all values that are cut and not taken."""
        total: cython.Py_ssize_t = 0
        buffer: ColumnBuffer
        for buffer in self.buffers:
            total += buffer.used + 5 * buffer.rows
        return total

    def take(self) -> list[CutColumn]:
        """The columns that are cut; new rows begin new ones."""
        made = self.buffers
        self.buffers = [ColumnBuffer() for _ in range(self.columns)]
        return [buffer.column() for buffer in made]

    def cut(self, buffer: bytes) -> tuple[int, int]:
        """Cut the whole packets of ``buffer``; returns (state, bytes used) as
        :func:`shardmerge.worker.snapshot.source.text_rows.split_rows` does. Raises ValueError."""
        data: cython.p_uchar = buffer
        size: cython.Py_ssize_t = len(buffer)
        at: cython.Py_ssize_t = 0
        length: cython.Py_ssize_t
        place: cython.Py_ssize_t
        end: cython.Py_ssize_t
        while size - at >= 4:
            length = data[at] | data[at + 1] << 8 | data[at + 2] << 16
            place = at + 4
            if size - place < length:
                break
            if length == 0xFFFFFF:
                payload, end = joined_packets(buffer, at)
                if end == 0:
                    break
                self._add_long(long_row(payload, self.columns))
                at = end
                continue
            end = place + length
            if length > 0 and data[place] == 0xFE and length < 9:
                return END, end
            if length > 0 and data[place] == 0xFF:
                return FAILED, at
            self._row(buffer, place, end)
            at = end
        return ROWS, at

    @cython.cfunc
    def _row(self, buffer: bytes, place: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        data: cython.p_uchar = buffer
        count: cython.Py_ssize_t
        column: cython.Py_ssize_t
        into: ColumnBuffer
        buffers: list[ColumnBuffer] = self.buffers
        for column in range(self.columns):
            into = buffers[column]
            if place < end and data[place] == 0xFB:
                place += 1
                into.add(data, place, 0, 0)
                continue
            if place < end and data[place] < 0xFB and data[place] < end - place:
                count = data[place]
                place += 1
            else:
                count = value_length(data, place, end, column)
                place += 1 if data[place] < 0xFB else 3 if data[place] == 0xFC else 4
            into.add(data, place, count, 1)
            place += count
        if place != end:
            raise ValueError("a row has more columns")
        return 0

    def _add_long(self, values: list[bytes | None]) -> None:
        into: ColumnBuffer
        text: bytes
        for into, value in zip(self.buffers, values, strict=True):
            text = b"" if value is None else value
            into.add(text, 0, len(text), 0 if value is None else 1)

# cython: language_level=3
"""Cuts the rows of a text-protocol result out of the bytes that a server sends. Compiled, or plain Python.

Formats: MySQL Source Code Documentation, "Protocol Basics" (packets, length-encoded integers) and
"Text Resultset" (a row is one length-encoded string per column, 0xFB for NULL).
"""

from __future__ import annotations

from typing import Any

import cython

from shardmerge.worker.binlog.rows.column_codec import ColumnCodec
from shardmerge.worker.binlog.rows.literal_buffer import LiteralBuffer
from shardmerge.worker.binlog.rows.row_filter import RowFilters

ROWS = 0
"""More rows may follow."""
END = 1
"""The result's EOF packet was read."""
FAILED = 2
"""An ERR packet was read instead of a row."""

_NULL = cython.declare(bytes, b"NULL")
_INSERT = 1  # ChangeKind
_LONGEST = 0xFFFFFF
_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}


@cython.final
@cython.cclass
class RowJoiner:
    """Turns a row's texts into its SQL literals, separated by commas as in VALUES (worker/core/row_change.py, Joined).

    ``codecs``: one per column of the result. ``drops``: the table's filters of inserted rows; a row that they drop
    becomes b"". One thread at a time.
    """

    def __init__(self, codecs: list[ColumnCodec], drops: RowFilters | None = None) -> None:
        self.codecs = codecs
        self.written = LiteralBuffer()
        self.test = None if drops is None or not drops.applies_to(_INSERT) else drops.inserts
        self.places = bytes(len(codecs))
        self.values: list[bytes] = []
        if drops is not None:
            # By column: the place of its value among those of the test, counted from 1.
            self.places = bytes(drops.slots.index(at) + 1 if at in drops.slots else 0 for at in range(len(codecs)))
            self.values = [_NULL] * len(drops.slots)

    def joined(self, row: list[bytes | None]) -> bytes:
        """Join values that were cut out already. Raises what ColumnCodec.of_text raises."""
        if self.test is not None:
            for place, codec, text in zip(self.places, self.codecs, row, strict=True):
                if place:
                    self.values[place - 1] = codec.of_text(text, False)
            if self.test(self.values):
                return b""
        return b",".join([codec.of_text(text, True) for codec, text in zip(self.codecs, row, strict=True)])

    @cython.cfunc
    def cut_row(self, buffer: bytes, place: cython.Py_ssize_t, end: cython.Py_ssize_t) -> bytes:
        """Cut and join the packet place..end. Raises what :meth:`joined` raises, and ValueError."""
        data: cython.p_uchar = buffer
        written: LiteralBuffer = self.written
        out: cython.p_uchar = written.start()
        write: cython.Py_ssize_t = 0
        stop: cython.Py_ssize_t
        most: cython.Py_ssize_t
        count: cython.Py_ssize_t
        column: cython.Py_ssize_t
        codec: ColumnCodec
        testing: cython.bint = self.test is not None
        places: cython.p_uchar = self.places
        for column in range(len(self.codecs)):
            codec = self.codecs[column]
            # One byte more than needed is always there, for the comma.
            if column:
                out[write] = 44
                write += 1
            if place < end and data[place] == 0xFB:
                place += 1
                if testing and places[column]:
                    self.values[places[column] - 1] = _NULL
                write = written.put(write, b"NULL")
                out = written.held
                continue
            count = _length(data, place, end, column)
            place += 1 if data[place] < 0xFB else 3 if data[place] == 0xFC else 4
            if testing and places[column]:
                self.values[places[column] - 1] = codec.of_text(data[place : place + count], False)
            stop = -1
            most = codec.most_text_bytes(count)
            if most:
                if written.size - write <= most:
                    out = written.room(write, most)
                stop = codec.put_text(out, write, data, place, place + count)
            if stop < 0:
                stop = written.put(write, codec.of_text(data[place : place + count], True))
                out = written.held
            write = stop
            place += count
        if place != end:
            raise ValueError("a row has more columns")
        if self.test is not None and self.test(self.values):
            return b""
        return written.cut(write)


@cython.cfunc
@cython.inline
def _length(
    data: cython.p_uchar, place: cython.Py_ssize_t, end: cython.Py_ssize_t, column: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """How many bytes the value has whose length is at ``place``. ValueError: they reach beyond ``end``."""
    count: cython.Py_ssize_t
    head: cython.int
    if place >= end:
        raise ValueError(f"a row ends before column {column}")
    head = data[place]
    place += 1
    if head < 0xFB:
        count = head
    elif head == 0xFC and end - place >= 2:
        count = data[place] | data[place + 1] << 8
        place += 2
    elif head == 0xFD and end - place >= 3:
        count = data[place] | data[place + 1] << 8 | data[place + 2] << 16
        place += 3
    else:
        raise ValueError(f"column {column} has no length")
    if count > end - place:
        raise ValueError(f"column {column} is longer than its packet")
    return count


@cython.cfunc
def value_length(
    data: cython.p_uchar, place: cython.Py_ssize_t, end: cython.Py_ssize_t, column: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """:func:`_length` for other modules: here it is inline."""
    return _length(data, place, end, column)


@cython.cfunc
def _split_row(
    buffer: bytes, place: cython.Py_ssize_t, end: cython.Py_ssize_t, columns: cython.Py_ssize_t
) -> list[bytes | None]:
    """The values of the packet place..end, None for NULL. Raises ValueError."""
    data: cython.p_uchar = buffer
    count: cython.Py_ssize_t
    column: cython.Py_ssize_t
    row: list[bytes | None] = []
    for column in range(columns):
        if place < end and data[place] == 0xFB:
            row.append(None)
            place += 1
            continue
        count = _length(data, place, end, column)
        place += 1 if data[place] < 0xFB else 3 if data[place] == 0xFC else 4
        row.append(data[place : place + count])
        place += count
    if place != end:
        raise ValueError("a row has more columns")
    return row


def split_rows(buffer: bytes, columns: cython.Py_ssize_t, rows: list[list[bytes | None]]) -> tuple[int, int]:
    """Cut whole packets of ``buffer`` into ``rows``; returns (state, bytes used).

    ``columns``: how many every row has. ``rows`` gets one list of values per row, None for NULL. The bytes of an
    incomplete packet are not used. When the state is FAILED, the ERR packet itself is not used either.
    ValueError: the bytes are no rows of that many columns.
    """
    return _walk(buffer, columns, None, rows)


def join_rows(buffer: bytes, joiner: RowJoiner, columns: cython.Py_ssize_t, rows: list[bytes]) -> tuple[int, int]:
    """As :func:`split_rows`, but ``rows`` gets what ``joiner`` makes of each row that it does not drop. Also raises
    what that raises."""
    if columns != len(joiner.codecs):
        raise ValueError(f"{columns} columns for {len(joiner.codecs)}")
    return _walk(buffer, columns, joiner, rows)


@cython.cfunc
def _walk(buffer: bytes, columns: cython.Py_ssize_t, joiner: RowJoiner | None, rows: list[Any]) -> tuple[int, int]:
    data: cython.p_uchar = buffer
    size: cython.Py_ssize_t = len(buffer)
    at: cython.Py_ssize_t = 0
    length: cython.Py_ssize_t
    place: cython.Py_ssize_t
    end: cython.Py_ssize_t
    joined: bytes
    while size - at >= 4:
        length = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        place = at + 4
        if size - place < length:
            break
        if length == 0xFFFFFF:
            # A row of 16 MiB and more comes in several packets.
            payload, end = joined_packets(buffer, at)
            if end == 0:
                break
            values = long_row(payload, columns)
            if joiner is None:
                rows.append(values)
            else:
                joined = joiner.joined(values)
                if joined:
                    rows.append(joined)
            at = end
            continue
        end = place + length
        if length > 0 and data[place] == 0xFE and length < 9:
            return END, end
        if length > 0 and data[place] == 0xFF:
            return FAILED, at
        if joiner is None:
            rows.append(_split_row(buffer, place, end, columns))
        else:
            joined = joiner.cut_row(buffer, place, end)
            if joined:
                rows.append(joined)
        at = end
    return ROWS, at


def joined_packets(buffer: bytes, at: int) -> tuple[bytes, int]:
    """The payload of the packets that belong together, and their end; (b"", 0) while some are missing."""
    parts: list[bytes] = []
    while len(buffer) - at >= 4:
        length = int.from_bytes(buffer[at : at + 3], "little")
        if len(buffer) - at - 4 < length:
            break
        parts.append(buffer[at + 4 : at + 4 + length])
        at += 4 + length
        if length < _LONGEST:
            return b"".join(parts), at
    return b"", 0


def long_row(payload: bytes, columns: int) -> list[bytes | None]:
    """The values of a row that came in several packets, None for NULL. Raises ValueError."""
    row: list[bytes | None] = []
    place = 0
    for column in range(columns):
        if place >= len(payload):
            raise ValueError(f"a row ends before column {column}")
        head = payload[place]
        place += 1
        if head == 0xFB:
            row.append(None)
            continue
        width = _WIDTHS.get(head, 0)
        count = int.from_bytes(payload[place : place + width], "little") if width else head
        place += width
        if place + count > len(payload):
            raise ValueError(f"column {column} is longer than its row")
        row.append(payload[place : place + count])
        place += count
    if place != len(payload):
        raise ValueError("a row has more columns")
    return row

# cython: language_level=3
"""Rows of a text-protocol result, cut out of the bytes a server sends. Compiled, or plain Python.

Formats: MySQL Source Code Documentation, "Protocol Basics" (packets, length-encoded integers) and
"Text Resultset" (a row is one length-encoded string per column, 0xFB for NULL).
"""

from __future__ import annotations

import cython

ROWS = 0
"""More rows may follow."""
END = 1
"""The result's EOF packet was read."""
FAILED = 2
"""An ERR packet was read instead of a row."""

_LONGEST = 0xFFFFFF
_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}


def split_rows(buffer: bytes, columns: cython.Py_ssize_t, rows: list[list[bytes | None]]) -> tuple[int, int]:
    """Cut whole packets of ``buffer`` into ``rows``; (state, bytes used).

    ``columns``: how many every row has. ``rows`` gets one list of values per row, None for NULL. Bytes that are
    no whole packet yet stay unused. When the state is FAILED, the ERR packet itself is left unused.
    ValueError: the bytes are no rows of that many columns.
    """
    data: cython.p_uchar = buffer
    size: cython.Py_ssize_t = len(buffer)
    at: cython.Py_ssize_t = 0
    length: cython.Py_ssize_t
    place: cython.Py_ssize_t
    end: cython.Py_ssize_t
    count: cython.Py_ssize_t
    column: cython.Py_ssize_t
    head: cython.int
    row: list[bytes | None]
    while size - at >= 4:
        length = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        place = at + 4
        if size - place < length:
            break
        if length == 0xFFFFFF:
            # A row of 16 MiB and more comes in several packets.
            joined, end = _join(buffer, at)
            if end == 0:
                break
            rows.append(_long_row(joined, columns))
            at = end
            continue
        end = place + length
        if length > 0 and data[place] == 0xFE and length < 9:
            return END, end
        if length > 0 and data[place] == 0xFF:
            return FAILED, at
        row = []
        for column in range(columns):
            if place >= end:
                raise ValueError(f"a row ends before column {column}")
            head = data[place]
            place += 1
            if head == 0xFB:
                row.append(None)
                continue
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
            row.append(data[place : place + count])
            place += count
        if place != end:
            raise ValueError("a row has more columns")
        rows.append(row)
        at = end
    return ROWS, at


def _join(buffer: bytes, at: int) -> tuple[bytes, int]:
    """The payload of the packets that belong together, and their end; (b"", 0) when some are missing yet."""
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


def _long_row(payload: bytes, columns: int) -> list[bytes | None]:
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

# cython: language_level=3
"""Rows of a text-protocol result, cut out of the bytes a server sends. Runs compiled; textrows.pxd has the types.

Formats: MySQL Source Code Documentation, "Protocol Basics" (packets, length-encoded integers) and
"Text Resultset" (a row is one length-encoded string per column, 0xFB for NULL).
"""

ROWS = 0
"""More rows may follow."""
END = 1
"""The result's EOF packet was read."""
FAILED = 2
"""An ERR packet was read instead of a row."""

_MAX_PAYLOAD = 0xFFFFFF


def split_rows(buffer, columns, rows):
    """Cut whole packets of ``buffer`` into ``rows``; ``(state, bytes used)``.

    ``columns``: how many every row has. ``rows``: a list; gets one list of bytes or None per row. Bytes that are
    no whole packet yet stay unused. When the state is FAILED, the ERR packet itself is left unused.
    ValueError: the bytes are no rows of that many columns.
    """
    data = buffer
    size = len(buffer)
    at = 0
    while True:
        if size - at < 4:
            return ROWS, at
        length = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        start = at + 4
        if size - start < length:
            return ROWS, at
        if length == _MAX_PAYLOAD:
            # A row of 16 MiB and more comes in several packets: joined without their headers.
            joined, end = _join(buffer, at)
            if end == 0:
                return ROWS, at
            rows.append(_long_row(joined, columns))
            at = end
            continue
        first = data[start] if length else 0xFB
        if first == 0xFE and length < 9:
            return END, start + length
        if first == 0xFF:
            return FAILED, at
        end = start + length
        place = start
        row = []
        for _ in range(columns):
            if place >= end:
                raise ValueError("a row ends early")
            head = data[place]
            place += 1
            if head < 0xFB:
                count = head
            elif head == 0xFB:
                row.append(None)
                continue
            elif head == 0xFC:
                count = data[place] | data[place + 1] << 8
                place += 2
            elif head == 0xFD:
                count = data[place] | data[place + 1] << 8 | data[place + 2] << 16
                place += 3
            else:
                raise ValueError("a value is longer than its packet")
            if place + count > end:
                raise ValueError("a value is longer than its packet")
            row.append(buffer[place : place + count])
            place += count
        if place != end:
            raise ValueError("a row has more columns")
        rows.append(row)
        at = end


def _join(buffer, at):
    parts = []
    size = len(buffer)
    while True:
        if size - at < 4:
            return b"", 0
        length = int.from_bytes(buffer[at : at + 3], "little")
        if size - at - 4 < length:
            return b"", 0
        parts.append(buffer[at + 4 : at + 4 + length])
        at += 4 + length
        if length < _MAX_PAYLOAD:
            return b"".join(parts), at


_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}


def _long_row(payload, columns):
    row = []
    place = 0
    for _ in range(columns):
        head = payload[place]
        place += 1
        if head == 0xFB:
            row.append(None)
            continue
        count = head
        width = _WIDTHS.get(head, 0)
        if width:
            count = int.from_bytes(payload[place : place + width], "little")
            place += width
        if place + count > len(payload):
            raise ValueError("a value is longer than its row")
        row.append(payload[place : place + count])
        place += count
    if place != len(payload):
        raise ValueError("a row has more columns")
    return row

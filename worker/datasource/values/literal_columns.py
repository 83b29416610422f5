# cython: language_level=3, cdivision=True
"""Turns the literals of one column in many row images into the server's texts, as the buffers of an Arrow array.

The same texts as worker/datasource/values/literal_texts.py makes of one literal, except for ENUM, SET and JSON.
Compiled by Cython; plain Python where it is not compiled.
"""

from __future__ import annotations

import cython

from shardmerge.worker.core.row_change import Literals


def column_texts(images: list[Literals], slot: cython.Py_ssize_t) -> tuple[bytearray, bytearray, bytearray, int]:
    """(offsets, values, marks, NULLs) of the literals at ``slot``. An image without literals has NULL there.

    ``offsets``: one more than images, of 32 bits, little-endian; ``marks``: 1 for each image whose value is not NULL.
    Raises OverflowError beyond 2 GiB.
    """
    count: cython.Py_ssize_t = len(images)
    offsets = bytearray(4 * count + 4)
    marks = bytearray(count)
    total: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    nulls: cython.Py_ssize_t = 0
    image: tuple[bytes, ...]
    literal: bytes
    for image in images:
        if image:
            literal = image[slot]
            total += len(literal)
    if total >= 0x7FFFFFFF:
        raise OverflowError("a column of more than 2 GiB")
    values = bytearray(total)
    out: cython.p_uchar = values
    places: cython.p_uchar = offsets
    valid: cython.p_uchar = marks
    write: cython.Py_ssize_t = 0
    stop: cython.Py_ssize_t
    data: cython.p_uchar
    for row in range(count):
        image = images[row]
        stop = -1
        if image:
            literal = image[slot]
            data = literal
            stop = _put(out, write, data, len(literal))
        if stop < 0:
            nulls += 1
        else:
            valid[row] = 1
            write = stop
        places[4 * row + 4] = write & 255
        places[4 * row + 5] = write >> 8 & 255
        places[4 * row + 6] = write >> 16 & 255
        places[4 * row + 7] = write >> 24 & 255
    return offsets, values, marks, nulls


@cython.cfunc
@cython.exceptval(check=False)
def _put(
    out: cython.p_uchar, write: cython.Py_ssize_t, data: cython.p_uchar, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Write the text of a literal; returns the byte after it, or -1 for NULL."""
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t = size
    if size == 4 and data[0] == 78 and data[1] == 85 and data[2] == 76 and data[3] == 76:  # NULL
        return -1
    if size == 0 or data[size - 1] != 39:  # a number
        for at in range(size):
            out[write + at] = data[at]
        return write + size
    end = size - 1
    at = 1
    if data[0] == 39:  # '…'
        while at < end:
            if data[at] == 92:
                at += 1
                out[write] = 0 if data[at] == 48 else data[at]
            else:
                out[write] = data[at]
            write += 1
            at += 1
        return write
    at = 0
    while data[at] != 39:  # X'…', or _charset X'…'
        at += 1
    at += 1
    while at + 1 < end:
        out[write] = _digit(data[at]) << 4 | _digit(data[at + 1])
        write += 1
        at += 2
    return write


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _digit(letter: cython.uchar) -> cython.int:
    """The value of a hexadecimal digit, upper or lower case."""
    return letter - 48 if letter <= 57 else (letter & 0x5F) - 55

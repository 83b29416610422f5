# cython: language_level=3, cdivision=True
"""Writes texts and binary values as literals: between quotes, or in hexadecimal.

Compiled by Cython (types of the functions in worker/binlog/rows/text_literals.pxd); plain Python where it is not
compiled.
"""

from __future__ import annotations

import cython

_HEX = cython.declare(bytes, b"0123456789ABCDEF")
_ESCAPED = cython.declare(cython.int, 1)
_NOT_ASCII = cython.declare(cython.int, 2)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _content(data: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.int:
    """Whether the bytes contain any that need escapes (_ESCAPED: quotes, backslashes, zero bytes), any _NOT_ASCII."""
    at: cython.Py_ssize_t
    special: cython.uchar = 0
    high: cython.uchar = 0
    byte: cython.uchar
    # Without a branch inside, compilers vectorize the loop.
    for at in range(start, stop):
        byte = data[at]
        high |= byte
        special |= (byte == 39) | (byte == 92) | (byte == 0)
    return (_ESCAPED if special else 0) | (_NOT_ASCII if high & 0x80 else 0)


@cython.cfunc
@cython.exceptval(check=False)
def put_quoted(
    out: cython.p_uchar,
    write: cython.Py_ssize_t,
    data: cython.p_uchar,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    only_ascii: cython.bint,
) -> cython.Py_ssize_t:
    """Write ``'text'``, at most 2 bytes per byte and 2 more; returns the index after it.

    Escaped for a server whose sql_mode lacks NO_BACKSLASH_ESCAPES. ``only_ascii``: write nothing and return -1 if the
    text contains other than 7-bit characters.
    """
    at: cython.Py_ssize_t
    byte: cython.uchar
    content: cython.int = _content(data, start, stop)
    if only_ascii and content & _NOT_ASCII:
        return -1
    out[write] = 39
    write += 1
    if not content & _ESCAPED:
        if cython.compiled:
            for at in range(stop - start):
                out[write + at] = data[start + at]
        else:
            out[write : write + stop - start] = data[start:stop]
        write += stop - start
    else:
        for at in range(start, stop):
            byte = data[at]
            if byte == 39 or byte == 92:
                out[write] = 92
                write += 1
            elif byte == 0:
                out[write] = 92
                write += 1
                byte = 48
            out[write] = byte
            write += 1
    out[write] = 39
    return write + 1


@cython.cfunc
@cython.exceptval(check=False)
def put_hexadecimal(
    out: cython.p_uchar,
    opening: bytes,
    data: cython.p_uchar,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write ``X'…'`` at the start of ``out``; returns the index after it.

    ``opening``: the introducer and ``X'``. ``size``: bytes of the value; those after ``stop`` are zero bytes.
    """
    head: cython.Py_ssize_t = len(opening)
    chars: cython.p_uchar = _HEX
    intro: cython.p_uchar = opening
    write: cython.Py_ssize_t
    at: cython.Py_ssize_t
    for write in range(head):
        out[write] = intro[write]
    write = head
    for at in range(start, stop):
        out[write] = chars[data[at] >> 4]
        out[write + 1] = chars[data[at] & 15]
        write += 2
    while write < head + 2 * size:
        out[write] = 48
        write += 1
    out[write] = 39
    return write + 1

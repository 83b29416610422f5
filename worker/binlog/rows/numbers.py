# cython: language_level=3, cdivision=True
"""Makes literals of numbers: from the server's text, from a double, and from the DECIMAL format of a row image.

Integers of a row image are written by worker/binlog/rows/column_codec.py. Format of DECIMAL: strings/decimal.c
(bin2decimal) of both servers.

Compiled by Cython (types of the functions in worker/binlog/rows/numbers.pxd); plain Python where it is not compiled.
"""

from __future__ import annotations

import cython

from shardmerge.worker.binlog.rows.digits import Unreadable

if not cython.compiled:
    from shardmerge.worker.binlog.rows.digits import cut, power, put, put_digits

_DECIMAL_BYTES = cython.declare(bytes, b"\0\1\1\2\2\3\3\4\4\4")  # bytes of a group of 0–9 decimal digits


@cython.cfunc
def number_literal(text: bytes, signed: cython.bint, fraction: cython.bint) -> bytes:
    """The server's digits without ZEROFILL's zeros: [-]digits[.digits]. Raises Unreadable."""
    data: cython.p_uchar = text
    size: cython.Py_ssize_t = len(text)
    at: cython.Py_ssize_t = 0
    point: cython.Py_ssize_t = size
    if signed and size and data[0] == 45:
        at = 1
    start: cython.Py_ssize_t = at
    if start == size or data[start] == 46 or data[size - 1] == 46:
        raise Unreadable
    while at < size:
        if data[at] == 46 and fraction and point == size:
            point = at
        elif data[at] < 48 or data[at] > 57:
            raise Unreadable
        at += 1
    at = start
    while at + 1 < point and data[at] == 48:
        at += 1
    if at == start:
        return text
    return (b"-" if start else b"") + text[at:]


@cython.cfunc
@cython.exceptval(check=False)
def put_number(
    out: cython.p_uchar,
    write: cython.Py_ssize_t,
    data: cython.p_uchar,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    signed: cython.bint,
    fraction: cython.bint,
) -> cython.Py_ssize_t:
    """Write the number of the text start..stop; returns the index after it.

    -1: it has leading zeros, or is not a plain number.
    """
    at: cython.Py_ssize_t = start
    if at < stop and data[at] == 45 and signed:
        out[write] = 45
        write += 1
        at += 1
    if at == stop or data[at] == 46 or data[stop - 1] == 46:
        return -1
    if data[at] == 48 and stop - at > 1 and data[at + 1] != 46:
        return -1
    while at < stop:
        if data[at] == 46 and fraction:
            fraction = False
        elif data[at] < 48 or data[at] > 57:
            return -1
        out[write] = data[at]
        write += 1
        at += 1
    return write


@cython.cfunc
@cython.exceptval(check=False)
def put_partition_id(
    out: cython.p_uchar,
    write: cython.Py_ssize_t,
    data: cython.p_uchar,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    prefix: cython.ulonglong,
    most: cython.ulonglong,
) -> cython.Py_ssize_t:
    """Write ``prefix`` and the id of the text start..stop as one number; returns the index after it.

    -1: the text has leading zeros, is not an id up to ``most``, or is too long for 64 bits.
    """
    at: cython.Py_ssize_t
    value: cython.ulonglong = 0
    if start == stop or stop - start > 18:
        return -1
    if data[start] == 48 and stop - start > 1:
        return -1
    for at in range(start, stop):
        if data[at] < 48 or data[at] > 57:
            return -1
        value = value * 10 + (data[at] - 48)
    if value > most:
        return -1
    return put_digits(out, write, value | prefix)


@cython.cfunc
def real_literal(value: cython.double) -> bytes:
    """The shortest literal that is the same double. Raises Unreadable."""
    if value == 0:
        # "-0.0" would be an exact number, which has no negative zero.
        return b"-0e0" if repr(value)[0] == "-" else b"0.0"
    if value - value != 0:  # infinities and NaN: no server stores them
        raise Unreadable
    return repr(value).encode("ascii")


@cython.cfunc
def decimal_literal(
    out: cython.p_uchar, data: cython.p_uchar, at: cython.Py_ssize_t, precision: cython.int, scale: cython.int
) -> bytes:
    """DECIMAL: big-endian groups of up to 9 digits, inverted if negative, with the first bit inverted.

    ``out``: a buffer for at least 68 bytes. Raises Unreadable.
    """
    sizes: cython.p_uchar = _DECIMAL_BYTES
    flip: cython.uchar = 0 if data[at] & 0x80 else 0xFF
    whole: cython.int = precision - scale
    i: cython.int
    write: cython.Py_ssize_t = 1
    value: cython.ulonglong
    digits: cython.int
    first: cython.Py_ssize_t = at
    # Groups: the odd leading digits, whole groups of 9, the point, groups of 9, the odd trailing digits.
    for part in range(2):
        odd: cython.int = whole % 9 if part == 0 else scale % 9
        groups: cython.int = whole // 9 if part == 0 else scale // 9
        if part == 1 and scale:
            if whole == 0:
                out[write] = 48
                write += 1
            out[write] = 46
            write += 1
        for i in range(groups + 1):
            digits = 9
            if i == (0 if part == 0 else groups):
                digits = odd
            if digits == 0:
                continue
            value = 0
            stop: cython.Py_ssize_t = at + sizes[digits]
            while at < stop:
                value = (value << 8) | (data[at] ^ flip ^ (0x80 if at == first else 0))
                at += 1
            if value >= power(digits):
                raise Unreadable
            write = put(out, write, value, digits)
    begin: cython.Py_ssize_t = 1
    last: cython.Py_ssize_t = (whole if whole else 1) + 1
    while begin + 1 < last and out[begin] == 48:
        begin += 1
    if flip:
        begin -= 1
        out[begin] = 45
    return cut(out, begin, write)

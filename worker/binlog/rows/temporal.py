# cython: language_level=3, cdivision=True
"""Writes dates and times as literals: from the server's text, and from the formats of a row image.

The functions of the row image's formats write at the start of ``out``, a buffer for at least 64 bytes, and return the
index after the literal; they raise Unreadable. ``packed``: the newer format, with fractions; ``scale``: digits of the
fraction. Formats: mysys/my_time.c (temporal types with fractions), sql/field.cc of both servers.

Compiled by Cython (types of the functions in worker/binlog/rows/temporal.pxd); plain Python where it is not compiled.
"""

from __future__ import annotations

import cython

from shardmerge.worker.binlog.rows.digits import Unreadable

if not cython.compiled:
    from shardmerge.worker.binlog.little_endian import little
    from shardmerge.worker.binlog.rows.digits import big, power, put


@cython.cfunc
@cython.exceptval(check=False)
def put_temporal_text(
    out: cython.p_uchar,
    write: cython.Py_ssize_t,
    data: cython.p_uchar,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write the server's text start..stop at the index ``write``; -1: it is not the text of a date or time."""
    at: cython.Py_ssize_t
    byte: cython.uchar
    if stop - start < 8 or stop - start > 26:
        return -1
    out[write] = 39
    write += 1
    for at in range(start, stop):
        byte = data[at]
        # digits, "-", ".", ":" and " "
        if not (48 <= byte <= 58 or byte == 45 or byte == 46 or byte == 32):
            return -1
        out[write] = byte
        write += 1
    out[write] = 39
    return write + 1


@cython.cfunc
def _put_day(
    out: cython.p_uchar, year: cython.ulonglong, month: cython.ulonglong, day: cython.ulonglong
) -> cython.Py_ssize_t:
    """Write ``'YYYY-MM-DD``; returns the index after it. Dates that the calendar lacks (zero, 31 February) are
    kept."""
    if year > 9999 or month > 12 or day > 31:
        raise Unreadable
    out[0] = 39
    put(out, 1, year, 4)
    out[5] = 45
    put(out, 6, month, 2)
    out[8] = 45
    return put(out, 9, day, 2)


@cython.cfunc
def _put_clock(
    out: cython.p_uchar,
    at: cython.Py_ssize_t,
    hour: cython.ulonglong,
    minute: cython.ulonglong,
    second: cython.ulonglong,
    fraction: cython.ulonglong,
    scale: cython.int,
) -> cython.Py_ssize_t:
    """Write ``HH:MM:SS[.fraction]'``; returns the index after it. ``fraction``: in the digits that are stored."""
    stored: cython.int = (scale + 1) // 2 * 2
    if minute > 59 or second > 59 or hour > 838 or (stored and fraction >= power(stored)):
        raise Unreadable
    at = put(out, at, hour, 3 if hour > 99 else 2)
    out[at] = 58
    at = put(out, at + 1, minute, 2)
    out[at] = 58
    at = put(out, at + 1, second, 2)
    if scale:
        out[at] = 46
        put(out, at + 1, fraction, stored)
        at += 1 + scale
    out[at] = 39
    return at + 1


@cython.cfunc
def put_date(out: cython.p_uchar, data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """DATE: day in 5 bits, month in 4, year in 15."""
    date: cython.ulonglong = little(data, at, 3)
    write: cython.Py_ssize_t = _put_day(out, date >> 9, date >> 5 & 15, date & 31)
    out[write] = 39
    return write + 1


@cython.cfunc
def put_datetime(
    out: cython.p_uchar, data: cython.p_uchar, at: cython.Py_ssize_t, packed: cython.bint, scale: cython.int
) -> cython.Py_ssize_t:
    """DATETIME2: sign, year·13 + month in 17 bits, day 5, hour 5, minute 6, second 6, then the fraction.

    The older format is the number YYYYMMDDhhmmss.
    """
    write: cython.Py_ssize_t
    value: cython.ulonglong
    day: cython.ulonglong
    clock: cython.ulonglong
    if not packed:
        value = little(data, at, 8)
        day = value // 1000000
        clock = value % 1000000
        write = _put_day(out, day // 10000, day // 100 % 100, day % 100)
        out[write] = 32
        if clock >= 240000:
            raise Unreadable
        return _put_clock(out, write + 1, clock // 10000, clock // 100 % 100, clock % 100, 0, scale)
    value = big(data, at, 5)
    if not value >> 39:
        raise Unreadable
    value &= 0x7FFFFFFFFF
    day = value >> 17
    clock = value & 0x1FFFF
    write = _put_day(out, (day >> 5) // 13, (day >> 5) % 13, day & 31)
    out[write] = 32
    if clock >> 12 > 23:
        raise Unreadable
    return _put_clock(
        out, write + 1, clock >> 12, clock >> 6 & 63, clock & 63, big(data, at + 5, (scale + 1) // 2), scale
    )


@cython.cfunc
def put_timestamp(
    out: cython.p_uchar, data: cython.p_uchar, at: cython.Py_ssize_t, packed: cython.bint, scale: cython.int
) -> cython.Py_ssize_t:
    """Unix seconds in 4 bytes (TIMESTAMP2: big-endian, then the fraction); 0 is the zero date. Text in UTC."""
    write: cython.Py_ssize_t
    seconds: cython.ulonglong
    fraction: cython.ulonglong = 0
    if packed:
        seconds = big(data, at, 4)
        fraction = big(data, at + 4, (scale + 1) // 2)
    else:
        seconds = little(data, at, 4)
    if seconds == 0 and fraction == 0:
        write = _put_day(out, 0, 0, 0)
    else:
        # Gregorian calendar by eras of 400 years that begin on 1 March.
        days: cython.ulonglong = seconds // 86400 + 719468
        era: cython.ulonglong = days // 146097
        of_era: cython.ulonglong = days % 146097
        years: cython.ulonglong = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
        of_year: cython.ulonglong = of_era - (365 * years + years // 4 - years // 100)
        month: cython.ulonglong = (5 * of_year + 2) // 153
        day: cython.ulonglong = of_year - (153 * month + 2) // 5 + 1
        month = month + 3 if month < 10 else month - 9
        write = _put_day(out, years + era * 400 + (1 if month <= 2 else 0), month, day)
    out[write] = 32
    seconds = seconds % 86400
    return _put_clock(out, write + 1, seconds // 3600, seconds // 60 % 60, seconds % 60, fraction, scale)


@cython.cfunc
def put_time(
    out: cython.p_uchar, data: cython.p_uchar, at: cython.Py_ssize_t, packed: cython.bint, scale: cython.int
) -> cython.Py_ssize_t:
    """TIME2: an offset number of hour 10 bits, minute 6, second 6 and the fraction.

    The older format is the signed number hhmmss.
    """
    value: cython.longlong
    write: cython.Py_ssize_t = 1
    shift: cython.int = 0
    out[0] = 39
    if packed:
        shift = (scale + 1) // 2 * 8
        value = big(data, at, 3 + shift // 8)
        offset: cython.longlong = 0x800000
        value -= offset << shift
    else:
        value = little(data, at, 3)
        if value >= 0x800000:
            value -= 0x1000000
    if value < 0:
        value = -value
        out[1] = 45
        write = 2
    if packed:
        clock: cython.longlong = value >> shift
        rest: cython.longlong = value - (clock << shift)
        return _put_clock(out, write, clock >> 12, clock >> 6 & 63, clock & 63, rest, scale)
    return _put_clock(out, write, value // 10000, value // 100 % 100, value % 100, 0, scale)

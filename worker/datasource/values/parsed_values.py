# cython: language_level=3, cdivision=True
"""Parses the server's texts of integers, dates and times, a whole column at once.

``offsets`` and ``values`` are the buffers of an Arrow binary array that begins at its first offset; a text without
bytes is NULL. The results are the bytes of Arrow's fixed-width arrays, little-endian. Compiled by Cython; plain Python
where it is not compiled.
"""

from __future__ import annotations

import cython

DATE, DATETIME, TIME = 0, 1, 2

_DAY_MICROSECONDS = cython.declare(cython.longlong, 86_400_000_000)
_MOST_TENTH = cython.declare(cython.ulonglong, 922_337_203_685_477_580)  # (2**63 - 1) // 10


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _offset(offsets: cython.p_uchar, number: cython.Py_ssize_t) -> cython.Py_ssize_t:
    at: cython.Py_ssize_t = 4 * number
    return offsets[at] | offsets[at + 1] << 8 | offsets[at + 2] << 16 | offsets[at + 3] << 24


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put(out: cython.p_uchar, number: cython.Py_ssize_t, width: cython.int, value: cython.longlong) -> cython.int:
    """Write ``value`` as the element ``number`` of ``width`` bytes."""
    at: cython.Py_ssize_t = number * width
    step: cython.int
    for step in range(width):
        out[at + step] = value & 255
        value >>= 8
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def _number(data: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.longlong:
    """A number of digits alone, at most 18 of them; -1 for anything else."""
    value: cython.longlong = 0
    at: cython.Py_ssize_t
    if start >= stop or stop - start > 18:
        return -1
    for at in range(start, stop):
        if not 48 <= data[at] <= 57:
            return -1
        value = value * 10 + (data[at] - 48)
    return value


def parse_integers(offsets: bytes, values: bytes, count: cython.Py_ssize_t) -> tuple[bytearray, int]:
    """(64-bit integers, number of the first text that is none of 64 bits with a sign, or -1)."""
    places: cython.p_uchar = offsets
    data: cython.p_uchar = values
    result = bytearray(8 * count)
    out: cython.p_uchar = result
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    value: cython.ulonglong
    digit: cython.int
    negative: cython.bint
    start: cython.Py_ssize_t = _offset(places, 0)
    for row in range(count):
        at = start
        stop = _offset(places, row + 1)
        start = stop
        if at == stop:
            continue
        negative = data[at] == 45
        if negative:
            at += 1
            if at == stop:
                return result, row
        value = 0
        while at < stop:
            digit = data[at] - 48
            if not 0 <= digit <= 9 or value > _MOST_TENTH:
                return result, row
            value = value * 10 + digit
            at += 1
        if value > 0x7FFFFFFFFFFFFFFF:
            if not negative or value > 0x8000000000000000:
                return result, row
            _put(out, row, 8, -0x7FFFFFFFFFFFFFFF - 1)
        elif negative:
            _put(out, row, 8, -cython.cast(cython.longlong, value))
        else:
            _put(out, row, 8, cython.cast(cython.longlong, value))
    return result, -1


def parse_temporal(
    offsets: bytes, values: bytes, count: cython.Py_ssize_t, kind: cython.int
) -> tuple[bytearray, bytearray, int, int]:
    """(elements, marks, first date that does not exist, first text that cannot be read; -1 for none).

    DATE: days since 1970 of 32 bits; DATETIME: microseconds since 1970; TIME: microseconds, with a sign; both of 64
    bits. ``marks``: 1 for each date that does not exist, such as 0000-00-00 and 2024-02-30; its element is 0.
    """
    places: cython.p_uchar = offsets
    data: cython.p_uchar = values
    width: cython.int = 4 if kind == 0 else 8
    result = bytearray(width * count)
    missing = bytearray(count)
    out: cython.p_uchar = result
    marks: cython.p_uchar = missing
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    value: cython.longlong
    clock: cython.longlong
    year: cython.longlong
    month: cython.longlong
    day: cython.longlong
    negative: cython.bint
    first_missing: cython.Py_ssize_t = -1
    start: cython.Py_ssize_t = _offset(places, 0)
    for row in range(count):
        at = start
        stop = _offset(places, row + 1)
        start = stop
        if at == stop:
            continue
        if kind == 2:
            negative = data[at] == 45
            if negative:
                at += 1
            clock = _clock(data, at, stop)
            if clock < 0:
                return result, missing, first_missing, row
            _put(out, row, 8, -clock if negative else clock)
            continue
        if stop - at < 10 or data[at + 4] != 45 or data[at + 7] != 45:
            return result, missing, first_missing, row
        year = _number(data, at, at + 4)
        month = _number(data, at + 5, at + 7)
        day = _number(data, at + 8, at + 10)
        if year < 0 or month < 0 or day < 0:
            return result, missing, first_missing, row
        clock = 0
        if kind == 1:
            if stop - at < 19 or data[at + 10] != 32:
                return result, missing, first_missing, row
            clock = _clock(data, at + 11, stop)
            if clock < 0:
                return result, missing, first_missing, row
        elif stop - at != 10:
            return result, missing, first_missing, row
        if year == 0 or not 1 <= month <= 12 or not 1 <= day <= _days_of_month(year, month):
            marks[row] = 1
            if first_missing < 0:
                first_missing = row
            continue
        value = _days(year, month, day)
        if kind == 1:
            value = value * _DAY_MICROSECONDS + clock
        _put(out, row, width, value)
    return result, missing, first_missing, -1


@cython.cfunc
@cython.exceptval(check=False)
def _clock(data: cython.p_uchar, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.longlong:
    """Microseconds of ``h…:mm:ss[.f…]``; -1 for anything else."""
    colon: cython.Py_ssize_t = at
    hours: cython.longlong
    minutes: cython.longlong
    seconds: cython.longlong
    fraction: cython.longlong = 0
    digits: cython.Py_ssize_t
    while colon < stop and data[colon] != 58:
        colon += 1
    if stop - colon < 6 or data[colon + 3] != 58:
        return -1
    hours = _number(data, at, colon)
    minutes = _number(data, colon + 1, colon + 3)
    seconds = _number(data, colon + 4, colon + 6)
    if hours < 0 or minutes < 0 or seconds < 0 or minutes > 59 or seconds > 59 or hours > 9999:
        return -1
    digits = stop - colon - 6
    if digits:
        if data[colon + 6] != 46 or digits > 7:
            return -1
        fraction = _number(data, colon + 7, stop)
        if fraction < 0:
            return -1
        while digits < 7:
            fraction *= 10
            digits += 1
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction


@cython.cfunc
@cython.exceptval(check=False)
def _days_of_month(year: cython.longlong, month: cython.longlong) -> cython.longlong:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


@cython.cfunc
@cython.exceptval(check=False)
def _days(year: cython.longlong, month: cython.longlong, day: cython.longlong) -> cython.longlong:
    """Days since 1970-01-01: the Gregorian calendar by eras of 400 years that begin on 1 March."""
    if month <= 2:
        year -= 1
    era: cython.longlong = year // 400
    of_era: cython.longlong = year - era * 400
    of_year: cython.longlong = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468

# cython: language_level=3, cdivision=True
"""Prints scalars of MySQL's binary JSON as the server does: numbers, temporal values, and types that JSON lacks.

Formats: strings/dtoa.cc (my_gcvt), strings/decimal.cc (bin2decimal, decimal2string), mysys/my_time.cc (packed
temporal values, my_TIME_to_str), mysys/base64 and sql-common/json_dom.cc (wrapper_to_string) of the MySQL server.
"""

from __future__ import annotations

import binascii

# Types of opaque values (enum_field_types) that have a text of their own.
TIMESTAMP, DATE, TIME, DATETIME, NEWDECIMAL, VAR_STRING = 7, 10, 11, 12, 246, 253

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # bytes of a group of 0–9 decimal digits
_MOST_DIGITS = 65
_LINE = 57  # bytes that fill a line of base64: 76 characters


class BadJson(Exception):
    """Bytes that are not a JSON value of a server; the argument is the reason."""


def double_text(value: float) -> bytes:
    """The fewest digits that read back as ``value``, with "." or "e" in them: ``1.0``, ``1e20``, ``-0.0``.

    The notation has no exponent while the point is among the digits, at most 15 places after the first one, or at most
    14 zeros before it. Raises BadJson for infinities and NaN, which no server stores.
    """
    text = repr(value)
    if -1e15 < value < 1e15 and "e" not in text:
        return text.encode("ascii")
    if text[-1] in "fn":
        raise BadJson("a number that is not finite")
    sign = "-" if text[0] == "-" else ""
    mantissa, _, exponent = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if -14 <= point and (point <= 15 or point < len(digits)):
        if point <= 0:
            plain = "0." + "0" * -point + digits
        elif point < len(digits):
            plain = digits[:point] + "." + digits[point:]
        else:
            plain = digits + "0" * (point - len(digits)) + ".0"
        return (sign + plain).encode("ascii")
    rest = "." + digits[1:] if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{point - 1}".encode("ascii")


def opaque_text(code: int, value: bytes) -> bytes | None:
    """A temporal value or a decimal number as JSON text; None for other types of values. Raises BadJson."""
    if code == NEWDECIMAL:
        return _decimal(value)
    if code == DATE or code == DATETIME or code == TIMESTAMP or code == TIME:
        if len(value) != 8:
            raise BadJson(f"a temporal value of {len(value)} bytes")
        return _moment(code, int.from_bytes(value, "little", signed=True))
    return None


def base64_text(code: int, value: bytes) -> bytes:
    """``"base64:type<code>:<base64>"``; its lines of 76 characters are separated by an escaped line feed."""
    lines = [binascii.b2a_base64(value[at : at + _LINE], newline=False) for at in range(0, len(value), _LINE)]
    return b'"base64:type%d:%b"' % (code, b"\\n".join(lines))


def _decimal(value: bytes) -> bytes:
    """Precision and scale in a byte each, then the number as DECIMAL columns hold it."""
    if len(value) < 3:
        raise BadJson("a decimal number is cut off")
    precision, scale = value[0], value[1]
    if not 1 <= precision <= _MOST_DIGITS or scale > precision:
        raise BadJson(f"a decimal number of {precision} digits, {scale} of them after the point")
    whole = precision - scale
    groups = [whole % 9] + [9] * (whole // 9) + [9] * (scale // 9) + [scale % 9]
    number = bytearray(value[2:])
    if len(number) != sum(_DIGIT_BYTES[group] for group in groups):
        raise BadJson(f"a decimal number of {precision} digits in {len(number)} bytes")
    negative = number[0] < 0x80
    number[0] ^= 0x80
    if negative:
        number = bytearray(byte ^ 0xFF for byte in number)
    digits = ""
    at = 0
    for group in groups:
        if group:
            part = int.from_bytes(number[at : at + _DIGIT_BYTES[group]], "big")
            if part >= 10**group:
                raise BadJson("a decimal number's digits exceed their group")
            digits += f"{part:0{group}d}"
            at += _DIGIT_BYTES[group]
    text = digits[:whole].lstrip("0") or "0"
    if scale:
        text += "." + digits[whole:]
    return (b"-" if negative else b"") + text.encode("ascii")


def _moment(code: int, packed: int) -> bytes:
    """The fraction in 24 bits; before it second 6, minute 6, hour 5 (TIME: 10), day 5 and the month year·13 + month."""
    negative = packed < 0
    packed = abs(packed)
    fraction = packed & 0xFFFFFF
    second, minute = packed >> 24 & 63, packed >> 30 & 63
    if second > 59 or minute > 59 or fraction > 999999:
        raise BadJson("a time of day outside its range")
    if code == TIME:
        hour = packed >> 36
        if hour > 838:
            raise BadJson("a time outside its range")
        return b'"%b%02d:%02d:%02d.%06d"' % (b"-" if negative else b"", hour, minute, second, fraction)
    hour, day, months = packed >> 36 & 31, packed >> 41 & 31, packed >> 46
    year, month = divmod(months, 13)
    if negative or hour > 23 or year > 9999:
        raise BadJson("a date outside the calendar")
    if code == DATE:
        return b'"%04d-%02d-%02d"' % (year, month, day)
    return b'"%04d-%02d-%02d %02d:%02d:%02d.%06d"' % (year, month, day, hour, minute, second, fraction)

# cython: language_level=3, cdivision=True
"""Makes an SQL literal of a JSON value, which a target stores with the same text as the source.

A MySQL server reads the text of a JSON value back as the same text, except for numbers of type DECIMAL, which are read
as DOUBLE: 12.50 would become 12.5, and 12345678901234567890.5 would become 1.2345678901234567e19 (seen on 9.7). The
literal inserts such numbers into the value again as SQL numbers, by their paths::

    /*!50700 JSON_REPLACE(*/'{"a": 12.50}'/*!50700 ,_utf8mb4 X'242E226122',12.50)*/

MariaDB ignores comments of versions 50700 to 99999 (Knowledge Base, "Comment Syntax") and stores the text unchanged:
its JSON is LONGTEXT. The paths are hexadecimal so that none can end the comment.

Compiled by Cython; plain Python where it is not compiled.
"""

from __future__ import annotations

import re

import cython

from shardmerge.worker.binlog.json.binary import Printer, root
from shardmerge.worker.binlog.json.scalars import BadJson, double_text

_SAFE_DIGITS = cython.declare(cython.int, 15)
"""A double keeps any number with so many digits."""
_SAFE_INTEGER = cython.declare(cython.int, 18)
"""Any number with so many digits fits a 64-bit integer."""
_LOWEST, _HIGHEST = -(1 << 63), (1 << 64) - 1

_MOST_GROWTH, _MOST_EXTRA = 64, 1 << 20
_TOKEN = re.compile(rb'(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>-?[0-9][0-9.eE+-]*)|(?P<mark>[\[\]{},:])', re.DOTALL)


def literal_of_value(data: bytes, start: int, stop: int, base64_strings: bool = False) -> bytes:
    """The literal of the binary value in the bytes start..stop; see shardmerge.worker.binlog.json.binary.json_text.
    Raises BadJson."""
    printer = Printer(stop - start, base64_strings)
    printer.part(root(data, start, stop), 0)
    text = printer.text()
    return literal_of_text(text) if printer.saw_decimals() else _quoted(text)


def literal_of_text(text: bytes) -> bytes:
    """The literal of a JSON text as a MySQL server prints it.

    Raises BadJson for a text that is cut off, and where the paths to its numbers would dwarf the text itself.
    """
    if _is_kept(text):
        return _quoted(text)
    replaced = [b",_utf8mb4 X'%b',%b" % (path.hex().encode(), number) for path, number in _numbers(text)]
    return b"/*!50700 JSON_REPLACE(*/" + _quoted(text) + b"/*!50700 " + b"".join(replaced) + b")*/"


def _quoted(text: bytes) -> bytes:
    # JSON text holds no NUL and no other control character.
    return b"'" + text.replace(b"\\", b"\\\\").replace(b"'", b"\\'") + b"'"


@cython.ccall
def _is_kept(text: bytes) -> cython.bint:
    """Whether a server that reads the text prints all its numbers in the same way."""
    data: cython.p_uchar = text
    size: cython.Py_ssize_t = len(text)
    at: cython.Py_ssize_t = 0
    start: cython.Py_ssize_t
    point: cython.Py_ssize_t
    digits: cython.int
    byte: cython.uchar
    while at < size:
        byte = data[at]
        if byte == 34:
            at += 1
            while at < size and data[at] != 34:
                at += 2 if data[at] == 92 else 1
            at += 1
        elif 48 <= byte <= 57 or byte == 45:
            start = at
            point = 0
            digits = 0
            while at < size:
                byte = data[at]
                if 48 <= byte <= 57:
                    digits += 1
                elif byte == 46:
                    point = at
                elif byte == 101 or byte == 69 or byte == 43 or (byte == 45 and at > start):
                    digits = 100
                elif byte != 45:
                    break
                at += 1
            if point:
                # A double would drop a zero at the end.
                if digits <= _SAFE_DIGITS and (data[at - 1] != 48 or at - point == 2):
                    continue
            elif digits <= _SAFE_INTEGER:
                continue
            if not _number_is_kept(text[start:at]):
                return False
        else:
            at += 1
    return True


def _number_is_kept(number: bytes) -> bool:
    try:
        if number.lstrip(b"-").isdigit():
            return _LOWEST <= int(number) <= _HIGHEST
        return double_text(float(number)) == number
    except ValueError:
        raise BadJson("a malformed number") from None


def _numbers(text: bytes) -> list[tuple[bytes, bytes]]:
    """Path and digits of each number that is not kept. Raises BadJson."""
    found: list[tuple[bytes, bytes]] = []
    legs: list[bytes | int] = []  # a key as its JSON string, or the index of an element
    most = _MOST_GROWTH * len(text) + _MOST_EXTRA
    is_key = False
    for token in _TOKEN.finditer(text):
        string, number, mark = token.group("string", "number", "mark")
        if number is not None:
            if not _number_is_kept(number):
                if b"e" in number or b"E" in number:
                    raise BadJson("a malformed number")  # a double; a server prints doubles as it reads them
                steps = (b"[%d]" % leg if isinstance(leg, int) else b"." + leg for leg in legs)
                path = b"$" + b"".join(steps)
                found.append((path, number))
                most -= 2 * len(path)
                if most < 0:
                    raise BadJson("its decimal numbers have too long paths")
        elif string is not None:
            if is_key:
                legs[-1] = string
                is_key = False
        elif mark == b"{" or mark == b"[":
            legs.append(b"" if mark == b"{" else 0)
            is_key = mark == b"{"
        elif not legs:
            raise BadJson("a malformed text")
        elif mark == b",":
            last = legs[-1]
            is_key = isinstance(last, bytes)
            if isinstance(last, int):
                legs[-1] = last + 1
        elif mark != b":":
            legs.pop()
            is_key = False
    if legs:
        raise BadJson("a text that is cut off")
    return found

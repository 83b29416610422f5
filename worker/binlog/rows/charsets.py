"""Character sets of text columns: how to write their bytes as a literal that does not depend on the connection."""

from __future__ import annotations

import re

_UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii"})
_NAME = re.compile(r"[a-z0-9_]+\Z")

_PYTHON_CODECS = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "ascii": "ascii",
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "gbk": "gbk",
    "gb2312": "gb2312",
    "gb18030": "gb18030",
    "big5": "big5",
    "euckr": "euc_kr",
    "ujis": "euc_jp",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}


def introducer(charset: str) -> bytes:
    """The start of a hexadecimal text literal, before its digits: ``_latin1 X'``; b"" if the text is quoted unchanged.

    The target's connection uses utf8mb4, so bytes of utf8 and ascii columns mean the same there. Raises ValueError
    for an invalid name of a character set.
    """
    if charset in _UTF8:
        return b""
    if not _NAME.match(charset):
        raise ValueError(f"no character set: {charset!r}")
    return b"_" + charset.encode("ascii") + b" X'"


_ASCII_SUPERSETS = frozenset(
    "latin1 latin2 latin5 latin7 cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866 koi8r koi8u greek hebrew".split()
)
"""Single-byte character sets in which bytes below 0x80 are ASCII, also for the server."""


def is_ascii_superset(charset: str) -> bool:
    """Whether text of 7-bit bytes in this character set is the same text, byte for byte, over a utf8mb4 connection."""
    return charset in _ASCII_SUPERSETS


def affix_bytes(text: str, charset: str) -> bytes | None:
    """``text`` encoded in a column's character set; None if that is impossible or the character set is unknown."""
    codec = _PYTHON_CODECS.get(charset)
    if codec is None:
        return None
    try:
        return text.encode(codec)
    except UnicodeEncodeError:
        return None

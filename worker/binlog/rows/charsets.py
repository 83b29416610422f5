"""Character sets of text columns: how to write their bytes as a literal that does not depend on the connection."""

from __future__ import annotations

import re

from shardmerge.worker.binlog.rows.characters.character_set import character_set

_OF_IDS = {
    "armscii8": (32, 64), "ascii": (11, 65), "big5": (1, 84), "binary": (63,), "cp1250": (26, 34, 44, 66, 99),
    "cp1251": (14, 23, 50, 51, 52), "cp1256": (57, 67), "cp1257": (29, 58, 59), "cp850": (4, 80), "cp852": (40, 81),
    "cp866": (36, 68), "cp932": (95, 96), "dec8": (3, 69), "eucjpms": (97, 98), "euckr": (19, 85),
    "gb18030": (248, 249, 250), "gb2312": (24, 86), "gbk": (28, 87), "geostd8": (92, 93), "greek": (25, 70),
    "hebrew": (16, 71), "hp8": (6, 72), "keybcs2": (37, 73), "koi8r": (7, 74), "koi8u": (22, 75),
    "latin1": (5, 8, 15, 31, 47, 48, 49, 94), "latin2": (2, 9, 21, 27, 77), "latin5": (30, 78),
    "latin7": (20, 41, 42, 79), "macce": (38, 43), "macroman": (39, 53), "sjis": (13, 88), "swe7": (10, 82),
    "tis620": (18, 89), "ucs2": (35, 90, *range(128, 152), 159, 640, 641, 642), "ujis": (12, 91),
    "utf16": (54, 55, *range(101, 125), 672, 673, 674), "utf16le": (56, 62),
    "utf32": (60, 61, *range(160, 184), 736, 737, 738),
    "utf8mb3": (33, 76, 83, *range(192, 216), 223, *range(576, 580)),
    "utf8mb4": (45, 46, *range(224, 248), *range(255, 324), *range(608, 612)),
}  # fmt: skip
"""Ids of collations by their character set, the same at MySQL and MariaDB (information_schema.COLLATIONS)."""
_BY_ID = {number: charset for charset, numbers in _OF_IDS.items() for number in numbers}
_NOPAD = range(1024, 2048)
"""MariaDB's collations without padding: 1024 more than the one with it."""
_UCA1400, _TAILORED = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32"), 256
"""MariaDB's uca1400 collations: as many ids for each of these character sets, from 2048 on."""


def charset_of_id(number: int) -> str:
    """The character set of the collation with this id; "" for an unknown one."""
    if number >= _NOPAD.stop:
        at = (number - _NOPAD.stop) // _TAILORED
        return _UCA1400[at] if at < len(_UCA1400) else ""
    return _BY_ID.get(number - _NOPAD.start if number in _NOPAD else number, "")


_UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4"})
_NAME = re.compile(r"[a-z0-9_]+\Z")


def is_utf8(charset: str) -> bool:
    """Whether text in this character set is UTF-8."""
    return charset in _UTF8


def introducer(charset: str) -> bytes:
    """The start of a hexadecimal text literal, before its digits: ``_latin1 X'``; b"" if the text is quoted unchanged.

    The target's connection uses utf8mb4, so bytes of utf8 and ascii columns mean the same there. Raises ValueError
    for an invalid name of a character set.
    """
    if charset in _UTF8 or charset == "ascii":
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
    # Over the connection's utf8mb4, utf8mb3 text may have any character; a target with a wider column holds it.
    found = character_set("utf8mb4" if is_utf8(charset) else charset)
    return None if found is None else found.encoded(text)

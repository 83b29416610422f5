"""Character sets of text columns: how to write their bytes as a literal that does not depend on the connection."""

from __future__ import annotations

import re

from shardmerge.worker.binlog.rows.characters.character_set import character_set

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

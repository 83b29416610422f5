"""Reads bytes of any of the servers' character sets as characters, and writes characters as such bytes. Pure.

The characters are those that a client reads: what MariaDB 10.11 and MySQL 9 return for ``CONVERT(_charset X'…' USING
utf8mb4)``. Where a server returns no character (a question mark, U+FFFD, half a surrogate pair) there is none here
either. No code has different characters on both servers.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from functools import cached_property, lru_cache
from typing import Any, Final, cast

from shardmerge.worker.binlog.rows.characters.multi_byte import MULTI_BYTE, multi_byte_table
from shardmerge.worker.binlog.rows.characters.single_byte import SINGLE_BYTE, UNDEFINED, single_byte_table

_UNICODE: Final = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}
_OF_THE_BMP = frozenset({"utf8", "utf8mb3", "ucs2"})
_NOT_ASCII = frozenset({"swe7", "ucs2", "utf16", "utf16le", "utf32"})


class NoCharacter(ValueError):
    """``code``: the bytes that are no character of their character set."""

    def __init__(self, code: bytes) -> None:
        super().__init__(f"no character: {code.hex(' ')}")
        self.code = code


class CharacterSet(ABC):
    """One character set. ``extends_ascii``: text of 7-bit bytes is the same text in ASCII."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.extends_ascii = name not in _NOT_ASCII

    @abstractmethod
    def decoded(self, data: bytes) -> str:
        """The characters of ``data``. Raises NoCharacter."""

    @abstractmethod
    def encoded(self, text: str) -> bytes | None:
        """``text`` in this character set; None if it lacks a character."""

    @property
    @abstractmethod
    def is_injective(self) -> bool:
        """Whether different bytes are different text."""


@lru_cache(maxsize=64)
def character_set(name: str) -> CharacterSet | None:
    """The character set of that name; None if it is not known."""
    if name in _UNICODE:
        return _Unicode(name)
    if name in SINGLE_BYTE:
        return _SingleByte(name)
    return _MultiByte(name) if name in MULTI_BYTE else None


class _Unicode(CharacterSet):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._codec = _UNICODE[name]
        self._most = "\uffff" if name in _OF_THE_BMP else "\U0010ffff"

    def decoded(self, data: bytes) -> str:
        try:
            text = data.decode(self._codec)
        except UnicodeDecodeError as error:
            raise NoCharacter(data[error.start : error.end]) from None
        if text and max(text) > self._most:
            # ucs2 has no surrogate pairs: MariaDB shows each half as such.
            wrong = next(character for character in text if character > self._most)
            raise NoCharacter(wrong.encode(self._codec))
        return text

    def encoded(self, text: str) -> bytes | None:
        if text and max(text) > self._most:
            return None
        try:
            return text.encode(self._codec)
        except UnicodeEncodeError:
            return None

    @property
    def is_injective(self) -> bool:
        return True


class _SingleByte(CharacterSet):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._table = single_byte_table(name)
        self._decoding = cast("Any", self._table)  # typeshed does not know that it may be a text

    def decoded(self, data: bytes) -> str:
        try:
            return codecs.charmap_decode(data, "strict", self._decoding)[0]
        except UnicodeDecodeError as error:
            raise NoCharacter(data[error.start : error.end]) from None

    def encoded(self, text: str) -> bytes | None:
        codes = self._codes
        try:
            return bytes([codes[character] for character in text])
        except KeyError:
            return None

    @cached_property
    def _codes(self) -> dict[str, int]:
        """The first byte of each character."""
        return {self._table[byte]: byte for byte in range(255, -1, -1) if self._table[byte] != UNDEFINED}

    @property
    def is_injective(self) -> bool:
        return len(self._codes) == 256 - self._table.count(UNDEFINED)


class _MultiByte(CharacterSet):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        table = multi_byte_table(name)
        self._split = table.split.findall
        self._characters = table.characters
        self._codes = table.preferred

    def decoded(self, data: bytes) -> str:
        try:
            return "".join(map(self._characters.__getitem__, self._split(data)))
        except KeyError as error:
            raise NoCharacter(error.args[0]) from None

    def encoded(self, text: str) -> bytes | None:
        codes: list[bytes] = []
        for character in text:
            code = self._code(character)
            if code is None:
                return None
            codes.append(code)
        return b"".join(codes)

    def _code(self, character: str) -> bytes | None:
        code = self._codes.get(character)
        if code is not None or self.name != "gb18030":
            return code
        try:
            code = character.encode("gb18030")
        except UnicodeEncodeError:
            return None
        return code if self._characters.get(code) is None and self._characters[code] == character else None

    @property
    def is_injective(self) -> bool:
        return len(self._codes) == len(self._characters)

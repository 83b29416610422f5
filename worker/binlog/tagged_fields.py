"""Reads MySQL's serialized messages, as far as events use them: fields that are identified by a number.

Format: MySQL's libs/mysql/serialization/readme.md. A message is a version (1), its size after the version, the
number of the last field that a reader must know, then fields in ascending order: number and value. Every number is a
variable-length integer: the number of 1 bits at the low end of its first byte is the number of bytes that follow it.
"""

from __future__ import annotations

_VERSION = 1
_WHOLE_NUMBER = 9  # bytes of a number that needs more than 56 bits: 0xFF, then all eight


class BadMessage(Exception):
    """The bytes are not a valid message; the text is the reason."""


class MessageReader:
    """Reads the values of one message, one after the other; all methods raise :class:`BadMessage`.

    ``at``: the byte after the last value that was read; ``end``: the byte after the message.
    """

    __slots__ = ("_data", "at", "end", "last_needed")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self._data = data
        self.at, self.end = at, end
        if self.unsigned() != _VERSION:
            raise BadMessage(f"message version, known is {_VERSION}")
        size = self.unsigned()
        if at + size > end:
            raise BadMessage(f"a message of {size} bytes, but {end - at} are left")
        self.end = at + size
        self.last_needed = self.unsigned()

    def unsigned(self) -> int:
        """The next number."""
        if self.at >= self.end:
            raise BadMessage("a number beyond its end")
        first = self._data[self.at]
        size = 1
        while size < _WHOLE_NUMBER and first >> (size - 1) & 1:
            size += 1
        if self.at + size > self.end:
            raise BadMessage("a number beyond its end")
        rest = int.from_bytes(self._data[self.at + 1 : self.at + size], "little")
        self.at += size
        return rest if size == _WHOLE_NUMBER else first >> size | rest << (8 - size)

    def signed(self) -> int:
        """The next number, whose lowest bit is the sign."""
        value = self.unsigned()
        return ~(value >> 1) if value & 1 else value >> 1

    def octets(self, count: int) -> bytes:
        """An array of bytes: each of them is a number."""
        values = [self.unsigned() for _ in range(count)]
        if any(value > 0xFF for value in values):
            raise BadMessage("a byte above 255")
        return bytes(values)

    def string(self) -> bytes:
        """The next string: a length and as many bytes."""
        size = self.unsigned()
        if self.at + size > self.end:
            raise BadMessage("a string beyond its end")
        self.at += size
        return self._data[self.at - size : self.at]

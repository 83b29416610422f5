"""Counts the fields of an encoded protocol buffers message before it is parsed.

A parsed message may take fifty times the memory of its bytes: two bytes make an empty message within a message. So a
large message is counted first. Format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor

_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)
_FIXED = {_FIXED64: 8, _FIXED32: 4}


class Undecodable(ValueError):
    """The bytes are no message."""


def has_more_fields(raw: bytes, of: Descriptor, most: int) -> bool:
    """Whether the message of type ``of`` has more than ``most`` fields, including those of nested messages.

    It reads at most ``most`` fields. Raises :class:`Undecodable`.
    """
    left = most
    stack: list[tuple[int, int, Descriptor]] = [(0, len(raw), of)]
    while stack:
        at, end, kind = stack.pop()
        fields = kind.fields_by_number
        while at < end:
            left -= 1
            if left < 0:
                return True
            tag, at = _varint(raw, at, end)
            wire = tag & 7
            if wire == _VARINT:
                _, at = _varint(raw, at, end)
            elif wire == _BYTES:
                size, at = _varint(raw, at, end)
                if size > end - at:
                    raise Undecodable
                field = fields.get(tag >> 3)
                if field is not None and field.message_type is not None:
                    stack.append((at, at + size, field.message_type))
                at += size
            elif wire in _FIXED:
                at += _FIXED[wire]
            else:  # groups, which no message of ours has
                raise Undecodable
        if at != end:
            raise Undecodable
    return False


def _varint(raw: bytes, at: int, end: int) -> tuple[int, int]:
    """(the number, the offset after it)."""
    number = shift = 0
    while at < end and shift < 70:
        byte = raw[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise Undecodable

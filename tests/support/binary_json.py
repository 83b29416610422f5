"""Writes MySQL's binary JSON and its changes, for tests; shares no code with the readers under test.

Format: sql-common/json_binary.h and sql-common/json_diff.h of the MySQL server.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

REPLACE, INSERT, REMOVE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value of a column type that JSON lacks; ``text`` is the form that the server prints."""

    code: int
    value: bytes
    text: str = ""


@dataclass(frozen=True, slots=True)
class Unsigned:
    """An integer that comes from an unsigned column."""

    value: int


Json = None | bool | int | float | str | Opaque | Unsigned | list["Json"] | dict[str, "Json"]


def encode(value: Json, large: bool = False) -> bytes:
    """Return the document; ``large``: containers have offsets of 4 bytes, which the server uses from 64 KiB on."""
    kind, body = _value(value, large)
    return bytes([kind]) + body


def size_of(number: int) -> bytes:
    """Return a length-encoded integer."""
    if number < 251:
        return bytes([number])
    return b"\xfc" + struct.pack("<H", number) if number < 1 << 16 else b"\xfd" + struct.pack("<I", number)[:3]


def change(operation: int, path: str, value: Json = None) -> bytes:
    """Return one change of a value."""
    step = path.encode()
    head = bytes([operation]) + size_of(len(step)) + step
    if operation == REMOVE:
        return head
    body = encode(value)
    return head + size_of(len(body)) + body


def text_of(value: Json) -> str:
    """Return the server's text, for values without floating-point numbers."""
    if isinstance(value, dict):
        pairs = sorted(value.items(), key=lambda pair: (len(pair[0].encode()), pair[0].encode()))
        return "{" + ", ".join(f"{text_of(key)}: {text_of(member)}" for key, member in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(text_of(element) for element in value) + "]"
    if isinstance(value, Opaque):
        return value.text
    if isinstance(value, Unsigned):
        return str(value.value)
    assert not isinstance(value, float)
    return json.dumps(value, ensure_ascii=False)


def _value(value: Json, large: bool) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 4, bytes([0 if value is None else 1 if value else 2])
    if isinstance(value, Unsigned):
        bits = 16 if value.value < 1 << 16 else 32 if value.value < 1 << 32 else 64
        return {16: 6, 32: 8, 64: 10}[bits], value.value.to_bytes(bits // 8, "little")
    if isinstance(value, int):
        bits = next(bits for bits in (16, 32, 64) if -(1 << bits - 1) <= value < 1 << bits - 1)
        return {16: 5, 32: 7, 64: 9}[bits], value.to_bytes(bits // 8, "little", signed=True)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        return 12, _string(value.encode())
    if isinstance(value, Opaque):
        return 15, bytes([value.code]) + _string(value.value)
    return (0 if isinstance(value, dict) else 2) + large, _container(value, large)


def _string(raw: bytes) -> bytes:
    size, left = b"", len(raw)
    while left > 127:
        size += bytes([left & 127 | 128])
        left >>= 7
    return size + bytes([left]) + raw


def _container(value: list[Json] | dict[str, Json], large: bool) -> bytes:
    offset = "<I" if large else "<H"
    width = 4 if large else 2
    keys: list[bytes] = []
    members: list[Json] = []
    if isinstance(value, dict):
        by_key = {key.encode(): member for key, member in value.items()}
        keys = sorted(by_key, key=lambda key: (len(key), key))
        members = [by_key[key] for key in keys]
    else:
        members = value
    head = 2 * width + len(keys) * (width + 2) + len(members) * (width + 1)
    entries, tail = bytearray(), bytearray(b"".join(keys))
    at = head
    for key in keys:
        entries += struct.pack(offset, at) + struct.pack("<H", len(key))
        at += len(key)
    for member in members:
        kind, body = _value(member, large)
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            filler = b"\xff" if kind in (5, 7) and body[-1] & 0x80 else b"\0"
            entries += bytes([kind]) + body.ljust(width, filler)
        else:
            entries += bytes([kind]) + struct.pack(offset, head + len(tail))
            tail += body
    return struct.pack(offset, len(members)) + struct.pack(offset, head + len(tail)) + bytes(entries + tail)

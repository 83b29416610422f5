"""Writes MySQL's serialized messages for tests of the reader, worker/binlog/gtid_events.py."""

from __future__ import annotations

import uuid


def number(value: int) -> bytes:
    """Return a variable-length integer."""
    size = next((size for size in range(1, 9) if value < 1 << 7 * size), 9)
    if size == 9:
        return b"\xff" + value.to_bytes(8, "little")
    return (value << size | (1 << (size - 1)) - 1).to_bytes(size, "little")


def signed(value: int) -> bytes:
    return number(~value << 1 | 1 if value < 0 else value << 1)


def message(fields: bytes, *, last_needed: int = 0, version: int = 1) -> bytes:
    behind = number(last_needed) + fields
    size = 1 + len(behind)
    while 1 + len(number(size)) + len(behind) != size:
        size = 1 + len(number(size)) + len(behind)
    return number(version) + number(size) + behind


def tagged_gtid(server: uuid.UUID, tag: str, sequence: int, microseconds: int, *, last_needed: int = 0) -> bytes:
    """Return the body of a GTID_TAGGED event."""
    fields = [
        number(1),
        b"".join(map(number, server.bytes)),
        signed(sequence),
        number(len(tag)) + tag.encode(),
        signed(7),
        signed(8),
        number(microseconds),
    ]
    made = b"".join(number(field) + value for field, value in enumerate(fields))
    # Further fields that servers write: length of the transaction, their versions.
    return message(made + number(8) + number(999) + number(9) + number(90704), last_needed=last_needed)

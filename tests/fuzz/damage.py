"""Damage to one event: what a failing disk, a foreign server or an attacker could make of it. The same for the same
random numbers."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Sequence

_NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    15,
    16,
    31,
    32,
    63,
    64,
    100,
    127,
    128,
    129,
    250,
    251,
    252,
    253,
    254,
    255,
    256,
    1000,
    32767,
    32768,
    65534,
    65535,
    65536,
    (1 << 24) - 1,
    1 << 24,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
)
_MOST_BODY = 1 << 20


def damaged(pick: random.Random, event: bytes, others: Sequence[bytes], checksum: bool) -> bytes:
    """``event`` with one to four kinds of damage; mostly with a size and a checksum that are right again.

    ``others``: events that parts may come from.
    """
    header, body = bytearray(event[:19]), bytearray(event[19 : -4 if checksum else len(event)])
    for _ in range(pick.choice((1, 1, 1, 2, 4))):
        kind = pick.random()
        if kind < 0.08:
            _hurt_header(pick, header)
        elif kind < 0.16:
            other = pick.choice(others)[19:]
            body[_place(pick, body) :] = other[_place(pick, other) :]
        else:
            _hurt(pick, body)
        del body[_MOST_BODY:]
    size = 19 + len(body) + (4 if checksum else 0)
    if pick.random() < 0.99:
        header[9:13] = struct.pack("<I", size)
    made = bytes(header + body)
    if not checksum:
        return made
    crc = zlib.crc32(made) if pick.random() < 0.98 else pick.getrandbits(32)
    return made + struct.pack("<I", crc)


def _place(pick: random.Random, data: bytes | bytearray) -> int:
    """Anywhere; near the front, where the lengths and counts stand, more often than elsewhere."""
    most = len(data) if pick.random() < 0.7 else min(len(data), 80)
    return pick.randint(0, most)


def _hurt_header(pick: random.Random, header: bytearray) -> None:
    which = pick.random()
    if which < 0.5:
        header[4] = pick.randrange(256) if which < 0.2 else pick.choice((19, 23, 24, 25, 30, 31, 32, 39, 166, 167, 171))
    elif which < 0.7:
        header[17] = pick.randrange(256)
    else:
        header[pick.randrange(19)] = pick.randrange(256)


def _hurt(pick: random.Random, body: bytearray) -> None:
    at = _place(pick, body)
    kind = pick.random()
    if kind < 0.35:
        if at < len(body):
            body[at] ^= 1 << pick.randrange(8)
    elif kind < 0.55:
        if at < len(body):
            body[at] = pick.choice(_NUMBERS) & 0xFF
    elif kind < 0.7:
        body[at : at + 4] = pick.randbytes(4)
    elif kind < 0.82:
        number = pick.choice(_NUMBERS) + pick.randint(-2, 2)
        width = pick.choice((2, 3, 4, 8))
        part = (number & (1 << 8 * width) - 1).to_bytes(width, pick.choice(("little", "big")))
        body[at : at + width] = part[: max(0, len(body) - at)]
    elif kind < 0.87:
        del body[at:]
    elif kind < 0.91:
        del body[at : at + pick.randint(1, 40)]
    elif kind < 0.95:
        body[at:at] = pick.randbytes(pick.randint(1, 40))
    else:
        body[at:at] = body[at : at + pick.randint(1, 400)]

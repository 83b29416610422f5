"""Makes requests that no client sends, from a message's descriptor, and damages them; seeded."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

_TEXTS = (
    "", "x", "nobody", "../../etc:4", "..", "a\nb", "\0", "é" * 100, "A" * 5_000, "mysql-bin.000001:4", "a.b", "`a`",
    "mysql-bin.000001:99999999999999999999", "'; DROP TABLE x; --", "{0}{x}%s%n", "\u202e\u2028", "[", "- a: &x [*x]",
    "name: t\ntask-mode: all\n", "ALTER TABLE a.b ADD COLUMN c INT", "CREATE TABLE t (a INT", "~(", "0", "-1", "NaN",
    "2026-11-23 10:00:00", "3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5", "nobody/compare", "nobody-`a`.`b`", "worker",
)  # fmt: skip
_NUMBERS = (0, 1, 2, 3, 7, 255, 65_536, -1, (1 << 31) - 1, (1 << 32) - 1, (1 << 53), (1 << 63) - 1, (1 << 64) - 1)
_FLOATS = (0.0, 1.5, -1.0, 1e18, 1e308, float("nan"), float("inf"))
_HOSTS = ("127.0.0.1", "", "a\nb", "x" * 2_000)
"""Addresses of this machine only: a host name would cause a DNS request."""
_PORTS = (0, 1, 65_536)
_BITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}


def mutated(pick: random.Random, kind: Descriptor) -> bytes:
    """Return one request of this kind in wire format, or bytes that are no message at all."""
    how = pick.random()
    if how < 0.1:
        return pick.randbytes(pick.choice((0, 1, 2, 5, 50, 500)))
    raw = bytearray(made(pick, kind).SerializeToString())
    if how < 0.45 and raw:
        for _ in range(pick.randint(1, 4)):
            _damage(pick, raw)
    return bytes(raw)


def _damage(pick: random.Random, raw: bytearray) -> None:
    at = pick.randrange(len(raw)) if raw else 0
    match pick.randrange(5):
        case 0 if raw:
            raw[at] = pick.randrange(256)
        case 1 if raw:
            raw[at] ^= 1 << pick.randrange(8)
        case 2:
            del raw[at:]
        case 3:
            raw[at:at] = pick.randbytes(pick.randint(1, 9))
        case _:
            raw += raw[at : at + 100]


def made(pick: random.Random, kind: Descriptor, depth: int = 0) -> Message:
    """Return a message whose fields are present or absent, with valid and invalid values."""
    message = GetMessageClass(kind)()
    often = pick.choice((0.2, 0.6, 0.95))
    for field in kind.fields:
        if pick.random() < often:
            _fill(pick, message, field, depth)
    return message


def _fill(pick: random.Random, message: Message, field: FieldDescriptor, depth: int) -> None:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        for _ in range(pick.choice((1, 2, 100))):
            getattr(message, field.name)[pick.choice(_TEXTS) + str(pick.random())] = pick.choice(_TEXTS)
    elif field.is_repeated:
        for _ in range(pick.choice((1, 1, 2, 3, 30) if depth < 2 else (1,))):
            if inner is not None:
                getattr(message, field.name).add().CopyFrom(made(pick, inner, depth + 1))
            else:
                getattr(message, field.name).append(_value(pick, field))
    elif inner is not None:
        getattr(message, field.name).CopyFrom(made(pick, inner, depth + 1))
    else:
        setattr(message, field.name, _value(pick, field))


def _value(pick: random.Random, field: FieldDescriptor) -> Any:
    owner = field.containing_type
    if owner is not None and owner.name == "Endpoint" and field.name in ("host", "port"):
        return pick.choice(_HOSTS if field.name == "host" else _PORTS)
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return pick.randbytes(9) if field.type == FieldDescriptor.TYPE_BYTES else pick.choice(_TEXTS)
        case FieldDescriptor.CPPTYPE_BOOL:
            return pick.random() < 0.5
        case FieldDescriptor.CPPTYPE_ENUM:
            known = field.enum_type
            return pick.choice((*(known.values_by_number if known is not None else ()), 99))
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return pick.choice(_FLOATS)
        case _:
            low, high = _BITS[field.cpp_type]
            return min(max(pick.choice(_NUMBERS), low), high)

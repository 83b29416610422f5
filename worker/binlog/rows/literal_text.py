"""Reads literals: their texts, as the server returns them in a SELECT (the reverse of
worker/binlog/rows/column_codec.py), and the literals of a joined row."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardmerge.worker.core.row_change import JoinedLiterals, Literals
from shardmerge.worker.core.table import Column, ValueKind

_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
# Quoted text, a JSON literal's comments (worker/binlog/json/literals.py), commas, and the text between them.
_PARTS = re.compile(rb"'(?:[^'\\]|\\.)*'|/\*.*?\*/|,|[^',/]+|/", re.DOTALL)
_KEY_PARTS = re.compile(rb"(?:[^',]+|'(?:[^'\\]+|\\.)*')+", re.DOTALL)


def literals_of(joined: JoinedLiterals) -> Literals:
    """The literals of a row or key."""
    found = [b""]
    for part in _PARTS.findall(joined):
        if part == b",":
            found.append(b"")
        else:
            found[-1] += part
    return tuple(found)


def split_key(joined: JoinedLiterals, count: int) -> Sequence[bytes]:
    """As :func:`literals_of`, of a key of ``count`` columns: fast, for no key column is JSON."""
    parts = joined.split(b",")
    return parts if len(parts) == count else _KEY_PARTS.findall(joined)


def _unescaped(match: re.Match[bytes]) -> bytes:
    return b"\0" if match[1] == b"0" else match[1]


def text_of_literal(literal: bytes) -> bytes | None:
    """The text of a number or a temporal value, the bytes of a text (in its own charset) or binary value; None for
    NULL."""
    if literal == b"NULL":
        return None
    if literal.startswith(b"'"):
        inner = literal[1:-1]
        return _ESCAPE.sub(_unescaped, inner) if b"\\" in inner else inner
    if literal.endswith(b"'"):
        return bytes.fromhex(literal[literal.index(b"X'") + 2 : -1].decode("ascii"))
    return literal


def comparable_expression(column: Column, value: bytes) -> bytes:
    """A bound's literal as an expression that compares as the column's own values do."""
    match column.kind:
        case ValueKind.STRING:
            return b"CONVERT(%s USING %s) COLLATE %s" % (
                value,
                column.charset.encode(),
                column.collation.encode(),
            )
        case ValueKind.DATE:
            return b"CAST(%s AS DATE)" % value
        case ValueKind.TIME:
            return b"CAST(%s AS TIME(6))" % value
        case ValueKind.DATETIME | ValueKind.TIMESTAMP:
            return b"CAST(%s AS DATETIME(6))" % value
        case ValueKind.BINARY if column.type_text == "uuid":
            return b"CAST(%s AS UUID)" % value  # versions 1 to 5 are ordered by their last bytes first
        case _:
            return value

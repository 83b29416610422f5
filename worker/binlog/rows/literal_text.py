"""Converts a literal to the text that the server returns in a SELECT: the reverse of
worker/binlog/rows/column_codec.py."""

from __future__ import annotations

import re

from shardmerge.worker.core.table import Column, ValueKind

_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)


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

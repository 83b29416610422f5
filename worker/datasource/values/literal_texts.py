"""The text that a SELECT would return for a decoded literal: both become values of the DataFrame in one way. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from shardmerge.worker.binlog.rows.literal_text import text_of_literal
from shardmerge.worker.binlog.rows.row_literals import literal
from shardmerge.worker.core.table import Column, ValueKind

TextOf = Callable[[bytes], bytes | None]

SAME_TEXT = frozenset(
    {
        ValueKind.INTEGER,
        ValueKind.DATE,
        ValueKind.TIME,
        ValueKind.DATETIME,
        ValueKind.TIMESTAMP,
        ValueKind.STRING,
        ValueKind.BINARY,
    }
)
"""Kinds of which a value has one text, byte for byte: a key can be searched for by it."""

_REPLACED = re.compile(rb"/\*!50700 JSON_REPLACE\(\*/('(?:[^'\\]|\\.)*')", re.DOTALL)
"""worker/binlog/json/literals.py: the text of the value, before the numbers that are inserted again."""


def text_of(column: Column) -> TextOf:
    """The function for the column's literals, as the decoder makes them for a plan without mappings."""
    if column.kind is ValueKind.JSON:
        return _json_text
    if column.kind is ValueKind.ENUM:
        numbers = {literal(column, b"%d" % number): b"%d" % number for number in range(len(column.labels), -1, -1)}
        return lambda value: None if value == b"NULL" else numbers[value]
    if column.kind is ValueKind.SET:
        return lambda value: _mask(column, value)
    return text_of_literal


def _json_text(value: bytes) -> bytes | None:
    replaced = _REPLACED.match(value)
    return text_of_literal(value if replaced is None else replaced[1])


def _mask(column: Column, value: bytes) -> bytes | None:
    text = text_of_literal(value)
    if text is None:
        return None
    bits = {label.encode("utf-8", "surrogateescape"): 1 << bit for bit, label in enumerate(column.labels)}
    return b"%d" % sum(bits[label] for label in text.split(b",") if text)

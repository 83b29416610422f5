"""Converts whole columns of values between the source's texts, Arrow and SQL literals. Pure.

Most kinds are converted at once. Where that fails, and for the other kinds, values are converted one by one by
worker/rules/transform/values.py, which defines the result and finds the value that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from shardmerge.worker.binlog.rows.row_literals import quote_text
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.rules.transform.values import BadValue, Value, arrow_type, literal_of, reading

_FIRST_DAY = -719_162
"""0001-01-01 in days from 1970-01-01: Python has no earlier dates."""
_DAY_MICROSECONDS = 86_400_000_000
_MOST_PLAIN_SCALE = 6
"""Up to this scale, Arrow writes every DECIMAL as digits, never with an exponent."""
_NULL = b"NULL"


class NoValue(Exception):
    """``row``: the first row whose value has no counterpart; the text is for the user."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


class InputColumn:
    """Makes Arrow arrays of the texts of one column of the source's table."""

    def __init__(self, column: Column) -> None:
        found = arrow_type(column)
        assert found is not None  # noqa: S101 - for the type checker: expressions use no other columns
        self._type: pa.DataType = found
        self._read = reading(column)
        self._at_once = _conversion(column, found)

    def array(self, texts: Sequence[bytes | None]) -> pa.Array:
        """Raises :class:`NoValue`."""
        try:
            made = self._at_once(pa.array(texts, pa.binary()))
        except pa.ArrowException:
            made = None
        return self._one_by_one(texts) if made is None else made

    def _one_by_one(self, texts: Sequence[bytes | None]) -> pa.Array:
        values: list[Value] = []
        for row, text in enumerate(texts):
            try:
                values.append(self._read(text))
            except BadValue as reason:
                raise NoValue(row, str(reason)) from reason
        return pa.array(values, self._type)


_AtOnce = Callable[[pa.Array], pa.Array | None]
"""Converts an array of texts; None or an Arrow error: it cannot convert these texts."""


def _conversion(column: Column, wanted: pa.DataType) -> _AtOnce:
    match column.kind:
        case ValueKind.BINARY:
            return lambda texts: texts
        case ValueKind.STRING if column.charset != "utf8mb4":
            return _ascii
        case ValueKind.STRING | ValueKind.TIME | ValueKind.ENUM | ValueKind.SET:
            return _utf8
        case ValueKind.DATE:
            return lambda texts: _since_year_1(_text(texts).cast(wanted), pa.int32(), _FIRST_DAY)
        case ValueKind.DATETIME | ValueKind.TIMESTAMP:
            first = _FIRST_DAY * _DAY_MICROSECONDS
            return lambda texts: _since_year_1(_text(texts).cast(wanted), pa.int64(), first)
        case _:
            return lambda texts: _text(texts).cast(wanted)


def _text(texts: pa.Array) -> pa.Array:
    """The same bytes as text, which is not validated."""
    return texts.view(pa.string())


def _utf8(texts: pa.Array) -> pa.Array:
    made = _text(texts)
    made.validate(full=True)
    return made


def _ascii(texts: pa.Array) -> pa.Array | None:
    """7-bit texts, which are the same in every character set that expressions may use."""
    made = _text(texts)
    return None if pc.all(pc.string_is_ascii(made)).as_py() is False else made


def _since_year_1(made: pa.Array, numbers: pa.DataType, first: int) -> pa.Array | None:
    lowest = pc.min(made.view(numbers)).as_py()
    return None if lowest is not None and lowest < first else made


def literals_of(column: pa.ChunkedArray) -> list[bytes]:
    """The SQL literals of computed values. Raises :class:`NoValue`."""
    try:
        made = _literals_at_once(column)
    except pa.ArrowException:
        made = None
    return _literals_one_by_one(column) if made is None else made


def _literals_at_once(column: pa.ChunkedArray) -> list[bytes] | None:
    kind = column.type
    if types.is_string(kind):
        column.validate(full=True)
        return [_NULL if text is None else quote_text(text) for text in column.cast(pa.binary()).to_pylist()]
    if types.is_boolean(kind):
        plain = pc.if_else(column, pa.scalar(b"1"), pa.scalar(b"0"))
    elif types.is_integer(kind) or (types.is_decimal(kind) and 0 <= kind.scale <= _MOST_PLAIN_SCALE):
        plain = column.cast(pa.string()).cast(pa.binary())
    else:
        return None
    return plain.fill_null(pa.scalar(_NULL)).to_pylist()


def _literals_one_by_one(column: pa.ChunkedArray) -> list[bytes]:
    try:
        return [literal_of(value) for value in column.to_pylist()]
    except (BadValue, ValueError, OverflowError):
        # Find the row. Not only the literals can fail: Python has no dates beyond the year 9999.
        for row in range(len(column)):
            try:
                literal_of(column[row].as_py())
            except (BadValue, ValueError, OverflowError) as reason:
                raise NoValue(row, str(reason)) from reason
        raise

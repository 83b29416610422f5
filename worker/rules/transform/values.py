"""Converts values of a row from their texts at the source to Spark SQL, and computed values to SQL literals. Pure.

| column at the source | in Spark SQL | type of a computed value at the target |
| integers; BIGINT UNSIGNED, BIT(64) | BIGINT; DECIMAL(20,0) | integers |
| DECIMAL(p,s), p <= 38 | DECIMAL(p,s) | DECIMAL(p,s) |
| FLOAT, DOUBLE | DOUBLE | DOUBLE |
| DATE; DATETIME, TIMESTAMP (in UTC) | DATE; TIMESTAMP_NTZ | DATE; DATETIME(6) |
| TIME; YEAR | STRING; BIGINT | |
| texts, ENUM, SET; binary | STRING; BINARY | VARCHAR(n) or LONGTEXT; LONGBLOB |
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
from pyarrow import types

from shardmerge.worker.binlog.rows.characters.character_set import character_set
from shardmerge.worker.binlog.rows.row_literals import quote_text
from shardmerge.worker.core.table import Column, ValueKind

ROW = "shardmerge_row"
"""The column that numbers the rows of a batch."""

Value = int | float | Decimal | str | bytes | bool | datetime.date | datetime.datetime | None
Reading = Callable[[bytes | None], Value]

_CHARSETS = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii", "latin1"})
_DIGITS = re.compile(r"\((\d+)(?:,(\d+))?\)")
_MOST_DIGITS = 38
_MOST_SCALE = 30
_WIDE_BIT = 64
_TEXT_COLLATION = "utf8mb4_bin"
_VARCHAR = re.compile(r"varchar\((\d+)\)")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_MOST_VARCHAR = 16383
_ISO_DATE = 10


class BadValue(Exception):
    """A value that has no counterpart on the other side; the text is for the user."""


def _sizes(column: Column) -> tuple[int, int]:
    found = _DIGITS.search(column.type_text)
    return (int(found[1]), int(found[2] or 0)) if found else (10, 0)


def arrow_type(column: Column) -> pa.DataType | None:
    """A column's type in an expression; None for a column that expressions must not use."""
    match column.kind:
        case ValueKind.INTEGER:
            wide = column.unsigned and column.type_text.startswith("bigint")
            return pa.decimal128(20, 0) if wide else pa.int64()
        case ValueKind.BIT:
            return pa.decimal128(20, 0) if _sizes(column)[0] >= _WIDE_BIT else pa.int64()
        case ValueKind.YEAR:
            return pa.int64()
        case ValueKind.DECIMAL:
            precision, scale = _sizes(column)
            return pa.decimal128(precision, scale) if precision <= _MOST_DIGITS else None
        case ValueKind.FLOAT | ValueKind.DOUBLE:
            return pa.float64()
        case ValueKind.DATE:
            return pa.date32()
        case ValueKind.DATETIME | ValueKind.TIMESTAMP:
            return pa.timestamp("us")
        case ValueKind.STRING:
            return pa.string() if column.charset in _CHARSETS else None
        case ValueKind.TIME | ValueKind.ENUM | ValueKind.SET:
            return pa.string()
        case ValueKind.BINARY:
            return pa.binary()
        case _:
            return None


def reading(column: Column) -> Reading:
    """A function that converts a column's texts at the source (None: NULL) to values of its :func:`arrow_type`; it
    raises :class:`BadValue`."""
    convert = _conversion(column)

    def read(text: bytes | None) -> Value:
        if text is None:
            return None
        try:
            return convert(text)
        except (ValueError, ArithmeticError) as reason:
            shown = text[:64].decode("utf-8", "backslashreplace")
            raise BadValue(f"column {column.name}: {shown!r} has no counterpart in Spark SQL") from reason

    return read


def _conversion(column: Column) -> Callable[[bytes], Value]:
    """The conversion of a text that is not NULL. It raises ValueError and ArithmeticError."""
    match column.kind:
        case ValueKind.BINARY:
            return bytes
        case ValueKind.STRING if (characters := character_set(column.charset)) is not None:
            return characters.decoded
        case ValueKind.TIME | ValueKind.ENUM | ValueKind.SET:
            return lambda text: text.decode("utf-8")
        case ValueKind.FLOAT | ValueKind.DOUBLE:
            return float
        case ValueKind.DATE:
            return lambda text: datetime.date.fromisoformat(text.decode("ascii"))
        case ValueKind.DATETIME | ValueKind.TIMESTAMP:
            return lambda text: datetime.datetime.fromisoformat(text.decode("ascii"))
        case _ if _is_wide(arrow_type(column)):
            return lambda text: Decimal(text.decode("ascii"))
        case _:
            return int


def _is_wide(kind: pa.DataType | None) -> bool:
    return kind is not None and types.is_decimal(kind)


def computed_column(name: str, spark_type: str, *, nullable: bool) -> Column:
    """A target's column for values of a type of Spark SQL (``simpleString``). Raises :class:`BadValue`."""

    def column(kind: ValueKind, type_text: str, charset: str = "") -> Column:
        collation = _TEXT_COLLATION if charset else ""
        return Column(name, kind, type_text, nullable, charset=charset, collation=collation)

    if found := _DECIMAL.fullmatch(spark_type):
        if int(found[2]) > _MOST_SCALE:
            raise BadValue(f"column {name} has more than {_MOST_SCALE} digits after the point: cast it")
        return column(ValueKind.DECIMAL, spark_type)
    if found := _VARCHAR.fullmatch(spark_type):
        if int(found[1]) > _MOST_VARCHAR:
            raise BadValue(f"column {name}: VARCHAR takes up to {_MOST_VARCHAR} characters")
        return column(ValueKind.STRING, spark_type, "utf8mb4")
    match spark_type.partition(" collate ")[0]:
        case "boolean":
            return column(ValueKind.INTEGER, "tinyint(1)")
        case "tinyint" | "smallint" | "int" | "bigint" as kind:
            return column(ValueKind.INTEGER, kind)
        case "float" | "double":
            return column(ValueKind.DOUBLE, "double")
        case "date":
            return column(ValueKind.DATE, "date")
        case "timestamp" | "timestamp_ntz":
            return column(ValueKind.DATETIME, "datetime(6)")
        case "string":
            return column(ValueKind.STRING, "longtext", "utf8mb4")
        case "binary":
            return column(ValueKind.BINARY, "longblob")
        case _:
            raise BadValue(f"column {name} is of type {spark_type}, which no table has: cast it")


def literal_of(value: object) -> bytes:
    """The SQL literal of a computed value. Raises :class:`BadValue`."""
    match value:
        case None:
            return b"NULL"
        case bool():
            return b"1" if value else b"0"
        case int():
            return b"%d" % value
        case float():
            if not math.isfinite(value):
                raise BadValue(f"{value} cannot be stored in a table")
            return repr(value).encode("ascii")
        case Decimal():
            return format(value, "f").encode("ascii")
        case str():
            try:
                return quote_text(value.encode("utf-8"))
            except UnicodeEncodeError as reason:
                raise BadValue(f"{value!r} is not valid text") from reason
        case bytes() | bytearray():
            return b"X'" + bytes(value).hex().upper().encode("ascii") + b"'"
        case datetime.datetime():
            return f"'{value.isoformat(' ')}'".encode("ascii")
        case datetime.date():
            return f"'{value.isoformat()}'".encode("ascii")
        case _:
            raise BadValue(f"{value!r} is of no type that a table has")

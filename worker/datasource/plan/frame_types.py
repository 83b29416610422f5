"""The Spark type of each column, and the common type of the columns of several shard tables. Pure.

A type holds every value exactly. Texts that Spark has no exact type for stay texts: a DECIMAL of more than 38 digits.
"""

from __future__ import annotations

import re

from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, PartitionId

MOST_DIGITS = 38
"""Digits of Spark's largest DECIMAL."""

UNSIGNED_64 = DecimalType(20, 0)

_INTEGERS: dict[str, tuple[DataType, DataType]] = {
    "tinyint": (ByteType(), ShortType()),
    "smallint": (ShortType(), IntegerType()),
    "mediumint": (IntegerType(), IntegerType()),
    "int": (IntegerType(), LongType()),
    "bigint": (LongType(), UNSIGNED_64),
}
"""By name: the types with a sign and without."""

_WIDTHS: tuple[DataType, ...] = (ByteType(), ShortType(), IntegerType(), LongType(), UNSIGNED_64)

_OTHERS: dict[ValueKind, DataType] = {
    ValueKind.FLOAT: FloatType(),
    ValueKind.DOUBLE: DoubleType(),
    ValueKind.DATE: DateType(),
    ValueKind.TIME: DayTimeIntervalType(),
    ValueKind.DATETIME: TimestampNTZType(),
    ValueKind.TIMESTAMP: TimestampType(),
    ValueKind.YEAR: ShortType(),
    ValueKind.STRING: StringType(),
    ValueKind.BINARY: BinaryType(),
    ValueKind.ENUM: StringType(),
    ValueKind.SET: StringType(),
    ValueKind.JSON: StringType(),
    ValueKind.GEOMETRY: BinaryType(),
    ValueKind.VECTOR: BinaryType(),
}

_NAME = re.compile(r"[a-z]+")
_SIZE = re.compile(r"\((\d+)(?:,(\d+))?\)")


def spark_type(column: ColumnPlan) -> DataType:
    """The type of a column's mapped values."""
    if isinstance(column.mapping, PartitionId):
        return LongType()
    if column.is_constant:
        return StringType()
    return _of_values(column.column)


def _of_values(column: Column) -> DataType:
    text = column.type_text.lower()
    size = _SIZE.search(text)
    if column.kind is ValueKind.INTEGER:
        name = _NAME.match(text)
        return _INTEGERS[name.group() if name is not None else "bigint"][column.unsigned]
    if column.kind is ValueKind.DECIMAL:
        precision, scale = (10, 0) if size is None else (int(size[1]), int(size[2] or 0))
        return DecimalType(precision, scale) if precision <= MOST_DIGITS else StringType()
    if column.kind is ValueKind.BIT:
        return UNSIGNED_64 if size is not None and int(size[1]) == 64 else LongType()
    return _OTHERS[column.kind]


def common_type(one: DataType, other: DataType) -> DataType | None:
    """A type that holds the values of both exactly; None if there is none."""
    if one == other:
        return one
    if one in _WIDTHS and other in _WIDTHS:
        return max(one, other, key=_WIDTHS.index)
    if isinstance(one, DecimalType) and isinstance(other, DecimalType):
        scale = max(one.scale, other.scale)
        precision = scale + max(one.precision - one.scale, other.precision - other.scale)
        return DecimalType(precision, scale) if precision <= MOST_DIGITS else None
    if {type(one), type(other)} == {FloatType, DoubleType}:
        return DoubleType()
    return None

"""Spark types of columns, and common types."""

from __future__ import annotations

import pytest
from pyspark.sql.types import DecimalType, DoubleType, FloatType, IntegerType, LongType, ShortType, StringType

from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, PartitionId
from shardmerge.worker.datasource.plan.frame_types import common_type, spark_type


@pytest.mark.parametrize(
    ("kind", "text", "unsigned", "wanted"),
    [
        (ValueKind.INTEGER, "tinyint(3) unsigned", True, "smallint"),
        (ValueKind.INTEGER, "int", False, "int"),
        (ValueKind.INTEGER, "int(10) unsigned zerofill", True, "bigint"),
        (ValueKind.INTEGER, "bigint unsigned", True, "decimal(20,0)"),
        (ValueKind.DECIMAL, "decimal(38,10)", False, "decimal(38,10)"),
        (ValueKind.DECIMAL, "decimal(39,0) unsigned", True, "string"),
        (ValueKind.BIT, "bit(63)", False, "bigint"),
        (ValueKind.BIT, "bit(64)", False, "decimal(20,0)"),
        (ValueKind.TIME, "time(6)", False, "interval day to second"),
        (ValueKind.DATETIME, "datetime", False, "timestamp_ntz"),
        (ValueKind.TIMESTAMP, "timestamp", False, "timestamp"),
        (ValueKind.SET, "set('decimal(1,1)')", False, "string"),
    ],
)
def test_a_type_holds_all_values(kind: ValueKind, text: str, unsigned: bool, wanted: str) -> None:
    column = Column("c", kind, text, True, unsigned=unsigned)
    assert spark_type(ColumnPlan(0, column, "c")).simpleString() == wanted


def test_partition_ids_are_long() -> None:
    column = Column("c", ValueKind.INTEGER, "bigint unsigned", True, unsigned=True)
    assert spark_type(ColumnPlan(0, column, "c", PartitionId(1 << 59, 44))) == LongType()


def test_common_types_widen_and_never_cut() -> None:
    assert common_type(ShortType(), IntegerType()) == IntegerType()
    assert common_type(LongType(), DecimalType(20, 0)) == DecimalType(20, 0)
    assert common_type(DecimalType(10, 2), DecimalType(8, 4)) == DecimalType(12, 4)
    assert common_type(DecimalType(38, 0), DecimalType(38, 10)) is None
    assert common_type(FloatType(), DoubleType()) == DoubleType()
    assert common_type(StringType(), LongType()) is None

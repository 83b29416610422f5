"""The columns of a stream, and whether a table fits them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from shardmerge.proto import errors
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.datasource.plan.frame_types import common_type, spark_type
from shardmerge.worker.datasource.plan.read_plan import ReadTable, read_table

POSITION = StructType([StructField("file", StringType(), True), StructField("byte", LongType(), True)])


def stream_schema(columns: Sequence[tuple[str, DataType]]) -> StructType:
    """``columns``: of the merged table."""
    image = StructType([StructField(name, held, True) for name, held in columns])
    return StructType(
        [
            StructField("op", StringType(), True),
            StructField("before", image, True),
            StructField("after", image, True),
            StructField("source_id", StringType(), True),
            StructField("source_schema", StringType(), True),
            StructField("source_table", StringType(), True),
            StructField("position", POSITION, True),
            StructField("gtid", StringType(), True),
            StructField("commit_time", TimestampType(), True),
            StructField("transaction_id", StringType(), True),
            StructField("sequence", LongType(), True),
            StructField("schema_version", IntegerType(), True),
            StructField("is_snapshot", BooleanType(), True),
            StructField("statement", StringType(), True),
        ]
    )


def image_fields(schema: StructType) -> list[StructField]:
    """The columns of the merged table in a stream's schema."""
    image = schema["after"].dataType
    assert isinstance(image, StructType)  # noqa: S101 - for the type checker
    return list(image.fields)


@dataclass(frozen=True, slots=True)
class StreamedTable:
    """How the rows of a shard table are read. ``places``: for each column of the stream the index into ``read.values``;
    -1 if the table lacks the column."""

    read: ReadTable
    places: tuple[int, ...]


def streamed_table(
    number: int, plan: TablePlan, schema: StructType, position: SourcePosition, selected: Sequence[str]
) -> StreamedTable:
    """How a table's rows become rows of the stream. ``selected``: the option ``columns``, () for all.

    Raises STREAM_SCHEMA for a table that has columns, or values, that the stream's schema does not have.
    """
    fields = {field.name.lower(): field for field in image_fields(schema)}
    own = {column.target_name.lower(): column for column in plan.columns}
    for key, column in own.items():
        field = fields.get(key)
        if field is None:
            if selected:
                continue
            raise _unfit(plan, column.target_name, position, "the schema does not have it")
        held = spark_type(column)
        if common_type(held, field.dataType) != field.dataType:
            reason = f"its type is {held.simpleString()}, that of the schema {field.dataType.simpleString()}"
            raise _unfit(plan, column.target_name, position, reason)
    names = [field.name for key, field in fields.items() if key in own]
    numbers = {name.lower(): at for at, name in enumerate(names)}
    return StreamedTable(read_table(number, plan, names), tuple(numbers.get(key, -1) for key in fields))


def _unfit(plan: TablePlan, column: str, position: SourcePosition, reason: str) -> Exception:
    return errors.read.STREAM_SCHEMA(
        source=plan.source,
        position=position,
        column=column,
        schema=plan.table.schema,
        table=plan.table.name,
        reason=reason,
    )

"""Columns of mysql-cdc, and tables that fit them or not."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, TablePlan
from shardmerge.worker.datasource.stream.tables.stream_schema import image_fields, stream_schema, streamed_table

PLACE = SourcePosition("b.000001", 4)
SCHEMA = stream_schema([("id", LongType()), ("v", StringType()), ("n", IntegerType())])


def _plan(*columns: Column) -> TablePlan:
    table = Table("d", "t_1", columns, (0,), "PRIMARY", (), False, "InnoDB")
    made = tuple(ColumnPlan(at, column, column.name) for at, column in enumerate(columns))
    return TablePlan(0, "mysql-01", table, "m", "m", made, (0,))


def _column(name: str, type_text: str, kind: ValueKind = ValueKind.INTEGER) -> Column:
    return Column(name, kind, type_text, True)


def test_columns_are_found_by_name() -> None:
    assert [field.name for field in image_fields(SCHEMA)] == ["id", "v", "n"]
    plan = _plan(_column("N", "smallint"), _column("id", "int"))
    found = streamed_table(0, plan, SCHEMA, PLACE, ())
    assert found.places == (0, -1, 1)
    assert [value.column.target_name for value in found.read.values] == ["id", "N"]


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (_column("w", "int"), "column w of d.t_1 does not fit the stream's schema: the schema does not have it"),
        (_column("n", "bigint"), "its type is bigint, that of the schema int"),
        (_column("n", "varchar(5)", ValueKind.STRING), "its type is string, that of the schema int"),
    ],
)
def test_a_table_that_does_not_fit(column: Column, reason: str) -> None:
    with pytest.raises(ShardmergeError, match="35023") as caught:
        streamed_table(0, _plan(_column("id", "bigint"), column), SCHEMA, PLACE, ())
    assert reason in str(caught.value)


def test_selected_columns_leave_others_out() -> None:
    schema = stream_schema([("id", LongType())])
    plan = _plan(_column("id", "bigint"), _column("w", "int"))
    assert streamed_table(0, plan, schema, PLACE, ("id",)).places == (0,)

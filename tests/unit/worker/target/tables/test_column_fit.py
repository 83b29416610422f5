"""Which target columns hold which source columns."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.mysql.information_schema import parse_labels
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import AddPrefix, ColumnPlan, Constant, Mapping, PartitionId
from shardmerge.worker.target.tables.column_fit import incompatibility

_KINDS = {
    "decimal": ValueKind.DECIMAL,
    "float": ValueKind.FLOAT,
    "double": ValueKind.DOUBLE,
    "bit": ValueKind.BIT,
    "date": ValueKind.DATE,
    "time": ValueKind.TIME,
    "datetime": ValueKind.DATETIME,
    "timestamp": ValueKind.TIMESTAMP,
    "enum": ValueKind.ENUM,
    "set": ValueKind.SET,
    "json": ValueKind.JSON,
    "point": ValueKind.GEOMETRY,
    "geometry": ValueKind.GEOMETRY,
    "geometrycollection": ValueKind.GEOMETRY,
    "geomcollection": ValueKind.GEOMETRY,
    "vector": ValueKind.VECTOR,
    "inet4": ValueKind.BINARY,
    "inet6": ValueKind.BINARY,
    "uuid": ValueKind.BINARY,
}


def column(type_text: str, *, nullable: bool = False, generated: bool = False) -> Column:
    base = type_text.split("(", maxsplit=1)[0].split(" ", maxsplit=1)[0]
    if base.endswith("int") and base != "point":
        kind = ValueKind.INTEGER
    elif base.endswith(("char", "text")):
        kind = ValueKind.STRING
    elif base.endswith(("binary", "blob")):
        kind = ValueKind.BINARY
    else:
        kind = _KINDS[base]
    labels = parse_labels(type_text) if kind in (ValueKind.ENUM, ValueKind.SET) else ()
    return Column("c", kind, type_text, nullable, unsigned="unsigned" in type_text, labels=labels, generated=generated)


def fits(source: str, target: str, mapping: Mapping | None = None) -> bool:
    return incompatibility(ColumnPlan(0, column(source), "c", mapping), column(target)) is None


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("int(11)", "int"),
        ("int unsigned", "bigint"),
        ("tinyint(1)", "smallint"),
        ("decimal(10,2)", "decimal(12,4)"),
        ("decimal(10,2) unsigned", "decimal(10,2)"),
        ("float", "double"),
        ("double(10,2)", "double"),
        ("bit(3)", "bit(8)"),
        ("datetime", "datetime(3)"),
        ("char(10)", "varchar(10)"),
        ("varchar(10)", "varchar(11)"),
        ("varchar(10)", "text"),
        ("tinytext", "longtext"),
        ("binary(4)", "varbinary(4)"),
        ("varbinary(9)", "blob"),
        ("blob", "mediumblob"),
        ("enum('a','b')", "enum('b','c','a')"),
        ("set('a','b')", "varchar(9)"),
        ("json", "longtext"),
        ("point", "geometry"),
        ("vector(3)", "vector(4)"),
        ("vector(3)", "varbinary(12)"),
        ("vector(2048)", "blob"),
        ("uuid", "binary(16)"),
        ("inet6", "varbinary(16)"),
        ("inet4", "tinyblob"),
    ],
)
def test_wider_is_fine_and_the_way_back_is_not(source: str, target: str) -> None:
    assert fits(source, target)
    same_width = {"int(11)": "int"}
    if same_width.get(source) != target:
        assert not fits(target, source)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("int", "int unsigned"),
        ("bigint unsigned", "bigint"),
        ("decimal(10,2)", "decimal(11,4)"),
        ("int", "varchar(20)"),
        ("datetime", "timestamp"),
        ("timestamp", "datetime"),
        ("datetime(3)", "datetime"),
        ("varchar(4)", "char(4)"),
        ("varbinary(4)", "binary(4)"),
        ("binary(4)", "binary(5)"),
        ("longtext", "json"),
        ("double", "double(10,2)"),
        ("enum('a','b')", "enum('a')"),
        ("varchar(9)", "blob"),
        ("date", "datetime"),
        ("uuid", "inet6"),
        ("binary(16)", "uuid"),
        ("inet4", "binary(16)"),
        ("uuid", "varbinary(15)"),
        ("vector(3)", "binary(12)"),
        ("vector(4)", "varbinary(15)"),
    ],
)
def test_what_a_server_would_change_without_an_error_does_not_fit(source: str, target: str) -> None:
    assert not fits(source, target)


def test_mapped_columns_need_room_for_the_mapped_value() -> None:
    assert fits("int", "bigint", PartitionId(0, 44))
    assert fits("int", "bigint unsigned", PartitionId(0, 44))
    assert not fits("int", "int", PartitionId(0, 44))
    assert fits("varchar(10)", "varchar(12)", AddPrefix("ab"))
    assert not fits("varchar(10)", "varchar(11)", AddPrefix("ab"))


def test_null_and_generated() -> None:
    nullable = ColumnPlan(0, column("int", nullable=True), "c")
    assert incompatibility(nullable, column("int")) is not None
    assert incompatibility(nullable, column("int", nullable=True)) is None
    assert incompatibility(ColumnPlan(0, column("int"), "c"), column("int", generated=True)) is not None


def test_both_names_of_a_geometry_collection_are_one_type() -> None:
    assert fits("geometrycollection", "geomcollection")
    assert fits("geomcollection", "geometrycollection")
    assert not fits("geomcollection", "point")


@pytest.mark.parametrize(
    ("text", "target", "fits"),
    [
        ("shop_1", "varchar(6)", True),
        ("shop_1", "varchar(5)", False),
        ("shop_1", "char(6)", True),
        ("shop_1", "char(255)", True),
        ("shop_1", "text", True),
        ("shop ", "char(5)", False),  # CHAR loses the space
        ("shop ", "varchar(5)", True),
        ("", "char(1)", True),
        ("7", "int(11)", False),
        ("7", "varbinary(9)", False),
    ],
)
def test_a_column_from_names_needs_room_for_its_text_alone(text: str, target: str, fits: bool) -> None:
    made = ColumnPlan(-1, column("varchar(256)"), "c", Constant(text))
    found = incompatibility(made, column(target))
    assert (found is None) == fits
    assert found is None or repr(text) in found

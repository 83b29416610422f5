"""The least type that holds the values of several."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.ddl.sql.column_definition import parse_column
from shardmerge.worker.ddl.sql.common_type import ColumnType, NoCommonType, common_type, keeps_when_strict


def read(text: str) -> ColumnType:
    return parse_column("c", text, "utf8mb4_bin").type


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("tinyint(4)", "bigint(20)", "bigint"),
        ("int", "int(11)", "int"),
        ("smallint unsigned", "mediumint unsigned", "mediumint unsigned"),
        ("int(10) unsigned", "bigint", "bigint"),
        ("tinyint unsigned", "smallint", "smallint"),
        ("decimal(10,2)", "decimal(8,4)", "decimal(12,4)"),
        ("decimal(65,0)", "decimal(3,0)", "decimal(65,0)"),
        ("decimal(5,1) unsigned", "decimal(5,2) unsigned", "decimal(6,2) unsigned"),
        ("decimal(5,1)", "decimal(5,2) unsigned", "decimal(6,2)"),
        ("float", "double", "double"),
        ("float unsigned", "double unsigned", "double unsigned"),
        ("float unsigned", "float", "float"),
        ("float", "double unsigned", "double"),
        ("char(3)", "char(5)", "char(5)"),
        ("varchar(3)", "varchar(50)", "varchar(50)"),
        ("varbinary(3)", "varbinary(50)", "varbinary(50)"),
        ("tinytext", "mediumtext", "mediumtext"),
        ("text", "longtext", "longtext"),
        ("tinyblob", "blob", "blob"),
        ("varchar(63)", "tinytext", "tinytext"),
        ("varchar(64)", "tinytext", "text"),  # 4 bytes a character
        ("varchar(255) CHARACTER SET latin1", "tinytext CHARACTER SET latin1", "tinytext"),
        ("varchar(100)", "longtext", "longtext"),
        ("varbinary(256)", "tinyblob", "blob"),
        ("enum('a','b')", "enum('a','b','c,d')", "enum('a','b','c,d')"),
        ("set('a')", "set('a','b')", "set('a','b')"),
        ("datetime", "datetime(3)", "datetime(3)"),
        ("timestamp(6)", "timestamp(3)", "timestamp(6)"),
        ("time(1)", "time", "time(1)"),
        ("uuid", "uuid", "uuid"),
        ("json", "json", "json"),
        ("binary(4)", "binary(4)", "binary(4)"),
        ("int(5) unsigned zerofill", "int(5) unsigned zerofill", "int(5) unsigned zerofill"),
    ],
)
def test_common_type_of_two(one: str, other: str, both: str) -> None:
    for pair in ((one, other), (other, one)):
        found = common_type([read(each) for each in pair])
        assert isinstance(found, ColumnType)
        assert found.bare == both


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ("int unsigned", "int", "signed"),
        ("bigint unsigned", "bigint", "signed"),
        ("bigint unsigned", "int", "signed"),
        ("int unsigned", "smallint", "signed"),
        ("int", "int(5) unsigned zerofill", "ZEROFILL"),
        ("int(5) unsigned zerofill", "int(6) unsigned zerofill", "ZEROFILL"),
        ("decimal(65,0)", "decimal(3,2)", "DECIMAL(67,2)"),
        ("decimal(40,35)", "decimal(40,34)", "more than the server has"),
        ("double", "double(6,2)", "DOUBLE"),
        ("float(6,2)", "double", "no type"),
        ("char(5)", "varchar(5)", "no type treats trailing spaces"),
        ("char(5)", "text", "no type treats trailing spaces"),
        ("binary(4)", "binary(5)", "BINARY"),
        ("binary(4)", "varbinary(4)", "no type"),
        ("varchar(5)", "varbinary(5)", "collation"),
        ("text", "blob", "collation"),
        ("datetime", "text", "no type"),
        ("varchar(5)", "varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", "collation"),
        ("varchar(5)", "text CHARACTER SET latin1", "character set"),
        ("enum('a','b')", "enum('b','a')", "members"),
        ("enum('a','b')", "enum('a','c','d')", "members"),
        ("set('a')", "enum('a')", "no type"),
        ("datetime", "timestamp", "no type"),
        ("date", "datetime", "no type"),
        ("bit(3)", "bit(4)", "BIT"),
        ("uuid", "binary(16)", "no type"),
        ("json", "longtext", "character set"),
        ("int", "varchar(11)", "no type"),
        ("int", "decimal(10,0)", "no type"),
        ("vector(3)", "vector(4)", "VECTOR"),
    ],
)
def test_no_common_type(one: str, other: str, why: str) -> None:
    for pair in ((one, other), (other, one)):
        found = common_type([read(each) for each in pair])
        assert isinstance(found, NoCommonType)
        assert why in found.why


TYPES = [
    read(each)
    for each in (
        "tinyint", "smallint unsigned", "int", "int unsigned", "bigint", "bigint unsigned", "decimal(5,2)",
        "decimal(8,1)", "decimal(5,2) unsigned", "decimal(64,0)",
        "float", "float unsigned", "double", "varchar(5)", "varchar(90)", "tinytext", "text", "char(4)", "char(9)",
        "datetime", "datetime(3)", "enum('a')", "enum('a','b')", "enum('b')", "blob", "varbinary(400)", "tinyblob",
    )
]  # fmt: skip


def join_all(types: list[ColumnType]) -> ColumnType | None:
    found = common_type(types)
    return found if isinstance(found, ColumnType) else None


@given(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
def test_a_least_upper_bound(types: list[ColumnType]) -> None:
    found = join_all(types)
    assert all(join_all(list(order)) == found for order in itertools.permutations(types))
    assert join_all(types + types) == found
    if found is not None:
        assert all(join_all([each, found]) == found for each in types)
        assert join_all([*types, found]) == found
        others = [each for each in TYPES if all(join_all([each, one]) == each for one in types)]
        assert all(join_all([each, found]) == each for each in others), "there is a lesser one"


@pytest.mark.parametrize(
    ("wide", "narrow", "keeps"),
    [
        ("bigint", "int", True),
        ("int", "int unsigned", True),
        ("decimal(10,2)", "decimal(5,2)", True),
        ("decimal(10,2)", "decimal(10,1)", False),
        ("double", "float", False),
        ("varchar(10)", "varchar(5)", False),
        ("datetime(6)", "datetime", False),
        ("int(5) unsigned zerofill", "int", False),
        ("enum('a','b')", "enum('a')", False),
    ],
)
def test_narrowings_that_a_strict_server_refuses(wide: str, narrow: str, *, keeps: bool) -> None:
    assert keeps_when_strict(read(wide), read(narrow)) is keeps

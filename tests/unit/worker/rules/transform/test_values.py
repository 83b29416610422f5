"""Literals into values of Spark SQL, and computed values into literals."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.binlog.rows.literal_text import text_of_literal
from shardmerge.worker.binlog.rows.row_literals import literal
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.rules.transform.values import BadValue, arrow_type, computed_column, literal_of, reading


def column(kind: ValueKind, type_text: str, charset: str = "", *, unsigned: bool = False) -> Column:
    return Column("c", kind, type_text, True, unsigned=unsigned, charset=charset)


BIGINT = column(ValueKind.INTEGER, "bigint(20)")
UNSIGNED = column(ValueKind.INTEGER, "bigint unsigned", unsigned=True)
NUMBER = column(ValueKind.DECIMAL, "decimal(38,10)")
DOUBLE = column(ValueKind.DOUBLE, "double")
DATE = column(ValueKind.DATE, "date")
DATETIME = column(ValueKind.DATETIME, "datetime(6)")
TEXT = column(ValueKind.STRING, "text", "utf8mb4")
BLOB = column(ValueKind.BINARY, "blob")
VALUES = st.one_of(
    st.tuples(st.just(BIGINT), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.tuples(st.just(UNSIGNED), st.integers(0, (1 << 64) - 1).map(Decimal)),
    st.tuples(st.just(NUMBER), st.decimals(-(10**27), 10**27, places=10)),
    st.tuples(st.just(DOUBLE), st.floats(allow_nan=False, allow_infinity=False)),
    st.tuples(st.just(DATE), st.dates()),
    st.tuples(st.just(DATETIME), st.datetimes()),
    st.tuples(st.just(TEXT), st.text(st.characters(exclude_categories=["Cs"]))),
    st.tuples(st.just(BLOB), st.binary()),
)


@given(VALUES)
def test_a_value_goes_out_as_it_came_in(pair: tuple[Column, object]) -> None:
    of, value = pair
    made = text_of_literal(literal_of(value))
    assert reading(of)(made) == value
    assert pa.array([reading(of)(made)], arrow_type(of)).to_pylist() == [value]
    assert reading(of)(None) is None


@given(VALUES)
def test_computed_values_have_the_bytes_of_copied_ones(pair: tuple[Column, object]) -> None:
    """But for trailing zeros and the spelling of floats, which are numbers all the same."""
    of, value = pair
    if of in (DOUBLE, DATETIME, NUMBER):
        return
    made = literal_of(value)
    assert literal(of, text_of_literal(made)) == made


@pytest.mark.parametrize(
    ("of", "text", "value"),
    [
        (column(ValueKind.STRING, "text", "latin1"), b"_latin1 X'E980816A'", "\u00e9\u20ac\x81j"),
        (column(ValueKind.ENUM, "enum('x')"), b"'x'", "x"),
        (column(ValueKind.TIME, "time(3)"), b"'-838:59:59.000'", "-838:59:59.000"),
        (column(ValueKind.YEAR, "year"), b"0", 0),
        (column(ValueKind.BIT, "bit(64)"), b"18446744073709551615", Decimal(18446744073709551615)),
        (column(ValueKind.BIT, "bit(3)"), b"7", 7),
        (column(ValueKind.TIMESTAMP, "timestamp"), b"'2020-01-02 03:04:05'", datetime.datetime(2020, 1, 2, 3, 4, 5)),
        (column(ValueKind.FLOAT, "float"), b"0.10000000149011612", 0.10000000149011612),
    ],
)
def test_literals(of: Column, text: bytes, value: object) -> None:
    assert reading(of)(text_of_literal(text)) == value


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (DATE, b"'0000-00-00'"),
        (DATE, b"'2020-00-01'"),
        (DATETIME, b"'0000-00-00 00:00:00'"),
        (DATETIME, b"'2020-02-30 00:00:00'"),
        (TEXT, b"X'FF'"),
    ],
)
def test_what_spark_has_no_value_for_is_an_error(of: Column, text: bytes) -> None:
    with pytest.raises(BadValue):
        reading(of)(text_of_literal(text))


@pytest.mark.parametrize(
    "of",
    [
        column(ValueKind.JSON, "json"),
        column(ValueKind.GEOMETRY, "point"),
        column(ValueKind.DECIMAL, "decimal(39,0)"),
        column(ValueKind.STRING, "text", "gbk"),
    ],
)
def test_columns_that_no_expression_may_name(of: Column) -> None:
    assert arrow_type(of) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", [1]])
def test_values_that_no_table_has(value: object) -> None:
    with pytest.raises(BadValue):
        literal_of(value)


@pytest.mark.parametrize(
    ("spark", "type_text"),
    [
        ("boolean", "tinyint(1)"),
        ("int", "int"),
        ("decimal(31,2)", "decimal(31,2)"),
        ("varchar(30)", "varchar(30)"),
        ("string", "longtext"),
        ("string collate UTF8_LCASE", "longtext"),
        ("timestamp", "datetime(6)"),
        ("binary", "longblob"),
    ],
)
def test_types_of_computed_columns(spark: str, type_text: str) -> None:
    assert computed_column("c", spark, nullable=True).type_text == type_text


@pytest.mark.parametrize("spark", ["array<int>", "void", "char(7)", "decimal(38,31)", "interval day", "varchar(20000)"])
def test_types_that_no_table_has(spark: str) -> None:
    with pytest.raises(BadValue):
        computed_column("c", spark, nullable=True)

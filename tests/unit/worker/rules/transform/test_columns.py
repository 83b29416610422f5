"""Whole columns: the results are those of single values."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.binlog.rows.literal_text import text_of_literal
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.rules.transform.columns import InputColumn, NoValue, literals_of
from shardmerge.worker.rules.transform.values import arrow_type, literal_of, reading


def column(kind: ValueKind, type_text: str, charset: str = "", *, unsigned: bool = False) -> Column:
    return Column("c", kind, type_text, True, unsigned=unsigned, charset=charset)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
INPUTS = [
    (column(ValueKind.INTEGER, "bigint"), st.integers(-(1 << 63), (1 << 63) - 1)),
    (column(ValueKind.INTEGER, "bigint unsigned", unsigned=True), st.integers(0, (1 << 64) - 1)),
    (column(ValueKind.DECIMAL, "decimal(38,10)"), st.decimals(-(10**27), 10**27, places=10)),
    (column(ValueKind.DOUBLE, "double"), st.floats(allow_nan=False, allow_infinity=False)),
    (column(ValueKind.DATE, "date"), st.dates()),
    (column(ValueKind.DATETIME, "datetime(6)"), st.datetimes()),
    (column(ValueKind.STRING, "text", "utf8mb4"), TEXTS),
    (column(ValueKind.STRING, "text", "utf8mb3"), TEXTS.filter(lambda text: not text or max(text) < "\U00010000")),
    (column(ValueKind.BINARY, "blob"), st.binary()),
]


@given(st.data())
@pytest.mark.parametrize("number", range(len(INPUTS)))
def test_texts_become_the_values_that_each_is_alone(number: int, data: st.DataObject) -> None:
    of, values = INPUTS[number]
    found = data.draw(st.lists(st.none() | values, max_size=20))
    texts = [text_of_literal(literal_of(value)) for value in found]
    expected = pa.array([reading(of)(text) for text in texts], arrow_type(of))
    assert InputColumn(of).array(texts).to_pylist() == expected.to_pylist()


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (column(ValueKind.DATE, "date"), b"0000-00-00"),
        (column(ValueKind.DATE, "date"), b"0000-01-01"),
        (column(ValueKind.DATETIME, "datetime(6)"), b"0000-12-31 23:59:59.999999"),
        (column(ValueKind.DATETIME, "datetime"), b"2020-02-30 00:00:00"),
        (column(ValueKind.STRING, "text", "utf8mb4"), b"\xff"),
        (column(ValueKind.STRING, "text", "utf8mb3"), "\U0001f600".encode()),
        (column(ValueKind.STRING, "text", "ascii"), b"\x80"),
    ],
)
def test_the_row_without_a_value_is_named(of: Column, text: bytes) -> None:
    with pytest.raises(NoValue) as caught:
        InputColumn(of).array([None, None, text, text])
    assert caught.value.row == 2
    assert "has no counterpart" in str(caught.value)


def test_latin1() -> None:
    of = column(ValueKind.STRING, "text", "latin1")
    assert InputColumn(of).array([b"a", None, b"\xe9\x80"]).to_pylist() == ["a", None, "\u00e9\u20ac"]


RESULTS: list[tuple[pa.DataType, st.SearchStrategy[object]]] = [
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.bool_(), st.booleans()),
    (pa.decimal128(31, 2), st.decimals(-(10**20), 10**20, places=2)),
    (pa.decimal128(31, 9), st.decimals(-(10**20), 10**20, places=9)),
    (pa.string(), TEXTS),
    (pa.binary(), st.binary()),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
]


@given(st.data())
@pytest.mark.parametrize("number", range(len(RESULTS)))
def test_literals_are_those_of_each_value_alone(number: int, data: st.DataObject) -> None:
    kind, values = RESULTS[number]
    found: Sequence[object] = data.draw(st.lists(st.none() | values, max_size=20))
    array = pa.array(found, kind)
    assert literals_of(pa.chunked_array([array], kind)) == [literal_of(value) for value in array.to_pylist()]


def test_the_result_without_a_literal_is_named() -> None:
    with pytest.raises(NoValue) as caught:
        literals_of(pa.chunked_array([pa.array([1.0, None, float("nan")])]))
    assert caught.value.row == 2

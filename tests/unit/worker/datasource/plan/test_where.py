"""The option ``where``: what it accepts, its SQL, and its meaning for Arrow's arrays."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import AddPrefix, ColumnPlan
from shardmerge.worker.datasource.arrow_library import pa
from shardmerge.worker.datasource.plan.where import condition_of, is_met, parse_where

COLUMNS = [
    ColumnPlan(0, Column("Id", ValueKind.INTEGER, "bigint(20)", False), "Id"),
    ColumnPlan(1, Column("a`b", ValueKind.DATE, "date", True), "a`b"),
    ColumnPlan(2, Column("at", ValueKind.DATETIME, "datetime", True), "at"),
    ColumnPlan(3, Column("seen", ValueKind.TIMESTAMP, "timestamp", True), "seen"),
    ColumnPlan(4, Column("name", ValueKind.STRING, "varchar(9)", True), "name"),
    ColumnPlan(5, Column("made", ValueKind.INTEGER, "int(11)", True), "made", AddPrefix("x")),
]


def test_sql_has_the_values_as_they_are_compared() -> None:
    text = "id>=-5 and ID < 1.50  AND at = '2024-01-02' and seen <= '2024-01-02 03:04:05.5'"
    assert condition_of(parse_where(text), COLUMNS) == (
        b"`Id` >= -5 AND `Id` < 1.50 AND `at` = '2024-01-02 00:00:00' AND `seen` <= '2024-01-02 03:04:05.500000'"
    )
    assert condition_of(parse_where(" "), COLUMNS) == b""


@pytest.mark.parametrize(
    "text",
    [
        *("id = 1 OR id = 2", "id = 1 AND", "id = 'a'", "id = 1; x", "id IN (1)", "1 = id", "name = 1", "at = 1"),
        *("id = '1'", "none = 1", "made = 1", "at = '2024-02-30'", "id"),
    ],
)
def test_what_may_mean_something_else_at_a_server_is_refused(text: str) -> None:
    with pytest.raises(ShardmergeError) as caught:
        condition_of(parse_where(text), COLUMNS)
    assert caught.value.spec is errors.read.OPTION


@pytest.mark.parametrize(
    ("text", "values", "met"),
    [
        ("id > 3", pa.array([3, 4, None], pa.int64()), [False, True, None]),
        ("id <= 3.5", pa.array([3, 4, None], pa.int8()), [True, False, None]),
        ("id = 18446744073709551615", pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)), [True]),
        ("at < '2024-01-01'", pa.array([datetime.datetime(2023, 12, 31, 23)], pa.timestamp("us")), [True]),
        (
            "seen >= '2024-01-01'",
            pa.array([datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)], pa.timestamp("us", tz="UTC")),
            [True],
        ),
    ],
)
def test_rows_are_compared(text: str, values: Any, met: list[bool | None]) -> None:
    [each] = parse_where(text)
    [column] = [column for column in COLUMNS if column.target_name.lower() == each.column.lower()]
    assert is_met(each, column, values).to_pylist() == met

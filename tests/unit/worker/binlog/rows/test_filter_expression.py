"""Expressions evaluated here: MySQL's three truth values, and what is left to the server."""

from __future__ import annotations

import pytest

from shardmerge.proto.config.rules.expression import parse
from shardmerge.worker.binlog.rows.filter_expression import compile_expression
from shardmerge.worker.core.table import Column, ValueKind

COLUMNS = {
    "a": (0, Column("a", ValueKind.INTEGER, "int(11)", True)),
    "b": (1, Column("b", ValueKind.INTEGER, "int(11)", True)),
    "u": (2, Column("u", ValueKind.INTEGER, "bigint(20) unsigned", True, unsigned=True)),
    "d": (3, Column("d", ValueKind.DECIMAL, "decimal(10,2)", True)),
    "v": (4, Column("v", ValueKind.STRING, "varchar(9)", True, charset="utf8mb4")),
}


def value(text: str, a: int | None, b: int | None = 0) -> bool | None:
    test = compile_expression(parse(text), COLUMNS)
    assert test is not None
    row = [b"NULL" if each is None else b"%d" % each for each in (a, b)]
    found = test([*row, b"18446744073709551615", b"-1.50", b"'x'"])
    return None if found is None else bool(found)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        # for a, b of: 1 1, 1 0, 1 NULL, 0 0, 0 NULL, NULL NULL
        ("a AND b", (True, False, None, False, False, None)),
        ("a OR b", (True, True, True, False, None, None)),
        ("a XOR b", (False, True, None, False, None, None)),
        ("NOT a", (False, False, False, True, True, None)),
        ("NOT b", (False, True, None, True, None, None)),
        ("a = b", (True, False, None, True, None, None)),
        ("a <=> b", (True, False, False, True, False, True)),
        ("a <> b", (False, True, None, False, None, None)),
        ("b IN (0, 5)", (False, True, None, True, None, None)),
        ("b NOT IN (0, 5)", (True, False, None, False, None, None)),
        ("0 IN (a, b)", (False, True, None, True, True, None)),
        ("b BETWEEN 0 AND a", (True, True, None, True, None, None)),
        ("b NOT BETWEEN 1 AND 2", (False, True, None, True, None, None)),
        ("b IS NULL", (False, False, True, False, True, True)),
        ("b IS NOT TRUE", (False, True, True, True, True, True)),
        ("b IS FALSE", (False, True, False, True, False, False)),
        ("(a = b) IS UNKNOWN", (False, False, True, False, True, True)),
        ("ISNULL(b) OR a + b * 2 = 3", (True, False, True, False, True, True)),
        ("NOT a = b AND TRUE", (False, True, None, False, None, None)),
        ("a OR b AND FALSE", (True, True, True, False, False, None)),
        ("d = -1.5 AND d < -1.49 AND u > a", (True, True, True, True, True, None)),
    ],
)
def test_truth(text: str, answers: tuple[bool | None, ...]) -> None:
    rows = [(1, 1), (1, 0), (1, None), (0, 0), (0, None), (None, None)]
    assert tuple(value(text, a, b) for a, b in rows) == answers


@pytest.mark.parametrize(
    "text",
    [
        "v = 'a'",
        "a = '1'",
        "a = 1e0",
        "a = NULL",
        "a / 2 = 1",
        "a % 2 = 1",
        "a DIV 2 = 1",
        "-a = 1",
        "a = b = 1",
        "a < b IS NULL",
        "(a = 1) = b",
        "a | b",
        "a || b",
        "a && b",
        "!a",
        "a IN (1, NULL)",
        "a IN (b, -1, u)",
        "u BETWEEN a AND b",
        "u + 1 > 0",
        "u - 1 > 0",
        "a * u > 0",
        "d + 1 > 0",
        "a = 1234567890123456789",
        "a LIKE 1",
        "ABS(a) = 1",
        "CASE WHEN a THEN 1 END",
        "a = DATE '2020-01-01'",
    ],
)
def test_what_is_left_to_the_server(text: str) -> None:
    assert compile_expression(parse(text), COLUMNS) is None

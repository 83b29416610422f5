"""The text of a transform: its items, and what is refused without asking Spark."""

from __future__ import annotations

import pytest

from worker.transform.text import Refused, check_words, split_items


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("id", ("id",)),
        ("id, *", ("id", "*")),
        ("id, concat(a, ',', b) AS c", ("id", "concat(a, ',', b) AS c")),
        ('`a,b`, "x,y" AS c', ("`a,b`", '"x,y" AS c')),
        (r"'it\'s, ' AS c, d", (r"'it\'s, ' AS c", "d")),
        ("a[1], * EXCEPT (b, c)", ("a[1]", "* EXCEPT (b, c)")),
        ("CASE WHEN (a = 1) THEN 'x' ELSE (b) END AS c", ("CASE WHEN (a = 1) THEN 'x' ELSE (b) END AS c",)),
    ],
)
def test_items(text: str, items: tuple[str, ...]) -> None:
    assert split_items(text) == items


@pytest.mark.parametrize(
    "text",
    [
        "rand() AS r",
        "now()",
        "uuid()",
        "current_timestamp",
        "CURRENT_DATE AS d",
        "sum(a) AS s",
        "(SELECT 1) AS s",
        "row_number() OVER (ORDER BY a) AS r",
        "explode(a)",
        "java_method('a', 'b')",
        "`rand`() AS r",
        "system.builtin.rand() AS r",
        "rand () AS r",
        "rand/**/() AS r",
        "a -- b",
        "DATE 'today' AS d",
        "DATE ' today UTC' AS d",
        'timestamp "NOW" AS d',
        r"DATE '\u0074oday' AS d",
        r"DATE '2020-01-0\u0031' AS d",
        "TIMESTAMP_NTZ 'epoch' AS d",
        "a, , b",
        "",
        "(a",
        "a)",
        "'a",
        "a; b",
        ":a",
        "{a}()",
        r"r'\', rand()",
        "session_window(a, b)",
        "CAST('to' 'day' AS DATE) AS d",
    ],
)
def test_what_may_say_something_else_each_time_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        split_items(text)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 AND (b IN (1, 2) OR NOT (c))",
        "a LIKE 'rand()%'",
        "`rand` = 1",
        "user = 'x'",
        "d < DATE '2020-01-01' OR v = 'today'",
    ],
)
def test_conditions_over_a_row_pass(text: str) -> None:
    check_words(text)

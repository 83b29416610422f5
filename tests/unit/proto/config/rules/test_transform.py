"""The text of a transform: its items, and what is refused without asking Spark."""

from __future__ import annotations

import pytest

from shardmerge.proto.config.rules.transform import TransformRefused, check_condition, split_items


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
        "reflect('java.lang.System', 'getenv', 'PATH')",
        "read_files('/etc/passwd')",
        "(SELECT value FROM text.`/etc/passwd`) AS s",
        "EXISTS (SELECT 1) AS s",
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
    with pytest.raises(TransformRefused):
        split_items(text)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 AND (b IN (1, 2) OR NOT (c))",
        "a LIKE 'rand()%'",
        "`rand` = 1",
        "user = 'x'",
        "d < DATE '2020-01-01' OR v = 'today'",
        # What MySQL has not: neighbours that are wrong there are right here.
        "a == 1 AND b <=> NULL OR c >>> 2 = 1 AND d !< 2",
        "a.b = 1 AND c[0].d = 2 AND named_struct('x', 1).x > .5",
        "like(v, 'b%') OR v LIKE ANY ('a%', 'b%') OR v NOT ILIKE 'c'",
        "v IS NOT DISTINCT FROM w OR v IS DISTINCT FROM 'x'",
        "extract(YEAR FROM d) = 2020 AND trim(BOTH 'x' FROM v) = 'a' AND substring(v FROM 2 FOR 3) = 'b'",
        "at < TIMESTAMP_NTZ '2020-01-01 00:00:00' - INTERVAL '1-2' YEAR TO MONTH - interval 3 days 2 hours",
        "CAST(a AS ARRAY<INT>) = array(1) OR size(CAST(b AS MAP<STRING, INT>)) > 0",
        "array_size(array_sort(c, (x, y) -> x - y)) > 1 AND concat_ws(',', *) = 'x'",
        "CASE a WHEN 1 THEN true ELSE NOT b IS NULL END AND X'1F' = b",
        "NOT (a IN (1, -2)) AND v COLLATE UTF8_LCASE = 'a' AND a DIV 2 = 1 AND div(a, 2) = 1",
        "-a * -1 <> 1e-3 AND !b AND ~c = 1 AND d % 2 = 1 AND 1.5BD > e || 'x'",
        "xor = 1 AND year = 2 AND end = 3 AND from = 4",
    ],
)
def test_conditions_over_a_row_pass(text: str) -> None:
    check_condition(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id = = 1", "= cannot follow what is before it"),
        ("id = 1 AND", "nothing follows AND"),
        ("id = 1 name = 'x'", "there is no operator between 1 and name"),
        ("id > 1; id > 2", "it holds ';'"),
        ("DELETE FROM t", "FROM is no part of an expression over one row"),
        ("DROP TABLE t", "there is no operator between DROP and TABLE"),
        ("id = 1 ORDER BY id", "there is no operator between 1 and ORDER"),
        ("SELECT id > 1", "SELECT is no part of an expression over one row"),
        ("*", "* cannot follow what is before it"),
        ("LENTH(name) > 1", "the function LENTH is not known to depend only on the row; did you mean LENGTH?"),
        (" ", "it is empty"),
    ],
)
def test_what_no_table_makes_a_condition(text: str, why: str) -> None:
    with pytest.raises(TransformRefused) as caught:
        check_condition(text)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    "text",
    [
        "id, upper(name) AS name, price * qty total, concat(a, 'x') both, n 'text'",
        "id, a AS b, b AS a, * EXCEPT (id, a, b)",
        "id, 1 AS one, 1 AS two, NULL AS three, NULL AS four, user AS five, user AS six",
        "t.id, t.id AS k, s.id",  # of structures, perhaps
        "CASE WHEN a = 1 THEN b END c, extract(YEAR FROM d) AS y, CAST(a AS DECIMAL(10, 2)), CAST(b AS INT) AS e",
        "*, `a b`, `a``b` AS c, hash(*) AS h, year AS y2, a[0] z",
    ],
)
def test_projections_pass_whose_columns_only_spark_knows(text: str) -> None:
    split_items(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id, 1 AS x, 2 AS X", "two columns are named X"),
        ("ID, 1 AS X, 2 AS x", "two columns are named x"),
        ("id, upper(name) ID", "two columns are named ID"),
        ("a AS `b``c`, `b``c`", "two columns are named b`c"),
        ("id, ID AS k", "column ID is passed on twice"),
        ("ID, id AS k", "column id is passed on twice"),
        ("a AS b, `A` c", "column A is passed on twice"),
        ("*, id, *", "it holds * twice"),
        ("id, name FROM t", "name FROM t: FROM is no part of an expression over one row"),
        ("id, price * AS total", "price * AS total: nothing follows *"),
        ("id, upper(name, ) AS n", "upper(name, ) AS n: nothing follows a comma"),
        ("id, a b c", "a b c: there is no operator between a and b"),
        ("id, * + 1 AS n", "* + 1 AS n: * cannot follow what is before it"),
        ("id, name AS", "name AS: nothing follows AS"),
        ("id, AS name", "AS name: nothing precedes AS"),
    ],
)
def test_what_no_table_makes_a_projection(text: str, why: str) -> None:
    with pytest.raises(TransformRefused) as caught:
        split_items(text)
    assert str(caught.value) == why

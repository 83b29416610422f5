"""Expressions as the user writes them: what is refused, and which columns are named."""

from __future__ import annotations

import pytest

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.config.rules.expression import ExpressionRefused, NoColumn, parse
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import ColumnPlan, RowFilter
from shardmerge.worker.rules.expression_filter import ExpressionFilters
from tests.support.plans import integer, text

PLACES = {"a": 0, "b": 1, "date": 2, "x": 4}


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ("a = 1", (0,)),
        ("A = 1 AND `B` <=> NULL", (0, 1)),
        ("date > DATE '2020-01-01'", (2,)),
        ("date > '2020-01-01' - INTERVAL 1 DAY", (2,)),
        ("x = x'4D' OR x = _latin1 X'4D' OR x = n'a' OR x = _utf8mb4'a'", (4,)),
        ("CAST(a AS UNSIGNED) = 1", (0,)),
        ("CONVERT(b USING latin1) COLLATE latin1_bin = 'B'", (1,)),
        ("CASE WHEN a IS NULL THEN b ELSE 1e5 END", (0, 1)),
        ("TRIM(LEADING 'x' FROM b) LIKE 'a%' ESCAPE '!'", (1,)),
        ("IF(a, TRUE, b) IN (1.5, 0x4D, b'01')", (0, 1)),
        ("PI() > 3", ()),
        ("a <-1 OR a=-.5 OR a>~1 OR NOT a=!b OR a NOT IN (1,-1) OR a NOT LIKE 'x' 'y'", (0, 1)),
        ("a*-1e-5<>1.5e3 OR b->'$.x'>1 OR a||b AND a||!b", (0, 1)),
        ("CASE a WHEN 1 THEN b ELSE -a END IS NOT NULL", (0, 1)),
        ("b = 'c -- d; SELECT' -- and c", (1,)),
        ('b = "it\'s c" /* c */', (1,)),
    ],
)
def test_columns(given: str, columns: tuple[int, ...]) -> None:
    assert parse(given).columns(PLACES) == columns


def test_a_word_of_the_language_may_be_a_column_too() -> None:
    """One column too many is held beside the others, no harm: the server reads the words."""
    assert parse("`and` = 1 and a = 2").columns({**PLACES, "and": 3}) == (0, 3)


@pytest.mark.parametrize("given", ["c = 1", "`c` = 1", "a = `1`", "a = 1 AND nope", "LENGTH(c) > 1", "a = USER"])
def test_a_name_that_is_no_column(given: str) -> None:
    with pytest.raises(NoColumn):
        parse(given).columns(PLACES)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "empty"),
        ("a = 1)", "closed that was not opened"),
        ("a = 1) OR (1 = 1", "closed that was not opened"),
        ("(a = 1", "not closed"),
        ("a = 'x", "no end"),
        ("a = = 1", "= cannot follow what is before it"),
        ("a == 1", "= cannot follow what is before it"),
        ("a AND OR b", "OR cannot follow what is before it"),
        ("> 1", "> cannot follow what is before it"),
        ("a = ", "nothing follows ="),
        ("a > 1 AND", "nothing follows AND"),
        ("(a -) > 1", "nothing follows -"),
        ("a IN (1, )", "nothing follows a comma"),
        ("a IN (, 1)", ", cannot follow what is before it"),
        ("a 1", "there is no operator between a and 1"),
        ("a > 1 b < 2", "there is no operator between 1 and b"),
        ("a = 1.5 .5", "there is no operator between 1.5 and .5"),
        ("`a` 'x'", "there is no operator between a and 'x'"),
        ("(a) (b)", "there is no operator between . and ."),
        ("a > NOT", "nothing follows NOT"),
        ("CASE WHEN a = THEN 1 END", "THEN cannot follow what is before it"),
        ("a = 1 /* x", "no end"),
        ("a = /*! 1 */ 2", "comment with code"),
        ("a = @b", "variable"),
        ("a = @@sql_mode", "variable"),
        ("a := 1", "':'"),
        ("a = 1; DROP TABLE t", "';'"),
        ("a = ?", "'?'"),
        ("RAND() < 0.5", "RAND"),
        ("RAND(a) < 0.5", "RAND"),
        ("date < NOW()", "NOW"),
        ("date < CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP"),
        ("date < localtime", "LOCALTIME"),
        ("UNIX_TIMESTAMP() > 5", "UNIX_TIMESTAMP"),
        ("UUID() = a", "UUID"),
        ("SLEEP(a)", "SLEEP"),
        ("GET_LOCK('x', 1)", "GET_LOCK"),
        ("LOAD_FILE('/etc/passwd') = b", "LOAD_FILE"),
        ("mine(a)", "MINE"),
        ("`mine`(a)", "`mine`"),
        ("a IN (SELECT 1)", "SELECT"),
        ("EXISTS (TABLE t)", "EXISTS"),
        ("t.a = 1", "named alone"),
        ("`d`.`t`.`a` = 1", "named alone"),
    ],
)
def test_what_is_refused(given: str, says: str) -> None:
    with pytest.raises(ExpressionRefused, match=says.replace("(", r"\(").replace("?", r"\?")):
        parse(given)


def filters(*rules: pb.ExpressionFilter, case_sensitive: bool = False) -> ExpressionFilters:
    return ExpressionFilters.from_config(
        pb.SubTaskConfig(task="t", source_id="s1", expression_filters=rules, case_sensitive=case_sensitive)
    )


TABLE = Table("d", "t", (integer("id"), integer("n"), text("v")), (0,), "PRIMARY", (), False, "InnoDB")
COLUMNS = tuple(ColumnPlan(at, column, column.name) for at, column in enumerate(TABLE.columns))


def test_the_rules_of_a_table() -> None:
    found = filters(
        pb.ExpressionFilter(name="one", schema="D", table="T", insert_value=" n = 1 "),
        pb.ExpressionFilter(name="two", schema="d", table="t", update_old_value="v = 'a'", update_new_value="n = 2"),
        pb.ExpressionFilter(name="other", schema="d", table="t2", delete_value="nope = 1"),
    )
    assert found.of_table(TABLE, COLUMNS) == (
        RowFilter("one", (1,), insert="n = 1"),
        RowFilter("two", (1, 2), update_old="v = 'a'", update_new="n = 2"),
    )


def test_names_count_as_the_source_takes_them() -> None:
    rule = pb.ExpressionFilter(name="one", schema="D", table="t", insert_value="n = 1")
    assert filters(rule, case_sensitive=True).of_table(TABLE, COLUMNS) == ()


@pytest.mark.parametrize(
    ("expression", "spec"),
    [("m = 1", errors.config.EXPRESSION_COLUMN), ("n = RAND(1)", errors.config.EXPRESSION_REFUSED)],
)
def test_findings_name_the_rule(expression: str, spec: errors.ErrorSpec) -> None:
    with pytest.raises(ShardmergeError) as caught:
        filters(pb.ExpressionFilter(name="one", schema="d", table="t", delete_value=expression)).of_table(
            TABLE, COLUMNS
        )
    assert caught.value.spec is spec
    assert "expression filter one" in str(caught.value)
    assert expression in str(caught.value)

"""Tests that an expression has the same result for a row in the program, at the target and at the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pymysql
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymysql.constants import ER

from shardmerge.proto.config.rules.expression import LANGUAGE, parse
from shardmerge.proto.config.rules.expression_order import wrong_order
from shardmerge.proto.sql_lexer import pieces
from shardmerge.worker.binlog.rows.filter_expression import compile_expression
from shardmerge.worker.binlog.rows.row_literals import RowWriter
from shardmerge.worker.core.mysql.connection import Session, Side, connect, execute, rows
from shardmerge.worker.core.mysql.information_schema import read_table, select_list
from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.rules.stage.server_filter import SESSION, EvaluationFailed, ServerFilter
from tests.integration.snapshot_rig import endpoint
from tests.support.binlog import plan_of
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL

COLUMNS = {
    "ti": "TINYINT",
    "i": "INT",
    "iu": "INT UNSIGNED",
    "b": "BIGINT",
    "bu": "BIGINT UNSIGNED",
    "z": "INT(6) ZEROFILL",
    "d": "DECIMAL(20,4)",
    "w": "DECIMAL(65,30)",
    "f": "FLOAT",
    "g": "DOUBLE",
    "dt": "DATE",
    "tm": "DATETIME(3)",
    "ts": "TIMESTAMP NULL",
    "t": "TIME(2)",
    "y": "YEAR",
    "v": "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "vb": "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "l": "VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_swedish_ci",
    "c": "CHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "np": "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_nopad_ci",
    "bn": "BINARY(4)",
    "vn": "VARBINARY(8)",
    "e": "ENUM('b','a','')",
    "s": "SET('x','y')",
    "bt": "BIT(9)",
}
NUMBERS = ["-128", "-1", "0", "1", "5", "127", "NULL"]
VALUES: dict[str, list[str]] = {
    "ti": NUMBERS,
    "i": [*NUMBERS, "2147483647", "-2147483648"],
    "iu": ["0", "1", "4294967295", "NULL"],
    "b": [*NUMBERS, "9223372036854775807", "-9223372036854775808", "9007199254740993"],
    "bu": ["0", "1", "18446744073709551615", "9223372036854775808", "NULL"],
    "z": ["0", "5", "NULL"],
    "d": ["0", "0.1000", "-0.0001", "5.0000", "1234567890123456.7891", "NULL"],
    "w": ["0", "5", "0.1", "12345678901234567890123456789012345.123456789012345678901234567891", "NULL"],
    "f": ["0", "-0e0", "0.1", "5", "1e30", "NULL"],
    "g": ["0", "-0e0", "0.1", "5", "1e300", "9007199254740992", "NULL"],
    "dt": ["'0000-00-00'", "'2024-02-29'", "'2024-02-31'", "'2024-00-01'", "NULL"],
    "tm": ["'0000-00-00 00:00:00'", "'2024-02-29 00:00:00'", "'2024-02-29 12:30:00.125'", "NULL"],
    "ts": ["'1970-01-01 00:00:01'", "'2024-02-29 00:00:00'", "NULL"],
    "t": ["'00:00:00'", "'-838:59:59'", "'12:30:00.50'", "NULL"],
    "y": ["0", "1901", "2024", "NULL"],
    "bn": ["''", "'a'", "X'6100FF'", "NULL"],
    "vn": ["''", "'a'", "'A'", "X'00'", "NULL"],
    "e": ["'a'", "'b'", "''", "NULL"],
    "s": ["''", "'x'", "'x,y'", "NULL"],
    "bt": ["b'0'", "b'101'", "b'111111111'", "NULL"],
}
TEXTS = ["''", "'a'", "'A'", "'a '", "'\u00e4'", "'5'", "'5abc'", "'0.1'", "'2024-02-29'", "'%'", "'it\\'s'", "NULL"]
CONSTANTS = ["0", "1", "-1", "5", "127", "0.1", "5.0", "-0.0001", "123456789012345678", "1e0", "NULL", "TRUE", "X'61'",
             "18446744073709551615", "DATE '2024-02-29'", *TEXTS]  # fmt: skip
HERE = ["ti", "i", "iu", "b", "bu", "z", "d", "w"]


def filled(seed: int) -> str:
    values = [VALUES.get(name, TEXTS) for name in COLUMNS]
    # Columns change with different periods, so that their values occur in many combinations.
    return ", ".join(items[(seed * (at + 3) + seed // 7 + at) % len(items)] for at, items in enumerate(values))


def operands(names: list[str], constants: list[str]) -> st.SearchStrategy[str]:
    return st.sampled_from([*names, *names, *constants])


def expressions(names: list[str], constants: list[str], *, functions: bool) -> st.SearchStrategy[str]:
    operand = operands(names, constants)
    sums = st.builds("{} {} {}".format, operand, st.sampled_from("+-*"), operand)
    value = st.one_of(operand, operand, operand, sums)
    if functions:
        called = st.builds(
            "{}({})".format,
            st.sampled_from(["LENGTH", "UPPER", "ISNULL", "TRIM", "HEX", "YEAR", "ABS", "MD5"]),
            operand,
        )
        value = st.one_of(operand, operand, sums, called, st.builds("COALESCE({}, {})".format, operand, operand))
    signs = st.sampled_from(["=", "<=>", "<>", "!=", "<", "<=", ">", ">="])
    negation = st.sampled_from(["", "NOT "])
    leaf = st.one_of(
        st.builds("{} {} {}".format, value, signs, value),
        st.builds("{} {}IN ({}, {})".format, value, negation, operand, operand),
        st.builds("{} {}BETWEEN {} AND {}".format, value, negation, operand, operand),
        st.builds("{} IS {}{}".format, value, negation, st.sampled_from(["NULL", "TRUE", "FALSE", "UNKNOWN"])),
        value,
    )
    if functions:
        leaf = st.one_of(leaf, st.builds("{} {}LIKE {}".format, operand, negation, st.sampled_from(TEXTS)))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds("{} {} {}".format, inner, st.sampled_from(["AND", "OR", "XOR"]), inner),
            st.builds("({})".format, inner),
            st.builds("NOT {}".format, inner),
        ),
        max_leaves=4,
    )


@dataclass(frozen=True, slots=True, repr=False)
class Sides:
    """The places of an evaluation. ``source``: a session there with the settings of an evaluation."""

    source: Session
    plan: TablePlan
    found: list[Literals]
    judge: ServerFilter
    mixed: bool

    def at_source(self, expression: str) -> list[bool] | int:
        """Return the value of the typed column, or the errno."""
        try:
            said = rows(self.source, f"SELECT ({expression}) IS TRUE FROM d.t AS t ORDER BY id")
        except pymysql.MySQLError as error:
            return int(error.args[0])
        return [bool(value) for (value,) in said]

    def at_target(self, expression: str) -> list[bool] | int:
        slots = parse(expression).columns(self.places)
        columns = tuple(self.plan.columns[slot].column for slot in slots)
        try:
            said = self.judge.true_of(
                "t", columns, [expression], [tuple(row[slot] for slot in slots) for row in self.found]
            )
        except EvaluationFailed as why:
            return why.errno
        return [value for (value,) in said]

    def here(self, expression: str) -> list[bool] | None:
        parsed = parse(expression)
        columns = {name: (place, self.plan.columns[place].column) for name, place in self.places.items()}
        test = compile_expression(parsed, columns)
        return None if test is None else [bool(test(row)) for row in self.found]

    @property
    def places(self) -> dict[str, int]:
        return {column.column.name.lower(): at for at, column in enumerate(self.plan.columns)}


PAIRS: list[tuple[type[Database], type[Database]]] = [
    (MariaDB, MariaDB),
    (MySQL, MySQL),
    (MariaDB, MySQL),
]


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: "-".join(kind.__name__ for kind in pair))
def sides(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    of_source, of_target = request.param
    source = of_source(tmp_path_factory.mktemp("source"), 41)
    target = of_target(tmp_path_factory.mktemp("target"), 42)
    try:
        source.start()
        target.start()
        target.execute("CREATE DATABASE meta")
        with (
            connect(endpoint(source), Side.TARGET, name="s1") as session,
            connect(endpoint(source), Side.SOURCE, name="s1", raw=True) as raw,
        ):
            execute(session, SESSION)
            plan = fill(session, source)
            writer = RowWriter(plan, "s1")
            asked = f"SELECT {select_list(item.column for item in plan.columns)} FROM d.t ORDER BY id"
            found = [writer.literals(row) for row in rows(raw, asked)]
            judge = ServerFilter(endpoint(target), "meta")
            try:
                yield Sides(session, plan, found, judge, of_source is not of_target)
            finally:
                judge.close()
    finally:
        source.stop()
        target.stop()


def fill(session: Session, source: Database) -> TablePlan:
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    execute(session, "CREATE DATABASE d")
    execute(session, source.spelt(f"CREATE TABLE d.t (id INT PRIMARY KEY, {columns}) CHARACTER SET utf8mb4"))
    for number in range(60):
        execute(session, f"INSERT INTO d.t VALUES ({number}, {filled(number)})")
    table = read_table(session, "d", "t", source="s1")
    assert table is not None
    return plan_of(table)


@pytest.mark.turns
@given(data=st.data())
@settings(max_examples=300)
def test_here_it_means_what_both_servers_mean(sides: Sides, data: st.DataObject) -> None:
    numbers = [text for text in CONSTANTS if text.strip("-").replace(".", "").isdigit()]
    expression = data.draw(expressions(HERE, [*numbers, "NULL", "TRUE"], functions=False))
    said = sides.here(expression)
    if said is not None:
        assert sides.at_source(expression) == said
        assert sides.at_target(expression) == said


@given(data=st.data())
@settings(max_examples=300)
def test_the_target_has_what_the_typed_columns_have(sides: Sides, data: st.DataObject) -> None:
    if sides.mixed:
        pytest.skip("the two servers compare text and time by rules of their own")
    expression = data.draw(expressions(list(COLUMNS), CONSTANTS, functions=True))
    assert sides.at_target(expression) == sides.at_source(expression)


@pytest.mark.parametrize(
    ("expression", "here"),
    [
        ("i > 5", True),
        ("b = 9007199254740993", True),
        ("bu >= 9223372036854775807", False),  # nineteen digits
        ("d = 0.1 OR iu <=> NULL", False),
        ("NOT (ti BETWEEN -1 AND 5 XOR i IN (1, 2))", True),
        ("iu - 1 > 0", False),  # an error for 0
        ("ti * 3 + 1 = 4", True),
        ("b + 1 > 0", False),
        ("ISNULL(w) OR w < 0.1", True),
        ("i = '5'", False),
        ("v = 'a'", False),
    ],
)
def test_what_is_evaluated_here(sides: Sides, expression: str, here: bool) -> None:
    said = sides.here(expression)
    assert (said is not None) is here
    assert sides.at_target(expression) == sides.at_source(expression)
    if said is not None:
        assert sides.at_source(expression) == said
        assert True in said
        assert False in said


def test_a_row_that_makes_it_an_error_is_named(sides: Sides) -> None:
    slots = parse("b").columns(sides.places)
    columns = tuple(sides.plan.columns[slot].column for slot in slots)
    found = [(b"1",), (b"NULL",), (b"9223372036854775807",), (b"2",)]
    with pytest.raises(EvaluationFailed) as caught:
        sides.judge.true_of("t", columns, ["b + 1 > 0"], found)
    assert (caught.value.row, caught.value.errno) == (2, 1690)
    assert sides.judge.true_of("t", columns, ["b + 1 > 0", "b IS NULL"], found[:2]) == [(True, False), (False, True)]


def test_many_rows_and_a_line_that_was_cut(sides: Sides) -> None:
    column = sides.plan.columns[sides.places["v"]].column
    found: list[Literals] = [(b"'%d'" % number,) for number in range(2500)]
    said = sides.judge.true_of("t", (column,), ["v >= '2'", "t.v IS NULL"][:1], found)
    assert [true for (true,) in said] == [str(number) >= "2" for number in range(2500)]
    cut(sides.judge)
    assert sides.judge.true_of("t", (column,), ["v = '2'"], found[:3]) == [(False,), (False,), (True,)]


def cut(judge: ServerFilter) -> None:
    session = vars(judge)["_session"]
    session._sock.close()


WORDS = [
    *(
        "i",
        "v",
        "`i`",
        "`and`",
        "1",
        "1.5",
        ".5",
        "1e-5",
        "0x4D",
        "'a'",
        '"b"',
        "X'61'",
        "N'a'",
        "_latin1'a'",
        "NULL",
        "TRUE",
    ),
    *(
        "=",
        "<=>",
        "<>",
        "!=",
        "<=",
        ">>",
        "||",
        "&&",
        "->",
        "*",
        "/",
        "%",
        "|",
        "&",
        "^",
        "+",
        "-",
        "~",
        "!",
        "--",
        "=-",
    ),
    *("AND", "OR", "XOR", "NOT", "DIV", "MOD", "LIKE", "IN", "BETWEEN", "IS", "IS NOT", "REGEXP", "ESCAPE", "BINARY"),
    *("CASE", "WHEN", "THEN", "ELSE", "END", "INTERVAL", "DAY", "COLLATE utf8mb4_bin", "YEAR", "LENGTH", "IF", "LEFT"),
    *("(", ")", "(", ")", ",", "(1, 2)", "CASE WHEN", "AS", "CHAR", "CAST("),
]


WRONG_ARGUMENTS = 1582
NAMED_ARGUMENT = 1583  # of a native function, which takes none: LENGTH(i i
"""ER_WRONG_PARAMCOUNT_TO_NATIVE_FCT."""


@settings(max_examples=1500, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=7))
def test_what_a_server_can_read_is_in_no_wrong_order(sides: Sides, words: list[str]) -> None:
    text = " ".join(words)
    said = wrong_order(pieces(text), LANGUAGE)
    if said:
        read = sides.at_source(text)
        # An error in a function is reported before the text after it is read.
        assert read in (ER.PARSE_ERROR, ER.SP_DOES_NOT_EXIST, WRONG_ARGUMENTS, NAMED_ARGUMENT), (text, said, read)

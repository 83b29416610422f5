"""ALTER TABLE cut into its clauses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto.sql_lexer import ANSI_QUOTES
from shardmerge.worker.core.sql.clause import Clause, ClauseKind
from shardmerge.worker.ddl.sql.alter_parser import without_column_qualifiers
from shardmerge.worker.ddl.sql.statement import AlterTable, parse_ddl
from tests.support.ddl_cases import CLAUSES, Case

K = ClauseKind
BLANK = st.sampled_from([" ", "\n", " /* , ADD x INT ( */ ", " -- ' , \n", " # ( \n"])
LISTABLE = st.sampled_from([case for case in CLAUSES if not case.is_last])


def read(text: str, sql_mode: int = 0) -> tuple[Clause, ...]:
    ddl = parse_ddl(text, "d", sql_mode)
    assert isinstance(ddl, AlterTable)
    assert (ddl.table.schema, ddl.table.table, text[ddl.table.start : ddl.table.end].strip('`"')) == ("d", "t", "t")
    return ddl.clauses


def is_read(text: str, clause: Clause, case: Case) -> None:
    assert text[clause.start : clause.end] == case.text
    assert (clause.kind, clause.columns, clause.name, clause.new_name) == (
        case.kind,
        case.columns,
        case.name,
        case.new_name,
    )
    assert [name.name for name in clause.names] == [("d", other) for other in case.others]
    assert [text[name.start : name.end].strip("`") for name in clause.names] == list(case.others)


@pytest.mark.parametrize("case", CLAUSES, ids=lambda case: case.text)
def test_each_clause(case: Case) -> None:
    text = f"ALTER TABLE t {case.text}"
    [clause] = read(text)
    is_read(text, clause, case)


def test_every_kind_has_a_case() -> None:
    assert {case.kind for case in CLAUSES} == set(ClauseKind)


@given(st.lists(LISTABLE, max_size=5), st.none() | st.sampled_from(CLAUSES), BLANK, BLANK, BLANK)
def test_a_list_of_clauses(cases: list[Case], last: Case | None, first: str, before: str, behind: str) -> None:
    cases = [*cases, last] if last else cases
    text = f"ALTER TABLE t{first}" + f"{before},{behind}".join(case.text for case in cases) + first
    clauses = read(text)
    for clause, case in zip(clauses, cases, strict=True):
        is_read(text, clause, case)


@given(st.lists(LISTABLE, min_size=1, max_size=4))
def test_partitioning_follows_without_a_comma(cases: list[Case]) -> None:
    listed = "ALTER TABLE t " + ", ".join(case.text for case in cases)
    kinds = [case.kind for case in cases]
    for tail in ("PARTITION BY KEY (id, a)", "REMOVE PARTITIONING", "/*!50100 PARTITION BY HASH (id) */"):
        assert [clause.kind for clause in read(f"{listed} {tail}")] == [*kinds, K.PARTITIONING]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("ALTER TABLE t", []),
        ("ALTER TABLE t;", []),
        ("ALTER ONLINE TABLE t WAIT 3 ADD d INT", [K.HOW, K.HOW, K.ADD_COLUMN]),
        ("ALTER TABLE t NOWAIT", [K.HOW]),
        ("ALTER TABLE t ORDER BY a, b PARTITION BY HASH (a)", [K.ORDER_BY, K.PARTITIONING]),
        ("ALTER TABLE t /*!50600 ADD a INT, */ /*M! ADD b INT, */ DROP c", [K.ADD_COLUMN, K.ADD_COLUMN, K.DROP_COLUMN]),
        ("ALTER TABLE t DROP a MASKING b, ENGINE InnoDB COMMENT 'x'", [K.OTHER, K.OPTION]),
    ],
)
def test_tokens_around_and_between_clauses(text: str, kinds: list[ClauseKind]) -> None:
    assert [clause.kind for clause in read(text)] == kinds


def test_quotes_follow_sql_mode() -> None:
    text = 'ALTER TABLE "t" ADD "a,b" INT, DROP "c"'
    assert [clause.columns for clause in read(text, ANSI_QUOTES)] == [("a,b",), ("c",)]
    assert parse_ddl(text, "d", 0) is None


@pytest.mark.parametrize(
    "clauses",
    [
        "ADD",
        "ADD a INT,",
        ", ADD a INT",
        "ADD a INT,, ADD b INT",
        "DROP INDEX",
        "RENAME COLUMN a",
        "RENAME INDEX a b",
        "ADD COLUMN t.a INT",
        "CHANGE a d.t.b INT",
        "ADD FOREIGN KEY (a) REFERENCES (b)",
        "EXCHANGE PARTITION p",
        "RENAME TO",
        "ADD (a INT",
    ],
)
def test_what_is_not_understood(clauses: str) -> None:
    assert parse_ddl(f"ALTER TABLE t {clauses}", "d", None) is None


@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        ("ALTER TABLE t MODIFY COLUMN t.a INT, DROP d.t.b", "ALTER TABLE t MODIFY COLUMN a INT, DROP b"),
        (
            "ALTER TABLE `d`.`t` CHANGE `t`.`a` d.T.c INT AFTER b, ADD IF NOT EXISTS t . e INT",
            "ALTER TABLE `d`.`t` CHANGE `a` c INT AFTER b, ADD IF NOT EXISTS e INT",
        ),
        ("ALTER ONLINE TABLE t NOWAIT ADD (t.a INT, b INT)", "ALTER ONLINE TABLE t NOWAIT ADD (a INT, b INT)"),
        ("ALTER TABLE t ALTER t.a SET DEFAULT 1.5", "ALTER TABLE t ALTER a SET DEFAULT 1.5"),
    ],
)
def test_the_own_table_before_a_column_is_left_out(written: str, read_as: str) -> None:
    assert without_column_qualifiers(written, "d", 0) == read_as
    assert without_column_qualifiers(read_as, "d", 0) == read_as
    read(read_as.replace("`d`.`t`", "t"))


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE t ADD c INT REFERENCES t.t (a)",
        "ALTER TABLE t RENAME TO t.u",
        "ALTER TABLE t ADD d INT AS (t.a + 1)",
        "ALTER TABLE t MODIFY u.a INT",
        "ALTER TABLE t MODIFY x.t.a INT",
        "ALTER DATABASE d CHARACTER SET utf8mb4",
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE t.t",
        "CREATE TABLE t (t.a INT)",
        "ALTER TABLE t MODIFY t.",
        "",
    ],
)
def test_other_names_with_dots_stay(text: str) -> None:
    assert without_column_qualifiers(text, "d", 0) == text

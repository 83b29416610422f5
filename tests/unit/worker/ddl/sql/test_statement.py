"""DDL statements taken apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto.sql_lexer import ANSI_QUOTES
from shardmerge.worker.core.sql.token_reader import NameAt
from shardmerge.worker.ddl.sql.statement import (
    AlterSchema,
    AlterTable,
    CreateIndex,
    CreateSchema,
    CreateTable,
    Ddl,
    DropIndex,
    DropSchema,
    DropTables,
    RenameTables,
    TruncateTable,
    names,
    parse_ddl,
)
from shardmerge.worker.ddl.sql.statement_scope import classify
from tests.support.ddl_cases import ALTERS, CLAUSES, OTHERS


def at(text: str, written: str, schema: str, table: str) -> NameAt:
    start = text.index(written)
    return NameAt(schema, table, start, start + len(written))


def read(text: str) -> Ddl:
    ddl = parse_ddl(text, "d", None)
    assert ddl is not None
    return ddl


@pytest.mark.parametrize(
    ("text", "if_not_exists", "or_replace", "form"),
    [
        ("CREATE TABLE _T (a INT)", False, False, "columns"),
        ("create table if not exists _T (a INT) ENGINE=InnoDB", True, False, "columns"),
        ("CREATE OR REPLACE TABLE _T (a INT)", False, True, "columns"),
        ("CREATE TABLE _T (a INT) START TRANSACTION", False, False, "columns"),
        ("CREATE TABLE _T (a INT) WITH SYSTEM VERSIONING", False, False, "columns"),
        ("CREATE TABLE _T (a INT) COMMENT 'SELECT' UNION = (x, y)", False, False, "columns"),
        ("CREATE TABLE _T (`select` INT, b INT DEFAULT ((1))) PARTITION BY HASH ((a))", False, False, "columns"),
        ("CREATE TABLE _T (a INT) PARTITION BY LIST (a) (PARTITION p VALUES IN (1))", False, False, "columns"),
        ("CREATE TABLE _T (a INT AS (CASE WHEN ((b)) THEN 1 END), b INT)", False, False, "columns"),
        ("CREATE TABLE _T SELECT 1", False, False, "select"),
        ("CREATE TABLE _T AS SELECT 1", False, False, "select"),
        ("CREATE TABLE _T (SELECT 1)", False, False, "select"),
        ("CREATE TABLE _T AS ((SELECT 1) UNION (SELECT 2))", False, False, "select"),
        ("CREATE TABLE _T (a INT) ENGINE=InnoDB IGNORE SELECT * FROM x", False, False, "select"),
        ("CREATE TABLE _T (a INT) REPLACE AS (SELECT 1)", False, False, "select"),
        ("CREATE TABLE _T WITH x AS (SELECT 1) SELECT * FROM x", False, False, "select"),
        ("CREATE TABLE _T AS (WITH x AS (SELECT 1) SELECT * FROM x)", False, False, "select"),
        ("CREATE TABLE _T AS TABLE x", False, False, "select"),
        ("CREATE TABLE _T VALUES ROW (1)", False, False, "select"),
        ("CREATE TABLE _T (VALUES (1))", False, False, "select"),
    ],
)
@pytest.mark.parametrize("name", ["t", "`t`", "d.t", "`d` . `t`", ".t"])
def test_create_table(text: str, name: str, if_not_exists: bool, or_replace: bool, form: str) -> None:
    start = text.index("_T")
    text = text.replace("_T", name)
    ddl = read(text)
    assert isinstance(ddl, CreateTable)
    assert (ddl.if_not_exists, ddl.or_replace, ddl.form, ddl.like) == (if_not_exists, or_replace, form, None)
    assert ddl.table == NameAt("d", "t", start, start + len(name))


@pytest.mark.parametrize("text", ["CREATE TABLE t LIKE e.u", "CREATE TABLE IF NOT EXISTS t (LIKE e.u)"])
def test_create_table_like(text: str) -> None:
    ddl = read(text)
    assert isinstance(ddl, CreateTable)
    assert (ddl.form, ddl.like) == ("like", at(text, "e.u", "e", "u"))
    assert ddl.like and names(ddl) == (ddl.table, ddl.like)


def test_references_are_in_the_schema_of_the_table_that_has_them() -> None:
    text = "CREATE TABLE e.t (a INT REFERENCES p (x), FOREIGN KEY (a) REFERENCES `f`.q (x), `references` INT)"
    ddl = read(text)
    assert isinstance(ddl, CreateTable)
    assert ddl.references == (at(text, "p", "e", "p"), at(text, "`f`.q", "f", "q"))
    altered = "ALTER TABLE e.t ADD FOREIGN KEY (a) REFERENCES p (x), RENAME u"
    assert names(read(altered))[1:] == (at(altered, "p", "e", "p"), at(altered, "u", "d", "u"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DROP TABLE t", DropTables((NameAt("d", "t", 11, 12),), False)),
        (
            "DROP TABLES IF EXISTS e.t , `u` WAIT 3 CASCADE;",
            DropTables((NameAt("e", "t", 22, 25), NameAt("d", "u", 28, 31)), True),
        ),
        (
            "RENAME TABLES IF EXISTS t TO e.u",
            RenameTables(((NameAt("d", "t", 24, 25), NameAt("e", "u", 29, 32)),), if_exists=True),
        ),
        (
            "RENAME TABLE t TO e.u, `v` NOWAIT TO t",
            RenameTables(
                (
                    (NameAt("d", "t", 13, 14), NameAt("e", "u", 18, 21)),
                    (NameAt("d", "v", 23, 26), NameAt("d", "t", 37, 38)),
                )
            ),
        ),
        ("TRUNCATE t", TruncateTable(NameAt("d", "t", 9, 10))),
        ("TRUNCATE TABLE e.t WAIT 3 DROP STORAGE", TruncateTable(NameAt("e", "t", 15, 18))),
        ("CREATE INDEX i ON t (a)", CreateIndex(NameAt("d", "t", 18, 19), "i", False)),
        ("CREATE UNIQUE INDEX `on` USING BTREE ON e.t (a)", CreateIndex(NameAt("e", "t", 40, 43), "on", True)),
        ("CREATE OR REPLACE INDEX IF NOT EXISTS i ON t (a)", CreateIndex(NameAt("d", "t", 43, 44), "i", False)),
        ("DROP INDEX IF EXISTS `PRIMARY` ON t LOCK = NONE", DropIndex(NameAt("d", "t", 34, 35), "PRIMARY")),
        ("CREATE OR REPLACE DATABASE IF NOT EXISTS `x y` CHARSET latin1", CreateSchema("x y")),
        ("DROP SCHEMA IF EXISTS x", DropSchema("x")),
        ("ALTER DATABASE x COLLATE latin1_bin", AlterSchema("x")),
        ("ALTER SCHEMA `comment` COMMENT 'x'", AlterSchema("comment")),
        ("ALTER DATABASE comment COMMENT 'x'", AlterSchema("comment")),
        ("ALTER DATABASE COMMENT 'x'", AlterSchema("d")),
        ("ALTER DATABASE CHARSET = latin1", AlterSchema("d")),
        ("ALTER DATABASE DEFAULT CHARACTER SET latin1", AlterSchema("d")),
    ],
)
def test_other_statements(text: str, expected: Ddl) -> None:
    assert read(text) == expected


def test_ignore_is_reported() -> None:
    ddl = read("ALTER IGNORE TABLE t ADD UNIQUE (a)")
    assert isinstance(ddl, AlterTable) and ddl.ignore


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/* nothing */",
        "CREATE TEMPORARY TABLE t (a INT)",
        "CREATE OR REPLACE TEMPORARY TABLE t (a INT)",
        "DROP TEMPORARY TABLE t",
        "CREATE VIEW v AS SELECT 1",
        "CREATE SEQUENCE s",
        "DROP TRIGGER t",
        "ALTER USER a PASSWORD EXPIRE",
        "CREATE SPATIAL REFERENCE SYSTEM 4120 NAME 'x'",
        "INSERT INTO t VALUES (1)",
        "RENAME USER a TO b",
        "START ALTER TABLE t",
        "CREATE EXTERNAL TABLE t (a INT)",
        "DROP TABLE t u",
        "DROP TABLE t; DROP TABLE u",
        "RENAME TABLE t",
        "RENAME TABLE t TO u v",
        "TRUNCATE t u",
        "CREATE INDEX i",
        "CREATE TABLE t (LIKE u",
        "CREATE TABLE t LIKE u v",
        "DROP TABLE 'x'",
        "DROP TABLE `x",
        "DROP TABLE t /* no end",
        "ALTER TABLE t COMMENT 'x",
        "DROP TABLE d./*!50000 t */",
        "SET STATEMENT a = 1",
    ],
)
def test_what_is_no_ddl_of_tables_or_not_understood(text: str) -> None:
    assert parse_ddl(text, "d", None) is None


def test_a_default_schema_may_be_missing() -> None:
    assert parse_ddl("DROP TABLE t", "", None) is None
    assert parse_ddl("ALTER DATABASE COLLATE latin1_bin", "", None) is None
    assert parse_ddl("DROP TABLE e.t", "", None) == DropTables((NameAt("e", "t", 11, 14),), False)


def test_sql_mode_decides_what_a_quote_is() -> None:
    assert parse_ddl('TRUNCATE "a""b"', "d", ANSI_QUOTES) == TruncateTable(NameAt("d", 'a"b', 9, 15))
    assert parse_ddl('TRUNCATE "a""b"', "d", 0) is None


@pytest.mark.parametrize(
    "text", [text for text, _ in (*ALTERS, *OTHERS)] + [f"ALTER TABLE {case.table} {case.text}" for case in CLAUSES]
)
def test_the_scope_of_the_statement_is_among_its_names(text: str) -> None:
    scope = classify(text, "d", None)
    found = [name.name for name in names(read(text))]
    assert scope.kind == "ddl" and set(scope.tables) <= set(found) and scope.tables[0] == found[0]
    assert set(found) - set(scope.tables) <= {("d", "p"), ("d", "h"), ("d", "t")}  # referred to, or LIKE


@given(
    st.text(alphabet="aT`\"'\\/*!M-# \n;,.()=5"), st.sampled_from(["ALTER TABLE t ", "CREATE TABLE ", "DROP TABLE "])
)
def test_any_text_is_read_or_refused(text: str, verb: str) -> None:
    ddl = parse_ddl(verb + text, "d", 0)
    for name in names(ddl) if ddl else ():
        assert 0 <= name.start < name.end <= len(verb + text)


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_any_quoted_name_comes_back(schema: str, table: str) -> None:
    quoted = ".".join("`" + name.replace("`", "``") + "`" for name in (schema, table))
    assert read(f"TRUNCATE {quoted}") == TruncateTable(NameAt(schema, table, 9, 9 + len(quoted)))


def test_a_foreign_key_touches_only_its_own_table() -> None:
    assert classify("ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES p (x)", "d", None).tables == (("d", "t"),)

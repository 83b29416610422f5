"""A CREATE TABLE as that of a table elsewhere."""

from __future__ import annotations

import pytest

from shardmerge.worker.ddl.sql.create_body import CreateBody, read_create_body
from shardmerge.worker.ddl.sql.statement import CreateTable, parse_ddl


def read(text: str, sql_mode: int = 0) -> CreateBody | None:
    ddl = parse_ddl(text, "d", sql_mode)
    assert isinstance(ddl, CreateTable)
    return read_create_body(text, ddl, sql_mode)


@pytest.mark.parametrize(
    ("text", "elsewhere"),
    [
        ("CREATE TABLE t (id INT)", "(id INT)"),
        ("create or replace table d.t (id INT) ;", "(id INT)"),
        ("CREATE TABLE IF NOT EXISTS t(id INT, KEY (id))", "(id INT, KEY (id))"),
        ("CREATE TABLE t (id INT) ENGINE=Aria TRANSACTIONAL=1 ROW_FORMAT=PAGE", "(id INT)"),
        ("CREATE TABLE t (id INT) ENGINE InnoDB, COMMENT 'a ( b', AUTO_INCREMENT 4", "(id INT) COMMENT 'a ( b'"),
        ("CREATE TABLE t (id INT) DATA DIRECTORY='/x' UNION=(a, b)", "(id INT)"),
        ("CREATE TABLE t (id INT) PARTITION BY HASH (id) PARTITIONS 3", "(id INT)"),
        ("CREATE TABLE t (id INT) COMMENT='x' PARTITION BY LIST (id) (PARTITION p VALUES IN (1) COMMENT 'y')",
         "(id INT) COMMENT='x'"),
        ("CREATE TABLE t (id INT) /*!50100 PARTITION BY HASH (id) */", "(id INT)"),
        ("CREATE TABLE t (id INT) START TRANSACTION", "(id INT)"),
        ("CREATE TABLE t (id INT) WITH SYSTEM VERSIONING", "(id INT) WITH SYSTEM VERSIONING"),
        ("CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES p (id), CONSTRAINT f FOREIGN KEY (a) REFERENCES p (b), "
         "b INT)", "(a INT, b INT)"),
        ("CREATE TABLE t (a ENUM('x,)', 'y') DEFAULT 'x,)', `CHARSET` INT)",
         "(a ENUM('x,)', 'y') DEFAULT 'x,)', `CHARSET` INT)"),
    ],
)  # fmt: skip
def test_kept_parts(text: str, elsewhere: str) -> None:
    found = read(text)
    assert found is not None
    assert not found.has_charset
    assert found.create_statement("`m`.`x`", "") == f"CREATE TABLE `m`.`x` {elsewhere}"


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ("CHARSET=latin1", "CHARSET=latin1"),
        ("ENGINE=A DEFAULT CHARACTER SET = utf8mb4 COLLATE=cp1251_bin", "CHARACTER SET = utf8mb4 COLLATE=cp1251_bin"),
        ("collate latin1_bin comment 'c'", "collate latin1_bin comment 'c'"),
        ("/*!40100 DEFAULT CHARSET=latin1 */", "CHARSET=latin1"),
    ],
)  # fmt: skip
def test_an_explicit_character_set(options: str, kept: str) -> None:
    found = read(f"CREATE TABLE t (id INT) {options}")
    assert found is not None
    assert found.has_charset
    assert found.create_statement("x", "cp1251_bin") == f"CREATE TABLE x (id INT) {kept}"


def test_the_schemas_character_set_by_default() -> None:
    found = read("CREATE TABLE t (s VARCHAR(9) CHARACTER SET utf8mb4) COMMENT='CHARSET'")
    assert found is not None
    made = found.create_statement("x", "cp1251_bin")
    assert made.endswith(") DEFAULT CHARACTER SET cp1251 COLLATE cp1251_bin COMMENT='CHARSET'")


def test_quotes_of_the_statements_mode() -> None:
    found = read('CREATE TABLE "t" ("a)" INT)', 4)
    assert found is not None
    assert found.create_statement("x", "") == 'CREATE TABLE x ("a)" INT)'


@pytest.mark.parametrize(
    "text", ["CREATE TABLE t SELECT 1", "CREATE TABLE t (id INT) SELECT 1 AS id", "CREATE TABLE t LIKE u"]
)
def test_create_table_select_is_refused(text: str) -> None:
    assert read(text) is None

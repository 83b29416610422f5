"""The collations that a statement leaves to its server are written out."""

from __future__ import annotations

import pytest

from shardmerge.proto.sql_lexer import tokens
from shardmerge.worker.ddl.session.written_collations import (
    charset_in,
    collation_in,
    with_collations,
    with_present_names,
)
from shardmerge.worker.ddl.sql.statement import parse_ddl


def written(text: str, sql_mode: int = 0) -> str:
    ddl = parse_ddl(text, "d", sql_mode)
    assert ddl is not None
    return with_collations(
        text, ddl, sql_mode, lambda charset: f"{charset.lower()}_x", lambda schema: f"koi8r_{schema}"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ALTER TABLE t ADD c VARCHAR(20) CHARACTER SET utf8mb4 NOT NULL",
         "ALTER TABLE t ADD c VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_x NOT NULL"),
        ("ALTER TABLE t ADD (a TEXT CHARSET latin1, b ENUM('(', 'x') CHARACTER SET 'gbk' AFTER charset, c INT)",
         "ALTER TABLE t ADD (a TEXT CHARSET latin1 COLLATE latin1_x, b ENUM('(', 'x') CHARACTER SET 'gbk' COLLATE "
         "gbk_x AFTER charset, c INT)"),
        ("ALTER TABLE t MODIFY c CHARACTER VARYING(9) CHAR SET utf8, CHANGE a b LONG CHAR VARYING CHARACTER SET ucs2",
         "ALTER TABLE t MODIFY c CHARACTER VARYING(9) CHAR SET utf8 COLLATE utf8_x, CHANGE a b LONG CHAR VARYING "
         "CHARACTER SET ucs2 COLLATE ucs2_x"),
        ("ALTER TABLE t ADD a NCHAR(3) DEFAULT 'x', ADD b NATIONAL CHAR VARYING (3), ADD c NVARCHAR(3) BINARY",
         "ALTER TABLE t ADD a NCHAR(3) COLLATE utf8mb3_x DEFAULT 'x', ADD b NATIONAL CHAR VARYING (3) COLLATE utf8mb3_x"
         ", ADD c NVARCHAR(3) BINARY"),
        ("ALTER TABLE t ADD a CHAR(3) ASCII, ADD b CHAR(3) UNICODE NOT NULL, ADD c CHAR(3) ASCII BINARY",
         "ALTER TABLE t ADD a CHAR(3) ASCII COLLATE latin1_x, ADD b CHAR(3) UNICODE COLLATE ucs2_x NOT NULL, "
         "ADD c CHAR(3) ASCII BINARY"),
        ("CREATE TABLE t (a VARCHAR(9) CHARACTER SET utf8mb4, b INT) DEFAULT CHARSET=utf8mb4 COMMENT 'x'",
         "CREATE TABLE t (a VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_x, b INT) "
         "DEFAULT CHARSET=utf8mb4 COLLATE utf8mb4_x COMMENT 'x'"),
        ("CREATE TABLE t (a INT) CHARSET = DEFAULT", "CREATE TABLE t (a INT) CHARSET = koi8r COLLATE koi8r_d"),
        ("ALTER TABLE o.t CONVERT TO CHARACTER SET DEFAULT, ADD b INT",
         "ALTER TABLE o.t CONVERT TO CHARACTER SET koi8r COLLATE koi8r_o, ADD b INT"),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4",
         "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_x"),
        ("CREATE TABLE t (a TEXT CHARACTER SET latin1 COLLATE DEFAULT) CHARSET=gbk COLLATE=DEFAULT",
         "CREATE TABLE t (a TEXT CHARACTER SET latin1 COLLATE latin1_x) CHARSET=gbk COLLATE=gbk_x"),
    ],
)  # fmt: skip
def test_it_is_written_out(text: str, expected: str) -> None:
    assert written(text) == expected
    assert written(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE t ADD c VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "ALTER TABLE t ADD c VARCHAR(20) COLLATE utf8mb4_bin CHARACTER SET utf8mb4",
        "ALTER TABLE t ADD c VARCHAR(20) CHARACTER SET latin1 BINARY, ADD d CHAR(3) BINARY CHARACTER SET latin1",
        "ALTER TABLE t ADD c VARCHAR(20) CHARACTER SET binary, ADD b BINARY(3), ADD d CHAR(3) BYTE",
        "ALTER TABLE t ADD c VARCHAR(20), ADD d INT AFTER ascii, ADD e TEXT COMMENT 'CHARACTER SET latin1'",
        "ALTER TABLE t ADD g VARCHAR(9) AS (CAST(a AS CHAR CHARACTER SET utf8mb4))",
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "ALTER TABLE t CHARACTER SET utf8mb4, COLLATE utf8mb4_bin",
        "CREATE TABLE t (a VARCHAR(9) DEFAULT 'a', KEY (a)) CHARSET=latin1 COLLATE=latin1_bin",
        "CREATE TABLE t (a INT) PARTITION BY LIST (a) (PARTITION charset VALUES IN (1))",
        "CREATE TABLE t LIKE u",
        "DROP TABLE t",
        "ALTER TABLE t DROP charset",
    ],
)
def test_it_is_named_already(text: str) -> None:
    assert written(text) == text


def test_of_a_schema() -> None:
    found = tokens("CREATE DATABASE d DEFAULT CHARACTER SET = latin1 COLLATE latin1_bin")
    assert (charset_in(found), collation_in(found)) == ("latin1", "latin1_bin")
    found = tokens("ALTER DATABASE d ENCRYPTION 'Y'")
    assert (charset_in(found), collation_in(found)) == ("", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE TABLE t (a TEXT CHARSET utf8) CHARACTER SET = 'UTF8' COLLATE = utf8_bin",
         "CREATE TABLE t (a TEXT CHARSET utf8mb4) CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin"),
        ("ALTER TABLE utf8 ADD utf8 INT DEFAULT (CONVERT('utf8' USING utf8) = _utf8'a')",
         "ALTER TABLE utf8 ADD utf8 INT DEFAULT (CONVERT('utf8' USING utf8mb4) = _utf8mb4'a')"),
        ("ALTER TABLE t ADD a TEXT CHARSET utf8mb3 COLLATE utf8mb3_bin, ADD b TEXT DEFAULT (_latin1'a')", ""),
    ],
)  # fmt: skip
def test_the_present_names_of_utf8(text: str, expected: str) -> None:
    def named(name: str) -> str:
        former = name.lower() == "utf8" or name.lower().startswith("utf8_")
        return f"utf8mb4{name.lower()[4:]}" if former else name

    assert with_present_names(text, 0, named) == (expected or text)

"""A setting that the target cannot have stops the task only where the statement depends on it."""

from __future__ import annotations

import pytest

from shardmerge.worker.binlog.query_text import QueryEvent
from shardmerge.worker.binlog.query_variables import QueryVariables
from shardmerge.worker.core.mysql.target_dialect import ServerKind, TargetDialect
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.ddl.session.lacking_settings import lacking_setting
from shardmerge.worker.ddl.sql.statement import parse_ddl
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.relay.serve.query_event import LoggedQuery

MARIADB, MYSQL = TargetDialect(ServerKind.MARIADB, (10, 11, 0)), TargetDialect(ServerKind.MYSQL, (9, 7, 0))
TIDB = TargetDialect(ServerKind.TIDB, (8, 4, 0))
ORACLE, MAXDB, EMPTY, TRUNCATES = 1 << 9, 1 << 12, 1 << 32, 1 << 32
ADD = "ALTER TABLE t ADD d DATE"


def lacking(text: str, target: TargetDialect, version: tuple[int, int, int], **variables: object) -> str:
    found = QueryVariables(**variables)  # pyright: ignore[reportArgumentType]
    at = RelayOffset(1, 4)
    statement = Statement(at, at, at, SourcePosition("b.1", 4), "d", text, found.sql_mode)
    ddl = parse_ddl(text, "d", found.sql_mode)
    assert ddl is not None
    queried = LoggedQuery(QueryEvent("d", text.encode(), found, 0, 1), version >= (10, 0, 0), version)
    return lacking_setting(statement, ddl, queried, target)


@pytest.mark.parametrize(
    ("text", "target", "version", "variables", "named"),
    [
        (ADD, MARIADB, (10, 11, 0), {"unknown": 200}, "status variable 200"),
        ("DROP TABLE t", MARIADB, (10, 11, 0), {"unknown": 200}, ""),
        (ADD, MARIADB, (10, 11, 0), {"sql_mode": 1 << 35 | 1}, "0x800000000"),
        (ADD, MYSQL, (9, 7, 0), {"sql_mode": 1 << 33}, "0x200000000"),
        (ADD, MYSQL, (9, 7, 0), {"sql_mode": TRUNCATES}, ""),
        (ADD, MARIADB, (10, 11, 0), {"sql_mode": ORACLE}, ""),
        (ADD, MYSQL, (10, 11, 0), {"sql_mode": ORACLE}, "sql_mode=ORACLE"),
        (ADD, TIDB, (10, 11, 0), {"sql_mode": ORACLE}, "sql_mode=ORACLE"),
        ("ALTER TABLE t ADD a INT", MYSQL, (10, 2, 0), {"sql_mode": ORACLE}, ""),
        (ADD, MYSQL, (5, 7, 0), {"sql_mode": ORACLE}, ""),
        ("ALTER TABLE t ADD a TIMESTAMP", MYSQL, (5, 7, 0), {"sql_mode": MAXDB}, "sql_mode=MAXDB"),
        (ADD, MYSQL, (10, 11, 0), {"sql_mode": MAXDB}, ""),
        ("ALTER TABLE t ADD a TEXT DEFAULT ''", MYSQL, (10, 11, 0), {"sql_mode": EMPTY}, "EMPTY_STRING_IS_NULL"),
        ("ALTER TABLE t ADD a TEXT DEFAULT 'x'''", MYSQL, (10, 11, 0), {"sql_mode": EMPTY}, ""),
        ("ALTER TABLE t ADD a TEXT DEFAULT (DAYNAME(b))", TIDB, (9, 7, 0), {"time_names": 4}, "lc_time_names"),
        ("ALTER TABLE t ADD a TEXT DEFAULT (DAYNAME(b))", MYSQL, (10, 11, 0), {"time_names": 4}, ""),
    ],
)
def test_what_the_target_lacks(
    text: str, target: TargetDialect, version: tuple[int, int, int], variables: dict[str, object], named: str
) -> None:
    found = lacking(text, target, version, **variables)
    assert named in found
    assert bool(found) == bool(named)


LATIN2, BINARY, UTF8MB3 = {"collation": 9}, {"collation": 63}, {"collation": 33}


@pytest.mark.parametrize(
    ("text", "variables", "named"),
    [
        ("ALTER TABLE t ADD a TEXT DEFAULT (_utf8mb4'é')", LATIN2, "_utf8mb4'é'"),
        ("ALTER TABLE t ADD a TEXT DEFAULT (_utf8mb4 'é')", LATIN2, "_utf8mb4'é'"),
        ("ALTER TABLE t ADD a CHAR(9) DEFAULT N'é'", LATIN2, "N'é'"),
        ("ALTER TABLE t ADD a CHAR(9) DEFAULT n'e'", LATIN2, ""),
        ("ALTER TABLE t ADD a CHAR(9) DEFAULT 'é'", LATIN2, ""),
        ("ALTER TABLE t ADD a CHAR(9) DEFAULT _latin1'é'", UTF8MB3, ""),
        ("ALTER TABLE t ADD a CHAR(9) DEFAULT 'é'", BINARY, "character_set_client=binary"),
        ("ALTER TABLE t ADD `é` INT COMMENT 'é'", BINARY, ""),
        ("ALTER TABLE t COMMENT = 'é'", BINARY, ""),
    ],
)
def test_literals_whose_value_is_the_bytes_of_the_client(text: str, variables: dict[str, object], named: str) -> None:
    found = lacking(text, MARIADB, (10, 11, 0), **variables)
    assert named in found
    assert bool(found) == bool(named)


@pytest.mark.parametrize(
    ("text", "version", "mode", "stops"),
    [
        ("CREATE TABLE `a` (\n  `b` int\n)", (10, 11, 0), 1 << 17, True),
        ('CREATE TABLE "a b" (\n  "b" int\n)', (10, 11, 0), ORACLE | 4, True),
        ("CREATE TABLE a (b INT)", (10, 11, 0), 1 << 17, False),
        ("CREATE TABLE `a` (\n  `b` int\n)", (10, 11, 0), 1 << 20, False),
        ("CREATE TABLE `a` (\n  `b` int\n) START TRANSACTION", (9, 7, 0), 1 << 20, False),
        ("CREATE TABLE `a` (\n  `b` int COMMENT 'x\\\\y'\n) START TRANSACTION", (9, 7, 0), 1 << 20, True),
        ("CREATE TABLE a (b INT COMMENT 'x\\y')", (9, 7, 0), 1 << 20, False),
    ],
)
def test_a_statement_that_the_source_writes(text: str, version: tuple[int, int, int], mode: int, stops: bool) -> None:
    assert bool(lacking(text, MARIADB, version, sql_mode=mode)) == stops


CP1251, LATIN1, BYTES, UTF8MB4, GREEK = 51, 8, 63, 45, 25


@pytest.mark.parametrize(
    ("column", "connection", "literal"),
    [
        ("`c` text DEFAULT json_quote('é')", CP1251, "'é'"),
        ("`c` text DEFAULT 'a' COMMENT 'x', `d` enum('a','ж')", LATIN1, "'ж'"),
        ("`c` text DEFAULT json_quote('é')", BYTES, "'é'"),
        ("`c` text DEFAULT json_quote('é')", UTF8MB4, ""),
        ("`c` text DEFAULT json_quote('é')", LATIN1, ""),
        ("`c` text DEFAULT json_quote('é')", None, ""),
        ("`é` text COMMENT 'é'", CP1251, ""),
        ("`c` text DEFAULT (_utf8mb4'é')", GREEK, ""),
    ],
)
def test_characters_of_a_statement_of_the_server(column: str, connection: int | None, literal: str) -> None:
    """The server copies a default from another table; a session with this collation cannot have it."""
    written = f"CREATE TABLE `t` (\n  `id` int(11) NOT NULL,\n  {column}\n)"
    found = lacking(written, MARIADB, (10, 11, 0), collation=45, connection=connection)
    assert bool(found) == bool(literal)
    assert literal in found
    # A client's own statement has at the source, too, what the connection makes of it.
    assert not lacking(written.replace("\n", " "), MARIADB, (10, 11, 0), collation=45, connection=connection)

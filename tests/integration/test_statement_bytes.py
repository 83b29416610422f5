"""Tests that the text of a DDL is read as its server reads it: a client's character set, and texts of servers."""

from __future__ import annotations

from pathlib import Path

import pymysql
import pytest

from shardmerge.proto import errors
from shardmerge.worker.core.mysql import show_create
from shardmerge.worker.core.mysql.connection import Side
from shardmerge.worker.core.mysql.show_create import read_create_statement, read_create_statements
from tests.integration.lane_rig import LaneRig
from tests.integration.snapshot_rig import subtask_config
from tests.integration.test_statement_sessions import (
    SCHEMA,
    Ends,
    all_servers,
    ends,
    lagging,
    run_in,
    same,
    shown,
    stopped,
)
from tests.support.database import Database
from tests.support.pair import KINDS

__all__ = ["all_servers", "ends"]


def names(server: Database) -> set[str]:
    return {str(row[0]) for row in server.query(f"SHOW TABLES FROM {SCHEMA}")}


@pytest.mark.parametrize("client", ["latin2", "cp1250", "cp850", "koi8u", "latin1", "utf8mb3", "macroman"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_character_set_of_a_client(kind: str, client: str, ends: Ends, tmp_path: Path) -> None:
    """The client sends UTF-8 and calls it by another name: what its server has made of it counts."""
    source, target = ends(kind, kind)
    with lagging(
        source,
        target,
        tmp_path,
        f"SET NAMES {client}",
        "CREATE TABLE y (id INT PRIMARY KEY, d VARCHAR(20) DEFAULT 'é' COMMENT 'ß', g VARCHAR(9) AS (CONCAT(id, 'é')))",
        "INSERT INTO y (id) VALUES (1)",
        "CREATE TABLE `tä` (id INT PRIMARY KEY)",
    ) as run:
        run.until_synced()
    same(source, target, "y", "id, d, g")
    assert names(target) == names(source)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_no_text_of_the_client(kind: str, ends: Ends, tmp_path: Path) -> None:
    source, target = ends(kind, kind)
    with lagging(
        source, target, tmp_path, "SET NAMES hebrew", "CREATE TABLE y (id INT PRIMARY KEY, d INT COMMENT 'é')"
    ) as run:
        stopped(run, errors.ddl.STATEMENT_UNKNOWN)


@pytest.mark.parametrize(
    ("client", "literal"),
    [("latin2", "_utf8mb4'é'"), ("cp1251", "N'é'"), ("koi8r", "(CONCAT(_utf8mb4 'é', 'a'))"), ("binary", "'é'")],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_literal_of_bytes_stops_the_task(kind: str, client: str, literal: str, ends: Ends, tmp_path: Path) -> None:
    """The literal has the bytes that the client has sent: the same characters are other bytes at the target."""
    source, target = ends(kind, kind)
    with lagging(
        source,
        target,
        tmp_path,
        f"SET NAMES {client}",
        f"CREATE TABLE y (id INT PRIMARY KEY, d VARCHAR(20) CHARACTER SET latin1 DEFAULT {literal})",
    ) as run:
        message = stopped(run, errors.ddl.SETTING_NOT_AT_TARGET)
    assert f"character_set_client={client}" in message


@pytest.mark.parametrize("kind", KINDS)
def test_introducers_and_comments_that_are_the_same_bytes(kind: str, ends: Ends, tmp_path: Path) -> None:
    source, target = ends(kind, kind)
    with lagging(
        source,
        target,
        tmp_path,
        "CREATE TABLE y (id INT PRIMARY KEY, d VARCHAR(20) DEFAULT _latin1'é', e VARCHAR(9) DEFAULT N'é')",
        "INSERT INTO y (id) VALUES (1)",
        "SET NAMES binary",
        "CREATE TABLE z (id INT PRIMARY KEY COMMENT 'é', d INT) COMMENT = 'ß'",
    ) as run:
        run.until_synced()
        same(source, target, "y", "id, d, e")
        same(source, target, "z", "id, d")


def test_an_expression_in_another_character_set(ends: Ends, tmp_path: Path) -> None:
    """MySQL prints the bytes of such a literal, and shows a question mark for what is not UTF-8."""
    source, target = ends("mysql", "mysql")
    source.execute(
        f"USE {SCHEMA}",
        "SET collation_connection = latin2_general_ci",
        "CREATE TABLE copied (id INT PRIMARY KEY, d VARCHAR(9) DEFAULT (CONCAT('é', 'it''s\\\\?')), g INT AS (id + 1))",
        "INSERT INTO copied (id) VALUES (1)",
    )
    config = subtask_config(target)
    with LaneRig(source, target, tmp_path, config) as rig:
        run = rig.begin(config)
        run.until_joined(target)
        run_in(
            source,
            "SET collation_connection = latin2_general_ci",
            "CREATE TABLE made (id INT KEY, d CHAR(9) DEFAULT (CONCAT('é', 'ß')), g CHAR(9) AS (CONCAT(id, 'é')))",
            "INSERT INTO made (id) VALUES (1)",
            "ALTER TABLE made ADD e VARCHAR(9) DEFAULT (UPPER('é'))",
        )
        run.until_joined(target)
        run.stop()
        with rig.session(Side.TARGET) as session:
            assert "_latin2 X'E9'" in read_create_statement(session, SCHEMA, "copied").text
        with rig.session(Side.SOURCE, raw=True) as session:
            assert "_latin2 X'E9'" in read_create_statement(session, SCHEMA, "copied").text
    for server in (source, target):
        server.execute(f"INSERT INTO {SCHEMA}.copied (id) VALUES (2)", f"INSERT INTO {SCHEMA}.made (id) VALUES (2)")
    same(source, target, "copied", "id, d, g")
    same(source, target, "made", "id, d, e, g")


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_that_is_changed_within_comments(kind: str, ends: Ends, tmp_path: Path) -> None:
    source, target = ends(kind, kind)
    with lagging(
        source,
        target,
        tmp_path,
        f"/* é */ ALTER DATABASE {SCHEMA} CHARACTER SET latin1",
        "CREATE TABLE a (id INT PRIMARY KEY, d VARCHAR(20))",
        f"/*!40000 ALTER DATABASE {SCHEMA} CHARACTER SET cp1251 */",
        "CREATE TABLE b (id INT PRIMARY KEY, d VARCHAR(20))",
        f"-- a line\nALTER /*! SCHEMA */ {SCHEMA} COLLATE koi8r_bin",
        "CREATE TABLE c (id INT PRIMARY KEY, d VARCHAR(20))",
        f"/*!999999 nothing */ ALTER DATABASE {SCHEMA} CHARACTER SET utf8mb4",
    ) as run:
        run.until_synced()
        for table in ("a", "b", "c"):
            same(source, target, table, "id, d")


def test_a_table_that_a_mysql_creates_from_rows(ends: Ends, tmp_path: Path) -> None:
    """The server writes this statement in UTF-8, with escapes, whatever the session's settings are."""
    source, target = ends("mysql", "mysql")
    with lagging(
        source,
        target,
        tmp_path,
        "CREATE TABLE a (id INT PRIMARY KEY, `Größe` VARCHAR(9) DEFAULT 'é' COMMENT 'ß')",
        "INSERT INTO a VALUES (1, 'é')",
        "SET NAMES latin1",
        "CREATE TABLE b (PRIMARY KEY (id)) SELECT * FROM a",
        "SET NAMES utf8mb4",
        "CREATE TABLE c (id INT PRIMARY KEY, d INT COMMENT 'a\\\\b')",
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "CREATE TABLE d (PRIMARY KEY (id)) SELECT * FROM c",
    ) as run:
        message = stopped(run, errors.ddl.SETTING_NOT_AT_TARGET)
    assert "NO_BACKSLASH_ESCAPES" in message
    same(source, target, "b", "id, `Größe`")


def test_a_table_that_a_mariadb_creates_from_rows(ends: Ends, tmp_path: Path) -> None:
    """The statement looks as one that a client may have written: it is not known which character set it has."""
    source, target = ends("mariadb", "mariadb")
    with lagging(
        source,
        target,
        tmp_path,
        "CREATE TABLE a (id INT PRIMARY KEY, `Größe` VARCHAR(9))",
        "SET NAMES latin1",
        "CREATE TABLE b (PRIMARY KEY (id)) SELECT * FROM a",
    ) as run:
        stopped(run, errors.ddl.STATEMENT_UNKNOWN)


@pytest.mark.parametrize("kind", KINDS)
def test_a_default_that_a_server_copies_beside_the_connection(kind: str, ends: Ends, tmp_path: Path) -> None:
    """The source copies the default as it is; a session with this collation would make a question mark of it."""
    source, target = ends(kind, kind)
    with lagging(
        source,
        target,
        tmp_path,
        "CREATE TABLE a (id INT PRIMARY KEY, d VARCHAR(9) DEFAULT 'é', e INT COMMENT 'é')",
        "SET collation_connection = cp1251_general_cs",
        "CREATE TABLE b (PRIMARY KEY (id)) SELECT id, e FROM a",
        "CREATE TABLE c (PRIMARY KEY (id)) SELECT * FROM a",
    ) as run:
        message = stopped(run, errors.ddl.SETTING_NOT_AT_TARGET)
    assert "cp1251, which lacks characters of 'é'" in message
    same(source, target, "b", "id, e")


@pytest.mark.parametrize("mode", ["MYSQL40", "MYSQL323", "ORACLE", "MSSQL", "POSTGRESQL"])
def test_a_mode_under_which_a_mariadb_omits_collations(mode: str, ends: Ends, tmp_path: Path) -> None:
    source, target = ends("mariadb", "mariadb")
    with lagging(
        source,
        target,
        tmp_path,
        "CREATE TABLE a (id INT PRIMARY KEY, d VARCHAR(9) COLLATE latin1_bin)",
        f"SET sql_mode = '{mode}'",
        "CREATE TABLE b (PRIMARY KEY (id)) COLLATE koi8r_bin SELECT * FROM a",
    ) as run:
        message = stopped(run, errors.ddl.SETTING_NOT_AT_TARGET)
    assert "omits collations" in message


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_a_client_drops(kind: str, ends: Ends, tmp_path: Path) -> None:
    """Servers write the statement of a DROP TABLE anew, in the client's character set."""
    source, target = ends(kind, kind)
    with lagging(
        source,
        target,
        tmp_path,
        "CREATE TABLE `tÃ¤` (id INT PRIMARY KEY)",
        "CREATE TABLE `ö` (id INT PRIMARY KEY)",
        "SET NAMES latin1",
        "DROP TABLE `tä`",  # its name is tÃ¤
    ) as run:
        run.until_synced()
    assert names(target) == names(source) == {"ö"}


@pytest.mark.parametrize(("old_mode", "charset"), [("", "utf8mb4"), ("UTF8_IS_UTF8MB3", "utf8mb3")])
def test_what_utf8_means_at_a_mariadb(old_mode: str, charset: str, ends: Ends, tmp_path: Path) -> None:
    source, target = ends("mariadb", "mariadb")
    source.execute(f"SET GLOBAL old_mode = '{old_mode}'")
    try:
        with lagging(
            source,
            target,
            tmp_path,
            f"ALTER DATABASE {SCHEMA} CHARACTER SET latin1",
            "CREATE TABLE a (id INT PRIMARY KEY, d VARCHAR(9) COLLATE utf8_bin, e TEXT) CHARSET = utf8",
            "INSERT INTO a VALUES (1, 'é', 'ß')",
            "CREATE TABLE b (id INT PRIMARY KEY, d CHAR(9) CHARACTER SET 'UTF8', e CHAR(5) DEFAULT (_utf8 'a'))",
            f"ALTER DATABASE {SCHEMA} COLLATE utf8_unicode_ci",
            "CREATE TABLE c (id INT PRIMARY KEY, d CHAR(9))",
            "ALTER TABLE c CONVERT TO CHARACTER SET utf8 COLLATE utf8_czech_ci",
        ) as run:
            run.until_synced()
            for table in ("a", "b", "c"):
                same(source, target, table, "id, d")
                assert charset in shown(target, table)
    finally:
        source.execute("SET GLOBAL old_mode = DEFAULT")


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_is_dropped_while_it_is_read(
    kind: str, ends: Ends, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = ends(kind, kind)
    source.execute(f"CREATE TABLE {SCHEMA}.a (id INT PRIMARY KEY)")
    texts = show_create.read_create_texts

    def read(*arguments: object) -> list[str]:
        found = texts(*arguments)  # pyright: ignore[reportArgumentType]
        source.execute(f"DROP TABLE {SCHEMA}.a")
        return found

    with (
        LaneRig(source, target, tmp_path, subtask_config(target)) as rig,
        rig.session(Side.SOURCE) as session,
        pytest.raises(pymysql.ProgrammingError) as raised,
    ):
        monkeypatch.setattr(show_create, "read_create_texts", read)
        read_create_statements(session, [(SCHEMA, "a")])
    assert raised.value.args[0] == 1146  # the caller reads the tables again

"""Tests structures, values and sessions with MySQL; test_schema.py tests the same with MariaDB."""

from __future__ import annotations

from collections.abc import Iterator

import pymysql
import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import (
    Endpoint,
    Session,
    Side,
    connect,
    current_position,
    execute,
    rows,
    server_info,
    to_coded,
)
from shardmerge.worker.core.mysql.information_schema import list_tables, read_table
from shardmerge.worker.core.table import ValueKind
from tests.integration.schema_rig import described, expect_every_bit
from tests.integration.snapshot_rig import endpoint
from tests.support.database import Database
from tests.support.mysql import MySQL


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    made = MySQL(tmp_path_factory.mktemp("schema"), 31)
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def fresh(server: Database) -> Database:
    server.execute("DROP DATABASE IF EXISTS s", "CREATE DATABASE s CHARSET latin1")
    return server


@pytest.fixture(params=[False, True], ids=["text", "raw"])
def session(fresh: Database, request: pytest.FixtureRequest) -> Iterator[Session]:
    with connect(endpoint(fresh), Side.SOURCE, name="src-1", raw=request.param) as made:
        yield made


def test_columns(fresh: Database, session: Session) -> None:
    fresh.execute(
        "CREATE TABLE s.t (id int unsigned AUTO_INCREMENT PRIMARY KEY, d decimal(10,2), y year, b bit(3),"
        " v varchar(9) CHARACTER SET utf8mb4, v3 varchar(9) CHARACTER SET utf8mb3, bi binary(4),"
        " e enum('a','it''s','back\\\\slash','new\\nline','é','nul\\0'), st set('x','y') COLLATE latin1_bin,"
        " j json, p point SRID 0, g geomcollection, gv int AS (y + 1) VIRTUAL, gs int AS (y + 1) STORED,"
        " dx int DEFAULT (1 + 1), dt datetime DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,"
        " hidden int INVISIBLE, UNIQUE made ((d + 1)))",
        "CREATE VIEW s.v AS SELECT * FROM s.t",
    )
    assert list_tables(session) == [("s", "t")]
    table = described(session, "t")
    kinds = {column.name: column.kind for column in table.columns}
    assert kinds == {
        "id": ValueKind.INTEGER,
        "d": ValueKind.DECIMAL,
        "y": ValueKind.YEAR,
        "b": ValueKind.BIT,
        "v": ValueKind.STRING,
        "v3": ValueKind.STRING,
        "bi": ValueKind.BINARY,
        "e": ValueKind.ENUM,
        "st": ValueKind.SET,
        "j": ValueKind.JSON,
        "p": ValueKind.GEOMETRY,
        "g": ValueKind.GEOMETRY,
        "gv": ValueKind.INTEGER,
        "gs": ValueKind.INTEGER,
        "dx": ValueKind.INTEGER,
        "dt": ValueKind.DATETIME,
        "hidden": ValueKind.INTEGER,
    }
    by_name = {column.name: column for column in table.columns}
    assert [column.name for column in table.columns if column.generated] == ["gv", "gs"]
    assert [column.name for column in table.columns if column.unsigned] == ["id"]
    assert [column.name for column in table.columns if column.auto_increment] == ["id"]
    assert {column.name: column.length for column in table.columns if column.length} == {"bi": 4}
    assert by_name["e"].labels == ("a", "it's", "back\\slash", "new\nline", "é", "nul\0")
    assert (by_name["st"].labels, by_name["st"].collation) == (("x", "y"), "latin1_bin")
    assert (by_name["v"].charset, by_name["v"].collation) == ("utf8mb4", "utf8mb4_0900_ai_ci")
    assert (by_name["v3"].charset, by_name["v3"].collation) == ("utf8mb3", "utf8mb3_general_ci")
    assert (by_name["j"].charset, by_name["id"].type_text) == ("", "int unsigned")
    assert (table.engine, table.key, table.key_name) == ("InnoDB", (0,), "PRIMARY")


@pytest.mark.parametrize(
    ("keys", "name", "columns"),
    [
        ("UNIQUE two (a, b), UNIQUE one (b)", "one", ("b",)),
        ("UNIQUE part (t(3))", "", ()),
        ("UNIQUE computed ((a + 1))", "", ()),
        ("UNIQUE half (a, (b + 1))", "", ()),
        ("UNIQUE two (a, b), UNIQUE hidden (b) INVISIBLE", "two", ("a", "b")),
        ("PRIMARY KEY (t(3)), UNIQUE hidden (b) INVISIBLE, UNIQUE two (a, b)", "two", ("a", "b")),
        ("PRIMARY KEY (t(3)), UNIQUE hidden (b) INVISIBLE", "hidden", ("b",)),
    ],
)
def test_the_key_that_identifies_rows(
    fresh: Database, session: Session, keys: str, name: str, columns: tuple[str, ...]
) -> None:
    fresh.execute(f"CREATE TABLE s.t (a int NOT NULL, b int NOT NULL, t varchar(9) NOT NULL, {keys})")
    table = described(session, "t")
    assert (table.key_name, tuple(column.name for column in table.key_columns)) == (name, columns)
    assert len(table.unique_keys) == keys.count("UNIQUE") + keys.count("PRIMARY"), "hidden ones are unique, too"
    assert table.key_hidden == (name == "hidden")


def test_a_key_that_the_server_made_up_is_a_key(fresh: Database, session: Session) -> None:
    fresh.execute("SET sql_generate_invisible_primary_key = 1", "CREATE TABLE s.t (a int)")
    table = described(session, "t")
    assert [column.name for column in table.key_columns] == ["my_row_id"]


def test_sizes_are_not_those_of_yesterday(fresh: Database, session: Session) -> None:
    """Chunks are cut by these sizes; MySQL caches them for a day."""
    fresh.execute("CREATE TABLE s.t (a int PRIMARY KEY, b varchar(100))")
    assert described(session, "t").row_estimate == 0
    with connect(endpoint(fresh), Side.TARGET, name="target") as other:
        rows(other, "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = 's'")
    fresh.execute(
        fresh.spelt("INSERT INTO s.t SELECT seq, 'x' FROM seq_1_to_20000"), "ANALYZE NO_WRITE_TO_BINLOG TABLE s.t"
    )
    fresh.execute(fresh.spelt("INSERT INTO s.t SELECT seq + 20000, 'x' FROM seq_1_to_20000"))
    with connect(endpoint(fresh), Side.TARGET, name="target") as other:
        [(remembered,)] = rows(other, "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = 's'")
    assert remembered < 25_000, "or this shows nothing"
    assert described(session, "t").row_estimate > 25_000


def test_a_label_that_information_schema_cannot_show_is_refused(fresh: Database, session: Session) -> None:
    fresh.execute("CREATE TABLE s.t (c enum('a','😀') CHARACTER SET utf8mb4)")
    with pytest.raises(ShardmergeError) as caught:
        read_table(session, "s", "t", source="src-1")
    assert caught.value.spec is errors.check.UNSUPPORTED_COLUMN


def test_values_are_read_without_losing_a_bit(fresh: Database) -> None:
    expect_every_bit(fresh)


def test_sessions(fresh: Database) -> None:
    asked = (
        "SELECT @@time_zone, @@sql_mode, @@transaction_isolation, @@foreign_key_checks, @@autocommit,"
        " @@max_execution_time, @@sql_select_limit, @@sql_big_selects"
    )
    fresh.execute(
        "SET GLOBAL time_zone='+05:00'",
        "SET GLOBAL sql_mode='ANSI'",
        "SET GLOBAL max_execution_time=7000000",
        "SET GLOBAL sql_select_limit=5",
        "SET GLOBAL max_join_size=1",
    )
    try:
        with connect(endpoint(fresh), Side.SOURCE, name="src-1") as session:
            assert rows(session, asked) == [("+00:00", "", "REPEATABLE-READ", 1, 1, 0, (1 << 64) - 1, 1)]
        with connect(endpoint(fresh), Side.TARGET, name="target", autocommit=False) as session:
            [(zone, mode, isolation, checks, autocommit, *_)] = rows(session, asked)
            assert (zone, isolation, checks, autocommit) == ("+00:00", "READ-COMMITTED", 0, 0)
            assert set(mode.split(",")) == {"STRICT_ALL_TABLES", "NO_AUTO_VALUE_ON_ZERO", "ALLOW_INVALID_DATES"}
            execute(session, "CREATE TABLE s.c (a int PRIMARY KEY, d date NOT NULL)")
            execute(session, "INSERT INTO s.c VALUES (0, '0000-00-00')")
            assert execute(session, "UPDATE s.c SET a = 0") == 1  # found, though unchanged
    finally:
        names = ("time_zone", "sql_mode", "max_execution_time", "sql_select_limit", "max_join_size")
        fresh.execute(*(f"SET GLOBAL {name} = DEFAULT" for name in names))


@pytest.mark.parametrize("password", ["secret", "schlüssel", "пароль", "x" * 200])
def test_passwords(fresh: Database, password: str) -> None:
    """Log in by caching_sha2_password without a certificate: the server's key encrypts the password over a separate
    connection, later the server's cache suffices."""
    fresh.execute(
        "DROP USER IF EXISTS dm@'127.0.0.1'",
        f"CREATE USER dm@'127.0.0.1' IDENTIFIED WITH caching_sha2_password BY '{password}'",
        "FLUSH PRIVILEGES",  # empties the cache
    )
    for side in Side:
        for _ in range(2):
            with connect(
                Endpoint("127.0.0.1", fresh.port, "dm", password, retrieves_key=True), side, name="src-1"
            ) as session:
                assert rows(session, "SELECT CURRENT_USER()") == [("dm@127.0.0.1",)]


def test_failures_by_number(fresh: Database) -> None:
    fresh.execute(
        "DROP USER IF EXISTS dm@'127.0.0.1'",
        "CREATE USER dm@'127.0.0.1' IDENTIFIED BY 'secret'",
        "CREATE TABLE s.t (a int)",
    )
    refused = {Side.SOURCE: errors.relay.ACCESS_DENIED, Side.TARGET: errors.replicate.TARGET_ACCESS_DENIED}
    lacking = {Side.SOURCE: errors.relay.PRIVILEGE_MISSING, Side.TARGET: errors.replicate.TARGET_PRIVILEGE_MISSING}
    for side in Side:
        with pytest.raises(ShardmergeError) as caught:
            connect(Endpoint("127.0.0.1", fresh.port, "dm", "wrong", retrieves_key=True), side, name="src-1")
        assert (caught.value.spec, caught.value.spec.retryable) == (refused[side], False)
        assert "wrong" not in str(caught.value)
        good = Endpoint("127.0.0.1", fresh.port, "dm", "secret", retrieves_key=True)
        with connect(good, side, name="src-1") as session, pytest.raises(pymysql.MySQLError) as denied:
            rows(session, "SELECT * FROM s.t")
        assert to_coded(denied.value, good, side, "src-1").spec is lacking[side]


def test_a_server_that_is_read_only_or_offline_is_retryable(fresh: Database) -> None:
    fresh.execute(
        "CREATE TABLE s.t (a int PRIMARY KEY)",
        "DROP USER IF EXISTS plain@'127.0.0.1'",
        "CREATE USER plain@'127.0.0.1' IDENTIFIED BY 'x'",
        "GRANT SELECT, INSERT ON s.* TO plain@'127.0.0.1'",
    )
    given = Endpoint("127.0.0.1", fresh.port, "plain", "x", retrieves_key=True)
    for variable, spec in (
        ("super_read_only", errors.replicate.TARGET_READ_ONLY),
        ("offline_mode", errors.replicate.TARGET_LOST),
    ):
        with connect(given, Side.TARGET, name="target") as session:
            fresh.execute(f"SET GLOBAL {variable} = 1")
            try:
                with pytest.raises(pymysql.MySQLError) as caught:
                    execute(session, "INSERT INTO s.t VALUES (1)")
                error = to_coded(caught.value, given, Side.TARGET, "target")
                assert (error.spec, error.spec.retryable) == (spec, True)
                if variable == "offline_mode":
                    with pytest.raises(ShardmergeError) as again:
                        connect(given, Side.TARGET, name="target")
                    assert (again.value.spec, again.value.spec.retryable) == (spec, True)
            finally:
                fresh.execute(f"SET GLOBAL {variable} = 0", "SET GLOBAL read_only = 0")


def test_the_end_of_the_binlog(fresh: Database, session: Session) -> None:
    info = server_info(session)
    assert (info.flavor, info.server_id, info.log_bin) == ("mysql", 31, True)
    assert info.version >= (9, 0, 0)
    assert len(info.server_uuid) == 36
    before = current_position(session, info)
    fresh.execute("CREATE TABLE s.t (a int)")
    after = current_position(session, info)
    assert before.file_order() < after.file_order()
    assert info.server_uuid in after.gtid_set
    fresh.execute("FLUSH BINARY LOGS")
    assert current_position(session, info).file > after.file

"""Tests structures and values that a real server reports, and the settings of sessions."""

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
from shardmerge.worker.core.mysql.information_schema import inspect_tables, list_tables, read_table, read_tables
from shardmerge.worker.core.table import ValueKind
from tests.integration.schema_rig import described, expect_every_bit
from tests.support.mariadb import MariaDB
from tests.support.ports import free_port
from tests.support.wait import until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    made = MariaDB(tmp_path_factory.mktemp("schema"), 31).start()
    yield made
    made.stop()


@pytest.fixture
def fresh(server: MariaDB) -> MariaDB:
    server.execute("DROP DATABASE IF EXISTS s", "DROP DATABASE IF EXISTS `S2`", "CREATE DATABASE s CHARSET latin1")
    return server


def endpoint(server: MariaDB, **more: object) -> Endpoint:
    return Endpoint("127.0.0.1", server.port, "root", **more)  # pyright: ignore[reportArgumentType]


@pytest.fixture(params=[False, True], ids=["text", "raw"])
def session(fresh: MariaDB, request: pytest.FixtureRequest) -> Iterator[Session]:
    with connect(endpoint(fresh), Side.SOURCE, name="src-1", raw=request.param) as made:
        yield made


def test_tables_of_users_only(fresh: MariaDB, session: Session) -> None:
    fresh.execute(
        "CREATE TABLE s.b (a int)",
        "CREATE TABLE s.a (a int)",
        "CREATE VIEW s.v AS SELECT * FROM s.a",
        "CREATE SEQUENCE s.q",
        "CREATE DATABASE `S2`",
        "CREATE TABLE `S2`.`odd ``name` (a int)",
    )
    assert list_tables(session) == [("S2", "odd `name"), ("s", "a"), ("s", "b")]
    assert [table.name for table in read_tables(session, [("s", "b"), ("s", "none"), ("S2", "odd `name")])] == [
        "b",
        "odd `name",
    ]
    assert read_table(session, "s", "A") is None


def test_columns(fresh: MariaDB, session: Session) -> None:
    fresh.execute(
        "CREATE TABLE s.t (id int unsigned AUTO_INCREMENT PRIMARY KEY, d decimal(10,2), f float, g double,"
        " b bit(3), dt date, ti time(2), dd datetime(6), ts timestamp NULL, y year, c char(3), v varchar(9)"
        " CHARACTER SET utf8mb4, tx mediumtext, bi binary(4), vb varbinary(7), bl longblob,"
        " e enum('a','it''s','back\\\\slash','new\\nline','é','nul\\0') , st set('x','y') COLLATE latin1_bin,"
        " j json, p point, gv int AS (y + 1) VIRTUAL, gs int AS (y + 1) STORED, dx int DEFAULT (1 + 1))"
    )
    table = described(session, "t")
    kinds = {column.name: column.kind for column in table.columns}
    assert kinds == {
        "id": ValueKind.INTEGER,
        "d": ValueKind.DECIMAL,
        "f": ValueKind.FLOAT,
        "g": ValueKind.DOUBLE,
        "b": ValueKind.BIT,
        "dt": ValueKind.DATE,
        "ti": ValueKind.TIME,
        "dd": ValueKind.DATETIME,
        "ts": ValueKind.TIMESTAMP,
        "y": ValueKind.YEAR,
        "c": ValueKind.STRING,
        "v": ValueKind.STRING,
        "tx": ValueKind.STRING,
        "bi": ValueKind.BINARY,
        "vb": ValueKind.BINARY,
        "bl": ValueKind.BINARY,
        "e": ValueKind.ENUM,
        "st": ValueKind.SET,
        "j": ValueKind.STRING,
        "p": ValueKind.GEOMETRY,
        "gv": ValueKind.INTEGER,
        "gs": ValueKind.INTEGER,
        "dx": ValueKind.INTEGER,
    }
    by_name = {column.name: column for column in table.columns}
    assert [column.name for column in table.columns if column.generated] == ["gv", "gs"]
    assert [column.name for column in table.columns if column.unsigned] == ["id"]
    assert [column.name for column in table.columns if column.auto_increment] == ["id"]
    assert [column.name for column in table.columns if not column.nullable] == ["id"]
    assert {column.name: column.length for column in table.columns if column.length} == {"bi": 4}
    assert by_name["e"].labels == ("a", "it's", "back\\slash", "new\nline", "é", "nul\0")
    assert (by_name["st"].labels, by_name["st"].collation) == (("x", "y"), "latin1_bin")
    assert (by_name["v"].charset, by_name["v"].collation) == ("utf8mb4", "utf8mb4_general_ci")
    assert (by_name["id"].charset, by_name["d"].type_text) == ("", "decimal(10,2)")
    assert (table.engine, table.key, table.key_name, table.has_foreign_keys) == ("InnoDB", (0,), "PRIMARY", False)


@pytest.mark.parametrize(
    ("keys", "name", "columns"),
    [
        ("PRIMARY KEY (b, a), UNIQUE u (a)", "PRIMARY", ("b", "a")),
        ("UNIQUE two (a, b), UNIQUE one (b)", "one", ("b",)),
        ("UNIQUE text (t), UNIQUE number (b)", "number", ("b",)),
        ("UNIQUE nullable (n), UNIQUE text (t)", "text", ("t",)),
        ("UNIQUE nullable (n)", "", ()),
        ("UNIQUE part (t(3))", "", ()),
        ("PRIMARY KEY (t(3)), UNIQUE whole (a)", "whole", ("a",)),
        ("UNIQUE made (g)", "", ()),
        ("KEY plain (a)", "", ()),
        ("UNIQUE two (a, b), UNIQUE hidden (b) IGNORED", "two", ("a", "b")),
        ("PRIMARY KEY (t(3)), UNIQUE hidden (b) IGNORED, UNIQUE two (a, b)", "two", ("a", "b")),
        ("PRIMARY KEY (t(3)), UNIQUE hidden (b) IGNORED", "hidden", ("b",)),
    ],
)
def test_the_key_that_identifies_rows(
    fresh: MariaDB, session: Session, keys: str, name: str, columns: tuple[str, ...]
) -> None:
    fresh.execute(
        f"CREATE TABLE s.t (a int NOT NULL, b int NOT NULL, n int, t varchar(9) NOT NULL, g int AS (a) STORED, {keys})"
    )
    table = described(session, "t")
    assert (table.key_name, tuple(column.name for column in table.key_columns)) == (name, columns)
    assert len(table.unique_keys) == keys.count("UNIQUE") + keys.count("PRIMARY"), "hidden ones are unique, too"
    assert table.key_hidden == (name == "hidden")


def test_foreign_keys_are_seen_at_the_child(fresh: MariaDB, session: Session) -> None:
    fresh.execute(
        "CREATE TABLE s.parent (id int PRIMARY KEY)",
        "CREATE TABLE s.child (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES parent (id))",
    )
    assert described(session, "child").has_foreign_keys
    assert not described(session, "parent").has_foreign_keys


@pytest.mark.parametrize(
    ("definition", "column"),
    [
        ("c varchar(10) COMPRESSED", "c"),
        ("c enum('a','😀') CHARACTER SET utf8mb4", "c"),
        ("a int, PERIOD FOR SYSTEM_TIME (f, t), f timestamp(6) AS ROW START, t timestamp(6) AS ROW END", ""),
    ],
)
def test_what_cannot_be_copied_faithfully_is_refused_by_name(
    fresh: MariaDB, session: Session, definition: str, column: str
) -> None:
    versioned = "WITH SYSTEM VERSIONING" if "SYSTEM_TIME" in definition else ""
    fresh.execute(f"CREATE TABLE s.odd ({definition}) {versioned}", "CREATE TABLE s.good (a int)")
    with pytest.raises(ShardmergeError) as caught:
        read_table(session, "s", "odd", source="src-1")
    wanted = errors.check.UNSUPPORTED_COLUMN if column else errors.check.UNSUPPORTED_TABLE
    assert caught.value.spec is wanted
    assert "src-1" in caught.value.message
    assert caught.value.values.get("column", "") == column
    both = inspect_tables(session, [("s", "odd"), ("s", "good")])
    assert [isinstance(each, ShardmergeError) for each in both] == [True, False]


def test_a_question_mark_is_a_label_where_nothing_else_can_hide_behind_it(fresh: MariaDB, session: Session) -> None:
    fresh.execute("CREATE TABLE s.t (c enum('yes','?') CHARACTER SET latin1)")
    assert described(session, "t").columns[0].labels == ("yes", "?")


def test_values_are_read_without_losing_a_bit(fresh: MariaDB) -> None:
    expect_every_bit(fresh)


def test_sessions(fresh: MariaDB) -> None:
    asked = (
        "SELECT @@time_zone, @@sql_mode, @@tx_isolation, @@foreign_key_checks, @@autocommit, @@max_statement_time,"
        " @@lock_wait_timeout"
    )
    fresh.execute("SET GLOBAL time_zone='+05:00'", "SET GLOBAL sql_mode='ANSI'", "SET GLOBAL max_statement_time=7")
    given = endpoint(fresh, session=(("autocommit", "0"), ("lock_wait_timeout", "17"), ("sql_mode", "ANSI_QUOTES")))
    with connect(given, Side.SOURCE, name="src-1") as session:
        assert rows(session, asked) == [("+00:00", "", "REPEATABLE-READ", 1, 1, 0.0, 17)]
    with connect(given, Side.TARGET, name="target", autocommit=False) as session:
        [(zone, mode, isolation, checks, autocommit, _, wait)] = rows(session, asked)
        assert (zone, isolation, checks, autocommit, wait) == ("+00:00", "READ-COMMITTED", 0, 0, 17)
        assert set(mode.split(",")) == {"STRICT_ALL_TABLES", "NO_AUTO_VALUE_ON_ZERO", "ALLOW_INVALID_DATES"}
        execute(session, "CREATE TABLE s.c (a int PRIMARY KEY, d date NOT NULL)")
        execute(session, "INSERT INTO s.c VALUES (0, '0000-00-00')")
        assert execute(session, "UPDATE s.c SET a = 0") == 1  # found, though unchanged
    fresh.execute("SET GLOBAL time_zone='SYSTEM'", "SET GLOBAL sql_mode=DEFAULT", "SET GLOBAL max_statement_time=0")


@pytest.mark.parametrize("side", list(Side))
def test_sessions_see_and_write_every_row_with_any_setting_of_the_server(fresh: MariaDB, side: Side) -> None:
    odd = {"sql_select_limit": 5, "sql_safe_updates": 1, "max_join_size": 1, "unique_checks": 0, "sql_big_selects": 0}
    given = endpoint(fresh, session=tuple((name, str(value)) for name, value in odd.items()))
    asked = "SELECT @@sql_select_limit, @@sql_big_selects, @@unique_checks, @@sql_safe_updates"
    try:
        for name, value in odd.items():
            if name != "sql_big_selects":  # a session variable: max_join_size controls it
                fresh.execute(f"SET GLOBAL {name} = {value}")
        with connect(given, side, name="s") as session:
            [(limit, big, unique, safe)] = rows(session, asked)
            assert (limit, big) == (18446744073709551615, 1)
            if side is Side.TARGET:
                assert (unique, safe) == (1, 0)
    finally:
        for name in odd:
            if name != "sql_big_selects":
                fresh.execute(f"SET GLOBAL {name} = DEFAULT")


@pytest.mark.parametrize("variable", ["no_such_thing", "x = 1, y"])
def test_a_session_variable_that_is_refused(fresh: MariaDB, variable: str) -> None:
    with pytest.raises(ShardmergeError) as caught:
        connect(endpoint(fresh, session=((variable, "on"),)), Side.TARGET, name="target")
    assert caught.value.spec is errors.relay.SESSION_VARIABLE
    assert caught.value.values["variable"] == variable


def test_failures_by_number(fresh: MariaDB) -> None:
    fresh.execute("CREATE OR REPLACE USER dm@'%' IDENTIFIED BY 'secret'", "CREATE TABLE s.t (a int)")
    refused = {Side.SOURCE: errors.relay.ACCESS_DENIED, Side.TARGET: errors.replicate.TARGET_ACCESS_DENIED}
    lost = {Side.SOURCE: errors.relay.SOURCE_LOST, Side.TARGET: errors.replicate.TARGET_LOST}
    lacking = {Side.SOURCE: errors.relay.PRIVILEGE_MISSING, Side.TARGET: errors.replicate.TARGET_PRIVILEGE_MISSING}
    for side in Side:
        with pytest.raises(ShardmergeError) as caught:
            connect(Endpoint("127.0.0.1", fresh.port, "dm", "wrong"), side, name="src-1")
        assert (caught.value.spec, caught.value.spec.retryable) == (refused[side], False)
        assert "wrong" not in str(caught.value)
        with pytest.raises(ShardmergeError) as caught:
            connect(Endpoint("127.0.0.1", free_port(), "dm", "secret"), side, name="src-1")
        assert (caught.value.spec, caught.value.spec.retryable) == (lost[side], True)
        good = Endpoint("127.0.0.1", fresh.port, "dm", "secret")
        with connect(good, side, name="src-1") as session, pytest.raises(pymysql.MySQLError) as denied:
            rows(session, "SELECT * FROM s.t")
        assert to_coded(denied.value, good, side, "src-1").spec is lacking[side]
    assert "secret" not in repr(Endpoint("127.0.0.1", 1, "dm", "secret"))


def test_a_server_that_is_killed_is_lost_and_retryable(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = MariaDB(tmp_path_factory.mktemp("killed"), 32).start()
    try:
        session = connect(endpoint(server), Side.TARGET, name="target")
        server.kill()
        for _ in range(2):  # at the second call PyMySQL raises an error without a number
            with pytest.raises(pymysql.MySQLError) as caught:
                rows(session, "SELECT 1")
            assert to_coded(caught.value, endpoint(server), Side.TARGET, "target").spec is errors.replicate.TARGET_LOST
    finally:
        server.stop()


def test_a_lock_wait_and_a_read_only_server_are_retryable(fresh: MariaDB) -> None:
    fresh.execute("CREATE TABLE s.t (a int PRIMARY KEY)", "INSERT INTO s.t VALUES (1)")
    fresh.execute(
        "CREATE OR REPLACE USER plain@'%' IDENTIFIED BY 'x'", "GRANT SELECT, INSERT, UPDATE ON s.* TO plain@'%'"
    )
    given = Endpoint("127.0.0.1", fresh.port, "plain", "x", (("innodb_lock_wait_timeout", "1"),))
    with (
        connect(given, Side.TARGET, name="target", autocommit=False) as one,
        connect(given, Side.TARGET, name="target", autocommit=False) as two,
    ):
        execute(one, "UPDATE s.t SET a = 2")
        with pytest.raises(pymysql.MySQLError) as caught:
            execute(two, "UPDATE s.t SET a = 3")
        error = to_coded(caught.value, given, Side.TARGET, "target")
        assert (error.spec, error.spec.retryable) == (errors.replicate.TARGET_CONFLICT, True)
        one.rollback()
        fresh.execute("SET GLOBAL read_only = 1")
        try:
            with pytest.raises(pymysql.MySQLError) as caught:
                execute(two, "UPDATE s.t SET a = 3")
        finally:
            fresh.execute("SET GLOBAL read_only = 0")
        error = to_coded(caught.value, given, Side.TARGET, "target")
        assert (error.spec, error.spec.retryable) == (errors.replicate.TARGET_READ_ONLY, True)


def test_the_end_of_the_binlog(fresh: MariaDB, session: Session) -> None:
    info = server_info(session)
    assert (info.flavor, info.server_id, info.log_bin, info.server_uuid) == ("mariadb", 31, True, "")
    assert info.version >= (10, 2, 0)
    before = current_position(session, info)
    fresh.execute("CREATE TABLE s.t (a int)")
    after = current_position(session, info, gtid=True)
    assert before.file_order() < after.file_order()
    assert before.gtid_set == ""
    assert after.gtid_set.startswith("0-31-")
    fresh.execute("FLUSH BINARY LOGS")
    assert until(lambda: current_position(session, info), "a position").file > after.file


def test_a_source_without_binlog_has_no_position(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = MariaDB(tmp_path_factory.mktemp("nolog"), 33, ("--skip-log-bin",)).start()
    try:
        with connect(endpoint(server), Side.SOURCE, name="src-1") as session:
            info = server_info(session)
            assert not info.log_bin
            with pytest.raises(ShardmergeError) as caught:
                current_position(session, info)
        assert caught.value.spec is errors.relay.NO_BINLOG
    finally:
        server.stop()

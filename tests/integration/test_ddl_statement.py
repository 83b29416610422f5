"""Tests the effect on real servers of statements that the program has read and rewritten."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pymysql
import pytest

from shardmerge.proto.sql_lexer import ANSI_QUOTES
from shardmerge.worker.binlog.events import EventType, FormatDescription
from shardmerge.worker.binlog.query_text import parse_query
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, connect, execute
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.ddl.sql.rewrite import rename_tables, without_clauses, without_references
from shardmerge.worker.ddl.sql.statement import AlterTable, Ddl, names, parse_ddl
from shardmerge.worker.ddl.structure.schema_tracker import open_tracker
from tests.support.binlog import read_binlog
from tests.support.database import Database
from tests.support.ddl_cases import ALTERS, CLAUSES, OTHERS, TABLES, Case
from tests.support.pair import KINDS

K = ClauseKind


@pytest.fixture(scope="module", params=KINDS.values(), ids=list(KINDS))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Provide a server whose schema ``kept`` has the tables in their state before a test."""
    made: Database = request.param(tmp_path_factory.mktemp("ddl"), 31).start()
    made.execute(*(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4" for schema in ("kept", *"abc")))
    run(made, "kept", *TABLES)
    yield made
    made.stop()


@pytest.fixture
def fresh(server: Database) -> Database:
    """Return the server with the same tables in schemas a and b, and none in c."""
    kept = structures(server, "kept")
    for schema in "ab":
        mend(server, schema, kept)
    return server


def mend(server: Database, schema: str, kept: dict[str, str]) -> None:
    """Restore only what a test has changed: restoring everything would take seconds."""
    present = structures(server, schema)
    changed = [name for name in present if present[name] != kept.get(name)]
    missing = kept.keys() - present.keys() | set(changed)
    statements = [f"DROP TABLE `{name}`" for name in changed]
    statements += [statement for statement in TABLES if statement.split()[2] in missing]
    run(server, schema, "SET foreign_key_checks = 0", *statements)


def run(server: Database, schema: str, *statements: str) -> None:
    connection = server.connect(schema)
    try:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    finally:
        connection.close()


def structures(server: Database, schema: str) -> dict[str, str]:
    connection = server.connect(schema)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            found: dict[str, str] = {}
            for (name,) in cursor.fetchall():
                cursor.execute(f"SHOW CREATE TABLE `{name}`")
                found[name] = str(cursor.fetchall()[0][1])
            return found
    finally:
        connection.close()


def columns(server: Database, schema: str) -> set[str]:
    found = server.query(f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{schema}'")
    return {str(name).lower() for (name,) in found}


def read(text: str) -> Ddl:
    ddl = parse_ddl(text, "a", None)
    assert ddl is not None
    return ddl


def altered(text: str) -> AlterTable:
    ddl = read(text)
    assert isinstance(ddl, AlterTable)
    return ddl


def to_b(schema: str, table: str) -> tuple[str, str]:
    assert schema == "a"
    return "b", table


def runs_alike(server: Database, text: str) -> None:
    """Run the statement in a, and its rewritten form in b from a third schema."""
    run(server, "a", text)
    run(server, "c", rename_tables(text, read(text), to_b))
    assert structures(server, "a") == structures(server, "b")
    assert not structures(server, "c")


@pytest.mark.parametrize("case", [case for case in CLAUSES if case.on], ids=lambda case: case.text)
def test_a_clause_does_the_same_to_the_renamed_table(fresh: Database, case: Case) -> None:
    if fresh.flavor not in case.on:
        pytest.skip(f"not the syntax of {fresh.title}")
    before = columns(fresh, "a")
    runs_alike(fresh, f"ALTER TABLE {case.table} {case.text}")
    after = columns(fresh, "a")
    match case.kind:
        case K.ADD_COLUMN:
            assert after - before == {name.lower() for name in case.columns}
        case K.DROP_COLUMN:
            assert before - after == set(case.columns)
        case K.CHANGE_COLUMN | K.RENAME_COLUMN:
            assert (before - after, after - before) == (set(case.columns), {case.new_name})
        case _:
            assert before == after


@pytest.mark.parametrize(("text", "flavors"), [*ALTERS, *OTHERS])
def test_a_statement_does_the_same_to_the_renamed_tables(fresh: Database, text: str, flavors: frozenset[str]) -> None:
    if fresh.flavor not in flavors:
        pytest.skip(f"not the syntax of {fresh.title}")
    before = structures(fresh, "a")
    runs_alike(fresh, text)
    changes_nothing = text.startswith("TRUNCATE") or text == "ALTER TABLE t"
    assert (structures(fresh, "a") == before) == changes_nothing


@pytest.mark.parametrize(("text", "flavors"), ALTERS)
def test_what_is_left_of_a_statement_runs(fresh: Database, text: str, flavors: frozenset[str]) -> None:
    if fresh.flavor not in flavors:
        pytest.skip(f"not the syntax of {fresh.title}")
    ddl = altered(text)
    for kind in {clause.kind for clause in ddl.clauses}:
        if rest := without_clauses(text, ddl, lambda clause, kind=kind: clause.kind is kind):
            mend(fresh, "b", structures(fresh, "kept"))
            run(fresh, "b", rest)


@pytest.mark.parametrize(
    "text",
    [f"ALTER TABLE t {case.text}" for case in CLAUSES if case.others == ("p",) and "mariadb" in case.on]
    + [text for text, _ in ALTERS if "REFERENCES" in text],
)
def test_no_foreign_key_comes_or_goes(fresh: Database, text: str) -> None:
    if fresh.flavor == "mysql" and ("IF NOT" in text or "INT CONSTRAINT" in text):
        pytest.skip(f"not the syntax of {fresh.title}")
    run(fresh, "a", text)
    assert "FOREIGN KEY" in structures(fresh, "a")["t"].replace("CONSTRAINT `fk` FOREIGN KEY (`a`)", "")
    rest = without_references(text, altered(text))
    if rest:
        run(fresh, "b", rest)
    left = structures(fresh, "b")["t"]
    assert left.count("FOREIGN KEY") == left.count("CONSTRAINT `fk` FOREIGN KEY (`a`)") == 1
    assert columns(fresh, "a") == columns(fresh, "b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ALTER TABLE b.n RENAME moved", [("b", "n"), ("a", "moved")]),
        ("RENAME TABLE b.n TO moved", [("b", "n"), ("a", "moved")]),
        ("CREATE TABLE b.more LIKE n", [("b", "more"), ("a", "n")]),
        ("ALTER TABLE b.r EXCHANGE PARTITION p0 WITH TABLE e", [("b", "r"), ("a", "e")]),
        ("ALTER TABLE b.t ADD FOREIGN KEY (c) REFERENCES only_b (x)", [("b", "t"), ("b", "only_b")]),
        ("ALTER TABLE b.t ADD d INT REFERENCES only_b (x)", [("b", "t"), ("b", "only_b")]),
        ("CREATE TABLE b.more (a INT, FOREIGN KEY (a) REFERENCES only_b (x))", [("b", "more"), ("b", "only_b")]),
    ],
)
def test_names_without_a_schema(fresh: Database, text: str, expected: list[tuple[str, str]]) -> None:
    assert [name.name for name in names(read(text))] == expected
    run(fresh, "b", "CREATE TABLE only_b (x INT PRIMARY KEY)", "DROP TABLE e")
    run(fresh, "a", text)
    for schema, table in expected:
        if (schema, table) == ("b", "n") and "moved" in text:
            with pytest.raises(pymysql.err.ProgrammingError):
                fresh.query("SELECT 1 FROM b.n")
        else:
            fresh.query(f"SELECT 1 FROM `{schema}`.`{table}`")
    if "REFERENCES" in text:
        assert "REFERENCES `only_b` (`x`)" in structures(fresh, "b")[expected[0][1]]


def test_the_session_of_a_statement(server: Database) -> None:
    """The statement's event holds its sql_mode, its time and its time zone."""
    run(server, "kept", "CREATE DATABASE moment", "CREATE TABLE moment.t (id INT PRIMARY KEY)", "FLUSH BINARY LOGS")
    try:
        run(
            server,
            "moment",
            "INSERT INTO t VALUES (1)",
            "SET time_zone = '+05:30', sql_mode = 'ANSI_QUOTES', timestamp = 1700000000.123456",
            "ALTER TABLE \"t\" ADD a DATETIME(6) DEFAULT NOW(6), ADD b TIMESTAMP NULL DEFAULT '2024-01-01'",
        )
        binlog = read_binlog(server.directory / "data" / server.binlog_end()[0])
    finally:
        run(server, "kept", "DROP DATABASE moment")
    checksum = FormatDescription.parse(binlog.format_description).checksum
    events = [parse_query(event, checksum) for event in binlog.each() if event[4] == EventType.QUERY]
    [found] = [event for event in events if event.statement.startswith(b"ALTER")]
    assert found.second == 1_700_000_000
    assert found.variables.microseconds == 123_456
    assert found.variables.time_zone == "+05:30"
    assert (found.variables.sql_mode or 0) & ANSI_QUOTES
    assert found.variables.has_ended
    assert found.is_text


def test_a_tracker_is_dropped_when_a_stop_ends_its_session(server: Database) -> None:
    server.execute("CREATE DATABASE IF NOT EXISTS trackers")
    session = connect(Endpoint(server.host, server.port, "root"), Side.TARGET, name="target")
    tracker = open_tracker(session, SubtaskKey("trackers", "t", "s"), "locks", 7)

    def create(inner: Session) -> None:
        execute(inner, "CREATE TABLE {}.{} (id INT PRIMARY KEY)".format(*tracker.place))
        vars(inner)["_sock"].shutdown(socket.SHUT_RDWR)

    with pytest.raises(pymysql.MySQLError):
        tracker.created("a", "t", create)
    assert server.query("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'trackers'") == []

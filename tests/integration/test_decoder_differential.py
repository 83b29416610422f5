"""Tests random rows of every type: the decoder, a SELECT, mysql-replication and both kinds of targets must agree."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent

from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.binlog.rows.row_literals import literal
from shardmerge.worker.core.batch import RowOperation
from shardmerge.worker.core.mysql.connection import Endpoint, Side, connect
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.row_change import Literals, RowChange
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, TablePlan
from shardmerge.worker.target.apply.dml import delete_row_sql, write_sql
from tests.support import random_types
from tests.support.binlog import Binlog, only, read_binlog, split
from tests.support.capture import described, selected
from tests.support.database import Database
from tests.support.exact import assert_same_bytes
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL

ROWS = 150
RESET = {MariaDB: "RESET MASTER", MySQL: "RESET BINARY LOGS AND GTIDS"}
OPTIONS = ("--binlog-row-metadata=FULL", "--sql-mode=")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[type[Database], Database]]:
    made: dict[type[Database], Database] = {}
    try:
        for number, kind in enumerate((MariaDB, MySQL), 1):
            server = kind(tmp_path_factory.mktemp("differential") / "server", number, OPTIONS)
            made[kind] = server
            server.start()
        yield made
    finally:
        for server in made.values():
            server.stop()


@pytest.fixture(params=[MariaDB, MySQL], ids=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest, servers: dict[type[Database], Database]) -> Database:
    server = servers[request.param]
    # mysql-replication always reads from the first existing file.
    server.execute("DROP DATABASE IF EXISTS d", "CREATE DATABASE d CHARACTER SET utf8mb4", RESET[request.param])
    return server


def closed_binlog(server: Database) -> Binlog:
    """Return the binlog file since the last FLUSH."""
    file, _ = server.binlog_end()
    server.execute("FLUSH BINARY LOGS")
    return read_binlog(server.directory / "data" / file)


def decoded(binlog: Binlog, table: TablePlan) -> list[RowChange]:
    decoder = BlockDecoder(only(table), source="s1")
    decoder.open(binlog.format_description)
    return decoder.decode(binlog.events)


def from_library(column: Column, value: object) -> bytes:
    """Return the literal of a value that mysql-replication has read."""
    if value is None:
        return b"NULL"
    fraction_digits = re.search(r"\((\d)\)$", column.type_text)
    digits = int(fraction_digits.group(1)) if fraction_digits else 0
    match column.kind:
        case ValueKind.BIT:
            return literal(column, b"%d" % int(str(value), 2))
        case ValueKind.ENUM:
            return literal(column, b"%d" % (column.labels.index(str(value)) + 1))
        case ValueKind.SET:
            assert isinstance(value, set)
            return literal(column, b"%d" % sum(1 << bit for bit, name in enumerate(column.labels) if name in value))
        case ValueKind.DECIMAL:
            return f"{value:f}".encode()
        case ValueKind.FLOAT | ValueKind.DOUBLE:
            return repr(value).encode()
        case ValueKind.TIME:
            assert isinstance(value, dt.timedelta)
            micros = value // dt.timedelta(microseconds=1)
            seconds, fraction = divmod(abs(micros), 1_000_000)
            clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            tail = f".{fraction:06}"[: digits + 1] if digits else ""
            return f"'{'-' if micros < 0 else ''}{clock}{tail}'".encode()
        case ValueKind.DATETIME | ValueKind.TIMESTAMP:
            assert isinstance(value, dt.datetime)
            tail = f".{value.microsecond:06}"[: digits + 1] if digits else ""
            return f"'{value.replace(tzinfo=None, microsecond=0).isoformat(' ')}{tail}'".encode()
        case ValueKind.STRING:
            codec = {"latin1": "cp1252", "gbk": "gbk"}.get(column.charset, "utf-8")
            return literal(column, str(value).encode(codec))
        case ValueKind.BINARY:
            return literal(column, value if isinstance(value, bytes) else str(value).encode())
        case _:
            return literal(column, str(value).encode())


def library_errs(column: Column, ours: bytes) -> bool:
    """Return whether a fault of the library is known: wrong negative times with a fraction, None for an empty SET. For
    those only SELECT decides."""
    match column.kind:
        case ValueKind.TIME:
            return ours.startswith(b"'-") and "(" in column.type_text
        case ValueKind.SET:
            return ours == b"''"
        case _:
            return False


def library_rows(
    server: Database, file: str, end: int, columns: tuple[ColumnPlan, ...]
) -> list[tuple[Literals, Literals]]:
    """Return (before, after) of every row, () for a missing image."""
    reader = BinLogStreamReader(
        {"host": server.host, "port": server.port, "user": "root"},
        4711,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        # The library always starts at the first file. Without blocking, the server resets the connection before a slow
        # reader has read to the end.
        blocking=True,
        log_file=file,
        log_pos=4,
        end_log_pos=end,
        resume_stream=True,
        is_mariadb=isinstance(server, MariaDB),
    )

    def literals(values: dict[str, object]) -> Literals:
        return tuple(from_library(each.column, values[each.column.name]) for each in columns)

    found: list[tuple[Literals, Literals]] = []
    try:
        for event in reader:
            assert isinstance(event, RowsEvent)
            # The library reconnects silently and repeats the events, without a limit.
            assert len(found) < 2 * ROWS
            for row in event.rows:
                if isinstance(event, UpdateRowsEvent):
                    found.append((literals(row["before_values"]), literals(row["after_values"])))
                elif isinstance(event, DeleteRowsEvent):
                    found.append((literals(row["values"]), ()))
                else:
                    found.append(((), literals(row["values"])))
    finally:
        reader.close()
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_three_readers_agree(server: Database, seed: int) -> None:
    """Compares the types that the library supports."""
    server.execute(random_types.create(server.flavor, "d.random", rare=False))
    file, _ = server.binlog_end()
    pick = random.Random(seed)
    server.execute(*random_types.inserts(server.flavor, "d.random", pick, ROWS, rare=False))
    table = described(server, "d", "random")
    chunk = selected(server, table)
    server.execute(
        "UPDATE d.random SET ti = -ti, v = NULL, f = f / 3 WHERE id % 3 = 0",
        "DELETE FROM d.random WHERE id % 5 = 0",
    )
    _, end = server.binlog_end()
    changes = [(change.before, change.after) for change in decoded(closed_binlog(server), table)]
    assert [after for _, after in changes[:ROWS]] == chunk
    theirs = library_rows(server, file, end, table.columns)
    assert [(bool(before), bool(after)) for before, after in theirs] == [
        (bool(before), bool(after)) for before, after in changes
    ]
    wrong = [
        (each.column.name, ours, other)
        for pair, other_pair in zip(changes, theirs, strict=True)
        for image, other_image in zip(pair, other_pair, strict=True)
        for each, ours, other in zip(table.columns, image, other_image, strict=False)
        if ours != other and not library_errs(each.column, ours)
    ]
    assert wrong == []


def differences(table: TablePlan, ours: Sequence[Literals], theirs: Sequence[Literals]) -> list[tuple[object, ...]]:
    assert len(ours) == len(theirs)
    return [
        (number, each.column.name, one, other)
        for number, (row, other_row) in enumerate(zip(ours, theirs, strict=True))
        for each, one, other in zip(table.columns, row, other_row, strict=True)
        if one != other
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_every_type_is_selected_and_streamed_alike(server: Database, seed: int) -> None:
    """The stream delivers what SELECT returns after each of many changes, including partial changes of JSON values."""
    server.execute(random_types.create(server.flavor, "d.random"))
    pick = random.Random(seed)
    server.execute(*random_types.inserts(server.flavor, "d.random", pick, ROWS))
    table = described(server, "d", "random")
    inserted = selected(server, table)
    if isinstance(server, MySQL):
        # The library silently ignores the events that this creates.
        changes_in_place = random_types.json_changes("d.random", pick, ROWS, 400)
        server.execute("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'", *changes_in_place)
    server.execute("UPDATE d.random SET id = -id, v = 'moved' WHERE id % 7 = 3", "UPDATE d.random SET ti = 1")
    binlog = closed_binlog(server)
    changes = decoded(binlog, table)
    assert differences(table, [change.after for change in changes[:ROWS]], inserted) == []
    left = {change.after[0]: change.after for change in changes[:ROWS]}
    for change in changes[ROWS:]:
        assert left.pop(change.before[0]) == change.before
        left[change.after[0]] = change.after
    by_number = sorted(left.values(), key=lambda row: int(row[0]))
    assert differences(table, by_number, selected(server, table)) == []
    codes = {event[4] for event in split(binlog.events)}
    assert (EventType.PARTIAL_UPDATE_ROWS in codes) == isinstance(server, MySQL)


_STAND_INS: dict[type[Database], dict[str, str]] = {
    MariaDB: {"VECTOR(60)": "VARBINARY(240)"},
    MySQL: {"INET4": "BINARY(4)", "INET6": "BINARY(16)", "UUID": "BINARY(16)", "JSON": "LONGTEXT"},
}
"""Replacements, for a target of this kind, for types that only the other kind of server has."""


def test_targets_take_the_literals(server: Database, servers: dict[type[Database], Database]) -> None:
    """Each row that is written to a table at each kind of target has the source's values there, byte for byte, and can
    be found by all of them."""
    server.execute(random_types.create(server.flavor, "d.random"))
    server.execute(*random_types.inserts(server.flavor, "d.random", random.Random(3), ROWS))
    source = described(server, "d", "random")
    wanted = selected(server, source)
    merged = replace(source, target_schema="t", target_table="merged")
    for kind, target in servers.items():
        creation = random_types.create(server.flavor, "t.merged")
        if kind is not type(server):
            for type_, stand_in in _STAND_INS[kind].items():
                creation = re.sub(rf" {re.escape(type_)}(?=[,)])", f" {stand_in}", creation)
        target.execute("DROP DATABASE IF EXISTS t", "CREATE DATABASE t CHARACTER SET utf8mb4", creation)
        session = connect(Endpoint(target.host, target.port, "root"), Side.TARGET, name="target")
        try:
            cursor: Any = session.cursor()  # the published stubs do not accept bytes
            for row in wanted:
                cursor.execute(write_sql(b"INSERT", merged, [b",".join(row)]))
            assert_same_bytes(server, target, "d.random", ["id"], at="t.merged")
            for row in wanted:
                sql = delete_row_sql(RowOperation(merged, row, (), SourcePosition("", 0)))
                assert cursor.execute(sql) == 1, sql
        finally:
            session.close()

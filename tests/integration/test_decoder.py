"""Tests the decoder with a real server: the rows that it reads from the binlog equal those of a SELECT."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.binlog.events import EventType, FormatDescription, checksum_matches
from shardmerge.worker.binlog.query_text import parse_query
from shardmerge.worker.binlog.rows.row_literals import RowWriter
from shardmerge.worker.core.mysql.connection import Endpoint, Side, connect, rows
from shardmerge.worker.core.mysql.information_schema import read_table, select_list
from shardmerge.worker.core.row_change import ChangeKind, Literals, RowChange
from shardmerge.worker.core.table_plan import TablePlan
from tests.support.all_types import CHANGES, CREATE, INSERTS, TABLE
from tests.support.binlog import Binlog, as_version_2, only, plan_of, read_binlog, row_of
from tests.support.mariadb import MariaDB


class Source:
    """One server, with one binlog file per test."""

    def __init__(self, server: MariaDB) -> None:
        self.server = server
        self.endpoint = Endpoint(server.host, server.port, "root")
        self._raw = connect(self.endpoint, Side.SOURCE, name="s1", raw=True)
        self._session = connect(self.endpoint, Side.SOURCE, name="s1")

    def run(self, *statements: str) -> None:
        with self._session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def new_file(self) -> None:
        """Write later changes to a new binlog file."""
        self.run("FLUSH BINARY LOGS")

    def binlog(self) -> Binlog:
        """Return the file since :meth:`new_file`, closed."""
        ((name, *_),) = rows(self._session, "SHOW MASTER STATUS")
        self.new_file()
        return read_binlog(self.server.directory / "data" / str(name))

    def plan(self, name: str) -> TablePlan:
        table = read_table(self._session, "d", name, source="s1")
        assert table is not None
        return plan_of(table)

    def selected(self, plan: TablePlan) -> dict[bytes, Literals]:
        """Return the literals that the chunk reader makes of the table's rows, by key."""
        writer = RowWriter(plan, "s1")
        found = rows(
            self._raw, f"SELECT {select_list(each.column for each in plan.columns)} FROM {plan.table.full_name}"
        )
        return {literals[0]: literals for literals in (writer.literals(row) for row in found)}

    def raw(self, table: str) -> list[tuple[object, ...]]:
        return rows(self._raw, f"SELECT * FROM d.{table} ORDER BY 1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    server = MariaDB(tmp_path_factory.mktemp("decoder") / "source", 1)
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
def source(server: MariaDB) -> Source:
    server.execute(
        "DROP DATABASE IF EXISTS d", "CREATE DATABASE d CHARACTER SET utf8mb4", "SET GLOBAL binlog_checksum = CRC32"
    )
    return Source(server)


def decode(binlog: Binlog, plan: TablePlan, *, source_keys: bool = False) -> list[RowChange]:
    decoder = BlockDecoder(only(plan), source_keys=source_keys, source="s1")
    decoder.open(binlog.format_description)
    return decoder.decode(binlog.events)


def applied(changes: list[RowChange]) -> dict[bytes, Literals]:
    """Return the table that results from the changes; check each change against the row it finds."""
    table: dict[bytes, Literals] = {}
    for change in changes:
        if change.kind is not ChangeKind.INSERT:
            assert table.pop(change.before[0]) == change.before
        if change.kind is not ChangeKind.DELETE:
            assert change.after[0] not in table
            table[change.after[0]] = change.after
    return table


def differences(plan: TablePlan, one: dict[bytes, Literals], two: dict[bytes, Literals]) -> list[object]:
    assert one.keys() == two.keys()
    return [
        (key, written.column.name, left, right)
        for key in one
        for written, left, right in zip(plan.columns, one[key], two[key], strict=True)
        if left != right
    ]


def test_the_table_of_the_pure_tests_is_this_server_s(source: Source) -> None:
    table = all_types(source).table
    assert replace(table, row_estimate=0, byte_estimate=0) == TABLE


def all_types(source: Source) -> TablePlan:
    source.run(CREATE)
    source.new_file()
    return source.plan("all_types")


@pytest.mark.parametrize("checksum", ["CRC32", "NONE"])
def test_binlog_and_select_make_the_same_literals(source: Source, checksum: str) -> None:
    source.run(f"SET GLOBAL binlog_checksum = {checksum}")
    plan = all_types(source)
    source.run(*INSERTS)
    inserted = source.binlog()
    assert differences(plan, source.selected(plan), applied(decode(inserted, plan))) == []
    source.run(*CHANGES)
    changed = source.binlog()
    assert FormatDescription.parse(changed.format_description).checksum == (checksum == "CRC32")
    changes = decode(inserted, plan) + decode(changed, plan)
    assert {change.kind for change in changes} == set(ChangeKind)
    assert differences(plan, source.selected(plan), applied(changes)) == []


def test_literals_write_the_same_rows(source: Source) -> None:
    plan = all_types(source)
    source.run(*INSERTS)
    decoded = decode(source.binlog(), plan)
    source.run("CREATE TABLE d.copy LIKE d.all_types")
    names = ", ".join(f"`{written.target_name}`" for written in plan.columns)
    target = connect(source.endpoint, Side.TARGET, name="target")
    with target.cursor() as cursor:
        for change in decoded:
            values = b", ".join(change.after).decode("utf-8")
            cursor.execute(f"INSERT INTO d.copy ({names}) VALUES ({values})")
    assert source.raw("copy") == source.raw("all_types")


def test_events_of_version_2(source: Source) -> None:
    plan = all_types(source)
    source.run(*INSERTS, *CHANGES)
    binlog = source.binlog()
    expected = [row_of(change) for change in decode(binlog, plan)]
    for extra in (b"", b"\0\7ndb"):
        second = binlog.of(as_version_2(event, extra) for event in binlog.each())
        assert EventType.UPDATE_ROWS_V2 in {event[4] for event in second.each()}
        assert [row_of(change) for change in decode(second, plan)] == expected


def test_compressed_events(source: Source) -> None:
    plan = all_types(source)
    source.run("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10")
    try:
        source.run(*INSERTS, *CHANGES)
        source.run("CREATE TABLE d.another_table_with_a_long_statement (a INT COMMENT 'aaaaaaaaaaaaaaaaaaaaaaaa')")
    finally:
        source.run("SET GLOBAL log_bin_compress = OFF")
    binlog = source.binlog()
    codes = {event[4] for event in binlog.each()}
    assert {EventType.WRITE_ROWS_COMPRESSED_V1, EventType.UPDATE_ROWS_COMPRESSED_V1} <= codes
    assert differences(plan, source.selected(plan), applied(decode(binlog, plan))) == []
    (statement,) = [event for event in binlog.each() if event[4] == EventType.QUERY_COMPRESSED]
    assert parse_query(statement, checksum=True).text.startswith("CREATE TABLE d.another_table")


def test_the_server_s_own_checksums_match(source: Source) -> None:
    all_types(source)
    source.run(*INSERTS)
    binlog = source.binlog()
    assert all(checksum_matches(event) for event in [binlog.format_description, *binlog.each()])


@pytest.mark.parametrize("metadata", ["MINIMAL", "FULL"])
def test_a_structure_the_binlog_contradicts_is_refused(source: Source, metadata: str) -> None:
    source.run(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        plan = all_types(source)
        source.run(*INSERTS)
        binlog = source.binlog()
        assert len(decode(binlog, plan)) == len(INSERTS)
        source.run("ALTER TABLE d.all_types MODIFY i INT UNSIGNED")
        with pytest.raises(ShardmergeError, match="column i is signed there") as caught:
            decode(binlog, source.plan("all_types"))
        assert caught.value.spec.name == "table-structure-mismatch"
    finally:
        source.run("SET GLOBAL binlog_row_metadata = NO_LOG")


@pytest.mark.parametrize(
    "alter",
    [
        "ADD z INT",
        "MODIFY d9 DECIMAL(9,1)",
        "MODIFY ti SMALLINT",
        "MODIFY b11 BIT(12)",
        "MODIFY t3 TIME(4)",
        "MODIFY bn BINARY(7)",
        "MODIFY bl MEDIUMBLOB",
        "MODIFY e2 BLOB",
    ],
)
def test_another_structure_is_refused(source: Source, alter: str) -> None:
    plan = all_types(source)
    source.run("INSERT INTO d.all_types (id) VALUES (1)")
    binlog = source.binlog()
    assert len(decode(binlog, plan)) == 1
    source.run(f"ALTER TABLE d.all_types {alter}")
    with pytest.raises(ShardmergeError) as caught:
        decode(binlog, source.plan("all_types"))
    assert caught.value.spec.name == "table-structure-mismatch"
    assert "d.all_types" in caught.value.message


def small(source: Source, more: str = "") -> TablePlan:
    source.run(f"CREATE TABLE d.small (id INT PRIMARY KEY, a VARCHAR(20), b INT) {more}")
    source.new_file()
    return source.plan("small")


def test_an_incomplete_row_image_is_refused(source: Source) -> None:
    plan = small(source)
    source.run("INSERT INTO d.small VALUES (1, 'a', 1)", "SET SESSION binlog_row_image = MINIMAL")
    source.run("UPDATE d.small SET b = 2")
    with pytest.raises(ShardmergeError, match=r"lacks column a") as caught:
        decode(source.binlog(), plan)
    assert caught.value.spec.name == "row-image-incomplete"


def test_rows_of_a_rolled_back_group_do_not_count(source: Source) -> None:
    plan = small(source, "ENGINE=InnoDB")
    # A temporary table cannot be rolled back: the server logs the whole group, and ROLLBACK at its end.
    source.run("INSERT INTO d.small VALUES (0, '', 0)", "BEGIN", "INSERT INTO d.small VALUES (1, 'a', 1)")
    source.run("CREATE TEMPORARY TABLE d.scratch (a INT)", "UPDATE d.small SET b = 9", "ROLLBACK")
    source.run("DROP TEMPORARY TABLE d.scratch", "INSERT INTO d.small VALUES (2, 'b', 2)")
    binlog = source.binlog()
    queries = [parse_query(event, checksum=True).text for event in binlog.each() if event[4] == EventType.QUERY]
    assert "ROLLBACK" in queries
    assert differences(plan, source.selected(plan), applied(decode(binlog, plan))) == []
    # When rows are returned in pieces, they are applied before the end of their group is read.
    decoder = BlockDecoder(only(plan), source="s1")
    decoder.open(binlog.format_description)
    with pytest.raises(ShardmergeError) as caught:
        for event in binlog.each():
            decoder.decode(event)
    assert caught.value.spec.name == "rolled-back-rows"


def test_a_savepoint_that_is_rolled_back_is_not_in_the_binlog(source: Source) -> None:
    plan = small(source)
    source.run(
        "BEGIN", "INSERT INTO d.small VALUES (1, 'a', 1)", "SAVEPOINT p", "INSERT INTO d.small VALUES (2, '', 2)"
    )
    source.run("ROLLBACK TO p", "INSERT INTO d.small VALUES (3, 'c', 3)", "COMMIT")
    assert [change.after[0] for change in decode(source.binlog(), plan)] == [b"1", b"3"]


def test_prepared_xa_rows_are_refused_and_one_phase_is_a_commit(source: Source) -> None:
    plan = small(source)
    source.run("XA START 'a'", "INSERT INTO d.small VALUES (1, 'a', 1)", "XA END 'a'", "XA COMMIT 'a' ONE PHASE")
    assert len(decode(source.binlog(), plan)) == 1
    source.run("XA START 'b'", "INSERT INTO d.small VALUES (2, 'b', 1)", "XA END 'b'", "XA PREPARE 'b'")
    source.run("XA ROLLBACK 'b'")
    with pytest.raises(ShardmergeError) as caught:
        decode(source.binlog(), plan)
    assert caught.value.spec.name == "prepared-rows"


def test_source_keys_and_two_tables_in_one_statement(source: Source) -> None:
    source.run("CREATE TABLE d.pair (a INT, b VARCHAR(5), c INT, PRIMARY KEY (b, a))")
    plan = small(source)
    source.run("INSERT INTO d.small VALUES (1, 'a', 1)", "INSERT INTO d.pair VALUES (1, 'k', 1)")
    source.run("UPDATE d.small, d.pair SET d.small.b = 2, d.pair.a = 2 WHERE d.small.id = d.pair.a")
    binlog = source.binlog()
    pair = source.plan("pair")
    assert [change.source_key_after for change in decode(binlog, plan, source_keys=True)] == [(b"1",), (b"1",)]
    _, update = decode(binlog, pair, source_keys=True)
    assert (update.source_key_before, update.source_key_after) == ((b"'k'", b"1"), (b"'k'", b"2"))


def test_a_large_statement_comes_in_several_events(source: Source) -> None:
    plan = small(source)
    source.run("INSERT INTO d.small SELECT seq, repeat('x', 20), -seq FROM d.seq_1_to_5000")
    changes = decode(source.binlog(), plan)
    assert [change.after for change in changes] == [
        (b"%d" % number, b"'xxxxxxxxxxxxxxxxxxxx'", b"-%d" % number) for number in range(1, 5001)
    ]
    assert len({change.event for change in changes}) > 5

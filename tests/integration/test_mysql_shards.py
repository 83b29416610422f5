"""Tests the data source mysql-shards on both kinds of server: the rows are those of one position, whatever is written.

Most tests call the data source as Spark's Python processes do: they plan the partitions, and read them one by one. One
test, test_read_into_spark.py, does so in Spark.
"""

from __future__ import annotations

import datetime
import json
import pickle
import random
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.datasource import MySQLShards
from shardmerge.worker.datasource.plan.read_plan import FIXED
from tests.support import all_types
from tests.support.database import Database
from tests.support.hooks import Hooks
from tests.support.pair import KINDS, emptied, login, started_kinds
from tests.support.wait import until

Row = tuple[object, ...]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Database]]:
    folder = tmp_path_factory.mktemp("shards")
    with started_kinds(folder) as made:
        yield made


@pytest.fixture(params=KINDS)
def server(servers: dict[str, Database], request: pytest.FixtureRequest) -> Database:
    return emptied(servers[request.param])


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded data source. Pickled before each use, as Spark does."""

    made: MySQLShards

    @staticmethod
    def load(options: dict[str, str]) -> Loaded:
        made = MySQLShards(options)
        made.schema()
        return Loaded(made)

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self.made.schema().fields]

    @property
    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the first column."""
        return self.made.schema().fields[0].metadata or {}

    def rows(self) -> list[Row]:
        """Return the rows of all partitions, in order."""
        copy = pickle.loads(pickle.dumps(self.made))
        reader = pickle.loads(pickle.dumps(copy.reader(copy.schema())))
        found: list[Row] = []
        for partition in reader.partitions():
            for batch in reader.read(pickle.loads(pickle.dumps(partition))):
                columns = [column.to_pylist() for column in batch.columns]
                found += zip(*columns, strict=True)
        return sorted(found, key=repr)


def refused(spec: ErrorSpec, options: dict[str, str]) -> str:
    """Return the message with which the data source refuses to load or to read."""
    with pytest.raises(ShardmergeError) as caught:
        Loaded.load(options).rows()
    assert caught.value.spec is spec, caught.value
    return str(caught.value)


class Writer(threading.Thread):
    """Changes rows of ``d.t_1`` (integer key), ``d.t_2`` (text key, whose letters change case too) and ``d.t_3`` (a key
    of two columns), until it is ended. Under its lock no transaction is in progress."""

    def __init__(self, server: Database) -> None:
        super().__init__(daemon=True)
        self._server, self._ended = server, threading.Event()
        self.lock, self.count = threading.Lock(), 0

    def run(self) -> None:
        rng = random.Random(7)
        with closing(self._server.connect()) as connection, connection.cursor() as cursor:
            while not self._ended.is_set():
                with self.lock:
                    self._change(rng, cursor)
                self.count += 1

    def _change(self, rng: random.Random, cursor: Any) -> None:
        cursor.execute("BEGIN")
        for _ in range(rng.randrange(1, 5)):
            number, other, value = rng.randrange(400), rng.randrange(400), rng.randrange(10**6)
            text = f"{'kK'[rng.randrange(2)]}{number}"
            for statement in (
                f"REPLACE INTO d.t_1 VALUES ({number}, {value})",
                f"UPDATE IGNORE d.t_1 SET id = {other} WHERE id = {number}",
                f"DELETE FROM d.t_1 WHERE id BETWEEN {other} AND {other + rng.randrange(5)}",
                f"REPLACE INTO d.t_2 VALUES ('{text}', {value})",
                f"UPDATE d.t_2 SET id = '{text}' WHERE id = '{text.lower()}'",
                f"DELETE FROM d.t_2 WHERE id = 'k{other}'",
                f"REPLACE INTO d.t_3 VALUES ('{'ab'[number % 2]}', {other}, {value})",
                f"UPDATE IGNORE d.t_3 SET kind = 'B' WHERE id = {number}",
                f"DELETE FROM d.t_3 WHERE id = {other}",
            ):
                if rng.random() < 0.5:
                    cursor.execute(statement)
        cursor.execute("ROLLBACK" if rng.random() < 0.1 else "COMMIT")

    def end(self) -> None:
        self._ended.set()
        self.join()


def make_written(server: Database) -> None:
    server.execute(
        "CREATE DATABASE d DEFAULT CHARACTER SET utf8mb4",
        "CREATE TABLE d.t_1 (id BIGINT UNSIGNED PRIMARY KEY, v INT)",
        "CREATE TABLE d.t_2 (id VARCHAR(20) PRIMARY KEY, v INT)",
        "CREATE TABLE d.t_3 (kind CHAR(1), id DECIMAL(6,1), v INT, PRIMARY KEY (kind, id))",
        "INSERT INTO d.t_1 VALUES " + ",".join(f"({number}, {number})" for number in range(0, 400, 2)),
        "INSERT INTO d.t_2 VALUES " + ",".join(f"('K{number}', {number})" for number in range(0, 400, 2)),
        "INSERT INTO d.t_3 VALUES " + ",".join(f"('a', {number}, {number})" for number in range(0, 400, 2)),
        "ANALYZE TABLE d.t_1, d.t_2, d.t_3",
    )


def test_one_state_while_a_writer_changes_rows(server: Database) -> None:
    make_written(server)
    writer = Writer(server)
    writer.start()
    try:
        until(lambda: writer.count > 20, "the writer works")
        loads: list[tuple[Loaded, list[Row]]] = []
        with writer.lock:
            for number in (1, 2, 3):
                options = login(server) | {"tables": f"d.t_{number}", "chunk-rows": "30"}
                loads.append((Loaded.load(options), sorted(server.query(f"SELECT * FROM d.t_{number}"), key=repr)))
        for _ in range(2):
            seen = writer.count
            for loaded, state in loads:
                assert loaded.rows() == state
            until(lambda seen=seen: writer.count > seen + 50, "the writer works on")
    finally:
        writer.end()
    for loaded, state in loads:
        assert loaded.rows() == state


def test_changes_between_select_and_binlog(server: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_written(server)
    hooks = Hooks(tmp_path)
    monkeypatch.setenv("SHARDMERGE_HOOKS", str(tmp_path))
    loaded = Loaded.load(login(server) | {"tables": "d.t_1", "chunk-rows": "1000"})
    state = sorted(server.query("SELECT * FROM d.t_1"), key=repr)
    server.execute("UPDATE d.t_1 SET v = -1 WHERE id < 10", "DELETE FROM d.t_1 WHERE id = 20")
    found: list[list[Row]] = []
    hooks.hold("datasource.after_select")
    reading = threading.Thread(target=lambda: found.append(loaded.rows()), daemon=True)
    reading.start()
    try:
        hooks.reached("datasource.after_select")
        compression = {
            "mysql": "SESSION binlog_transaction_compression = ON",
            "mariadb": "GLOBAL log_bin_compress = ON",
        }
        server.execute(
            f"SET {compression[server.flavor]}",
            "UPDATE d.t_1 SET v = -2 WHERE id < 20",
            "FLUSH BINARY LOGS",
            "INSERT INTO d.t_1 VALUES (1, 1)",
            "DELETE FROM d.t_1 WHERE id > 50",
        )
    finally:
        hooks.release("datasource.after_select")
        reading.join()
        if server.flavor == "mariadb":
            server.execute("SET GLOBAL log_bin_compress = OFF")
    assert found == [state]


_DOUBLES = ("f", "f2", "db", "db2")
_BITS = ("b1", "b11", "b64")


def _expected(name: str, value: object) -> object:
    """Return what the DataFrame has for a value of PyMySQL's."""
    if name in ("da", "dt0", "dt2", "dt5", "dt6", "ts0", "ts3", "ts6") and isinstance(value, str):
        return None  # no date
    if name.startswith("ts") and isinstance(value, datetime.datetime):
        return value.replace(tzinfo=datetime.UTC)
    return value


def test_every_type(server: Database) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for statement in ("CREATE DATABASE d", server.spelt(all_types.CREATE), "SET sql_mode = ''"):
            cursor.execute(statement)
        for statement in all_types.INSERTS:
            cursor.execute(server.spelt(statement))
    options = login(server) | {"tables": "d.all_types", "zero-dates": "null"}
    loaded = Loaded.load(options)
    names = loaded.columns
    reads = {name: f"`{name}`*1e0" for name in _DOUBLES} | {name: f"CAST(`{name}` AS UNSIGNED)" for name in _BITS}
    columns = ", ".join(reads.get(name, f"`{name}`") for name in names)
    state = {
        row[0]: tuple(_expected(name, value) for name, value in zip(names, row, strict=True))
        for row in server.query(f"SELECT {columns} FROM d.all_types")
    }
    for name, reason in (("at once", False), ("from the rows before changes", True)):
        if reason:
            with closing(server.connect()) as connection, connection.cursor() as cursor:
                cursor.execute("SET sql_mode = ''")
                cursor.execute("UPDATE d.all_types SET ti = IF(ti = 9, 8, 9)")
        found = {row[0]: row for row in loaded.rows()}
        assert found.keys() == state.keys()
        for key, row in state.items():
            for column, value, read in zip(names, row, found[key], strict=True):
                known = Decimal(str(read)) if column == "d65" and read is not None else read
                assert known == value, (name, key, column)
    assert "0000-00-00" in refused(errors.read.ZERO_DATE, options | {"zero-dates": "fail"})


def test_64_shard_tables_of_two_sources(servers: dict[str, Database]) -> None:
    state: list[Row] = []
    sources: dict[str, dict[str, object]] = {}
    for number, (name, server) in enumerate(servers.items(), start=1):
        emptied(server)
        statements = ["CREATE DATABASE shop_1"]
        for table in range(32):
            statements.append(
                f"CREATE TABLE shop_1.orders_{table} (id {'INT' if table else 'BIGINT'} PRIMARY KEY, v INT)"
            )
            statements.append(f"INSERT INTO shop_1.orders_{table} VALUES (1, {table}), ({table + 2}, 0)")
            prefix = number << 59 | 1 << 52 | table << 44
            state += [(prefix | 1, table, str(table), name), (prefix | table + 2, 0, str(table), name)]
        server.execute(*statements)
        sources[name] = {**login(server), "column-mapping-rules": [f"ids-{number}"]}
    mapping = {
        f"ids-{number}": {
            "schema-pattern": "shop_*",
            "table-pattern": "orders_*",
            "target-column": "id",
            "expression": "partition id",
            "arguments": [str(number), "shop", "orders", "_"],
        }
        for number in (1, 2)
    }
    options = {
        "sources": json.dumps(sources),
        "tables": "shop_*.orders_*",
        "column-mappings": json.dumps(mapping),
        "extract-table": json.dumps({"table-regexp": "orders_(.*)", "target-column": "shard"}),
        "extract-source": json.dumps({"source-regexp": "(.*)", "target-column": "server"}),
    }
    loaded = Loaded.load(options)
    assert loaded.columns == ["id", "v", "shard", "server"]
    assert loaded.rows() == sorted(state, key=repr)
    reader = loaded.made.reader(loaded.made.schema())
    assert len(reader.partitions()) == 2  # small tables share a partition
    [mariadb, _] = servers.values()
    mariadb.execute("UPDATE shop_1.orders_3 SET id = 7 WHERE id = 1", "DELETE FROM shop_1.orders_4")
    assert loaded.rows() == sorted(state, key=repr)
    mariadb.execute("CREATE TABLE shop_1.orders_99 (id INT PRIMARY KEY, v INT)")
    with pytest.raises(ShardmergeError) as caught:
        loaded.rows()
    assert caught.value.spec is errors.read.STATEMENT


def test_where_is_evaluated_at_the_position(server: Database) -> None:
    server.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, n DECIMAL(5,1), day DATE, at DATETIME(3), seen TIMESTAMP NULL)",
        "INSERT INTO d.t VALUES " + ",".join(
            f"({number}, {number}.5, '2024-01-{number:02d}', '2024-01-{number:02d} 01:02:03.004', NULL)"
            for number in range(1, 21)
        ),
        "UPDATE d.t SET seen = '2024-01-05 00:00:00' WHERE id < 5",
    )  # fmt: skip
    base = login(server) | {"tables": "d.t", "columns": "id,n,day,at,seen"}
    for where, wanted in (
        ("id >= 5 AND n < 9.5", range(5, 9)),
        ("`day` > '2024-01-18'", (19, 20)),
        ("at <= '2024-01-02 01:02:03.004' and id > 1", (2,)),
        ("seen = '2024-01-05'", range(1, 5)),
    ):
        loaded = Loaded.load(base | {"where": where})
        assert [row[0] for row in loaded.rows()] == sorted(wanted, key=str), where
        server.execute("UPDATE d.t SET id = id + 100, n = 0", "UPDATE d.t SET id = id - 100")
        assert [row[0] for row in loaded.rows()] == sorted(wanted, key=str), where
        server.execute("UPDATE d.t SET n = id + 0.5")
    for where in ("id = 'x'", "id LIKE 1", "nothing = 1", "day = 5", "id = 1 OR id = 2"):
        assert "option where" in refused(errors.read.OPTION, base | {"where": where})


def test_what_cannot_be_read_is_refused(server: Database) -> None:
    server.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.a_1 (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE d.a_2 (id INT PRIMARY KEY, v VARCHAR(5))",
        "CREATE TABLE d.keyless (v INT)",
        "CREATE TABLE d.child (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES d.a_1 (id) ON DELETE CASCADE)",
        "CREATE TABLE d.isam (id INT PRIMARY KEY) ENGINE = MyISAM",
    )
    base = login(server)
    assert "`v`" in refused(errors.read.TABLES_DIFFER, base | {"tables": "d.a_*"}).replace(" v ", " `v` ")
    assert Loaded.load(base | {"tables": "d.a_*", "columns": "id"}).columns == ["id"]
    for table, reason in (("keyless", "no primary key"), ("child", "foreign key"), ("isam", "MyISAM")):
        assert reason in refused(errors.read.TABLE_REFUSED, base | {"tables": f"d.{table}"})
    assert "d.none" in refused(errors.read.NO_TABLE, base | {"tables": "d.none"})
    message = refused(errors.relay.ACCESS_DENIED, base | {"tables": "d.a_1", "password": "secret-in-no-message"})
    assert "secret" not in message
    server.execute("SET GLOBAL binlog_row_image = 'MINIMAL'")
    try:
        assert "MINIMAL" in refused(errors.read.SERVER_REFUSED, base | {"tables": "d.a_1"})
    finally:
        server.execute("SET GLOBAL binlog_row_image = 'FULL'")
    assert Loaded.load(base | {"tables": "d.a_1"}).rows() == []


def _lost(loaded: Loaded, spec: ErrorSpec) -> str:
    with pytest.raises(ShardmergeError) as caught:
        loaded.rows()
    assert caught.value.spec is spec, caught.value
    assert caught.value.workaround in caught.value.__notes__
    return caught.value.message


def test_a_state_that_is_lost_is_an_error(server: Database) -> None:
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)", "INSERT INTO d.t VALUES (1, 1)")
    options = login(server) | {"tables": "d.t"}
    prepared = server.connect()
    with prepared.cursor() as cursor:
        cursor.execute("XA START 'x'")
        cursor.execute("INSERT INTO d.t VALUES (2, 2)")
        cursor.execute("XA END 'x'")
        cursor.execute("XA PREPARE 'x'")
    loaded = Loaded.load(options)
    assert loaded.rows() == [(1, 1)]
    with prepared.cursor() as cursor:
        cursor.execute("XA COMMIT 'x'")
    prepared.close()
    _lost(loaded, errors.read.XA)
    for statement in ("ALTER TABLE d.t DROP COLUMN v", "TRUNCATE TABLE d.t", "DROP DATABASE d"):
        loaded = Loaded.load(options)
        server.execute("CREATE TABLE IF NOT EXISTS d.other (id INT)")
        loaded.rows()
        server.execute(statement)
        assert statement.split()[0] in _lost(loaded, errors.read.STATEMENT)
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)", "INSERT INTO d.t VALUES (1, 1)")
    loaded = Loaded.load(options)
    server.execute("UPDATE d.t SET v = 2")
    server.purge()
    server.execute("UPDATE d.t SET v = 3")
    _lost(loaded, errors.read.BINLOG_GONE)
    assert Loaded.load(options).rows() == [(1, 3)]


def test_a_fixed_position_is_read_again(server: Database) -> None:
    server.execute(
        "CREATE DATABASE d_1",
        "CREATE DATABASE d_2",
        *(f"CREATE TABLE d_{number}.t (id INT PRIMARY KEY, v INT)" for number in (1, 2)),
        *(f"INSERT INTO d_{number}.t VALUES (1, 1), (2, 2), (3, 3)" for number in (1, 2)),
    )
    options = login(server) | {"tables": "d_*.t"}
    first = Loaded.load(options)
    rows, metadata = first.rows(), first.metadata
    fixed = options | {"position": metadata[FIXED]}
    server.execute(
        "INSERT INTO d_1.t VALUES (4, 4)",
        "UPDATE d_2.t SET v = 9 WHERE id = 1",
        "FLUSH BINARY LOGS",
        "DELETE FROM d_1.t WHERE id = 2",
        "CREATE DATABASE other",
    )
    again = Loaded.load(fixed)
    assert again.rows() == rows
    assert again.metadata == metadata
    assert len(Loaded.load(options).rows()) == 6
    found = json.loads(metadata[FIXED])["mysql-01"]
    for changed in ({"server": "another"}, {"made": found["made"] - 1}, {"file": "mysql-bin.000999"}):
        refused(errors.read.BINLOG_GONE, options | {"position": json.dumps({"mysql-01": found | changed})})
    for text in ("mysql-bin.000001:4", "{}", '{"mysql-02": {}}', json.dumps({"mysql-02": found})):
        refused(errors.read.OPTION, options | {"position": text})
    # The tables of the dropped database are not listed any more: its name alone shows that rows would be missing.
    server.execute("DROP DATABASE d_2")
    assert "DROP DATABASE d_2" in refused(errors.read.STATEMENT, fixed)
    server.purge()
    refused(errors.read.BINLOG_GONE, fixed)


def test_too_many_changes_are_an_error(server: Database) -> None:
    server.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, v MEDIUMBLOB)",
        "INSERT INTO d.t VALUES (1, REPEAT('x', 1500000))",
    )
    options = login(server) | {"tables": "d.t"}
    loaded, raised = Loaded.load(options | {"max-undo-mib": "1"}), Loaded.load(options)
    server.execute("UPDATE d.t SET v = ''")
    assert "max-undo-mib = 1" in _lost(loaded, errors.read.TOO_MANY_CHANGES)
    assert raised.rows() == [(1, b"x" * 1_500_000)]


def test_a_lost_connection_is_replaced(server: Database) -> None:
    make_written(server)
    loaded = Loaded.load(login(server) | {"tables": "d.t_1", "chunk-rows": "1000"})
    state = loaded.rows()
    for thread in server.threads():
        if thread.command == "Sleep":
            server.kill_thread(thread.id)
    assert loaded.rows() == state


def test_password_of_a_file(server: Database, tmp_path: Path) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("DROP USER IF EXISTS reader@'127.0.0.1'")
        cursor.execute("CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'pässword'")
        grants = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT"
        cursor.execute(f"GRANT {grants} ON *.* TO reader@'127.0.0.1'")
    make_written(server)
    file = tmp_path / "password"
    file.write_text("pässword\n", encoding="utf-8")
    options = login(server) | {"user": "reader", "tables": "d.t_1", "password-file": str(file)}
    del options["password"]
    loaded = Loaded.load(options)
    assert len(loaded.rows()) == 200
    assert "pässword".encode() not in pickle.dumps(loaded.made)
    with pytest.raises(pymysql.MySQLError):
        server.connect(user="reader", password="wrong")

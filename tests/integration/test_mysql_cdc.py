"""Tests the data source mysql-cdc on both kinds of server: each change once, in order, with exact values.

The tests call the data source as Spark's processes do (tests/support/cdc_stream.py). Spark itself runs it in
test_stream_into_spark.py.
"""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from tests.support import all_types
from tests.support.cdc_stream import Change, Offset, Query, Replica, RowsWriter, stop_queries
from tests.support.database import Database
from tests.support.pair import KINDS, emptied, login, started_kinds
from tests.support.wait import until


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Database]]:
    folder = tmp_path_factory.mktemp("cdc")
    with started_kinds(folder) as made:
        yield made


@pytest.fixture(params=KINDS)
def server(servers: dict[str, Database], request: pytest.FixtureRequest) -> Iterator[Database]:
    yield emptied(servers[request.param])
    stop_queries()


def test_changes_from_a_position_and_restart(server: Database) -> None:
    server.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.t_1 (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO d.t_1 VALUES (1, 'a')",
    )
    query = Query(login(server) | {"tables": "d.t_*", "start": "latest"})
    query.begin()
    server.execute(
        "INSERT INTO d.t_1 VALUES (2, 'b'), (3, NULL)",
        "UPDATE d.t_1 SET v = 'c' WHERE id = 2",
        "DELETE FROM d.t_1 WHERE id = 3",
    )
    start = query.begin()
    changes = query.drained()
    assert [(change["op"], change["before"], change["after"]) for change in changes] == [
        ("insert", None, {"id": 2, "v": "b"}),
        ("insert", None, {"id": 3, "v": None}),
        ("update", {"id": 2, "v": "b"}, {"id": 2, "v": "c"}),
        ("delete", {"id": 3, "v": None}, None),
    ]
    assert [change["sequence"] for change in changes] == [0, 1, 0, 0]
    again = Query(query.options, start)
    end = again.next_offset()
    assert again.rows(start, end) == changes
    after = Query(query.options, end)
    assert after.drained() == []
    server.execute("INSERT INTO d.t_1 VALUES (4, 'd')")
    assert [change["after"] for change in after.drained()] == [{"id": 4, "v": "d"}]


def refused(spec: ErrorSpec, action: Callable[[], object]) -> str:
    """Return the message with which an action is refused."""
    with pytest.raises(ShardmergeError) as caught:
        action()
    assert caught.value.spec is spec, caught.value
    return str(caught.value)


def test_history_then_changes_under_writes(server: Database) -> None:
    server.execute(
        "CREATE DATABASE d DEFAULT CHARACTER SET utf8mb4",
        *(f"CREATE TABLE d.t_{number} (id INT PRIMARY KEY, v VARCHAR(600))" for number in (1, 2, 3)),
        *(
            f"INSERT INTO d.t_{number} VALUES " + ",".join(f"({key}, 'r{key}')" for key in range(0, 400, number))
            for number in (1, 2, 3)
        ),
        "ANALYZE TABLE d.t_1, d.t_2, d.t_3",
    )
    writers = [RowsWriter(server, seed, 3) for seed in (7, 8)]
    replica = Replica(("id",))
    query = Query(login(server) | {"tables": "d.t_*", "chunk-rows": "50", "max-bytes-per-batch": "30000"})
    for writer in writers:
        writer.start()
    batches: list[tuple[Offset, Offset, list[Change]]] = []
    try:
        until(lambda: all(writer.count > 20 for writer in writers), "the writers work")
        for _ in range(20):
            start = query.begin()
            rows = query.batch()
            replica.apply(rows or [])
            if len(batches) < 8 and rows:
                batches.append((start, query.begin(), rows))
            if len(batches) == 4:  # a restart
                query = Query(query.options | {"tasks-per-source": "3"}, query.offset)
    finally:
        for writer in writers:
            writer.end()
    query = Query(query.options | {"max-bytes-per-batch": "1000000"}, query.offset)
    replica.apply(query.drained())
    assert sum(writer.count for writer in writers) > 100
    for number in (1, 2, 3):
        assert replica.of("d", f"t_{number}") == sorted(server.query(f"SELECT id, v FROM d.t_{number}"), key=repr)
    again = Query(query.options, query.offset)
    for start, end, rows in batches[1:]:
        assert again.rows(start, end) == rows
    start, end, rows = batches[0]
    assert sorted(again.rows(start, end), key=repr) == sorted(rows, key=repr)
    assert all(change["is_snapshot"] for change in rows)


def test_batches_end_with_transactions(server: Database) -> None:
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t_1 (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(2000))")
    query = Query(login(server) | {"tables": "d.t_1", "start": "latest", "max-bytes-per-batch": "20000"})
    query.begin()
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for number in range(60):
            cursor.execute("BEGIN")
            for _ in range(40 if number == 30 else 3):
                cursor.execute("INSERT INTO d.t_1 (v) VALUES (REPEAT('x', 1000))")
            cursor.execute("COMMIT")
    sizes: list[int] = []
    found: list[Change] = []
    while (rows := query.batch()) is not None:
        sizes.append(len(rows))
        counts = Counter(change["transaction_id"] for change in rows)
        assert set(counts.values()) <= {3, 40}
        assert [change["sequence"] for change in rows] == [at for count in counts.values() for at in range(count)]
        found += rows
    assert [change["after"]["id"] for change in found] == list(range(1, 59 * 3 + 40 + 1))
    assert len(sizes) > 8
    assert max(sizes) <= 60
    places = [(change["position"]["file"], change["position"]["byte"]) for change in found]
    assert places == sorted(places)


_DOUBLES = ("f", "f2", "db", "db2")
_BITS = ("b1", "b11", "b64")


def test_every_type(server: Database) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for statement in ("CREATE DATABASE d", server.spelt(all_types.CREATE), "SET sql_mode = ''"):
            cursor.execute(statement)
        query = Query(login(server) | {"tables": "d.all_types", "zero-dates": "null", "start": "latest"})
        start = query.begin()
        for statement in all_types.INSERTS:
            cursor.execute(server.spelt(statement))
    inserted = query.drained()
    names = query.columns
    reads = {name: f"`{name}`*1e0" for name in _DOUBLES} | {name: f"CAST(`{name}` AS UNSIGNED)" for name in _BITS}
    columns = ", ".join(reads.get(name, f"`{name}`") for name in names)
    state = {row[0]: row for row in server.query(f"SELECT {columns} FROM d.all_types")}
    assert {change["after"][names[0]] for change in inserted} == state.keys()
    for change in inserted:
        row = state[change["after"][names[0]]]
        for (column, read), value in zip(change["after"].items(), row, strict=True):
            known = Decimal(str(read)) if column == "d65" and read is not None else read
            if column in ("da", "dt0", "dt2", "dt5", "dt6", "ts0", "ts3", "ts6") and isinstance(value, str):
                value = None  # no date
            elif column.startswith("ts") and isinstance(value, datetime.datetime):
                value = value.replace(tzinfo=datetime.UTC)
            assert known == value, (row[0], column)
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute("DELETE FROM d.all_types")
    assert sorted((change["before"] for change in query.drained()), key=repr) == sorted(
        (change["after"] for change in inserted), key=repr
    )
    failing = Query(query.options | {"zero-dates": "fail"}, start)
    assert "0000-00-00" in refused(errors.read.ZERO_DATE, failing.drained)


def test_starts_at_a_position_a_set_and_a_time(server: Database) -> None:
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t_1 (id INT PRIMARY KEY)")
    query = Query(login(server) | {"tables": "d.t_1", "start": "latest"})
    query.begin()
    server.execute("INSERT INTO d.t_1 VALUES (1)", "INSERT INTO d.t_1 VALUES (2)")
    time.sleep(1.1)  # MariaDB's commit times are whole seconds
    server.execute("FLUSH BINARY LOGS", "INSERT INTO d.t_1 VALUES (3)", "INSERT INTO d.t_1 VALUES (4)")
    first, second, third, fourth = query.drained()
    assert [change["after"]["id"] for change in (first, second, third, fourth)] == [1, 2, 3, 4]
    assert first["position"]["file"] != third["position"]["file"]
    assert first["commit_time"] <= second["commit_time"] < third["commit_time"] <= fourth["commit_time"]
    assert abs(time.time() - fourth["commit_time"].timestamp()) < 20

    def begun(start: str) -> list[Change]:
        return Query(query.options | {"start": start}).drained()

    for change, rest in ((first, [first, second, third, fourth]), (third, [third, fourth]), (fourth, [fourth])):
        assert begun(f"{change['position']['file']}:{change['position']['byte']}") == rest
    assert begun(third["commit_time"].isoformat()) == [third, fourth]
    assert begun((fourth["commit_time"] + datetime.timedelta(seconds=1)).isoformat()) == []
    file = first["position"]["file"]
    refused(errors.read.STREAM_START, lambda: begun(f"{file}:{first['position']['byte'] + 1}"))
    [inside, *_] = [
        place
        for _, place, kind, *_ in server.query(f"SHOW BINLOG EVENTS IN '{file}' FROM {first['position']['byte']}")
        if str(kind).lower() == "table_map"
    ]
    assert "not the end" in refused(errors.read.STREAM_START, lambda: begun(f"{file}:{inside}"))
    assert "ends at" in refused(errors.read.STREAM_START, lambda: begun(f"{third['position']['file']}:99999999"))
    [(set_now,)] = server.query(
        "SELECT @@GLOBAL.gtid_binlog_pos" if server.flavor == "mariadb" else "SELECT @@GLOBAL.gtid_executed"
    )
    if not set_now:
        assert "GTID" in refused(errors.read.STREAM_START, lambda: begun("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"))
        return
    executed = str(set_now).replace("\n", "")
    assert begun(executed) == []
    assert first["gtid"] and first["transaction_id"] == first["gtid"]
    before_last = _without_last(executed, fourth["gtid"])
    assert begun(before_last) == [fourth]


def refused_any(action: Callable[[], object]) -> str:
    with pytest.raises(ShardmergeError) as caught:
        action()
    return str(caught.value)


def _without_last(executed: str, last: str) -> str:
    """Return an executed set without its last transaction."""
    if ":" not in last:
        domain, number, sequence = last.split("-")
        return executed.replace(last, f"{domain}-{number}-{int(sequence) - 1}")
    server, number = last.rsplit(":", 1)
    return executed.replace(f"-{number}", f"-{int(number) - 1}") if server in executed else executed


def test_ddl_stops_or_is_an_event(server: Database) -> None:
    server.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.t_1 (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE d.t_2 (id INT PRIMARY KEY, v INT)",
    )
    query = Query(login(server) | {"tables": "d.t_*", "start": "latest"})
    query.begin()
    server.execute(
        "INSERT INTO d.t_1 VALUES (1, 1)",
        "CREATE TABLE d.other (id INT)",
        "ALTER TABLE d.t_1 MODIFY v INT NOT NULL DEFAULT 7, ADD INDEX (v)",
        "INSERT INTO d.t_1 (id) VALUES (2)",
        "INSERT INTO d.t_2 VALUES (3, 3)",
    )
    delivered = query.batch()
    assert delivered is not None and [change["after"] for change in delivered] == [{"id": 1, "v": 1}]
    message = refused(errors.read.STREAM_DDL, query.batch)
    assert "ALTER TABLE d.t_1 MODIFY v INT NOT NULL DEFAULT 7" in message
    assert f"{query.begin()['sources']['mysql-01']['byte']}" in message
    refused(errors.read.STREAM_DDL, Query(query.options, query.offset).batch)

    query = Query(query.options | {"ddl": "event"}, query.offset)
    event, *rows = query.drained()
    assert (event["op"], event["source_table"], event["schema_version"]) == ("ddl", "t_1", 2)
    assert event["statement"].startswith("ALTER TABLE d.t_1 MODIFY") and event["before"] is event["after"] is None
    assert [(row["after"], row["schema_version"]) for row in rows] == [({"id": 2, "v": 7}, 2), ({"id": 3, "v": 3}, 1)]

    server.execute("ALTER TABLE d.t_1 ADD w VARCHAR(9) FIRST", "INSERT INTO d.t_1 VALUES ('new', 4, 4)")
    message = refused(errors.read.STREAM_SCHEMA, query.batch)
    assert "column w of d.t_1" in message
    server.execute("ALTER TABLE d.t_2 ADD w VARCHAR(9)", "INSERT INTO d.t_2 VALUES (5, 5, 'two')")
    query = Query(query.options, query.offset)
    found = query.drained()
    assert [(row["op"], row["source_table"], row["schema_version"], row["after"]) for row in found] == [
        ("ddl", "t_1", 3, None),
        ("insert", "t_1", 3, {"w": "new", "id": 4, "v": 4}),
        ("ddl", "t_2", 2, None),
        ("insert", "t_2", 2, {"w": "two", "id": 5, "v": 5}),
    ]
    server.execute("CREATE TABLE d.t_9 LIKE d.t_2", "INSERT INTO d.t_9 VALUES (6, 6, 'six')", "TRUNCATE d.t_9")
    server.execute("INSERT INTO d.t_9 VALUES (7, 7, NULL)", "RENAME TABLE d.t_2 TO d.gone", "DROP TABLE d.t_1")
    server.execute("INSERT INTO d.gone VALUES (7, 7, 'no')")
    assert [(row["op"], row["source_table"], row["schema_version"], row["after"]) for row in query.drained()] == [
        ("ddl", "t_9", 1, None),
        ("insert", "t_9", 1, {"w": "six", "id": 6, "v": 6}),
        ("ddl", "t_9", 2, None),
        ("insert", "t_9", 2, {"w": None, "id": 7, "v": 7}),
        ("ddl", "t_2", 3, None),
        ("ddl", "t_1", 4, None),
    ]
    server.execute("CREATE TABLE d.t_8 (id INT PRIMARY KEY, v INT, w VARCHAR(9)) SELECT 1 AS id, 2 AS v, 'x' AS w")
    event, row = query.drained()
    assert (event["op"], event["sequence"], row["sequence"], row["after"]) == ("ddl", 0, 1, {"w": "x", "id": 1, "v": 2})
    server.execute("INSERT INTO d.t_9 VALUES (8, 8, NULL)", "ALTER TABLE d.t_9 COMMENT 'one'")
    server.execute("INSERT INTO d.t_9 VALUES (9, 9, NULL)", "ALTER TABLE d.t_9 COMMENT 'two'")
    message = refused(errors.read.STREAM_STRUCTURE, query.drained)
    assert "d.t_9" in message and "before the statement at" in message


def test_a_structure_in_the_past_must_be_known(server: Database) -> None:
    server.execute(
        "CREATE DATABASE d", "CREATE TABLE d.t_1 (id INT PRIMARY KEY, a INT, b INT)", "CREATE TABLE d.t_2 LIKE d.t_1"
    )
    begin = Query(login(server) | {"tables": "d.t_*", "start": "latest"}).begin()["sources"]["mysql-01"]
    server.execute(
        "INSERT INTO d.t_2 VALUES (1, 2, 3)",
        "ALTER TABLE d.t_1 CHANGE a c INT, CHANGE b a INT",
        "INSERT INTO d.t_1 VALUES (1, 2, 3)",
    )
    start = f"{begin['file']}:{begin['byte']}"
    options = login(server) | {"tables": "d.t_*", "start": start, "ddl": "event"}
    found = Query(options | {"columns": "id, a"}).drained()
    assert [(row["op"], row["after"]) for row in found] == [
        ("insert", {"id": 1, "a": 2}),
        ("ddl", None),
        ("insert", {"id": 1, "a": 3}),
    ]
    server.execute("ALTER TABLE d.t_1 CHANGE a e INT")
    assert "d.t_1" in refused(errors.read.STREAM_STRUCTURE, Query(options | {"columns": "id"}).drained)


def test_a_purged_binlog_and_another_server(servers: dict[str, Database], server: Database) -> None:
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t_1 (id INT PRIMARY KEY)")
    query = Query(login(server) | {"tables": "d.t_1", "start": "latest"})
    place = query.begin()["sources"]["mysql-01"]
    server.execute("INSERT INTO d.t_1 VALUES (1)", "FLUSH BINARY LOGS", "INSERT INTO d.t_1 VALUES (2)")
    [last] = server.query("SHOW MASTER STATUS" if server.flavor == "mariadb" else "SHOW BINARY LOG STATUS")
    end = query.next_offset()

    def purged() -> bool:
        server.execute(f"PURGE BINARY LOGS TO '{last[0]}'")  # spares a file that an ended dump has not yet closed
        return server.query("SHOW BINARY LOGS")[0][0] == last[0]

    until(purged, "the binlog is purged")
    for action in (lambda: query.rows(query.begin(), end), query.batch):
        message = refused(errors.read.STREAM_LOG_GONE, action)
        assert "mysql-01" in message and f"({place['file']}, {place['byte']})" in message
    [other] = [one for one in servers.values() if one is not server]
    emptied(other).execute("CREATE DATABASE d", "CREATE TABLE d.t_1 (id INT PRIMARY KEY)")
    moved = Query(login(other) | {"tables": "d.t_1"}, query.offset)
    assert place["server"] in refused(errors.read.STREAM_OTHER_SERVER, moved.batch)


def test_a_lost_connection(server: Database) -> None:
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t_1 (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(4000))")
    query = Query(login(server) | {"tables": "d.t_1", "start": "latest"})
    start = query.begin()
    many = ",".join(["(REPEAT('x', 4000))"] * 50)
    # More than the sockets' buffers hold: the server still sends when the second batch arrives.
    server.execute(*[f"INSERT INTO d.t_1 (v) VALUES {many}"] * 300)
    found: list[int] = []
    lost = 0
    for batch in query.batches(start, query.next_offset()):
        found += [row["after"]["id"] for row in batch]
        for number, _, _, _, command, *_ in server.query("SHOW PROCESSLIST"):
            if str(command).startswith("Binlog Dump") and lost < 2:
                server.execute(f"KILL {number}")
                lost += 1
    assert lost == 2
    assert found == sorted(found)
    assert len(found) == len(set(found)) == 15_000


def test_compressed_and_two_phase_transactions(server: Database) -> None:
    server.execute(
        "CREATE DATABASE d", "CREATE TABLE d.t_1 (id INT PRIMARY KEY, v TEXT)", "CREATE TABLE d.o (id INT PRIMARY KEY)"
    )
    query = Query(login(server) | {"tables": "d.t_1", "start": "latest"})
    query.begin()
    compression = {
        "mysql": "SESSION binlog_transaction_compression = ON",
        "mariadb": "GLOBAL log_bin_compress = ON",
    }
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET {compression[server.flavor]}")
        cursor.execute("INSERT INTO d.t_1 VALUES (1, REPEAT('a', 3000)), (2, REPEAT('b', 3000))")
        cursor.execute("UPDATE d.t_1 SET v = 'c' WHERE id = 1")
        if server.flavor == "mariadb":
            cursor.execute("SET GLOBAL log_bin_compress = OFF")
    found = query.drained()
    assert [(row["op"], row["after"]) for row in found] == [
        ("insert", {"id": 1, "v": "a" * 3000}),
        ("insert", {"id": 2, "v": "b" * 3000}),
        ("update", {"id": 1, "v": "c"}),
    ]
    places = [(row["position"]["file"], row["position"]["byte"]) for row in found]
    assert places == sorted(places) and len(set(places)) == 2
    prepare = ("XA START 'x'", "INSERT INTO d.{} VALUES ({})", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for statement in prepare:
            cursor.execute(statement.format("o", "1"))
        assert query.drained() == []
        for statement in prepare:
            cursor.execute(statement.format("t_1", "3, 'x'"))
    assert "XA" in refused(errors.read.STREAM_XA, query.drained)


def test_what_is_refused(server: Database) -> None:
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t_1 (id INT PRIMARY KEY)", "CREATE TABLE d.k_1 (id INT)")
    options = login(server) | {"tables": "d.t_1"}
    refused(errors.read.NO_TABLE, lambda: Query(options | {"tables": "d.nothing_*"}))
    assert "ddl" in refused(errors.read.OPTION, lambda: Query(options | {"ddl": "ignore"}))
    assert "where" in refused(errors.read.OPTION, lambda: Query(options | {"where": "id > 1"}))
    assert "d.k_1" in refused(errors.read.TABLE_REFUSED, lambda: Query(options | {"tables": "d.k_1"}))
    keyless = Query(options | {"tables": "d.k_1", "start": "latest"})
    keyless.begin()
    server.execute("INSERT INTO d.k_1 VALUES (1), (1)")
    assert [row["after"]["id"] for row in keyless.drained()] == [1, 1]
    assert "[20101 source-access-denied]" in refused_any(lambda: Query(options | {"password": "wrong"}))
    assert "no-such-file" in refused_any(lambda: Query(options | {"ssl-ca": "/no-such-file"}))
    server.execute("DROP USER IF EXISTS reader@'127.0.0.1'", "CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'pw'")
    server.execute("GRANT SELECT ON *.* TO reader@'127.0.0.1'")
    message = refused_any(lambda: Query(options | {"user": "reader", "password": "pw", "start": "latest"}).begin())
    assert message.startswith("[2"), message
    server.execute("SET GLOBAL binlog_row_image = MINIMAL")
    try:
        assert "binlog_row_image is MINIMAL" in refused(errors.read.STREAM_SERVER, lambda: Query(options))
    finally:
        server.execute("SET GLOBAL binlog_row_image = FULL")
    query = Query(options | {"start": "latest"})
    query.begin()
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_format = STATEMENT")
        cursor.execute("INSERT INTO d.t_1 VALUES (1)")
    assert "INSERT INTO d.t_1" in refused(errors.read.STREAM_STATEMENT, query.drained)

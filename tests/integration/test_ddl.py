"""Tests DDL between the rows, from MySQL and MariaDB into MySQL, and from MySQL into MariaDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from shardmerge.proto.errors import CATALOGUE
from tests.support.cluster import SubTask, binlog_end
from tests.support.database import Database
from tests.support.exact import assert_same_bytes
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.world import World

_ROWS = "INSERT INTO t (id, n) VALUES ({0}, {0}), ({0} + 1, NULL)"

_COLS = "id, c, k, f, e, d, a, b"

# Definitions for both kinds of server; NOPAD is a collation that the other kind lacks.
_BOTH = (
    "ALTER TABLE t ADD COLUMN j JSON, ALGORITHM=INSTANT",
    """INSERT INTO t VALUES (10, 1, '{"a": [1, "ä"], "b": null}'), (11, 2, NULL)""",
    "ALTER TABLE t ADD COLUMN c VARCHAR(20) COLLATE NOPAD NOT NULL DEFAULT 'ä' AFTER id, ADD KEY by_c (c)",
    """UPDATE t SET j = JSON_SET(j, '$.b', 2.5), c = 'Ω ' WHERE id = 10""",
    _ROWS.format(20),
    "ALTER TABLE t RENAME COLUMN j TO k, DROP COLUMN n",
    """INSERT INTO t VALUES (30, 'x', '[true, "\\\\""]')""",
    "CREATE TABLE copied AS SELECT id, c, k FROM t",
    "INSERT INTO copied VALUES (99, 'later', '{}')",
    "CREATE TABLE cols (id INT PRIMARY KEY, v VARCHAR(9), J JSON NOT NULL, KEY (v)) CHARSET=utf8mb4 COLLATE=NOPAD",
    """INSERT INTO cols VALUES (1, 'ß', '"text"'), (2, 'SS', '3')""",
    "ALTER TABLE cols MODIFY v VARCHAR(30) CHARACTER SET latin1, CHANGE J j2 JSON",
    """INSERT INTO cols VALUES (3, 'ä', NULL), (4, NULL, '{"x": 1}')""",
    "ALTER TABLE copied ADD COLUMN f FLOAT DEFAULT 0.1, ADD e ENUM('x', 'ä') DEFAULT 'ä', ADD d DECIMAL(9,3) DEFAULT 1",
    "SET SESSION time_zone = '+03:00'",
    "ALTER TABLE copied ADD a TIMESTAMP(3) NULL DEFAULT NOW(3), ADD b TIMESTAMP NULL DEFAULT '2024-01-02 03:04:05'",
    "UPDATE copied SET f = 1e10, e = 'x' WHERE id = 30",
    "RENAME TABLE copied TO aside, cols TO copied, aside TO cols",
    "INSERT INTO cols (id, c) VALUES (98, 'c')",
    """INSERT INTO copied VALUES (9, 'c', '[]')""",
    "ALTER TABLE t MODIFY k LONGTEXT COLLATE utf8mb4_bin, ADD g INT GENERATED ALWAYS AS (id * 2) STORED",
    "INSERT INTO t (id, k) VALUES (40, 'no json')",
    "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, c), COMMENT = 'it''s'",
    "UPDATE t SET c = 'moved' WHERE id = 40",
    "CREATE TABLE _t_gho LIKE t",
    "ALTER TABLE _t_gho ADD o JSON, ADD p VARCHAR(9) COLLATE NOPAD DEFAULT 'ä', CHANGE k l LONGTEXT, ADD KEY (p)",
    "INSERT INTO _t_gho (id, c, l) SELECT id, c, k FROM t",
    "RENAME TABLE t TO _t_del, _t_gho TO t",
    """INSERT INTO t (id, c, l, o) VALUES (50, 'swapped', '[', '{"b": [1.5, "ß"]}')""",
    "ALTER TABLE t CHANGE l k LONGTEXT COLLATE utf8mb4_bin",
    "CREATE TABLE __cols_new LIKE cols",
    "ALTER TABLE __cols_new ADD o JSON AFTER id, ADD p VARCHAR(9) COLLATE NOPAD NOT NULL DEFAULT 'ä', ADD KEY (p)",
    f"INSERT INTO __cols_new ({_COLS}) SELECT {_COLS} FROM cols",
    "RENAME TABLE cols TO __cols_old, __cols_new TO cols",
    """INSERT INTO cols (id, c, o) VALUES (97, 'swapped', '{"b": [1.5, "ß"]}')""",
    "DROP TABLE _t_del, __cols_old",
    "CREATE TABLE emptied LIKE t",
    "INSERT INTO emptied (id) VALUES (1)",
    "TRUNCATE TABLE emptied",
    "INSERT INTO emptied (id) VALUES (2)",
    "CREATE TABLE gone (id INT PRIMARY KEY)",
    "DROP TABLE gone",
)  # fmt: skip
_OF = {
    "mysql": (
        "SET SESSION binlog_transaction_compression = ON",
        "CREATE TABLE packed (PRIMARY KEY (id)) SELECT id, k FROM t",
        "INSERT INTO packed VALUES (7, 'seven')",
        "ALTER TABLE t ADD COLUMN /*!80000 x */ INT, ALGORITHM=INSTANT",
        "UPDATE t SET x = 5",
    ),
    "mariadb": (
        "CREATE OR REPLACE TABLE packed (PRIMARY KEY (id)) ENGINE=Aria SELECT id, k FROM t",
        "INSERT INTO packed VALUES (7, 'seven')",
        "CREATE OR REPLACE TABLE packed (id INT PRIMARY KEY, k JSON) ENGINE=Aria TRANSACTIONAL=1 ROW_FORMAT=PAGE",
        """INSERT INTO packed VALUES (8, '{"a":  1}')""",
    ),
}
_NOPAD = {"mysql": "utf8mb4_0900_as_cs", "mariadb": "utf8mb4_unicode_520_nopad_ci"}
_TABLES = {"t": ["id"], "copied": ["id"], "cols": ["id"], "emptied": ["id"], "packed": ["id"]}


@pytest.fixture(scope="module")
def mixed_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("ddl"), sources=(MySQL, MariaDB), targets=(MySQL, MariaDB))
    try:
        yield made.start()
    finally:
        made.stop()


def _statements(source: Database) -> list[str]:
    return [text.replace("NOPAD", _NOPAD[source.flavor]) for text in (*_BOTH, *_OF[source.flavor])]


def _run(source: Database, schema: str, statements: Sequence[str]) -> None:
    connection = source.connect(schema)
    try:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    finally:
        connection.close()


def _task(name: str, source_id: str, schema: str, target: Database) -> str:
    return (
        f"name: {name}\ntask-mode: all\nmeta-schema: dm_meta\n"
        f"target-database: {{host: {target.host}, port: {target.port}, user: root, password: ''}}\n"
        f"mysql-instances:\n  - source-id: {source_id}\n    block-allow-list: one\n"
        f"block-allow-list:\n  one: {{do-dbs: [{schema}]}}\n"
    )


def _settle(world: World, task: str, source: Database) -> None:
    end = binlog_end(source)

    def holds(sub: SubTask) -> bool:
        assert sub.stage != "Paused" or all(CATALOGUE[code].retryable for code, _ in sub.errors), sub.errors
        return sub.unit == "Sync" and sub.synced and sub.position >= end

    world.cluster.wait_subtasks(task, holds, f"has applied up to {end}", 900)


def _judge(source: Database, target: Database, schema: str) -> None:
    for table, key in _TABLES.items():
        assert_same_bytes(source, target, f"{schema}.{table}", key)
    query = (
        "SELECT table_name, column_name, is_nullable, ordinal_position FROM information_schema.columns "
        f"WHERE table_schema = '{schema}' ORDER BY 1, 4"
    )
    assert source.query(query) == target.query(query)


@pytest.mark.parametrize(("number", "target"), [(0, "mariadb"), (0, "mysql"), (1, "mysql")])
def test_statements_between_rows(
    mixed_world: World, watch_logs: Callable[[Path], None], number: int, target: str
) -> None:
    world = mixed_world
    watch_logs(world.directory)
    source_id, source = world.sources[number]
    into = next(server for server in world.targets if server.flavor == target)
    task = schema = f"ddl_{source.flavor}_{target}"
    source.execute(
        f"CREATE DATABASE {schema} CHARACTER SET utf8mb4", f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, n INT)"
    )
    _run(source, schema, [_ROWS.format(1)])
    world.cluster.start_task(_task(task, source_id, schema, into))
    world.cluster.wait_replicating(task)
    _run(source, schema, _statements(source))
    _settle(world, task, source)
    _judge(source, into, schema)
    world.cluster.dmctl("stop-task", task)


@pytest.mark.parametrize("target", ["mysql", "mariadb"])
def test_a_primary_key_that_mysql_generates_and_hides(
    mixed_world: World, watch_logs: Callable[[Path], None], target: str
) -> None:
    """Tables of the history and of the stream, with show_gipk_in_create_table_and_information_schema=OFF at both, and a
    target whose sessions begin without autocommit and end at a COMMIT."""
    world = mixed_world
    watch_logs(world.directory)
    source_id, source = world.sources[0]
    into = next(server for server in world.targets if server.flavor == target)
    task = schema = f"generated_key_{target}"
    show, rows = "show_gipk_in_create_table_and_information_schema", ", ".join(f"({n})" for n in range(500))
    hiding = (source, into) if into.flavor == "mysql" else (source,)
    for server in hiding:
        server.execute(f"SET GLOBAL {show} = OFF")
    into.execute("SET GLOBAL completion_type = 'RELEASE'", "SET GLOBAL autocommit = 0")
    try:
        source.execute(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
        generates = "SET SESSION sql_generate_invisible_primary_key = ON"
        _run(source, schema, [generates, "CREATE TABLE before_task (n INT)", f"INSERT INTO before_task VALUES {rows}"])
        world.cluster.start_task(_task(task, source_id, schema, into))
        world.cluster.wait_replicating(task)
        changes = ["UPDATE before_task SET n = n + 1000 WHERE n % 3 = 0", "DELETE FROM before_task WHERE n % 7 = 0"]
        made = ["CREATE TABLE in_stream (n INT)", f"INSERT INTO in_stream VALUES {rows}"]
        more = ["ALTER TABLE before_task ADD m INT DEFAULT 5", "INSERT INTO before_task VALUES (-1, -2)"]
        _run(source, schema, [generates, *changes, *made, *more, "UPDATE in_stream SET n = -n WHERE n % 2 = 0"])
        _settle(world, task, source)
        for columns in ("my_row_id, n, m FROM before_task", "my_row_id, n FROM in_stream"):
            query = f"SELECT {columns.replace(' FROM ', f' FROM {schema}.')} ORDER BY my_row_id"
            assert len(source.query(query)) > 400, "or this shows nothing"
            assert source.query(query) == into.query(query)
        world.cluster.dmctl("stop-task", task)
    finally:
        into.execute("SET GLOBAL autocommit = 1", "SET GLOBAL completion_type = 'NO_CHAIN'")
        for server in hiding:
            server.execute(f"SET GLOBAL {show} = ON")

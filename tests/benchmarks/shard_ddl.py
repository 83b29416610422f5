"""Measures the cost of a sharding DDL that runs on every shard table, by the number of shard tables.

A task of its own merges ``tables`` small shard tables of each source into one target. Each shard table gets an ALTER
TABLE … ADD COLUMN and then an insert, at both sources at the same time. The cost per statement must not depend on the
number of shard tables: a merge of two sources with 512 shard tables each is usual.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import dataclass

from shardmerge.proto import common_pb2
from tests.benchmarks.settings import SOURCES
from tests.benchmarks.task import META_SCHEMA, BenchmarkFailed, Master
from tests.benchmarks.world import World, say
from tests.support.database import Database
from tests.support.wait import until

MODES = ("pessimistic", "optimistic")
_ROWS = 5
_PATIENCE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class ShardDdl:
    """Result of one run with ``tables`` shard tables per source. ``column_seconds``: from the last ALTER at a source
    until the column is at the target. ``rows_seconds``: until all rows inserted after the statements are at the
    target."""

    mode: str
    tables: int
    statements_seconds: float
    column_seconds: float
    rows_seconds: float

    @property
    def statement_ms(self) -> float:
        """Return milliseconds per shard table, from the first statement to the last row."""
        return (self.statements_seconds + self.rows_seconds) / (SOURCES * self.tables) * 1000


def run(world: World, mode: str, tables: int) -> ShardDdl:
    """Run one task with one ALTER of each shard table."""
    name = f"shardddl_{mode[:4]}_{tables}"
    sources = world.sources[:SOURCES]
    target = world.target
    say(f"sharding DDL, {mode}: {SOURCES} sources x {tables} shard tables")
    for number, server in enumerate(sources):
        fill(server, name, number, tables)
    target.execute(f"CREATE DATABASE IF NOT EXISTS {name}_merged")
    with world.another_task(name, SOURCES) as master:
        start(world, master, name, mode)
        merged = f"{name}_merged.t"
        before = _count(target, merged)
        if before != SOURCES * tables * _ROWS:
            raise BenchmarkFailed(f"{merged} has {before} rows")
        began = time.monotonic()
        threads = [
            threading.Thread(target=_alter, args=(server, name, number, tables), daemon=True)
            for number, server in enumerate(sources)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ended = time.monotonic()

        def column_is_there() -> bool:
            master.check()
            return has_column(target, name)

        until(column_is_there, "the column is at the target", _PATIENCE_SECONDS, every=0.05)
        column = time.monotonic()
        say(f"sharding DDL, {mode}, {tables}: column at the target after {column - ended:.2f} s")

        def all_rows() -> bool:
            master.check()
            return _count(target, merged) == before + SOURCES * tables

        until(all_rows, "all rows are at the target", _PATIENCE_SECONDS, every=0.2)
        rows = time.monotonic()
        found = ShardDdl(mode, tables, ended - began, column - ended, rows - ended)
        say(f"sharding DDL, {mode}, {tables}: all rows after {found.rows_seconds:.2f} s")
        [(wrong,)] = target.query(f"SELECT COUNT(*) FROM {merged} WHERE extra <> IF(id % 10 = 9, 8, 7)")
        if int(str(wrong)):
            raise BenchmarkFailed(f"{wrong} rows of {merged} are wrong")
        master.wait(lambda state: state.sync.synced, "is in sync")
        master.stop()
    return found


def start(world: World, master: Master, name: str, mode: str) -> None:
    """Start the task and wait until it has applied everything."""
    start_with(master, task_yaml(name, mode, world.source_ids, world.target))


def start_with(master: Master, text: str) -> None:
    """Start a task with this file and wait until it has applied everything."""
    master.start(text)
    master.wait(
        lambda state: (
            state.unit == common_pb2.UNIT_REPLICATE and state.stage == common_pb2.STAGE_RUNNING and state.sync.synced
        ),
        "replicates",
    )


def fill(server: Database, name: str, number: int, tables: int) -> None:
    """Create and fill the shard tables of source ``number``."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute(f"CREATE DATABASE {name}")
        for table in range(tables):
            first = (number * tables + table) * 10
            cursor.execute(f"CREATE TABLE {name}.t_{table:04} (id BIGINT PRIMARY KEY, n INT NOT NULL)")
            values = ", ".join(f"({first + row}, {row})" for row in range(_ROWS))
            cursor.execute(f"INSERT INTO {name}.t_{table:04} VALUES {values}")


def _alter(server: Database, name: str, number: int, tables: int) -> None:
    with closing(server.connect(name)) as connection, connection.cursor() as cursor:
        for table in range(tables):
            cursor.execute(f"ALTER TABLE t_{table:04} ADD COLUMN extra INT NOT NULL DEFAULT 7")
            cursor.execute(f"INSERT INTO t_{table:04} VALUES ({(number * tables + table) * 10 + 9}, 1, 8)")


def has_column(target: Database, name: str, column: str = "extra") -> bool:
    """Return whether the merged table of the task ``name`` has ``column``."""
    return bool(
        target.query(
            "SELECT 1 FROM information_schema.COLUMNS "
            f"WHERE TABLE_SCHEMA = '{name}_merged' AND TABLE_NAME = 't' AND COLUMN_NAME = '{column}'"
        )
    )


def _count(server: Database, table: str) -> int:
    [(found,)] = server.query(f"SELECT COUNT(*) FROM {table}")
    return int(str(found))


def task_yaml(name: str, mode: str, sources: tuple[str, ...], target: Database) -> str:
    """Return the task file."""
    instances = "".join(
        f"  - {{source-id: {source}, block-allow-list: own, route-rules: [merge]}}\n" for source in sources
    )
    return f"""\
name: {name}
task-mode: all
shard-mode: {mode}
meta-schema: {META_SCHEMA}
target-database: {{host: {target.host}, port: {target.port}, user: root, password: ""}}
mysql-instances:
{instances}block-allow-list:
  own: {{do-dbs: [{name}]}}
routes:
  merge: {{schema-pattern: {name}, table-pattern: "t_*", target-schema: {name}_merged, target-table: t}}
"""

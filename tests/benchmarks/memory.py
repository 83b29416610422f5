"""Measures the memory of the processes that carry one transaction which is larger than their memory should ever be."""

from __future__ import annotations

import time
from dataclasses import dataclass

from shardmerge.proto import common_pb2
from tests.benchmarks import sysbench
from tests.benchmarks.processes import Usage, Watch, forget_largest
from tests.benchmarks.servers import binlog_end
from tests.benchmarks.task import BenchmarkFailed
from tests.benchmarks.world import World, say
from tests.support.database import Database

_TASK = "large"
_SHARD, _MERGED = "wide.rows_1", "merged.wide"
_REPEATS = 16
_ROWS = f"SELECT REPEAT(c, {_REPEATS}) FROM {sysbench.SCHEMA}.sbtest1"
_ROW_BYTES = 119 * _REPEATS + 16
"""Binlog bytes of a row: 16 times a sysbench text, the key, lengths and the share of an event's header."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of the processes. ``usage``: since the transaction was committed. ``seconds``: until it was applied."""

    rows: int
    binlog_bytes: int
    seconds: float
    usage: dict[str, Usage]


def run(world: World) -> Memory:
    """Run a task of its own, from one source; no other task runs then."""
    settings, source, target = world.settings, world.sources[0], world.target
    world.stop_task()
    source.execute(
        "CREATE DATABASE wide CHARACTER SET utf8mb4",
        f"CREATE TABLE {_SHARD} (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, note VARCHAR(4000) NOT NULL)",
    )
    target.execute("CREATE DATABASE IF NOT EXISTS merged")
    with world.another_task(_TASK) as master:
        master.start(_task_yaml(world.source_ids[0], target))
        master.wait(
            lambda state: state.unit == common_pb2.UNIT_REPLICATE and state.stage == common_pb2.STAGE_RUNNING,
            "replicates",
        )
        say(f"memory: a transaction of {settings.big_bytes >> 20:,} MiB")
        roots = world.roots
        forget_largest(roots)
        with Watch(roots) as watch:
            size = _commit(source, settings.big_bytes, settings.rows)
            rows = _count(source, _SHARD)
            started = time.monotonic()
            world.wait_past(master, _TASK, {world.source_ids[0]: binlog_end(source)})
            seconds = time.monotonic() - started
        if _count(target, _MERGED) != rows:
            raise BenchmarkFailed(f"{rows} rows were inserted, {_count(target, _MERGED)} are at the target")
        master.stop()
    return Memory(rows, size, seconds, watch.usage())


def _commit(source: Database, wanted_bytes: int, rows_per_table: int) -> int:
    """Commit one transaction; return its binlog bytes."""
    # In a file of its own: positions in a binlog file have 32 bits.
    source.execute("FLUSH BINARY LOGS")
    before = binlog_end(source)
    left = wanted_bytes // _ROW_BYTES + 1
    connection = source.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute("START TRANSACTION")
            while left > 0:
                count = min(left, rows_per_table)
                cursor.execute(f"INSERT INTO {_SHARD} (note) {_ROWS} LIMIT {count}")
                left -= cursor.rowcount
            cursor.execute("COMMIT")
    finally:
        connection.close()
    after = binlog_end(source)
    if after.file != before.file:
        # It was the first and only group of its file, which the server closed after it.
        [size] = [int(str(row[1])) for row in source.query("SHOW BINARY LOGS") if row[0] == before.file]
        return size - before.pos
    return after.pos - before.pos


def _count(server: Database, table: str) -> int:
    [(found,)] = server.query(f"SELECT COUNT(*) FROM {table}")
    return int(str(found))


def _task_yaml(source: str, target: Database) -> str:
    schema, table = _MERGED.split(".")
    return f"""\
name: {_TASK}
task-mode: all
meta-schema: dm_meta
target-database: {{host: {target.host}, port: {target.port}, user: root, password: ""}}
mysql-instances:
  - {{source-id: {source}, block-allow-list: wide, route-rules: [wide]}}
block-allow-list:
  wide: {{do-dbs: [wide]}}
routes:
  wide: {{schema-pattern: wide, table-pattern: "rows_*", target-schema: {schema}, target-table: {table}}}
"""

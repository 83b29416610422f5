"""Measures what statements on single shard tables, updates and status calls cost, by the number of shard tables.

A task of its own merges small shard tables of one source into one target. Some of the tables are created, renamed,
swapped as gh-ost does, added by update-task; each is followed by an insert. The cost of one must not depend on the
number of shard tables.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from pymysql.cursors import Cursor

from tests.benchmarks import shard_ddl
from tests.benchmarks.task import META_SCHEMA, Master
from tests.benchmarks.world import World, say
from tests.support.database import Database
from tests.support.wait import until

STATEMENTS = 32
"""Tables that get each kind of statement."""
_CALLS = 5
_PATIENCE_SECONDS = 600.0
_KEYS = 10_000_000


@dataclass(frozen=True, slots=True)
class ShardTables:
    """Result of one run with ``tables`` shard tables. ``statement_ms``: by kind of statement, from the first one until
    the last row inserted after them is at the target, for each. ``call_ms``: of query-status and shard-ddl-lock, at the
    master, median. ``update_seconds``: for update-task to add as many tables. ``worker_mib``: growth of the resident
    sets of the workers' own processes while the task started."""

    tables: int
    statement_ms: dict[str, float] = field(default_factory=dict[str, float])
    call_ms: dict[str, float] = field(default_factory=dict[str, float])
    update_seconds: float = 0.0
    worker_mib: float = 0.0


def run(world: World, tables: int) -> ShardTables:
    """Run one task with the statements on some of its tables."""
    name = f"shardtables_{tables}"
    source, target = world.sources[0], world.target
    say(f"statements on single shard tables: {tables} shard tables")
    shard_ddl.fill(source, name, 0, tables)
    target.execute(f"CREATE DATABASE IF NOT EXISTS {name}_merged")
    result, resident = ShardTables(tables), _resident_mib(world)
    with world.another_task(name) as master:
        text = _task_yaml(name, world.source_ids[0], target, "t_*")
        shard_ddl.start_with(master, text)
        grown = _resident_mib(world) - resident
        for number, (kind, statements) in enumerate(_KINDS.items(), 1):
            began = time.monotonic()
            keys = [_give(source, name, number, at, statements) for at in range(STATEMENTS)]
            _until_there(master, target, name, keys)
            result.statement_ms[kind] = (time.monotonic() - began) / STATEMENTS * 1000
            say(f"{tables} shard tables, {kind}: {result.statement_ms[kind]:.0f} ms each")
        result.call_ms["query-status"] = _median_ms(master.status)
        result.call_ms["shard-ddl-lock"] = _median_ms(master.locks)
        say(f"{tables} shard tables: {result.call_ms}")
        with closing(source.connect(name)) as connection, connection.cursor() as cursor:
            for at in range(tables):
                cursor.execute(f"CREATE TABLE u_{at:04} (id BIGINT PRIMARY KEY, n INT NOT NULL, extra INT)")
                cursor.execute(f"INSERT INTO u_{at:04} (id, n) VALUES ({9 * _KEYS + at}, 1)")
        began = time.monotonic()
        master.update(_task_yaml(name, world.source_ids[0], target, "[tu]_*"))
        _until_there(master, target, name, [9 * _KEYS + at for at in range(tables)])
        master.wait(lambda state: state.sync.synced and not state.HasField("join"), "has taken over the new tables")
        updated = time.monotonic() - began
        say(f"{tables} shard tables: update-task adds as many in {updated:.1f} s")
        master.stop()
    return ShardTables(tables, result.statement_ms, result.call_ms, updated, grown)


def _resident_mib(world: World) -> float:
    """Return the resident sets of the workers' own processes (proc(5), statm), together."""
    pages = (int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[1]) for daemon in world.cluster.workers)
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _create(cursor: Cursor, at: int, key: int) -> None:
    cursor.execute(f"CREATE TABLE t_new_{at:04} LIKE t_0000")
    cursor.execute(f"INSERT INTO t_new_{at:04} VALUES ({key}, 1)")


def _rename(cursor: Cursor, at: int, key: int) -> None:
    cursor.execute(f"RENAME TABLE t_new_{at:04} TO t_other_{at:04}")
    cursor.execute(f"INSERT INTO t_other_{at:04} VALUES ({key}, 1)")


def _swap(cursor: Cursor, at: int, key: int) -> None:
    """Change a table as gh-ost does."""
    name = f"t_{at:04}"
    cursor.execute(f"CREATE TABLE _{name}_gho LIKE {name}")
    cursor.execute(f"ALTER TABLE _{name}_gho ADD COLUMN extra INT")
    cursor.execute(f"INSERT INTO _{name}_gho (id, n) SELECT id, n FROM {name}")
    cursor.execute(f"RENAME TABLE {name} TO _{name}_del, _{name}_gho TO {name}")
    cursor.execute(f"INSERT INTO {name} (id, n, extra) VALUES ({key}, 1, 2)")


_KINDS: dict[str, Callable[[Cursor, int, int], None]] = {"create": _create, "rename": _rename, "swap": _swap}


def _give(source: Database, name: str, number: int, at: int, statements: Callable[[Cursor, int, int], None]) -> int:
    """Execute the statements for one table; returns the key of the row inserted after them."""
    key = number * _KEYS + at
    with closing(source.connect(name)) as connection, connection.cursor() as cursor:
        statements(cursor, at, key)
    return key


def _until_there(master: Master, target: Database, name: str, keys: list[int]) -> None:
    wanted = ", ".join(map(str, keys))

    def there() -> bool:
        master.check()
        return target.query(f"SELECT COUNT(*) FROM {name}_merged.t WHERE id IN ({wanted})") == [(len(keys),)]

    until(there, "all rows are at the target", _PATIENCE_SECONDS, every=0.05)


def _median_ms(call: Callable[[], object]) -> float:
    found: list[float] = []
    for _ in range(_CALLS):
        began = time.monotonic()
        call()
        found.append((time.monotonic() - began) * 1000)
    return statistics.median(found)


def _task_yaml(name: str, source: str, target: Database, pattern: str) -> str:
    return f"""\
name: {name}
task-mode: all
shard-mode: optimistic
online-ddl: true
meta-schema: {META_SCHEMA}
target-database: {{host: {target.host}, port: {target.port}, user: root, password: ""}}
mysql-instances:
  - {{source-id: {source}, block-allow-list: own, route-rules: [merge]}}
block-allow-list:
  own:
    do-dbs: [{name}]
    do-tables: [{{db-name: {name}, tbl-name: "{pattern}"}}]
routes:
  merge: {{schema-pattern: {name}, table-pattern: "{pattern}", target-schema: {name}_merged, target-table: t}}
"""

"""Measures the lag of unrelated tables of the same task while a sharding DDL waits.

A task of its own merges two tables of both sources, ``held`` and ``free``, in pessimistic mode. ``held`` of one source
gets a column which that of the other lacks: a lock is open, and the rows of the first one wait. Meanwhile rows are
inserted into ``free`` of the same source, and into ``held``; the benchmark waits at the target for those of ``free``.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass

from pymysql.connections import Connection

from shardmerge.proto import common_pb2
from tests.benchmarks.lag import BETWEEN_SECONDS, Lags, wait_visible
from tests.benchmarks.servers import binlog_end
from tests.benchmarks.settings import SOURCES
from tests.benchmarks.task import META_SCHEMA, BenchmarkFailed
from tests.benchmarks.world import World, say
from tests.support.database import Database
from tests.support.wait import until

_TASK = "locked"
_SCHEMA, _MERGED = "locked", "merged"
_COLUMN = "ADD COLUMN extra INT NOT NULL DEFAULT 7"
_WARM_UP = 10
_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Locked:
    """Lags with and without a lock. ``under``: while the lock was open, ``without``: before; ``waited``: rows of
    ``held`` that waited meanwhile. ``replayed_seconds``: from the other source's statement until these rows were at the
    target."""

    under: Lags
    without: Lags
    waited: int
    replayed_seconds: float


def run(world: World) -> Locked:
    """Measure the lags. The merge task may run at the same time; its tables do not change."""
    first, second = world.sources[:SOURCES]
    target = world.target
    for server in (first, second):
        server.execute(
            f"CREATE DATABASE {_SCHEMA} CHARACTER SET utf8mb4",
            *(f"CREATE TABLE {_SCHEMA}.{table} (id BIGINT PRIMARY KEY, n INT NOT NULL)" for table in ("held", "free")),
        )
    target.execute(f"CREATE DATABASE IF NOT EXISTS {_MERGED}")
    seconds = world.settings.locked_seconds
    with world.another_task(_TASK, SOURCES) as master:
        master.start(_task_yaml(world.source_ids, target))
        master.wait(
            lambda state: state.unit == common_pb2.UNIT_REPLICATE and state.stage == common_pb2.STAGE_RUNNING,
            "replicates",
        )
        probe = _Probe(first, target)
        with probe:
            say(f"lag without a lock: {seconds:.0f} s")
            without = probe.lags(seconds, held="")
            first.execute(f"ALTER TABLE {_SCHEMA}.held {_COLUMN}")
            until(lambda: _waiting(target) == 1, "a shard table waits", _PATIENCE_SECONDS, every=0.05)
            say(f"lag under a lock: {seconds:.0f} s")
            under = probe.lags(seconds, held="held")
            if _waiting(target) != 1 or _count(target, f"{_MERGED}.held"):
                raise BenchmarkFailed("the lock was not open all the time")
        waited = _count(first, f"{_SCHEMA}.held")
        started = time.monotonic()
        second.execute(f"ALTER TABLE {_SCHEMA}.held {_COLUMN}")
        until(
            lambda: _count(target, f"{_MERGED}.held") == waited, "the rows have come up", _PATIENCE_SECONDS, every=0.05
        )
        replayed = time.monotonic() - started
        ends = {name: binlog_end(server) for name, server in zip(world.source_ids, (first, second), strict=False)}
        world.wait_past(master, _TASK, ends)
        if _count(target, f"{_MERGED}.free") != _count(first, f"{_SCHEMA}.free"):
            raise BenchmarkFailed("rows of a table without a lock are missing")
        master.stop()
    return Locked(under, without, waited, replayed)


class _Probe:
    """Inserts rows at ``source`` and waits for them at ``target``, within its block."""

    def __init__(self, source: Database, target: Database) -> None:
        self._source, self._target = source, target
        self._rng = random.Random(5)
        self._stack = ExitStack()
        self._id = 0

    def __enter__(self) -> _Probe:
        self._at_source: Connection = self._stack.enter_context(closing(self._source.connect(_SCHEMA)))
        self._at_target: Connection = self._stack.enter_context(closing(self._target.connect(_MERGED)))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def lags(self, seconds: float, *, held: str) -> Lags:
        """Measure lags for so long; ``held``: a table that also gets rows, which the benchmark does not wait for, ""
        for none."""
        found: list[float] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(found) <= _WARM_UP:
            self._id += 1
            with self._at_source.cursor() as cursor:
                if held:
                    cursor.execute(f"INSERT INTO {held} (id, n) VALUES ({self._id}, 1)")
                cursor.execute(f"INSERT INTO free VALUES ({self._id}, 2)")
            found.append(wait_visible(self._at_target, f"{_MERGED}.free", self._id))
            time.sleep(self._rng.uniform(*BETWEEN_SECONDS))
        return Lags(tuple(found[_WARM_UP:]))


def _waiting(target: Database) -> int:
    return _count(target, f"{META_SCHEMA}.parked_table")


def _count(server: Database, table: str) -> int:
    [(found,)] = server.query(f"SELECT COUNT(*) FROM {table}")
    return int(str(found))


def _task_yaml(sources: tuple[str, ...], target: Database) -> str:
    instances = "".join(
        f"  - {{source-id: {source}, block-allow-list: own, route-rules: [held, free]}}\n" for source in sources
    )
    routes = "".join(
        f"  {table}: {{schema-pattern: {_SCHEMA}, table-pattern: {table}, target-schema: {_MERGED}, "
        f"target-table: {table}}}\n"
        for table in ("held", "free")
    )
    return f"""\
name: {_TASK}
task-mode: all
shard-mode: pessimistic
meta-schema: {META_SCHEMA}
target-database: {{host: {target.host}, port: {target.port}, user: root, password: ""}}
mysql-instances:
{instances}block-allow-list:
  own: {{do-dbs: [{_SCHEMA}]}}
routes:
{routes}"""

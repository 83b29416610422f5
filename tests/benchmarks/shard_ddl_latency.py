"""Measures how long a sharding DDL takes from the last shard table's ALTER to its effects at the target.

A task of its own merges few small shard tables. For each lock, all shard tables but one get an ALTER TABLE … ADD COLUMN
and an insert, which waits under shard-mode pessimistic; then the last one gets them. Then several ALTERs are queued on
all shard tables.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass

from tests.benchmarks.settings import SOURCES
from tests.benchmarks.shard_ddl import fill, start
from tests.benchmarks.world import World, say
from tests.support.wait import until

TABLES = 4
"""Shard tables per source."""
_QUEUED = 8
_LOOK_SECONDS = 0.005
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Latencies:
    """``columns``: for each lock, seconds from the last ALTER at a source until the column is at the target. ``rows``:
    from then until the first row that waited is there. ``queued``: seconds for each of the queued ALTERs."""

    columns: tuple[float, ...]
    rows: tuple[float, ...]
    queued: float


def run(world: World, mode: str, locks: int) -> Latencies:
    """Run one task with so many locks, one after the other."""
    name = f"latency_{mode[:4]}"
    sources, target = world.sources[:SOURCES], world.target
    say(f"latency of sharding DDLs, {mode}: {SOURCES} sources x {TABLES} shard tables, {locks} locks")
    for number, server in enumerate(sources):
        fill(server, name, number, TABLES)
    target.execute(f"CREATE DATABASE IF NOT EXISTS {name}_merged")
    columns: list[float] = []
    rows: list[float] = []
    with world.another_task(name, SOURCES) as master, ExitStack() as open_sessions:
        start(world, master, name, mode)
        sessions = [open_sessions.enter_context(closing(server.connect(name))) for server in sources]
        # One session: a connection for each look takes longer than the look, and the pause between looks grows with it.
        watching = open_sessions.enter_context(closing(target.connect(f"{name}_merged")))

        def is_there(query: str) -> bool:
            with watching.cursor() as cursor:
                return bool(cursor.execute(query))

        def give(text: str) -> None:
            """Execute a statement for each shard table, one after the other; ``{}`` stands for its name."""
            for table in range(TABLES):
                for number, session in enumerate(sessions):
                    with session.cursor() as cursor:
                        for each in text.split(";"):
                            cursor.execute(each.format(f"t_{table:04}", key=_key(number, table)))

        for lock in range(locks):
            keys = _FIRST + lock * 1000
            give(f"ALTER TABLE {{}} ADD COLUMN c{lock} INT; INSERT INTO {{}} (id, n) VALUES ({keys} + {{key}}, 1)")
            ended = time.monotonic()

            def column_is_there(column: str = f"c{lock}") -> bool:
                return is_there(f"SHOW COLUMNS FROM t LIKE '{column}'")

            until(column_is_there, "the column is at the target", _PATIENCE_SECONDS, every=_LOOK_SECONDS)
            column = time.monotonic()

            def row_is_there(key: int = keys) -> bool:
                return is_there(f"SELECT 1 FROM t WHERE id = {key}")

            until(row_is_there, "the first row is at the target", _PATIENCE_SECONDS, every=_LOOK_SECONDS)
            columns.append(column - ended)
            rows.append(time.monotonic() - column)
            master.wait(lambda state: state.sync.synced, "is in sync", every=0.05)
        began = time.monotonic()
        for number in range(_QUEUED):
            give(f"ALTER TABLE {{}} ADD COLUMN q{number} INT")
        until(
            lambda: is_there(f"SHOW COLUMNS FROM t LIKE 'q{_QUEUED - 1}'"),
            "the last column is at the target",
            _PATIENCE_SECONDS,
            every=_LOOK_SECONDS,
        )
        queued = (time.monotonic() - began) / _QUEUED
        master.wait(lambda state: state.sync.synced, "is in sync")
        master.stop()
    return Latencies(tuple(columns), tuple(rows), queued)


_FIRST = 100_000


def _key(number: int, table: int) -> int:
    return number * TABLES + table

"""Measures the lag of a single change, and its lag without replication.

One row is inserted at a source (autocommit). From the moment when the source has answered until the row is visible at
the target, a second connection queries the target for its key, half a millisecond after each answer without the row.
That is one small SELECT in about 0.7 ms while a row is on its way and none in between: it takes a few percent of a
core. The next insert comes after a random time, so that periodic events are neither hit nor missed each time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from pymysql.connections import Connection

from tests.benchmarks import sysbench
from tests.benchmarks.figures import percentile
from tests.benchmarks.settings import SOURCES
from tests.benchmarks.task import MERGED, BenchmarkFailed, create_table, merged_id
from tests.benchmarks.world import World, say

_ASK_AGAIN_SECONDS = 0.0005
BETWEEN_SECONDS = (0.010, 0.050)
_GIVE_UP_SECONDS = 120.0
_BACKGROUND_CHANGES = 1_000
_WARM_UP = 10
_LONGEST_SECONDS = 0.3
_LEAST_PROBES = 20
"""A measurement has a time limit per requested probe, but makes at least so many probes: lags may be seconds."""
_INSERT = "INSERT INTO {} (k, c, pad) VALUES (%s, %s, %s)"
_INSERT_AS = "INSERT INTO {} (id, k, c, pad) VALUES (%s, %s, %s, %s)"
_TEXTS = ("0" * 119, "1" * 59)


@dataclass(frozen=True, slots=True)
class Lags:
    """The measured lags in milliseconds, one per probe."""

    values: tuple[float, ...]

    @property
    def p50(self) -> float:
        return percentile(self.values, 50)

    @property
    def p99(self) -> float:
        return percentile(self.values, 99)

    @property
    def largest(self) -> float:
        return max(self.values)


def run(world: World, *, background: bool) -> Lags:
    """Measure lags. ``background``: in parallel with 1,000 row changes a second, from both sources together."""
    world.replicating  # noqa: B018 - it must run
    world.wait_applied()
    probes = world.settings.probes
    say(f"lag: {probes} inserts" + (f" beside {_BACKGROUND_CHANGES:,} changes/s" if background else ""))
    with ExitStack() as stack:
        if background:
            per_source = _BACKGROUND_CHANGES // sysbench.CHANGES_PER_TRANSACTION // SOURCES
            stack.enter_context(sysbench.Background(world.sources, world.settings.shards, per_source))
        sources = [stack.enter_context(closing(server.connect(sysbench.SCHEMA))) for server in world.sources]
        target = stack.enter_context(closing(world.target.connect()))
        return _probe(sources, target, probes, world.settings.tables)


def _probe(sources: Sequence[Connection], target: Connection, probes: int, tables: int) -> Lags:
    rng = random.Random(3)
    lags: list[float] = []
    end = time.monotonic() + probes * _LONGEST_SECONDS
    for number in range(probes + _WARM_UP):
        if time.monotonic() > end and len(lags) >= _LEAST_PROBES:
            say(f"lag: {len(lags)} of {probes} inserts in the time there is")
            break
        source, table = number % SOURCES, number // SOURCES % tables + 1
        with sources[source].cursor() as cursor:
            cursor.execute(_INSERT.format(f"sbtest{table}"), (number, *_TEXTS))
            committed = time.monotonic()
            merged = merged_id(source + 1, table, int(cursor.lastrowid))
        lag = wait_visible(target, MERGED, merged, since=committed)
        if number >= _WARM_UP:
            lags.append(lag)
        time.sleep(rng.uniform(*BETWEEN_SECONDS))
    return Lags(tuple(lags))


def wait_visible(target: Connection, table: str, key: int, *, since: float | None = None) -> float:
    """Wait until the row is visible; return milliseconds ``since`` (of time.monotonic(); None: now). Raises
    BenchmarkFailed."""
    started = time.monotonic() if since is None else since
    with target.cursor() as cursor:
        while not cursor.execute(f"SELECT 1 FROM {table} WHERE id = {key}"):
            if time.monotonic() - started > _GIVE_UP_SECONDS:
                raise BenchmarkFailed(f"row {key} was not in {table} after {_GIVE_UP_SECONDS:.0f} s")
            time.sleep(_ASK_AGAIN_SECONDS)
    return (time.monotonic() - started) * 1000


@dataclass(frozen=True, slots=True)
class Floor:
    """Lags without replication. ``both``: insert at the source and then the transaction at the target; ``target``: the
    latter alone."""

    both: Lags
    target: Lags


def floor(world: World) -> Floor:
    """Measure without replication: the client that inserted the row sends a lane's statements for one row."""
    name, place = "floor.sbtest", "floor.place"
    say(f"lag floor: {world.settings.probes} inserts by one client")
    source, target = world.sources[0], world.target
    create_table(source, name)
    create_table(target, name)
    target.execute(f"CREATE TABLE {place} (seq BIGINT NOT NULL) ENGINE=InnoDB", f"INSERT INTO {place} VALUES (-1)")
    rng = random.Random(4)
    both: list[float] = []
    alone: list[float] = []
    with closing(source.connect()) as at_source, closing(target.connect()) as at_target:
        for number in range(world.settings.probes + _WARM_UP):
            row = (number, number, *_TEXTS)
            started = time.monotonic()
            with at_source.cursor() as cursor:
                cursor.execute(_INSERT_AS.format(name), row)
            between = time.monotonic()
            with at_target.cursor() as cursor:
                cursor.execute("START TRANSACTION")
                cursor.execute(f"UPDATE {place} SET seq = {number} WHERE seq = {number - 1}")
                cursor.execute(_INSERT_AS.format(name), row)
                cursor.execute("COMMIT")
            if number >= _WARM_UP:
                both.append((time.monotonic() - started) * 1000)
                alone.append((time.monotonic() - between) * 1000)
            time.sleep(rng.uniform(*BETWEEN_SECONDS))
    return Floor(Lags(tuple(both)), Lags(tuple(alone)))

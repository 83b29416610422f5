"""Tests that what a real Prometheus shows of real daemons is what independent sessions observed at the servers.

It needs a Prometheus of its own: the samples' times are those of its scrapes.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass

from tests.support.binlog_count import counted_changes
from tests.support.database import Database
from tests.support.prometheus import Prometheus
from tests.support.wait import until
from tests.support.world import Family, World
from tests.support.writer import Writer

_TASK = "truth"
_LAG_SECONDS = 20.0
_FROZEN_SECONDS = 6.0
_REPORTED_SECONDS = 3.0
_KINDS = ("insert", "update", "delete")
_LAG = "dm_task_lag_seconds"


@dataclass(frozen=True, slots=True)
class _Written:
    """Counts what is written to the shard tables from now on, in the binlogs."""

    family: Family
    starts: tuple[tuple[str, int], ...]

    @classmethod
    def from_now(cls, family: Family) -> _Written:
        return cls(family, tuple(server.binlog_end() for _, server in family.sources))

    def counts(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for (_, server), start in zip(self.family.sources, self.starts, strict=True):
            found.update(counted_changes(server, (f"{self.family.name}_01",), start))
        return found


def test_prometheus_shows_what_happened(world: World, prometheus: Prometheus) -> None:
    family = world.family(_TASK)
    shards = family.create(100)
    written = _Written.from_now(family)
    world.cluster.start_task(family.task())
    world.cluster.wait_replicating(_TASK)

    with Writer(shards, threads=1) as writer:
        writer.go_on(300)
    world.settle([_TASK])
    wanted = written.counts()
    assert all(wanted[kind] > 20 for kind in _KINDS), wanted
    until(lambda: _rows(prometheus) == wanted, f"Prometheus shows {dict(wanted)}", 15)
    copied = prometheus.number(f'sum(dm_snapshot_rows_done{{task="{_TASK}"}})')
    [(merged,)] = world.target.query(f"SELECT COUNT(*) FROM {_TASK}.orders")
    assert copied + wanted["insert"] - wanted["delete"] == merged

    _an_idle_source(world, prometheus)
    _a_lag(world, prometheus, family)
    wanted["insert"] += 1
    _a_silent_source(world, prometheus)
    _kills(world, prometheus, family, wanted)
    assert family.verdict().differences == 0
    world.cluster.dmctl("stop-task", _TASK)


def _rows(prometheus: Prometheus) -> Counter[str]:
    return Counter({kind: int(_counted(prometheus, kind)) for kind in _KINDS})


def _counted(prometheus: Prometheus, kind: str) -> float:
    """The rows of a kind over all lanes and all processes: a counter that fell began anew."""
    total = 0.0
    for samples in prometheus.samples(f'dm_lane_rows_total{{task="{_TASK}",kind="{kind}"}}').values():
        before = 0.0
        for _, value in samples:
            total += value - before if value >= before else value
            before = value
    return total


def _an_idle_source(world: World, prometheus: Prometheus) -> None:
    """It sends a heartbeat each second: it is known to be idle, by an age of at most about a second."""
    time.sleep(3)
    for source_id, _ in world.sources:
        ages = prometheus.values(f'dm_source_silent_seconds{{source_id="{source_id}"}}', 3)
        assert len(ages) >= 2
        assert all(0 <= age <= 1.5 for _, age in ages), ages
        assert {value for _, value in prometheus.values(_lag(source_id, "idle"), 3)} == {0}


def _lag(source_id: str, basis: str) -> str:
    return f'{_LAG}{{task="{_TASK}",source_id="{source_id}",basis="{basis}"}}'


def _a_lag(world: World, prometheus: Prometheus, family: Family) -> None:
    """A row waits at the target for 20 s: its age is shown, and never 0."""
    source_id, server = world.sources[0]
    with closing(world.target.connect()) as session:
        with session.cursor() as cursor:
            cursor.execute(f"LOCK TABLES {_TASK}.orders READ")
        before = time.time()
        _insert_one(server, family)
        after = time.time()
        time.sleep(_LAG_SECONDS + 0.5)
        shown = prometheus.values(_lag(source_id, "event"), _LAG_SECONDS - 1)
        of = f'{{task="{_TASK}",source_id="{source_id}"}}'
        dm = prometheus.values(f"dm_syncer_replication_lag_gauge{of}", _LAG_SECONDS - 1)
        synced = prometheus.values(f"dm_task_synced{of}", _LAG_SECONDS - 1)
    assert len(shown) >= _LAG_SECONDS - 4
    for samples in (shown, dm):
        for at, seconds in samples:
            # The source records whole seconds, rounded down.
            assert at - after - 0.1 <= seconds <= at - before + 1.1, (at - after, seconds)
        assert abs(samples[-1][1] - _LAG_SECONDS) <= 1.6  # the last scrape is at most a second old
    assert {value for _, value in synced} == {0}
    assert [each for each in prometheus.values(_lag(source_id, "idle"), _LAG_SECONDS - 1) if each[0] > after + 1] == []
    world.settle([_TASK])
    until(lambda: prometheus.values(_lag(source_id, "idle"), 2), "the row is applied", 15)


def _insert_one(server: Database, family: Family) -> None:
    server.execute(
        f"INSERT INTO {family.name}_01.order_01 (id, customer, amount, state, token, created) "
        "VALUES (9500000, 'one', 1, 'new', '', '2024-01-01')"
    )


def _a_silent_source(world: World, prometheus: Prometheus) -> None:
    """A source that hangs sends no heartbeat: the lag is the time for which it has been silent."""
    source_id, server = world.sources[1]
    server.signal(signal.SIGSTOP)
    try:
        stopped = time.time()
        time.sleep(_FROZEN_SECONDS)
        shown = prometheus.values(_lag(source_id, "heartbeat"), _FROZEN_SECONDS - 3)
    finally:
        server.signal(signal.SIGCONT)
    assert len(shown) >= 2
    for at, seconds in shown:
        # The last heartbeat is at most about a second older than the stop.
        assert at - stopped - 0.1 <= seconds <= at - stopped + 1.4, (at - stopped, seconds)
    until(lambda: prometheus.values(_lag(source_id, "idle"), 1.5), "the source sends heartbeats again", 15)


def _kills(world: World, prometheus: Prometheus, family: Family, wanted: Counter[str]) -> None:
    """Counters begin anew with a worker, and continue with a lane. What a killed lane had committed since its last
    report, a quarter of a second before at most, is not counted; nothing is counted twice."""
    source_id, _ = world.sources[0]
    until(lambda: _rows(prometheus) == wanted, f"Prometheus shows {dict(wanted)}", 15)
    worker = world.cluster.worker_of(source_id)
    worker.kill_all()
    worker.start()
    world.cluster.wait_bound([source_id])
    world.cluster.wait_replicating(_TASK)
    # A counter of a new process is known by its fall: it must not exceed the former value before it is first read.
    of_source = f'dm_lane_rows_total{{task="{_TASK}",source_id="{source_id}"}}'
    until(
        lambda: not any(samples[-1][1] for samples in prometheus.samples(of_source).values()),
        "Prometheus has read the counters of the new process",
        30,
    )
    written = _Written.from_now(family)
    with Writer(family.shard_tables(), threads=1, seed=2) as writer:
        writer.go_on(200)
    world.settle([_TASK])
    wanted.update(written.counts())
    until(lambda: _rows(prometheus) == wanted, f"after a kill Prometheus shows {dict(wanted)}", 15)

    written = _Written.from_now(family)
    with Writer(family.shard_tables(), threads=1, seed=3) as writer:
        writer.go_on(100)
        for pid in world.cluster.worker_of(source_id).spark_task_pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        writer.go_on(100)
    world.settle([_TASK])
    most = wanted + written.counts()
    time.sleep(_REPORTED_SECONDS)
    found = _rows(prometheus)
    assert all(wanted[kind] < found[kind] <= most[kind] for kind in _KINDS), (wanted, found, most)

    written = _Written.from_now(family)
    with Writer(family.shard_tables(), threads=1, seed=4) as writer:
        writer.go_on(100)
    world.settle([_TASK])
    wanted = found + written.counts()
    until(lambda: _rows(prometheus) == wanted, f"after the kill of lanes Prometheus shows {dict(wanted)}", 15)

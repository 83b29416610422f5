"""Measures what lanes cost by their number.

On a machine with fewer cores than lanes the seconds of the clock say little: processor time per change is the figure.
Lanes run already when the changes arrive, so that their start is not counted. An engine that drops its rows
(BLACKHOLE) cannot be the target: lanes check that the rows of an update exist.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.benchmarks import sysbench
from tests.benchmarks.processes import LANE, TARGET, WORKER, Watch
from tests.benchmarks.settings import SOURCES
from tests.benchmarks.task import task_yaml
from tests.benchmarks.world import World, all_past, say
from tests.support.wait import until

LANES = (1, 2, 4, 8, 16)
_PATIENCE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Scale:
    """One backlog with so many lanes per source. The costs are processor microseconds per row change: of all lanes
    together, of the workers' own processes (which fetch the changes once and feed the lanes), and of the target."""

    lanes: int
    changes_per_second: float
    lanes_us: float
    worker_us: float
    target_us: float


def run(world: World) -> list[Scale]:
    """Apply the same number of changes with each number of lanes."""
    world.replicating.check()
    world.wait_applied()
    # The target's disk is not measured.
    world.target.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
    return [_one(world, lanes) for lanes in LANES]


def _one(world: World, lanes: int) -> Scale:
    settings, master = world.settings, world.master
    say(f"scale: {lanes} lanes per source")
    master.update(task_yaml(settings, world.source_ids, world.target, lanes=lanes))
    world.wait_applied()
    master.pause_relay(world.source_ids)
    transactions = settings.changes // sysbench.CHANGES_PER_TRANSACTION // SOURCES
    committed = sysbench.write(world.sources, settings.shards, transactions, "uniform", lanes)
    ends = world.ends()
    with Watch(world.roots) as watch:
        started = time.monotonic()
        master.resume_relay(world.source_ids)
        until(lambda: all_past(world.checkpoints(), ends), "the changes are applied", _PATIENCE_SECONDS, every=0.05)
        seconds = time.monotonic() - started
    changes = committed * sysbench.CHANGES_PER_TRANSACTION
    usage = watch.usage()
    costs = {group: usage[group].cpu_seconds * 1e6 / changes for group in (LANE, WORKER, TARGET)}
    found = Scale(lanes, changes / seconds, costs[LANE], costs[WORKER], costs[TARGET])
    say(f"scale: {found}")
    return found

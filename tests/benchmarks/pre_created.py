"""Measures the load of a target table that exists beforehand, compared with one that the task creates.

Three tasks copy the same history, in alternating order: into a table that the task creates, and into existing empty
tables with `defer-indexes: empty` and `never`. The tables are alike: a primary key and one index.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from shardmerge.proto import common_pb2
from tests.benchmarks.settings import SOURCES
from tests.benchmarks.task import META_SCHEMA, Master, create_table, task_yaml
from tests.benchmarks.world import World, say
from tests.support.wait import until

_VARIANTS = ("created", "empty", "never")
_ROUNDS = 4
_PATIENCE_SECONDS = 1800.0


def run(world: World) -> Mapping[str, Sequence[float]]:
    """Return the rows per second of each round, by the variant."""
    found: dict[str, list[float]] = {name: [] for name in _VARIANTS}
    with ExitStack() as stack:
        masters = {name: stack.enter_context(world.another_task(f"pre_{name}", SOURCES)) for name in _VARIANTS}
        for number in range(_ROUNDS):
            for name in _VARIANTS if number % 2 == 0 else _VARIANTS[::-1]:
                seconds = _load(world, name, masters[name], again=number > 0)
                found[name].append(world.settings.all_rows / seconds)
                say(f"pre-created: {name} copied {found[name][-1]:,.0f} rows/s")
    return found


def _merged(name: str) -> str:
    return f"pre_{name}.sbtest"


def _load(world: World, name: str, master: Master, *, again: bool) -> float:
    """Return the seconds from start-task until the last chunk is loaded and the table has its indexes; the task is
    stopped then. ``again``: the task already has a history, which is removed first."""
    target, merged, settings = world.target, _merged(name), world.settings
    if name == "created":
        target.execute(f"DROP TABLE IF EXISTS {merged}")
    else:
        create_table(target, merged, auto_increment=settings.auto_increment)
    setting = [f"load:\n  defer-indexes: {name}"]
    text = task_yaml(settings, world.source_ids, target, name=f"pre_{name}", merged=merged, further=setting)
    deferred = f"SELECT 1 FROM {META_SCHEMA}.deferred_index LIMIT 1"
    started = time.monotonic()
    master.start(text, remove_meta=again)
    master.wait(
        lambda state: state.unit == common_pb2.UNIT_REPLICATE and state.stage == common_pb2.STAGE_RUNNING,
        "replicates",
        every=0.2,
    )
    until(lambda: not target.query(deferred), "the table has its indexes", _PATIENCE_SECONDS, every=0.2)
    seconds = time.monotonic() - started
    master.stop()
    return seconds


def compare(world: World) -> list[str]:
    """Return how the tables differ from the created one, in rows and in indexes."""
    problems: list[str] = []
    sums = "COUNT(*), COALESCE(BIT_XOR(CRC32(CONCAT_WS('#', id, k, c, pad))), 0)"
    rows = {name: world.target.query(f"SELECT {sums} FROM {_merged(name)}") for name in _VARIANTS}
    keys = {
        name: [(row[1], row[2], row[3], row[4]) for row in world.target.query(f"SHOW INDEX FROM {_merged(name)}")]
        for name in _VARIANTS
    }
    for name in _VARIANTS[1:]:
        for found in (rows, keys):
            if found[name] != found["created"]:
                problems.append(f"{_merged(name)}: {found[name]}, not {found['created']}")
    return problems

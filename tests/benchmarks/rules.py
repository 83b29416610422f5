"""What rules cost: the same history and the same backlog by a task with rules and by one without, in one run.

The rules let every row pass, so that both tasks do the same work at the target. Both drain the same backlog one after
the other; who is first takes turns. What further kinds of rules cost is told beside, without a goal.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from proto import common_pb2
from tests.benchmarks import sysbench
from tests.benchmarks.processes import Usage, Watch
from tests.benchmarks.settings import SOURCES
from tests.benchmarks.sysbench import SCHEMA
from tests.benchmarks.task import META_SCHEMA, Master
from tests.benchmarks.world import World, all_past, say
from tests.support.wait import until

_ROUNDS = 3
_PATIENCE_SECONDS = 1800.0
_PATTERN = f'schema-pattern: "{SCHEMA}", table-pattern: "sbtest*"'


@dataclass(frozen=True, slots=True)
class Variant:
    """``instance``: lines for each source, ``blocks``: lines of the file; both beyond those of every task."""

    name: str
    instance: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()


def _filters(tables: int, *expressions: str) -> tuple[str, ...]:
    names = [f"e{number}-{at}" for at in range(len(expressions)) for number in range(1, tables + 1)]
    lines = [
        f"  e{number}-{at}: {{schema: {SCHEMA}, table: sbtest{number}, {expression}}}"
        for at, expression in enumerate(expressions)
        for number in range(1, tables + 1)
    ]
    return f"    expression-filters: [{', '.join(names)}]", "expression-filter:", *lines


def variants(tables: int) -> tuple[Variant, ...]:
    """The task without rules first, then the one that is held against it."""
    use, *expressions = _filters(tables, 'insert-value-expr: "k < 0"', 'update-new-value-expr: "k < 0"')
    ruled = Variant(
        "ruled",
        ("    route-rules: [level-1, level-2]", "    filter-rules: [keep]", use),
        (
            "routes:",
            f'  level-1: {{schema-pattern: "{SCHEMA}*", target-schema: rest}}',
            f"  level-2: {{{_PATTERN}, target-schema: merged_ruled, target-table: sbtest}}",
            "filters:",
            f"  keep: {{{_PATTERN}, events: [truncate table, drop table], action: Ignore}}",
            *expressions,
        ),
    )
    use, *expressions = _filters(tables, """insert-value-expr: "c LIKE 'x%'\"""")
    server = Variant("server", ("    route-rules: [merge]", use), (_merge("server"), *expressions))
    return Variant("plain", ("    route-rules: [merge]",), (_merge("plain"),)), ruled, server


def _merge(name: str) -> str:
    return f"routes:\n  merge: {{{_PATTERN}, target-schema: merged_{name}, target-table: sbtest}}"


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one variant: rows of history and changes of backlog per second, one figure a round; processor seconds of the
    workers and lanes in all drains."""

    history: float
    drains: tuple[float, ...]
    cpu_seconds: float

    @property
    def drain(self) -> float:
        return median(self.drains)


def run(world: World) -> Mapping[str, Rates]:
    """By the variants' names."""
    settings = world.settings
    found = variants(settings.tables)
    with ExitStack() as stack:
        masters = {variant.name: stack.enter_context(world.another_task(variant.name, SOURCES)) for variant in found}
        histories = {variant.name: _history(world, variant, masters[variant.name]) for variant in found}
        drains: dict[str, list[float]] = {variant.name: [] for variant in found}
        cpu = dict.fromkeys(drains, 0.0)
        for number in range(_ROUNDS):
            for master in masters.values():
                master.pause()
            say(f"rules, round {number + 1}: {settings.changes:,} row changes while the tasks are paused")
            transactions = settings.changes // sysbench.CHANGES_PER_TRANSACTION // SOURCES
            committed = sysbench.write(world.sources, settings.shards, transactions, "uniform", 50 + number)
            names = list(masters) if number % 2 == 0 else list(reversed(masters))
            for name in names:
                seconds, usage = _drain(world, name, masters[name])
                drains[name].append(committed * sysbench.CHANGES_PER_TRANSACTION / seconds)
                cpu[name] += sum(used.cpu_seconds for used in usage.values())
                say(f"rules: {name} drained {drains[name][-1]:,.0f} changes/s")
        for master in masters.values():
            master.stop()
    return {name: Rates(histories[name], tuple(drains[name]), cpu[name]) for name in drains}


def _task(world: World, variant: Variant) -> str:
    text = [
        f"name: {variant.name}",
        "task-mode: all",
        f"meta-schema: {META_SCHEMA}",
        f'target-database: {{host: {world.target.host}, port: {world.target.port}, user: root, password: ""}}',
        "mysql-instances:",
    ]
    for number, source in enumerate(world.source_ids, 1):
        text += [
            f"  - source-id: {source}",
            "    block-allow-list: all",
            f"    column-mapping-rules: [ids-{number}]",
            "    mydumper-config-name: global",
            *variant.instance,
        ]
    text += [f"block-allow-list:\n  all: {{do-dbs: [{SCHEMA}]}}", "column-mappings:"]
    text += [
        f"  ids-{number}: {{{_PATTERN}, expression: partition id, source-column: id, target-column: id, "
        f'arguments: ["{number}", "", "sbtest"]}}'
        for number in range(1, SOURCES + 1)
    ]
    text += [
        *variant.blocks,
        f"mydumpers:\n  global: {{threads: {world.settings.threads}}}",
        f"replicate:\n  lanes: {world.settings.lanes}",
    ]
    return "\n".join(text) + "\n"


def _history(world: World, variant: Variant, master: Master) -> float:
    """Rows per second from start-task on; the task is paused then."""
    say(f"rules: {variant.name} copies the history")
    world.target.execute(f"DROP DATABASE IF EXISTS merged_{variant.name}")
    started = time.monotonic()
    master.start(_task(world, variant))
    master.wait(
        lambda state: state.unit == common_pb2.UNIT_REPLICATE and state.stage == common_pb2.STAGE_RUNNING,
        "replicates",
        every=0.2,
    )
    ended = time.monotonic()
    deferred = f"SELECT 1 FROM {META_SCHEMA}.deferred_index LIMIT 1"
    until(lambda: not world.target.query(deferred), "the merged table has its indexes", _PATIENCE_SECONDS, every=0.2)
    world.wait_past(master, variant.name, world.ends())
    return world.settings.all_rows / (ended - started)


def _drain(world: World, name: str, master: Master) -> tuple[float, dict[str, Usage]]:
    """Seconds from resume-task until the checkpoints have passed the sources' ends; the task is paused then."""
    ends = world.ends()
    master.wait_relayed(ends)
    with Watch(world.roots) as watch:
        started = time.monotonic()
        master.resume()
        until(lambda: all_past(world.checkpoints(name), ends), f"{name} is drained", _PATIENCE_SECONDS, every=0.05)
        seconds = time.monotonic() - started
    master.wait(lambda state: state.sync.synced, "is in sync")
    master.pause()
    return seconds, watch.usage()


def compare(world: World, names: Sequence[str]) -> list[str]:
    """The merged tables that differ from the first one's."""
    sums = "COUNT(*), COALESCE(BIT_XOR(CRC32(CONCAT_WS('#', id, k, c, pad))), 0)"
    found = {name: world.target.query(f"SELECT {sums} FROM merged_{name}.sbtest") for name in names}
    return [f"merged_{name}: {found[name]}, not {found[names[0]]}" for name in names if found[name] != found[names[0]]]

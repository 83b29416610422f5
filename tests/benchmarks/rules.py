"""Measures the cost of rules: a task with rules and one without copy the same history and apply the same backlog.

The rules let every row pass, so that both tasks do the same work at the target. Both apply the same backlog one after
the other, in alternating order. The cost of further kinds of rules is also reported, without a goal.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from shardmerge.proto import common_pb2
from tests.benchmarks import sysbench
from tests.benchmarks.processes import LANE, Usage, Watch
from tests.benchmarks.settings import SOURCES
from tests.benchmarks.sysbench import SCHEMA
from tests.benchmarks.task import META_SCHEMA, Master
from tests.benchmarks.world import World, all_past, say
from tests.support.wait import until

_HISTORIES = 4
_DRAINS = 4
_PATIENCE_SECONDS = 1800.0
_PATTERN = f'schema-pattern: "{SCHEMA}", table-pattern: "sbtest*"'


@dataclass(frozen=True, slots=True)
class Variant:
    """A task with a set of rules. ``instance``: lines for each source, ``blocks``: lines of the file; both are added to
    those of every task."""

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
    """Return the task without rules first, then the one that is compared with it, then the others."""
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
    transform = Variant(
        "transform",
        ("    route-rules: [merge]", "    transform-rules: [twice]"),
        (
            _merge("transform"),
            "transforms:",
            f'  twice: {{{_PATTERN}, projection: "*, k + k AS twice", filter: "k >= 0"}}',
        ),
    )
    # The second column that gets ids of partition id, as one with a foreign key does.
    references = Variant(
        "references",
        ("    route-rules: [merge]",),
        (
            _merge("references"),
            "references:",
            "  - {from: merged_references.sbtest.k, to: merged_references.sbtest.id}",
        ),
    )
    plain = Variant("plain", ("    route-rules: [merge]",), (_merge("plain"),))
    return plain, ruled, references, server, transform


def _merge(name: str) -> str:
    return f"routes:\n  merge: {{{_PATTERN}, target-schema: merged_{name}, target-table: sbtest}}"


@dataclass(frozen=True, slots=True)
class Rates:
    """Results of one variant: rows of history and changes of backlog per second, one figure a round; processor seconds
    of each group of processes in all rounds."""

    histories: tuple[float, ...]
    drains: tuple[float, ...]
    history_cpu: Mapping[str, float]
    drain_cpu: Mapping[str, float]

    @property
    def history(self) -> float:
        return median(self.histories)

    @property
    def drain(self) -> float:
        return median(self.drains)

    @property
    def lanes_cpu(self) -> float:
        """Processor seconds of the lanes, which decode and map rows, in history and drains."""
        return self.history_cpu[LANE] + self.drain_cpu[LANE]


def run(world: World) -> Mapping[str, Rates]:
    """Measure all variants; return the rates by their names."""
    settings = world.settings
    found = {variant.name: variant for variant in variants(settings.tables)}
    histories: dict[str, list[float]] = {name: [] for name in found}
    drains: dict[str, list[float]] = {name: [] for name in found}
    history_cpu: dict[str, Counter[str]] = {name: Counter() for name in found}
    drain_cpu: dict[str, Counter[str]] = {name: Counter() for name in found}
    with ExitStack() as stack:
        masters = {name: stack.enter_context(world.another_task(name, SOURCES)) for name in found}
        for number in range(_HISTORIES):
            for name in _in_turn(found, number):
                seconds, usage = _history(world, found[name], masters[name], again=number > 0)
                histories[name].append(settings.all_rows / seconds)
                history_cpu[name].update(_seconds(usage))
                say(f"rules: {name} copied {histories[name][-1]:,.0f} rows/s")
        for number in range(_DRAINS):
            say(f"rules, round {number + 1}: {settings.changes:,} row changes while the tasks are paused")
            transactions = settings.changes // sysbench.CHANGES_PER_TRANSACTION // SOURCES
            committed = sysbench.write(world.sources, settings.shards, transactions, "uniform", 50 + number)
            for name in _in_turn(found, number):
                seconds, usage = _drain(world, name, masters[name])
                drains[name].append(committed * sysbench.CHANGES_PER_TRANSACTION / seconds)
                drain_cpu[name].update(_seconds(usage))
                say(f"rules: {name} drained {drains[name][-1]:,.0f} changes/s")
        for master in masters.values():
            master.stop()
    return {
        name: Rates(tuple(histories[name]), tuple(drains[name]), history_cpu[name], drain_cpu[name]) for name in found
    }


def _in_turn(names: Iterable[str], number: int) -> list[str]:
    """Return the names forwards and backwards in turn, so that a drift during the run affects all alike."""
    return list(names) if number % 2 == 0 else list(names)[::-1]


def _seconds(usage: Mapping[str, Usage]) -> dict[str, float]:
    return {group: used.cpu_seconds for group, used in usage.items()}


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


def _history(world: World, variant: Variant, master: Master, *, again: bool) -> tuple[float, dict[str, Usage]]:
    """Return the seconds from start-task until the last chunk is loaded; the task is paused then. ``again``: the task
    already has a history, which is removed first."""
    say(f"rules: {variant.name} copies the history")
    if again:
        master.stop()
    world.target.execute(f"DROP DATABASE IF EXISTS merged_{variant.name}")
    with Watch(world.roots) as watch:
        started = time.monotonic()
        master.start(_task(world, variant), remove_meta=again)
        master.wait(
            lambda state: state.unit == common_pb2.UNIT_REPLICATE and state.stage == common_pb2.STAGE_RUNNING,
            "replicates",
            every=0.2,
        )
        seconds = time.monotonic() - started
    deferred = f"SELECT 1 FROM {META_SCHEMA}.deferred_index LIMIT 1"
    until(lambda: not world.target.query(deferred), "the merged table has its indexes", _PATIENCE_SECONDS, every=0.2)
    world.wait_past(master, variant.name, world.ends())
    master.pause()
    return seconds, watch.usage()


def _drain(world: World, name: str, master: Master) -> tuple[float, dict[str, Usage]]:
    """Return the seconds from resume-task until the checkpoints are past the sources' ends; the task is paused then."""
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
    """Return the merged tables that differ from the first one's. Of a mapped ``k``, the low 44 bits are compared: those
    are the value at the source."""
    sums = f"COUNT(*), COALESCE(BIT_XOR(CRC32(CONCAT_WS('#', id, k & {(1 << 44) - 1}, c, pad))), 0)"
    found = {name: world.target.query(f"SELECT {sums} FROM merged_{name}.sbtest") for name in names}
    return [f"merged_{name}: {found[name]}, not {found[names[0]]}" for name in names if found[name] != found[names[0]]]

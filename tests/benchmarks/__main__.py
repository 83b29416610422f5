"""Runs the benchmark: ``python -m tests.benchmarks``. run.sh starts it, creates the environment and marks the
processes.

Progress and the servers' settings go to stderr, the table and the JSON line to stdout.
"""

from __future__ import annotations

import os
import platform
import signal
import statistics
import sys
import tempfile
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path

import grpc
import pymysql

from shardmerge.proto.errors import ShardmergeError
from tests.benchmarks import (
    ceiling,
    composite_keys,
    drain,
    lag,
    locked,
    memory,
    offline,
    pre_created,
    rules,
    scale,
    scraping,
    shard_ddl,
    shard_ddl_latency,
    shard_tables,
    start,
    verify,
)
from tests.benchmarks.figures import json_line, percentile, ratio, table
from tests.benchmarks.processes import JVM, LANE, MASTER, Usage, Watch
from tests.benchmarks.settings import SOURCES, Settings, parse
from tests.benchmarks.sysbench import SysbenchFailed
from tests.benchmarks.task import BenchmarkFailed
from tests.benchmarks.world import World, say

_FAILURES = (BenchmarkFailed, SysbenchFailed, ShardmergeError, AssertionError, pymysql.MySQLError, grpc.RpcError)


class Run:
    """One run of the benchmark: figures by name, further findings, and texts for people."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.values: dict[str, float | None] = {}
        self.more: dict[str, object] = {}
        self.largest: dict[str, float] = {}
        self.problems: list[str] = []

    def everything(self) -> None:
        """Run all parts; a part that fails ends the run, and earlier results are kept."""
        try:
            for part in self.world.settings.parts:
                self.part(part)
        except _FAILURES as error:
            self.problems.append(f"{type(error).__name__}: {error}")
        self.derive()

    def part(self, part: str) -> None:
        world, values, more = self.world, self.values, self.more
        match part:
            case "start":
                self.start()
            case "full":
                self.full()
            case "ceiling-load":
                values["ceiling_load_rows_per_s"] = ceiling.load(world)
            case "drain":
                self.drain("special", "drain")
            case "drain-uniform":
                self.drain("uniform", "drain_uniform")
            case "ceiling-apply":
                if "ceiling_load_rows_per_s" not in values:
                    ceiling.load(world)
                values["ceiling_apply_rows_per_s"] = ceiling.apply(world)
            case "lag":
                self.lag(lag.run(world, background=False), "lag")
            case "lag1k":
                self.lag(lag.run(world, background=True), "lag1k")
            case "lag-locked":
                self.locked(locked.run(world))
            case "floor":
                found = lag.floor(world)
                values["lag_floor_ms"] = found.both.p50
                more["lag_floor_p99_ms"] = found.both.p99
                more["lag_floor_at_target_p50_ms"] = found.target.p50
            case "relay":
                self.relay(self.offline)
            case "decode":
                self.decode(self.offline)
            case "verify":
                self.verify()
            case "rules":
                self.rules()
            case "pre-created":
                self.pre_created()
            case "shard-ddl":
                self.shard_ddl()
            case "shard-ddl-latency":
                self.shard_ddl_latency()
            case "shard-tables":
                self.shard_tables()
            case "scale":
                self.scale()
            case "scraping":
                self.scraping()
            case "composite-keys":
                self.composite_keys()
            case _:
                self.memory(memory.run(world))

    def start(self) -> None:
        found = start.run(self.world.settings.directory / "start")
        self.values["start_worker_cpu_s"] = found.worker_cpu
        self.values["start_worker_s"] = found.worker_seconds
        self.values["start_master_cpu_s"] = found.master_cpu
        self.values["start_dmctl_cpu_s"] = found.dmctl_cpu

    def full(self) -> None:
        found = self.world.history
        self.values["full_rows_per_s"] = found.rows / found.seconds
        self.more["full_seconds"] = found.seconds
        self.values["first_row_s"] = found.first_row_seconds
        self.more["full_copying_rows_per_s"] = found.rows / found.copying_seconds
        self.more["full_cpu_seconds"] = cpu(found.usage)
        self.remember(found.usage)

    def lag(self, found: lag.Lags, name: str) -> None:
        self.values[f"{name}_p50_ms"] = found.p50
        self.values[f"{name}_p99_ms"] = found.p99
        self.more[f"{name}_largest_ms"] = found.largest
        self.more[f"{name}_probes"] = len(found.values)
        with Watch(self.world.roots) as watch:
            pass
        self.remember(watch.usage())

    def locked(self, found: locked.Locked) -> None:
        for name, lags in (("locked", found.under), ("unlocked", found.without)):
            self.lag(lags, f"lag_{name}")
            self.values[f"lag_{name}_largest_ms"] = lags.largest
        self.more["lag_locked_rows_waited"] = found.waited
        self.more["lag_locked_replayed_seconds"] = found.replayed_seconds

    def verify(self) -> None:
        rows, found = verify.differences(self.world)
        self.more["verified_rows"] = rows
        self.problems += found

    def memory(self, found: memory.Memory) -> None:
        self.remember(found.usage)
        self.more["large_transaction_mib"] = found.binlog_bytes / (1 << 20)
        self.more["large_transaction_rows"] = found.rows
        self.more["large_transaction_seconds"] = found.seconds
        self.more["large_transaction_rss_mb"] = {name: round(one.largest_mib) for name, one in found.usage.items()}

    def shard_ddl(self) -> None:
        sizes = self.world.settings.shard_tables
        for mode in shard_ddl.MODES:
            found = [shard_ddl.run(self.world, mode, tables) for tables in sizes]
            largest = found[-1]
            self.values[f"shard_ddl_{mode}_column_s"] = largest.column_seconds
            self.values[f"shard_ddl_{mode}_rows_s"] = largest.rows_seconds
            self.values[f"shard_ddl_{mode}_growth"] = ratio(largest.statement_ms, found[0].statement_ms)
            self.more[f"shard_ddl_{mode}_statement_ms"] = {each.tables: each.statement_ms for each in found}

    def shard_ddl_latency(self) -> None:
        for mode in shard_ddl.MODES:
            found = shard_ddl_latency.run(self.world, mode, self.world.settings.shard_locks)
            for what, seconds in (("column", found.columns), ("row", found.rows)):
                name = f"shard_ddl_{mode}_{what}"
                self.values[f"{name}_p50_ms"] = percentile(seconds, 50) * 1000
                self.values[f"{name}_p95_ms"] = percentile(seconds, 95) * 1000
            self.values[f"shard_ddl_{mode}_queued_ms"] = found.queued * 1000

    def shard_tables(self) -> None:
        few, *_, many = [shard_tables.run(self.world, tables) for tables in self.world.settings.shard_tables]
        for kind, milliseconds in many.statement_ms.items():
            self.values[f"shard_tables_{kind}_growth"] = ratio(milliseconds, few.statement_ms[kind])
            self.more[f"shard_tables_{kind}_ms"] = {each.tables: each.statement_ms[kind] for each in (few, many)}
        self.values["shard_tables_update_growth"] = ratio(
            many.update_seconds / many.tables, few.update_seconds / few.tables
        )
        self.values["shard_tables_status_ms"] = max(many.call_ms.values())
        self.values["shard_tables_worker_kib"] = (many.worker_mib - few.worker_mib) * 1024 / (many.tables - few.tables)

    def scale(self) -> None:
        self.more["scale"] = [asdict(found) for found in scale.run(self.world)]

    def scraping(self) -> None:
        found = scraping.run(self.world)
        without, scraped = found[False], found[True]
        self.values["scraping_history_ratio"] = ratio(scraped.history, without.history)
        self.values["scraping_drain_ratio"] = ratio(scraped.drain, without.drain)
        self.values["scraping_lag_p50_ms"] = scraped.lag_p50 - without.lag_p50
        self.more["scraping"] = {"without": asdict(without), "scraped": asdict(scraped)}

    def composite_keys(self) -> None:
        found = composite_keys.run(self.world)
        single, composite = found["single"], found["composite"]
        self.values["composite_keys_delete_ratio"] = ratio(composite.delete_ms, single.delete_ms)
        self.values["composite_keys_batch_ratio"] = ratio(composite.batch_ms, single.batch_ms)
        self.more["composite_keys"] = {name: asdict(each) for name, each in found.items()}

    def drain(self, ids: str, name: str) -> None:
        found = drain.run(self.world, ids)
        self.values[f"{name}_changes_per_s"] = found.changes_per_second
        self.more[f"{name}_changes"] = found.changes
        self.more[f"{name}_counted"] = found.counted
        self.more[f"{name}_seconds"] = found.seconds
        self.more[f"{name}_first_commit_seconds"] = found.first_commit_seconds
        self.more[f"{name}_from_first_commit_per_s"] = found.changes_per_second_from_first_commit
        self.more[f"{name}_cpu_seconds"] = cpu(found.usage) | {"machine": round(found.busy_seconds, 2)}
        self.remember(found.usage)
        say(f"{ids} ids: {found.where_time_went()}")
        if found.profile:
            say(found.profile)
        if found.counted != found.changes:
            self.problems.append(f"sysbench made {found.changes} changes, the lanes counted {found.counted}")

    @cached_property
    def offline(self) -> offline.Both:
        return offline.run(self.world)

    def relay(self, found: offline.Both) -> None:
        self.values["relay_mb_per_s"] = found.changes.relay.wall / 1e6
        self.more["relay_mb_per_cpu_s"] = found.changes.relay.cpu / 1e6
        self.more["relay_mb"] = found.changes.relay.amount / 1e6
        self.more["relay_bulk_mb_per_s"] = found.bulk.relay.wall / 1e6
        self.more["relay_bulk_mb"] = found.bulk.relay.amount / 1e6

    def decode(self, found: offline.Both) -> None:
        changes = found.changes
        self.values["decode_images_per_s"] = changes.decode.wall
        self.more["decode_images_per_cpu_s"] = changes.decode.cpu
        self.more["decode_images"] = int(changes.decode.amount)
        self.more["decode_mb_per_s"] = changes.decode.wall * changes.binlog_bytes / changes.decode.amount / 1e6
        self.more["decode_bulk_images_per_s"] = found.bulk.decode.wall

    def rules(self) -> None:
        found = rules.run(self.world)
        plain = found["plain"]
        for name, rates in found.items():
            self.values[f"rules_{name}_history_rows_per_s"] = rates.history
            self.values[f"rules_{name}_drain_changes_per_s"] = rates.drain
            self.more[f"rules_{name}_histories"] = [round(rate) for rate in rates.histories]
            self.more[f"rules_{name}_drains"] = [round(rate) for rate in rates.drains]
            self.more[f"rules_{name}_history_cpu_seconds"] = {g: round(s, 1) for g, s in rates.history_cpu.items()}
            self.more[f"rules_{name}_drain_cpu_seconds"] = {g: round(s, 1) for g, s in rates.drain_cpu.items()}
            if rates is not plain:
                self.values[f"rules_{name}_history_ratio"] = ratio(rates.history, plain.history)
                self.values[f"rules_{name}_drain_ratio"] = ratio(rates.drain, plain.drain)
        self.values["rules_references_lanes_cpu_ratio"] = ratio(found["references"].lanes_cpu, plain.lanes_cpu)
        self.problems += rules.compare(self.world, list(found))

    def pre_created(self) -> None:
        found = pre_created.run(self.world)
        medians = {name: statistics.median(rates) for name, rates in found.items()}
        for name, rates in found.items():
            self.values[f"pre_created_{name}_rows_per_s"] = medians[name]
            self.more[f"pre_created_{name}_rates"] = [round(rate) for rate in rates]
        self.values["pre_created_empty_to_never"] = ratio(medians["empty"], medians["never"])
        self.values["pre_created_empty_to_created"] = ratio(medians["empty"], medians["created"])
        self.problems += pre_created.compare(self.world)

    def remember(self, usage: dict[str, Usage]) -> None:
        for group, found in usage.items():
            self.largest[group] = max(self.largest.get(group, 0.0), found.largest_mib)

    def derive(self) -> None:
        values = self.values
        values["full_ratio"] = ratio(values.get("full_rows_per_s"), values.get("ceiling_load_rows_per_s"))
        values["drain_ratio"] = ratio(values.get("drain_uniform_changes_per_s"), values.get("ceiling_apply_rows_per_s"))
        values["rss_worker_jvm_mb"] = self.largest.get(JVM)
        values["rss_lane_mb"] = self.largest.get(LANE)
        values["rss_master_mb"] = self.largest.get(MASTER)


def cpu(usage: dict[str, Usage]) -> dict[str, float]:
    return {group: round(found.cpu_seconds, 2) for group, found in usage.items()}


def header(settings: Settings) -> str:
    return (
        f"{platform.machine()}, {os.cpu_count()} cores for everything; {SOURCES} sources x {settings.tables} tables x "
        f"{settings.rows:,} rows; backlog of {settings.changes:,} row changes; {settings.lanes} lanes and "
        f"{settings.threads} chunk readers per source"
    )


def main() -> int:
    _end_once()
    directory = Path(os.environ.get("SHARDMERGE_BENCHMARK_DIR") or tempfile.mkdtemp(prefix="shardmerge-benchmark-"))
    settings = parse(sys.argv[1:], directory)
    if settings.profile is not None:
        # run.sh has changed the working directory.
        settings = replace(settings, profile=Path(os.environ.get("SHARDMERGE_BENCHMARK_FROM", ".")) / settings.profile)
    if settings.keep:
        (directory / "keep").touch()
        say(f"servers, logs and data are in {directory}")
    say(header(settings))
    with World(settings) as world:
        run = Run(world)
        run.everything()
    for problem in run.problems:
        say(f"FAILED: {problem}")
    run.more["problems"] = run.problems
    print("\n".join([header(settings), *world.headers, "", table(run.values), "", json_line(run.values, run.more)]))
    return 1 if run.problems else 0


def _end_once() -> None:
    """End the run in order at the first signal; further signals do not disturb that."""

    def handle(number: int, frame: object) -> None:
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)
        say(f"{signal.Signals(number).name}: ending what runs")
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)


if __name__ == "__main__":
    sys.exit(main())

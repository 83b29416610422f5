"""Measures relay and decoder alone: one process, one thread each, on a binlog that exists already.

It runs in a process of its own, so that no other work shares its interpreter.
"""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from shardmerge.proto import log as logs
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.core.mysql.connection import Side, connect
from shardmerge.worker.core.mysql.endpoint import Endpoint
from shardmerge.worker.core.mysql.information_schema import read_tables
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import ColumnPlan, PartitionId, TablePlan
from shardmerge.worker.relay.fetch.server_id import derived
from shardmerge.worker.relay.model import BlockData, OpenedData, PurgePolicy
from shardmerge.worker.relay.relay import Relay
from tests.benchmarks import sysbench
from tests.benchmarks.servers import binlog_end, endpoint
from tests.benchmarks.settings import SOURCES
from tests.benchmarks.task import MERGED, ORIGINAL_BITS, merged_id
from tests.benchmarks.world import World, say
from tests.support.server_ids import unleased

_COPIES = 3
_DECODINGS = 3
_DEADLINE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the source's binlog, from group end to group end."""

    start: SourcePosition
    end: SourcePosition


@dataclass(frozen=True, slots=True)
class Job:
    """The work of the process: copy each of ``parts``, and decode it by ``plans``."""

    directory: Path
    endpoint: Endpoint
    flavor: str
    parts: tuple[Part, ...]
    plans: tuple[TablePlan, ...]


@dataclass(frozen=True, slots=True)
class Speed:
    """Medians of some runs. ``wall``: per second of the clock, ``cpu``: per second of processor time of this
    process."""

    amount: float
    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Found:
    """Results of one part. ``relay``: bytes; ``decode``: row images, before and after; ``binlog_bytes``: the size of
    the input of both."""

    relay: Speed
    decode: Speed
    binlog_bytes: int


@dataclass(frozen=True, slots=True)
class Both:
    """Results of both inputs. ``changes``: small transactions of four row changes, each in an event of its own, as a
    busy source writes them; ``bulk``: the multi-row INSERTs that filled the tables."""

    changes: Found
    bulk: Found


def run(world: World) -> Both:
    """Measure with the first source's binlog from the filling of its tables, and with what sysbench writes to it
    now."""
    settings = world.settings
    source = world.sources[0]
    say("relay and decoder: a binlog")
    start = binlog_end(source)
    transactions = settings.changes // sysbench.CHANGES_PER_TRANSACTION // SOURCES
    sysbench.write([source], settings.shards, transactions, "uniform", 3)
    session = connect(endpoint(source), Side.SOURCE, name="benchmark")
    try:
        names = [(sysbench.SCHEMA, f"sbtest{number}") for number in range(1, settings.tables + 1)]
        tables = tuple(read_tables(session, names, source="benchmark"))
    finally:
        session.close()
    job = Job(
        directory=settings.directory / "relays",
        endpoint=endpoint(source),
        flavor=settings.source,
        parts=(Part(start, binlog_end(source)), Part(*world.filled)),
        plans=tuple(_plan(number, table) for number, table in enumerate(tables)),
    )
    say("relay and decoder: running")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return Both(*pool.submit(work, job).result())


def _plan(shard: int, table: Table) -> TablePlan:
    schema, name = MERGED.split(".")
    ids = PartitionId(merged_id(1, int(table.name.removeprefix("sbtest")), 0), ORIGINAL_BITS)
    columns = tuple(
        ColumnPlan(index, column, column.name, ids if column.name == "id" else None)
        for index, column in enumerate(table.columns)
    )
    return TablePlan(shard, "benchmark", table, schema, name, columns, table.key)


def work(job: Job) -> list[Found]:
    """Do the work in the process of its own."""
    logs.configure("benchmark", "warn")
    return [_one(job, part, job.directory / str(number)) for number, part in enumerate(job.parts)]


def _one(job: Job, part: Part, directory: Path) -> Found:
    copies: list[Speed] = []
    runs: list[Speed] = []
    size = 0
    for number in range(_COPIES):
        own = directory / str(number)
        own.mkdir(parents=True)
        relay = Relay(own, "benchmark", job.endpoint, job.flavor, unleased(derived(own)), PurgePolicy())
        copy, end = _copy(relay, part)
        copies.append(copy)
        if number == _COPIES - 1:
            opened = relay.opened(relay.first().offset)
            blocks = list(_blocks(relay, end))
            size = sum(map(len, blocks))
            runs = [decode(job.plans, opened, blocks) for _ in range(_DECODINGS)]
        shutil.rmtree(own)
    return Found(_median(copies), _median(runs), size)


def _copy(relay: Relay, part: Part) -> tuple[Speed, RelayOffset]:
    relay.ensure_from(part.start)
    wall, cpu = time.perf_counter(), time.process_time()
    relay.start()
    try:
        end = relay.locate(part.end, _DEADLINE_SECONDS, StopSignal())
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    finally:
        relay.stop()
    size = relay.bytes_between(relay.first().offset, end)
    return Speed(size, size / wall, size / cpu), end


def _blocks(relay: Relay, end: RelayOffset) -> Iterator[bytes]:
    for item in relay.subscribe(relay.first().offset, end, None, StopSignal()):
        if isinstance(item, BlockData):
            yield item.events


def decode(plans: tuple[TablePlan, ...], opened: OpenedData, blocks: list[bytes]) -> Speed:
    """Measure row images, before and after, rendered to literals. A separate decoder counts them first."""
    decoder = _decoder(plans, opened)
    images = sum(bool(change.before) + bool(change.after) for block in blocks for change in decoder.decode(block))
    decoder = _decoder(plans, opened)
    wall, cpu = time.perf_counter(), time.process_time()
    for block in blocks:
        decoder.decode(block)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Speed(images, images / wall, images / cpu)


def _decoder(plans: tuple[TablePlan, ...], opened: OpenedData) -> BlockDecoder:
    by_name = {(plan.table.schema, plan.table.name): plan for plan in plans}
    decoder = BlockDecoder(lambda schema, table: by_name.get((schema, table)))
    decoder.open(opened.format_description)
    return decoder


def _median(runs: list[Speed]) -> Speed:
    return Speed(
        statistics.median(run.amount for run in runs),
        statistics.median(run.wall for run in runs),
        statistics.median(run.cpu for run in runs),
    )

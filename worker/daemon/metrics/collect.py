"""All samples of a worker. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shardmerge.proto import worker_pb2
from shardmerge.proto.metrics import dm_other, own_worker
from shardmerge.proto.metrics.certificates import certificate_samples
from shardmerge.proto.metrics.family import Sample
from shardmerge.proto.metrics.process import process_samples
from shardmerge.proto.metrics.tables import PerTable, Shares, shared_out
from shardmerge.worker.daemon.forecast.figures import WorkerForecast
from shardmerge.worker.daemon.metrics.figures import SparkFigures, SubTaskFigures, WorkerFigures
from shardmerge.worker.daemon.metrics.lanes import demand_of, lane_samples
from shardmerge.worker.daemon.metrics.snapshots import reader_samples, snapshot_samples
from shardmerge.worker.daemon.metrics.sources import source_samples
from shardmerge.worker.daemon.metrics.subtasks import subtask_samples


def table_shares(figures: WorkerFigures, before: Shares, per_table: PerTable) -> Shares:
    """How many target tables of each task have series of their own; ``before``: at the previous scrape."""
    source = figures.source
    demands = {} if source is None else {each.status.name: demand_of(each) for each in source.subtasks}
    return shared_out(demands, before, per_table)


def worker_samples(figures: WorkerFigures, shares: Shares) -> Iterator[Sample]:
    """A subtask that has ended has no samples, nor has a source that the worker has not. ``shares``: of
    :func:`table_shares`."""
    yield from process_samples(figures.process, dm_other.WORKER_CPU)
    yield own_worker.REGISTERED.sample(figures.is_registered)
    yield own_worker.BOUND.sample(figures.source is not None)
    yield from _spark(figures.spark)
    yield from _worker(figures.forecast)
    source = figures.source
    if source is None:
        return
    silent_seconds = source.relay.fetched.silent_seconds(figures.now)
    yield from source_samples(source, silent_seconds, has_lease=figures.is_registered)
    for subtask in source.subtasks:
        yield from subtask_samples(
            subtask, source.source, figures.worker, figures.now, silent_seconds, has_lease=figures.is_registered
        )
        yield from lane_samples(subtask, source.source, figures.worker, shares[subtask.status.name].tables)
        yield from reader_samples(subtask.reader_seconds, subtask.status.name, source.source)
        load = _load(subtask)
        if load is not None:
            yield from snapshot_samples(load, subtask.status.name, source.source)


def _load(subtask: SubTaskFigures) -> worker_pb2.LoadStatus | None:
    status = subtask.status
    return status.load if status.WhichOneof("status") == "load" else subtask.copied


def _spark(spark: SparkFigures) -> Iterator[Sample]:
    yield own_worker.SPARK_UP.sample(spark.is_up)
    yield own_worker.SPARK_RESTARTS.sample(spark.restarts)
    yield own_worker.SPARK_SLOTS.sample(spark.total_slots - spark.free_slots, state="used")
    yield own_worker.SPARK_SLOTS.sample(spark.free_slots, state="free")
    if spark.executor_slots is not None:
        yield own_worker.SPARK_EXECUTOR_SLOTS.sample(spark.executor_slots)
    if spark.jvm_bytes is not None:
        yield own_worker.JVM_RESIDENT.sample(spark.jvm_bytes)


def _worker(forecast: WorkerForecast) -> Iterator[Sample]:
    yield from certificate_samples(forecast.certificates)
    heap = forecast.heap
    if heap is not None:
        for kind, count in (("used", heap.used), ("committed", heap.committed), ("max", heap.limit)):
            yield own_worker.JVM_HEAP.sample(count, type=kind)

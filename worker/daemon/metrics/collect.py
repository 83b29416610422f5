"""All samples of a worker. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shardmerge.proto import worker_pb2
from shardmerge.proto.metrics import dm_other, own_worker
from shardmerge.proto.metrics.family import Sample
from shardmerge.proto.metrics.process import process_samples
from shardmerge.proto.metrics.tables import PerTable
from shardmerge.worker.daemon.metrics.figures import SparkFigures, SubTaskFigures, WorkerFigures
from shardmerge.worker.daemon.metrics.lanes import lane_samples
from shardmerge.worker.daemon.metrics.snapshots import snapshot_samples
from shardmerge.worker.daemon.metrics.sources import source_samples
from shardmerge.worker.daemon.metrics.subtasks import subtask_samples


def worker_samples(figures: WorkerFigures, per_table: PerTable) -> Iterator[Sample]:
    """A subtask that has ended has no samples, nor has a source that the worker has not."""
    yield from process_samples(figures.process, dm_other.WORKER_CPU)
    yield own_worker.REGISTERED.sample(figures.is_registered)
    yield own_worker.BOUND.sample(figures.source is not None)
    yield from _spark(figures.spark)
    source = figures.source
    if source is None:
        return
    yield from source_samples(source)
    for subtask in source.subtasks:
        yield from subtask_samples(subtask, source.source, figures.worker, figures.now)
        yield from lane_samples(subtask, source.source, figures.worker, per_table)
        load = _load(subtask)
        if load is not None:
            yield from snapshot_samples(load, subtask.status.name, source.source)


def _load(subtask: SubTaskFigures) -> worker_pb2.LoadStatus | None:
    status = subtask.status
    return status.load if status.WhichOneof("status") == "load" else subtask.copied


def _spark(spark: SparkFigures) -> Iterator[Sample]:
    yield own_worker.SPARK_UP.sample(spark.is_up)
    yield own_worker.SPARK_SLOTS.sample(spark.total_slots - spark.free_slots, state="used")
    yield own_worker.SPARK_SLOTS.sample(spark.free_slots, state="free")
    if spark.executor_slots is not None:
        yield own_worker.SPARK_EXECUTOR_SLOTS.sample(spark.executor_slots)
    if spark.jvm_bytes is not None:
        yield own_worker.JVM_RESIDENT.sample(spark.jvm_bytes)

"""All samples of a worker. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shardmerge.proto import common_pb2, worker_pb2
from shardmerge.proto.metrics import dm_other, own_worker
from shardmerge.proto.metrics.certificates import certificate_samples
from shardmerge.proto.metrics.family import Sample
from shardmerge.proto.metrics.process import process_samples
from shardmerge.proto.metrics.tables import PerTable, Shares, shared_out
from shardmerge.worker.daemon.forecast.binlog_expiry import Expiry
from shardmerge.worker.daemon.forecast.figures import SourceForecast, WorkerForecast
from shardmerge.worker.daemon.metrics.binlog_place import file_and_position
from shardmerge.worker.daemon.metrics.figures import SourceFigures, SparkFigures, SubTaskFigures, WorkerFigures
from shardmerge.worker.daemon.metrics.lanes import demand_of, lane_samples
from shardmerge.worker.daemon.metrics.subtasks import subtask_samples
from shardmerge.worker.snapshot.limits.reader_times import CAUSES


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
    yield from _source_samples(source, silent_seconds, has_lease=figures.is_registered)
    for subtask in source.subtasks:
        yield from subtask_samples(
            subtask, source.source, figures.worker, figures.now, silent_seconds, has_lease=figures.is_registered
        )
        yield from lane_samples(subtask, source.source, figures.worker, shares[subtask.status.name].tables)
        yield from _reader_samples(subtask.reader_seconds, subtask.status.name, source.source)
        load = _load(subtask)
        if load is not None:
            yield from _snapshot_samples(load, subtask.status.name, source.source)


def _source_samples(figures: SourceFigures, silent_seconds: float | None, *, has_lease: bool) -> Iterator[Sample]:
    """``silent_seconds``: since an event or a heartbeat of the source last arrived, None: none has. ``has_lease``:
    without it another worker may have the source: then only that one describes the source's state."""
    status, relay, fetched = figures.status, figures.relay, figures.relay.fetched
    of = {"source_id": figures.source}
    if has_lease:
        yield from _source_state(figures, silent_seconds, of)
    yield own_worker.RELAY_BYTES.sample(status.bytes_on_disk, **of)
    yield own_worker.RELAY_FILES.sample(relay.files, **of)
    yield own_worker.RELAY_WRITTEN.sample(fetched.bytes_written, **of)
    for node, text in (("master", status.master_binlog), ("relay", status.relay_binlog)):
        place = file_and_position(text)
        if place is not None:
            yield dm_other.RELAY_FILE.sample(place[0], node=node)
            yield dm_other.RELAY_POS.sample(place[1], node=node)
    if relay.space is not None:
        yield dm_other.RELAY_SPACE.sample(relay.space.capacity, type="capacity")
        yield dm_other.RELAY_SPACE.sample(relay.space.available, type="available")
    yield dm_other.RELAY_CORRUPTION.sample(fetched.damaged)
    yield dm_other.RELAY_WRITE_SIZE.sample(fetched.write_bytes)
    yield dm_other.RELAY_WRITE_DURATION.sample(fetched.write_seconds)
    yield dm_other.RELAY_WRITE_ERROR.sample(fetched.write_errors)
    yield dm_other.RELAY_READ_ERROR.sample(fetched.read_errors)
    yield dm_other.RELAY_EXIT.sample(fetched.resumable, resumable_err="true")
    yield dm_other.RELAY_EXIT.sample(fetched.final, resumable_err="false")


def _source_state(figures: SourceFigures, silent_seconds: float | None, of: dict[str, str]) -> Iterator[Sample]:
    status = figures.status
    runs = status.stage == common_pb2.STAGE_RUNNING and not status.HasField("result")
    yield own_worker.CONNECTED.sample(runs and not status.paused, **of)
    if silent_seconds is not None:
        yield own_worker.SOURCE_SILENT.sample(silent_seconds, **of)
    yield own_worker.RELAY_PAUSED.sample(status.paused, **of)
    yield own_worker.RELAY_CAUGHT_UP.sample(status.relay_catch_up_master, **of)
    yield from _source_forecast(figures.forecast, of)


def _source_forecast(forecast: SourceForecast, of: dict[str, str]) -> Iterator[Sample]:
    expiry, disk = forecast.expiry, forecast.disk
    if isinstance(expiry, Expiry):
        yield own_worker.RETENTION.sample(expiry.kept, **of)
        yield own_worker.RETENTION_LEFT.sample(expiry.left, **of)
        if expiry.due is not None:
            yield own_worker.BINLOG_EXPIRES.sample(expiry.due, **of)
    if disk is not None and disk.full_in is not None:
        yield own_worker.RELAY_FULL.sample(disk.full_in, **of)
    if forecast.source_clock is not None and forecast.source_clock.is_certain:
        yield own_worker.CLOCK_DIFFERENCE.sample(forecast.source_clock.ahead, **of, task="", of="source")
    for task, clock in sorted(forecast.target_clocks.items()):
        if clock.is_certain:
            yield own_worker.CLOCK_DIFFERENCE.sample(clock.ahead, **of, task=task, of="target")


def _load(subtask: SubTaskFigures) -> worker_pb2.LoadStatus | None:
    status = subtask.status
    return status.load if status.WhichOneof("status") == "load" else subtask.copied


def _snapshot_samples(load: worker_pb2.LoadStatus, task: str, source: str) -> Iterator[Sample]:
    of = {"task": task, "source_id": source}
    yield own_worker.CHUNKS_PLANNED.sample(load.total_chunks, **of)
    yield own_worker.CHUNKS_DONE.sample(load.finished_chunks, **of)
    yield own_worker.ROWS_PLANNED.sample(load.total_rows, **of)
    yield own_worker.ROWS_DONE.sample(load.finished_rows, **of)
    yield own_worker.BYTES_DONE.sample(load.finished_bytes, **of)
    is_done = load.plan_complete and load.finished_chunks == load.total_chunks
    if is_done or load.eta_seconds:
        yield own_worker.SNAPSHOT_ETA.sample(0 if is_done else load.eta_seconds, **of)
    yield dm_other.DUMP_ROWS.sample(load.finished_rows, **of)
    yield dm_other.DUMP_TOTAL_ROWS.sample(load.total_rows, **of)
    yield dm_other.LIGHTNING_CHUNKS.sample(load.total_chunks, **of, state="estimated")
    yield dm_other.LIGHTNING_CHUNKS.sample(load.finished_chunks, **of, state="finished")
    completed = sum(
        is_done or (load.plan_complete and table.finished_chunks == table.total_chunks) for table in load.tables
    )
    yield dm_other.LIGHTNING_TABLES.sample(len(load.tables) - completed, **of, state="pending")
    yield dm_other.LIGHTNING_TABLES.sample(completed, **of, state="completed")


def _reader_samples(seconds: Mapping[str, float], task: str, source: str) -> Iterator[Sample]:
    """``seconds``: of all readers together, by cause."""
    for cause in CAUSES:
        yield own_worker.READER_SECONDS.sample(seconds.get(cause, 0.0), task=task, source_id=source, cause=cause)


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

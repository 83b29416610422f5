"""Samples of the copy of a subtask's history. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shardmerge.proto import worker_pb2
from shardmerge.proto.metrics import dm_other, own_worker
from shardmerge.proto.metrics.family import Sample
from shardmerge.worker.snapshot.limits.reader_times import CAUSES


def snapshot_samples(load: worker_pb2.LoadStatus, task: str, source: str) -> Iterator[Sample]:
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


def reader_samples(seconds: Mapping[str, float], task: str, source: str) -> Iterator[Sample]:
    """``seconds``: of all readers together, by cause."""
    for cause in CAUSES:
        yield own_worker.READER_SECONDS.sample(seconds.get(cause, 0.0), task=task, source_id=source, cause=cause)

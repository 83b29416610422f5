"""A picture of a worker's memory, from which its metrics are computed."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.proto import worker_pb2
from shardmerge.proto.metrics.process import ProcessFigures
from shardmerge.worker.daemon.metrics.run_counts import NO_RUNS, RunFigures
from shardmerge.worker.relay.relay import RelayFigures
from shardmerge.worker.replicate.lane_totals import NO_TOTALS, SubTaskTotals


@dataclass(frozen=True, slots=True)
class SubTaskFigures:
    """One subtask. The messages are read, never changed.

    ``copied``: the progress of its history, as last seen; None: it was not copied by this process. ``known_seconds``:
    since the worker has it. ``failures_in_row``, ``resume_seconds``: of its automatic resume. ``chunk_seconds``:
    since a chunk was committed; None: none was by the present unit. ``remaining_seconds``: until it has caught up,
    None: unknown. ``has_lock``: a lock of a sharding DDL of its task exists. ``is_compared``:
    `dmctl compare` compares it now.
    """

    status: worker_pb2.SubTaskStatus
    totals: SubTaskTotals = NO_TOTALS
    runs: RunFigures = NO_RUNS
    copied: worker_pb2.LoadStatus | None = None
    known_seconds: float = 0.0
    failures_in_row: int = 0
    resume_seconds: float | None = None
    chunk_seconds: float | None = None
    remaining_seconds: float | None = None
    has_lock: bool = False
    is_compared: bool = False


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """The bound source. ``retention_left``: seconds until it may delete binlog that is not fetched, None: unknown."""

    source: str
    status: worker_pb2.RelayStatus
    relay: RelayFigures
    subtasks: tuple[SubTaskFigures, ...] = ()
    retention_left: float | None = None


@dataclass(frozen=True, slots=True)
class SparkFigures:
    """``executor_slots``: None for Spark within the worker; ``jvm_bytes``: None if the JVM does not run."""

    total_slots: int
    free_slots: int
    is_up: bool
    executor_slots: int | None = None
    jvm_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """``now``: on the clock of :class:`shardmerge.worker.replicate.lane_totals.LaneTotals`. ``source``: None while the
    worker is free."""

    worker: str
    now: float
    process: ProcessFigures
    is_registered: bool
    spark: SparkFigures
    source: SourceFigures | None = None

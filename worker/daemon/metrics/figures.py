"""A picture of a worker's memory, from which its metrics are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardmerge.proto import worker_pb2
from shardmerge.proto.metrics.process import ProcessFigures
from shardmerge.worker.daemon.forecast.figures import NO_FORECAST, NOTHING_MEASURED, SourceForecast, WorkerForecast
from shardmerge.worker.daemon.metrics.run_counts import NO_RUNS, RunFigures
from shardmerge.worker.relay.relay import RelayFigures
from shardmerge.worker.replicate.lane_totals import NO_TOTALS, SubTaskTotals


@dataclass(frozen=True, slots=True)
class CompareFigures:
    """The comparisons of one subtask. ``is_running``: one runs now. ``finished``: Unix seconds at which the last one of
    all rows ended, 0.0: none has; ``rows``, ``differences`` (by kind): what the last one of each table has found."""

    is_running: bool = False
    finished: float = 0.0
    rows: int = 0
    differences: Mapping[str, int] = field(default_factory=dict[str, int])


NO_COMPARISON = CompareFigures()


@dataclass(frozen=True, slots=True)
class SubTaskFigures:
    """One subtask. The messages are read, never changed.

    ``copied``: the progress of its history, as last seen; None: it was not copied by this process. ``known_seconds``:
    since the worker has it; since an operator has resumed it, or the worker got its lease back, if that was later.
    ``failures_in_row``, ``resume_seconds``: of its automatic resume. ``chunk_seconds``: since a chunk was committed;
    None: none was by the present unit. ``remaining_seconds``: until it has caught up, None: unknown. ``has_lock``: a
    lock of a sharding DDL of its task exists. ``reader_seconds``: of the readers of all of its copies, by cause.
    ``paused_by_operator``: it shall not run; an error may have stopped it before. ``applied_seconds``: how long ago
    everything was applied that the source had written, also if its lanes do not run; None: unknown.
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
    compared: CompareFigures = NO_COMPARISON
    reader_seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    paused_by_operator: bool = False
    applied_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """The bound source."""

    source: str
    status: worker_pb2.RelayStatus
    relay: RelayFigures
    subtasks: tuple[SubTaskFigures, ...] = ()
    forecast: SourceForecast = NO_FORECAST


@dataclass(frozen=True, slots=True)
class SparkFigures:
    """``executor_slots``: None for Spark within the worker; ``jvm_bytes``: None if the JVM does not run; ``restarts``:
    of the worker in place because the driver was lost."""

    total_slots: int
    free_slots: int
    is_up: bool
    executor_slots: int | None = None
    jvm_bytes: int | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """``now``: on the clock of :class:`shardmerge.worker.replicate.lane_totals.LaneTotals`. ``source``: None while the
    worker is free. ``forecast``: of the worker itself."""

    worker: str
    now: float
    process: ProcessFigures
    is_registered: bool
    spark: SparkFigures
    source: SourceFigures | None = None
    forecast: WorkerForecast = NOTHING_MEASURED

"""A picture of a worker's memory, from which its metrics are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardmerge.proto import compare_pb2 as pb
from shardmerge.proto import worker_pb2
from shardmerge.proto.metrics.process import ProcessFigures
from shardmerge.worker.daemon.forecast.figures import NO_FORECAST, NOTHING_MEASURED, SourceForecast, WorkerForecast
from shardmerge.worker.daemon.metrics.run_counts import NO_RUNS, RunFigures
from shardmerge.worker.relay.relay import RelayFigures
from shardmerge.worker.replicate.lane_totals import NO_TOTALS, SubTaskTotals

_Key = tuple[str, str, str]
_OF_ROWS = ("missing", "extra", "different", "repaired")
"""Kinds that only a comparison of rows counts, and fields of ComparedTable."""


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


@dataclass(frozen=True, slots=True)
class Compared:
    """What the last comparison of each table of a subtask has found.

    ``finished``: Unix seconds of the last comparison of all rows, 0.0: there was none. ``references_finished``: the
    same of all references. A later comparison of some tables replaces what is known about these."""

    finished: float = 0.0
    tables: Mapping[_Key, pb.ComparedTable] = field(default_factory=dict[_Key, pb.ComparedTable])
    references_finished: float = 0.0
    references: Mapping[_Key, pb.ComparedTable] = field(default_factory=dict[_Key, pb.ComparedTable])

    def after(self, request: pb.CompareRequest, found: Sequence[pb.ComparedTable], now: float) -> Compared:
        """What is known after a comparison that was complete. ``now``: Unix seconds."""
        compared = (each for each in found if not each.left_out)
        by_key = {(each.source_table, each.target_table, each.reference): each for each in compared}
        if request.tables:
            # What was not compared this time is as it was. Without a comparison of all tables a part shows nothing.
            by_key = {key: each for key, each in by_key.items() if not each.not_compared}
            if request.references:
                return replace(self, references={**self.references, **by_key}) if self.references_finished else self
            return replace(self, tables={**self.tables, **by_key}) if self.finished else self
        if request.references:
            return replace(self, references=by_key, references_finished=now)
        return replace(self, tables=by_key, finished=now)

    def figures(self) -> CompareFigures:
        """A kind that no comparison has counted is absent."""
        tables, references = self.tables.values(), self.references.values()
        differences: dict[str, int] = {}
        if self.finished:
            differences = {kind: sum(getattr(each, kind) for each in tables) for kind in _OF_ROWS}
        if self.references_finished:
            differences["orphan"] = sum(each.orphans for each in references)
        if self.finished or self.references_finished:
            differences["unjudged"] = sum(each.unjudged for each in (*tables, *references))
        rows = sum(each.rows for each in tables)
        return CompareFigures(finished=self.finished, rows=rows, differences=differences)

"""The progress of a watched task, computed from successive answers. Pure except for the memory of rates."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from shardmerge.ctl.as_json import NOT_RUNNING
from shardmerge.ctl.dm_words import stage_word
from shardmerge.ctl.error_report import ErrorReport
from shardmerge.ctl.render import format
from shardmerge.proto import common_pb2, errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.worker_pb2 import LaneStatus, LoadStatus, StatusWarning, SubTaskStatus, SyncStatus

_WINDOW_SECONDS = 10.0
_HISTORY = 24
_AGE_SECONDS = 3.0
"""An age may be so much too small: commit times are in seconds at MariaDB, and the end of the source's binlog is read
each second."""


class Until(enum.Enum):
    """The state at which watching ends by itself."""

    FINISHED = "finished"
    SYNCED = "synced"


@dataclass(frozen=True, slots=True)
class TableRow:
    """One shard table of a snapshot. ``rate`` in rows/s, ``eta`` in seconds, None when unknown."""

    source_table: str
    target_table: str
    finished_rows: int
    total_rows: int
    rate: float
    eta: float | None
    done: bool


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """A subtask that copies history."""

    source: str
    stage: str
    failed: bool
    finished_rows: int
    total_rows: int
    finished_bytes: int
    total_bytes: int
    rate: float
    eta: float | None
    planning: bool
    activity: str
    tables: tuple[TableRow, ...]

    @property
    def share(self) -> float:
        """0…1, by bytes if the worker knows them, else by rows; never 1 before the end."""
        by_bytes = self.total_bytes > 0
        part = (
            format.share(self.finished_bytes, self.total_bytes)
            if by_bytes
            else format.share(self.finished_rows, self.total_rows)
        )
        return part if self.stage == "Finished" or not self.planning else min(part, 0.999)


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane: ``lag`` in seconds, ``rate`` in rows/s; ``waiting_for``: one phrase, "" while it works. ``lag`` and
    ``bytes_behind``: None when they are not known."""

    number: int
    phase: str
    rows: int
    rate: float
    lag: float | None
    bytes_behind: int | None
    waiting_for: str


@dataclass(frozen=True, slots=True)
class ReplicatePart:
    """A subtask that follows its source. ``lag`` in seconds, ``rates``: rows/s at the last refreshes. ``unknown``: why
    ``lag`` and ``bytes_behind`` are not known (then None), "": they are."""

    source: str
    stage: str
    failed: bool
    synced: bool
    unknown: str
    lag: float | None
    rate: float
    rates: tuple[float, ...]
    bytes_behind: int | None
    total_rows: int
    activity: str
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class IdlePart:
    """A subtask without progress of either unit: new, stopped or not yet asked."""

    source: str
    stage: str
    failed: bool
    activity: str


@dataclass(frozen=True, slots=True)
class Problem:
    """An error of a subtask, of a relay or of the query for them."""

    where: str
    report: ErrorReport


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """The progress in one answer. ``warnings``: each with its source."""

    snapshots: tuple[SnapshotPart, ...]
    replicates: tuple[ReplicatePart, ...]
    idle: tuple[IdlePart, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[tuple[str, StatusWarning], ...] = ()


class RateMemory:
    """Remembers counters of earlier answers, for rates that the worker does not send."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], deque[tuple[float, int]]] = {}
        self._rates: dict[tuple[str, ...], deque[float]] = {}

    def rate(self, key: tuple[str, ...], at: float, count: int) -> float:
        """Growth per second of the counter ``key`` over the last 10 s; 0 while unknown or after a reset."""
        seen = self._counts.setdefault(key, deque())
        if seen and count < seen[-1][1]:
            seen.clear()
        seen.append((at, count))
        # The time before the counter began to move is no measure of its rate.
        while len(seen) > 2 and (seen[0][0] < at - _WINDOW_SECONDS or seen[0][1] == seen[1][1]):
            seen.popleft()
        passed = at - seen[0][0]
        return (count - seen[0][1]) / passed if passed > 0 else 0.0

    def history(self, key: tuple[str, ...], rate: float) -> tuple[float, ...]:
        """The last rates of ``key``, this one included."""
        kept = self._rates.setdefault(key, deque(maxlen=_HISTORY))
        kept.append(rate)
        return tuple(kept)


def subtasks(answer: pb.QueryStatusResponse) -> Iterator[tuple[str, SubTaskStatus]]:
    """Every (source id, subtask) of an answer."""
    for part in answer.sources:
        for status in part.sub_task_status:
            yield part.source_status.source, status


def read(answer: pb.QueryStatusResponse, memory: RateMemory, at: float) -> TaskProgress:
    """The progress in ``answer``, requested at the monotonic time ``at``."""
    snapshots: list[SnapshotPart] = []
    replicates: list[ReplicatePart] = []
    idle: list[IdlePart] = []
    for source, status in subtasks(answer):
        if status.HasField("load"):
            snapshots.append(_snapshot(source, status, status.load, memory, at))
        elif status.HasField("sync"):
            replicates.append(_replicate(source, status, status.sync, memory))
        else:
            idle.append(IdlePart(source, stage_word(status.stage), _is_failed(status), status.waiting_for))
    warnings = ((part.source_status.source, one) for part in answer.sources for one in part.source_status.warnings)
    return TaskProgress(tuple(snapshots), tuple(replicates), tuple(idle), tuple(problems(answer)), tuple(warnings))


def _snapshot(source: str, status: SubTaskStatus, load: LoadStatus, memory: RateMemory, at: float) -> SnapshotPart:
    own = memory.rate((status.name, source), at, load.finished_rows)
    rate = load.rows_per_second or own
    left = max(0, load.total_rows - load.finished_rows)
    eta = float(load.eta_seconds) if load.eta_seconds else left / rate if rate > 0 else None
    return SnapshotPart(
        source=source,
        stage=stage_word(status.stage),
        failed=_is_failed(status),
        finished_rows=load.finished_rows,
        total_rows=load.total_rows,
        finished_bytes=load.finished_bytes,
        total_bytes=load.total_bytes,
        rate=rate,
        eta=eta,
        planning=not load.plan_complete,
        activity=status.waiting_for,
        tables=tuple(_table_rows(source, status, load, memory, at)),
    )


def _table_rows(
    source: str, status: SubTaskStatus, load: LoadStatus, memory: RateMemory, at: float
) -> Iterator[TableRow]:
    for table in load.tables:
        rate = memory.rate((status.name, source, table.source_table), at, table.finished_rows)
        left = max(0, table.total_rows - table.finished_rows)
        # Row totals are estimates: only the chunks show that a table is done.
        done = load.plan_complete and table.finished_chunks == table.total_chunks
        yield TableRow(
            source_table=table.source_table,
            target_table=table.target_table,
            finished_rows=table.finished_rows,
            total_rows=table.total_rows,
            rate=rate,
            eta=0.0 if done else left / rate if rate > 0 else None,
            done=done,
        )


def _replicate(source: str, status: SubTaskStatus, sync: SyncStatus, memory: RateMemory) -> ReplicatePart:
    unknown = unknown_progress(status)
    return ReplicatePart(
        source=source,
        stage=stage_word(status.stage),
        failed=_is_failed(status),
        synced=sync.synced and not unknown,
        unknown=unknown,
        lag=None if unknown else lag_seconds(sync),
        rate=float(sync.recent_rps),
        rates=memory.history((status.name, source), float(sync.recent_rps)),
        bytes_behind=None if unknown else sync.bytes_behind,
        total_rows=sync.total_rows,
        activity=status.waiting_for,
        lanes=tuple(
            Lane(
                number=lane.lane,
                phase=lane.phase,
                rows=lane.rows,
                rate=float(lane.recent_rps),
                lag=None if lane.unknown else lag_seconds(lane),
                bytes_behind=None if lane.unknown else lane.bytes_behind,
                waiting_for=lane.waits_for,
            )
            for lane in sync.lanes
        ),
    )


def lag_seconds(of: SyncStatus | LaneStatus) -> float:
    """The lag of the last applied transaction, or the age of the oldest that is not applied: whichever is greater."""
    return max(of.lag_ms, of.oldest_ms) / 1000


def unknown_progress(status: SubTaskStatus) -> str:
    """Why the lag of the subtask is not known; "": it is known. A worker of the previous version gives no
    reason for a subtask that does not run."""
    idle = status.stage in (common_pb2.STAGE_PAUSED, common_pb2.STAGE_STOPPED)
    return status.sync.unknown or (NOT_RUNNING if idle else "")


def _is_failed(status: SubTaskStatus) -> bool:
    return len(status.result.errors) > 0


def problems(answer: pb.QueryStatusResponse) -> Iterator[Problem]:
    """Errors that block a source: of the query, of its relay, of its subtasks, of sharding DDLs. A conflict of a
    sharding DDL concerns several sources, and is shown once."""
    conflicts: set[str] = set()
    for part in answer.sources:
        source = part.source_status.source
        if part.HasField("error"):
            yield Problem(f"source {source}", ErrorReport.of_detail(part.error))
        elif not part.result:
            refused = errors.ctl.REFUSED(command="query-status", answer=part.msg or "result is false")
            yield Problem(f"source {source}", ErrorReport.of(refused))
        if part.source_status.HasField("result"):
            yield Problem(f"source {source}", ErrorReport.of_detail(part.source_status.result))
        if part.source_status.relay_status.HasField("result"):
            yield Problem(f"relay of {source}", ErrorReport.of_detail(part.source_status.relay_status.result))
        for status in part.sub_task_status:
            for detail in status.result.errors:
                yield Problem(f"task {status.name} on {source}", ErrorReport.of_detail(detail))
            for group in status.sync.unresolved_groups:
                if group.HasField("conflict") and group.conflict.message not in conflicts:
                    conflicts.add(group.conflict.message)
                    yield Problem(f"task {status.name}", ErrorReport.of_detail(group.conflict))


def is_reached(answer: pb.QueryStatusResponse, until: Until, waited: float = 0.0) -> bool:
    """Whether every subtask has reached ``until``; a finished one (task-mode full) counts as synced.

    ``waited``: seconds from the begin of the command to that of this query. A source that never pauses is synced when
    all that it had committed at the begin is applied: then the oldest transaction that is not applied is younger than
    the command.
    """
    seen = [status for _, status in subtasks(answer)]
    if not seen or not answer.result or not all(part.result for part in answer.sources):
        return False
    return all(status.stage == common_pb2.STAGE_FINISHED or _is_synced(status, until, waited) for status in seen)


def _is_synced(status: SubTaskStatus, until: Until, waited: float) -> bool:
    runs = status.stage == common_pb2.STAGE_RUNNING and status.HasField("sync") and not status.sync.unknown
    if until is not Until.SYNCED or not runs:
        return False
    is_younger = status.sync.oldest_ms / 1000 + _AGE_SECONDS < waited
    return status.sync.synced or (status.sync.complete and is_younger)


def unreachable_goal(answer: pb.QueryStatusResponse, until: Until) -> ErrorReport | None:
    """Why ``until`` cannot be reached: a subtask has stopped with an error that is not retried."""
    for source, status in subtasks(answer):
        if status.stage != common_pb2.STAGE_PAUSED:
            continue
        lasting = [detail for detail in status.result.errors if not detail.retryable]
        if lasting:
            return ErrorReport.of(
                errors.ctl.WAITING_IN_VAIN(
                    task=status.name,
                    source=source,
                    until=until.value,
                    stage=stage_word(status.stage),
                    cause=f" by error {lasting[0].code} {lasting[0].name}: {lasting[0].message}",
                    way_out=lasting[0].workaround or f"correct the cause, then resume-task {status.name}",
                )
            )
    return None

"""What `query-status` says of the lanes: lag, bytes behind, rates, phases and what each lane waits for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proto import worker_pb2
from proto.relay_pb2 import LaneReport
from worker.ddl.routed import shown
from worker.position import RelayOffset, SourcePosition
from worker.relay.model import Head, Statement
from worker.replicate.board import LaneView, committed
from worker.replicate.lag import Applied, age_ms, unfetched_bytes, worst_lag_ms
from worker.replicate.reporter import LanePhase

_SILENCE_SAID_SECONDS = 5.0
_LONG_SECONDS = 2.0
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the lanes are measured by, at Unix time ``now``, ``elapsed`` seconds after they were started.

    ``source_end``: where the source's binlog ends, as last seen. ``unfetched_since``: Unix time at which something
    behind ``head`` was first seen there, None: nothing is. ``bytes_behind`` and ``first_commit_behind``: of the relay
    log, from an offset on (see Relay.bytes_between and Relay.commit_time_behind).
    """

    now: float
    elapsed: float
    head: Head
    source_end: SourcePosition
    unfetched_since: float | None
    bytes_behind: Callable[[RelayOffset], int]
    first_commit_behind: Callable[[RelayOffset], float | None]


def sync_status(lanes: Sequence[LaneView], around: Surroundings, held_keys: int = 0) -> worker_pb2.SyncStatus:
    """The replicate unit's status. ``held_keys``: whose changes wait in the quarantine."""
    made = [_lane(view, around) for view in lanes]
    reports = [view.report for view in lanes if view.report is not None]
    places = [(at, report) for report in reports if (at := committed(report)) is not None]
    drained = len(places) == len(lanes) and all(at >= around.head.offset for at, _ in places)
    known = bool(around.source_end.file)  # not before the source's first answer
    caught_up = known and around.head.position.reaches(around.source_end)
    total = sum(report.rows for report in reports)
    oldest = max((lane.oldest_ms for lane in made), default=0.0)
    if around.unfetched_since is not None:
        oldest = max(oldest, (around.now - around.unfetched_since) * 1000)
    status = worker_pb2.SyncStatus(
        total_rows=total,
        total_rps=round(total / max(around.elapsed, 0.001)),
        recent_rps=round(sum(view.recent_rps for view in lanes)),
        master_binlog=str(around.source_end),
        master_binlog_gtid=around.source_end.gtid_set,
        synced=drained and caught_up and not held_keys,
        held_keys=held_keys,
        binlog_type="relay",
        bytes_behind=max((lane.bytes_behind for lane in made), default=0)
        + unfetched_bytes(around.head.position, around.source_end),
        lag_ms=worst_lag_ms(Applied(report.commit_time, report.applied_time) for report in reports),
        oldest_ms=oldest,
        seconds_behind_master=oldest / 1000,
        lanes=made,
    )
    if places:
        _, slowest = min(places, key=lambda place: place[0])
        status.syncer_binlog = str(SourcePosition.from_proto(slowest.position))
        status.syncer_binlog_gtid = slowest.position.gtid_set
    return status


def doing(lanes: Sequence[LaneView]) -> str:
    """One phrase for all lanes: of the one that is worst off; "" while they work or wait for events."""
    for phase in (LanePhase.RETRYING, LanePhase.BARRIER, LanePhase.COMMITTING, LanePhase.STARTING):
        for view in lanes:
            said = waits_for(view)
            if said and _phase(view) == phase and (phase is not LanePhase.COMMITTING or _long(view)):
                return f"lane {view.lane}: {said}"
    return ""


def waits_for(view: LaneView) -> str:
    """What a lane waits for, in one phrase; "" when it is at work."""
    report = view.report
    if report is None:
        return "its Spark task to start"
    if view.silent_seconds > _SILENCE_SAID_SECONDS:
        return f"a sign of life, for {view.silent_seconds:.0f} s"
    match report.phase:
        case LanePhase.STARTING:
            return "the target and its checkpoint there"
        case LanePhase.READING:
            return "events"
        case LanePhase.COMMITTING:
            return f"the target, which has been committing for {report.phase_seconds:.0f} s{_held_back(report)}"
        case LanePhase.RETRYING:
            errno = report.retrying.args.get("errno", "")
            number = f"errno {errno}" if errno else f"error {report.retrying.code}"
            return f"attempt {report.attempt} after {number}, {report.retrying.name}{_held_back(report)}"
        case LanePhase.BARRIER:
            if not isinstance(view.barrier, Statement):
                return "every lane to reach the barrier"
            return f"every lane to reach the barrier before: {shown(view.barrier)[:_SHOWN_CHARACTERS]}"
        case _:
            return ""


def _held_back(report: LaneReport) -> str:
    return "; the stream is held back" if report.held_back else ""


def _long(view: LaneView) -> bool:
    return view.report is not None and view.report.phase_seconds + view.silent_seconds >= _LONG_SECONDS


def _phase(view: LaneView) -> str:
    return view.report.phase if view.report is not None else LanePhase.STARTING


def _lane(view: LaneView, around: Surroundings) -> worker_pb2.LaneStatus:
    report = view.report
    status = worker_pb2.LaneStatus(lane=view.lane, phase=_phase(view), waits_for=waits_for(view))
    if report is None:
        status.phase_seconds = view.silent_seconds
        return status
    at = committed(report)
    status.rows = report.rows
    status.recent_rps = round(view.recent_rps)
    status.lag_ms = Applied(report.commit_time, report.applied_time).lag_ms
    status.phase_seconds = report.phase_seconds + view.silent_seconds
    if at is not None:
        status.committed.CopyFrom(at.to_proto())
        if at < around.head.offset:
            status.bytes_behind = around.bytes_behind(at)
            status.oldest_ms = age_ms(around.now, around.first_commit_behind(at), report.position_time)
    if report.HasField("retrying"):
        status.attempt = report.attempt
        status.error.CopyFrom(report.retrying)
    return status

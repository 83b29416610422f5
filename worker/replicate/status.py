"""Computes what `query-status` shows about lanes: lag, bytes behind, rates, phases, what each waits for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardmerge.proto import worker_pb2
from shardmerge.proto.relay_pb2 import LaneReport
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.ddl.decide.routed_statements import short_text
from shardmerge.worker.relay.model import Head, Statement
from shardmerge.worker.replicate.lag import AppliedTransaction, age_ms, unfetched_bytes, worst_lag_ms
from shardmerge.worker.replicate.lane.reporter import LanePhase
from shardmerge.worker.replicate.lane_coordinator import LaneState, committed

_SILENCE_SHOWN_SECONDS = 5.0
_RECENT_SECONDS = 10.0
_COMPARED_SECONDS = 3.0
_LONG_SECONDS = 2.0
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """The values from which the status is computed, ``elapsed`` seconds after the lanes' start.

    ``now``: Unix time of the source's clock, which is ``source_ahead`` seconds ahead of the lanes'. ``source_end``: the
    end of the source's binlog, as last seen. ``unfetched_seconds``: since when an end after ``head`` has been seen
    there, None: there is none. ``bytes_behind`` and ``next_commit_time``: of the relay log,
    from an offset on (see Relay.bytes_between and Relay.next_commit_time). ``source_unknown``: why ``head`` and
    ``source_end`` may be out of date, "": they are not. ``source_age``: seconds since ``source_end`` was read.
    ``target_waits``: what a lane's statement at the target waits
    for, "": not known.
    """

    now: float
    elapsed: float
    head: Head
    source_end: SourcePosition
    unfetched_seconds: float | None
    bytes_behind: Callable[[RelayOffset], int]
    next_commit_time: Callable[[RelayOffset], float | None]
    source_unknown: str = ""
    source_age: float = 0.0
    source_ahead: float = 0.0
    target_waits: Callable[[int], str] = lambda lane: ""


def sync_status(lanes: Sequence[LaneState], around: StatusInputs, held_keys: int = 0) -> worker_pb2.SyncStatus:
    """The replicate unit's status. ``held_keys``: the number of keys whose changes wait in the quarantine."""
    made = [_lane(view, around) for view in lanes]
    unknown = around.source_unknown or _unknown_lanes(made)
    reports = [view.report for view in lanes if view.report is not None]
    places = [(at, report) for report in reports if (at := committed(report)) is not None]
    drained = len(places) == len(lanes) and all(at >= around.head.offset for at, _ in places)
    known = bool(around.source_end.file)  # not before the source's first answer
    caught_up = known and around.head.position.reaches(around.source_end)
    total = sum(report.rows for report in reports)
    oldest = max((lane.oldest_ms for lane in made), default=0.0)
    if around.unfetched_seconds is not None:
        oldest = max(oldest, around.unfetched_seconds * 1000)
    status = worker_pb2.SyncStatus(
        total_rows=total,
        total_rps=round(total / max(around.elapsed, 0.001)),
        recent_rps=round(sum(view.recent_rps for view in lanes)),
        master_binlog=str(around.source_end),
        master_binlog_gtid=around.source_end.gtid_set,
        synced=drained and caught_up and not held_keys and not unknown,
        held_keys=held_keys,
        complete=not held_keys and not unknown,
        binlog_type="relay",
        unknown=unknown,
        lanes=made,
    )
    if not unknown:
        status.bytes_behind = max((lane.bytes_behind for lane in made), default=0) + unfetched_bytes(
            around.head.position, around.source_end
        )
        worst = worst_lag_ms(
            _applied(view.report, around) for view in lanes if view.report is not None and _is_recent(view)
        )
        # 0 only if it was compared with the present end of the source's binlog, which is read every second.
        uncompared = around.source_age * 1000 if around.source_age > _COMPARED_SECONDS else 0.0
        status.lag_ms = max(worst, oldest, uncompared)
        status.oldest_ms = oldest
        status.seconds_behind_master = oldest / 1000
    if places:
        _, slowest = min(places, key=lambda place: place[0])
        # The source skips events that the relay log has: these move the position of its head without another offset.
        applied = around.head.position if drained else SourcePosition.from_proto(slowest.position)
        status.syncer_binlog = str(applied)
        status.syncer_binlog_gtid = applied.gtid_set
    return status


def without_progress(status: worker_pb2.SyncStatus, why: str) -> worker_pb2.SyncStatus:
    """``status`` as it is when no lane applies changes: the lag of the subtask is not known any more."""
    status.unknown = why
    status.synced = status.complete = False
    for name in ("bytes_behind", "lag_ms", "oldest_ms", "seconds_behind_master", "recent_rps"):
        status.ClearField(name)
    del status.lanes[:]
    return status


def _unknown_lanes(lanes: Sequence[worker_pb2.LaneStatus]) -> str:
    if not lanes:
        return "its lanes have not started"
    return next((f"lane {lane.lane} {lane.unknown}" for lane in lanes if lane.unknown), "")


def _is_recent(view: LaneState) -> bool:
    """Whether its last transaction was applied in the last seconds. An older lag is no longer the present one: what
    the lane has not applied since then has an age."""
    return view.applied_seconds <= _RECENT_SECONDS


def lanes_activity(lanes: Sequence[LaneState], target_waits: Callable[[int], str] = lambda lane: "") -> str:
    """One phrase for all lanes, about the one with the most severe problem; "" while they work or wait for events."""
    for view in lanes:
        if view.silent_seconds > _SILENCE_SHOWN_SECONDS:
            return f"lane {view.lane}: {waiting_for(view)}"
    for phase in (LanePhase.RETRYING, LanePhase.BARRIER, LanePhase.COMMITTING, LanePhase.STARTING):
        for view in lanes:
            phrase = waiting_for(view, target_waits)
            if phrase and _phase(view) == phase and (phase is not LanePhase.COMMITTING or _long(view)):
                return f"lane {view.lane}: {phrase}"
    return ""


def waiting_for(view: LaneState, target_waits: Callable[[int], str] = lambda lane: "") -> str:
    """What a lane waits for, in one phrase; "" while it works. ``target_waits``: see StatusInputs."""
    report = view.report
    if report is None:
        return "its Spark task to start"
    if view.silent_seconds > _SILENCE_SHOWN_SECONDS:
        return f"a sign of life, for {view.silent_seconds:.0f} s"
    match report.phase:
        case LanePhase.STARTING:
            return "the target and its checkpoint there"
        case LanePhase.READING:
            return "events"
        case LanePhase.COMMITTING:
            found = target_waits(view.lane)
            blocked = f" and waits for {found}" if found else ""
            seconds = f"{report.phase_seconds:.0f}"
            return f"the target, which has been committing for {seconds} s{blocked}{_held_back(report)}"
        case LanePhase.RETRYING:
            errno = report.retrying.args.get("errno", "")
            number = f"errno {errno}" if errno else f"error {report.retrying.code}"
            found = target_waits(view.lane)
            blocked = f"; it waits for {found}" if found else ""
            return f"attempt {report.attempt} after {number}, {report.retrying.name}{blocked}{_held_back(report)}"
        case LanePhase.BARRIER:
            if not isinstance(view.barrier, Statement):
                return "every lane to reach the barrier"
            return f"every lane to reach the barrier before: {short_text(view.barrier)[:_SHOWN_CHARACTERS]}"
        case _:
            return ""


def _held_back(report: LaneReport) -> str:
    return "; the stream is held back" if report.held_back else ""


def _long(view: LaneState) -> bool:
    return view.report is not None and view.report.phase_seconds + view.silent_seconds >= _LONG_SECONDS


def _phase(view: LaneState) -> str:
    return view.report.phase if view.report is not None else LanePhase.STARTING


def _lane(view: LaneState, around: StatusInputs) -> worker_pb2.LaneStatus:
    report = view.report
    status = worker_pb2.LaneStatus(
        lane=view.lane, phase=_phase(view), waits_for=waiting_for(view, around.target_waits), unknown=_unknown(view)
    )
    if report is None:
        status.phase_seconds = view.silent_seconds
        return status
    at = committed(report)
    status.rows = report.rows
    status.recent_rps = round(view.recent_rps)
    status.phase_seconds = report.phase_seconds + view.silent_seconds
    if at is not None:
        status.committed.CopyFrom(at.to_proto())
        if at < around.head.offset and not status.unknown:
            status.bytes_behind = around.bytes_behind(at)
            status.oldest_ms = age_ms(around.now, around.next_commit_time(at), report.position_time)
    if not status.unknown:
        status.lag_ms = max(_applied(report, around).lag_ms if _is_recent(view) else 0.0, status.oldest_ms)
    if report.HasField("retrying"):
        status.attempt = report.attempt
        status.error.CopyFrom(report.retrying)
    return status


def _applied(report: LaneReport, around: StatusInputs) -> AppliedTransaction:
    return AppliedTransaction(report.commit_time, report.applied_time and report.applied_time + around.source_ahead)


def _unknown(view: LaneState) -> str:
    """Why it is not known how far the lane is; "": it is known."""
    if view.report is None:
        return "has not started"
    if view.silent_seconds > _SILENCE_SHOWN_SECONDS:
        return f"has not reported for {view.silent_seconds:.0f} s"
    if committed(view.report) is None:
        return "has not read its checkpoint at the target"
    return ""

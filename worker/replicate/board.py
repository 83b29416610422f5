"""What the driver knows of its lanes: their reports, who has reached the barrier, who went away."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from proto import common_pb2, errors, relay_pb2, worker_pb2
from proto.errors import ShardmergeError
from worker.position import RelayOffset, SourcePosition
from worker.relay.model import Head, Statement
from worker.unit import StopSignal


@dataclass(frozen=True, slots=True)
class BarrierReached:
    """Every lane has committed everything before the statement, and nothing after it."""

    statement: Statement


@dataclass(frozen=True, slots=True)
class LaneGone:
    """A lane's stream ended though nobody asked for it."""

    error: ShardmergeError


Event = BarrierReached | LaneGone


class LaneBoard:
    """Shared by the lane service's threads (reports, streams) and the unit's (decisions).

    One lock, held briefly; :attr:`stop` ends this run's streams.
    """

    def __init__(self, task: str, source: str, epoch: int, lanes: int, stop: StopSignal) -> None:
        self.task = task
        self.source = source
        self.epoch = epoch
        self.lanes = lanes
        self.stop = stop
        self._lock = threading.Lock()
        self._reports: dict[int, relay_pb2.LaneReport] = {}
        self._statements: dict[int, Statement] = {}
        self._event: Event | None = None
        self._started_at = time.monotonic()
        self._heard = dict.fromkeys(range(lanes), self._started_at)
        self._recent: list[tuple[float, int]] = []

    def report(self, report: relay_pb2.LaneReport) -> bool:
        """Take a lane's report; True tells the lane to stop."""
        if report.HasField("failed"):
            self.gone(report.who.index)
            return True
        with self._lock:
            self._reports[report.who.index] = report
            self._heard[report.who.index] = time.monotonic()
            self._recent.append((time.monotonic(), self._total_rows()))
            del self._recent[:-_RECENT_REPORTS]
            self._judge_barrier()
        return self.stop.is_set

    def barrier(self, statement: Statement) -> int:
        """A stream stands before ``statement``: the barrier's number, the same for every lane."""
        number = (statement.group_start.segment << 40) + statement.group_start.byte
        with self._lock:
            self._statements[number] = statement
            self._judge_barrier()
        return number

    def gone(self, lane: int) -> None:
        """A lane's stream was closed by the lane's side: its process ended or failed."""
        with self._lock:
            if self._event is None and not self.stop.is_set:
                self._event = LaneGone(errors.worker.LANE_STOPPED(lane=lane, task=self.task, source=self.source))
        self.stop.set()

    def watch(self) -> None:
        """Until the streams are stopped: notice a lane that says nothing (frozen, or it never reached the worker).

        Lanes report four times a second whatever they are doing. To be run in a thread of its own.
        """
        while not self.stop.wait(_WATCH_SECONDS):
            now = time.monotonic()
            with self._lock:
                silent = [lane for lane, heard in self._heard.items() if now - heard > _SILENCE_SECONDS]
            if silent:
                self.gone(silent[0])

    @property
    def event(self) -> Event | None:
        """Why the streams were stopped by this side, if they were."""
        with self._lock:
            return self._event

    def _judge_barrier(self) -> None:
        numbers = {report.barrier for report in self._reports.values()}
        if len(self._reports) == self.lanes and len(numbers) == 1 and self._event is None:
            statement = self._statements.get(numbers.pop())
            if statement is not None:
                self._event = BarrierReached(statement)
                self.stop.set()

    def _total_rows(self) -> int:
        return sum(report.rows for report in self._reports.values())

    def lowest(self) -> RelayOffset | None:
        """The lowest committed offset; None until every lane has reported (I7: purge asks for it)."""
        with self._lock:
            if len(self._reports) < self.lanes:
                return None
            return min(RelayOffset.from_proto(report.committed) for report in self._reports.values())

    def status(self, head: Head, source_position: SourcePosition, bytes_between: int) -> worker_pb2.SyncStatus:
        """``head``: the relay's end; ``source_position``: the source's own; ``bytes_between``: from the
        slowest lane to the head."""
        with self._lock:
            reports = sorted(self._reports.values(), key=lambda report: report.who.index)
            total = self._total_rows()
            recent = list(self._recent)
        now = time.monotonic()
        committed = [RelayOffset.from_proto(report.committed) for report in reports]
        drained = len(reports) == self.lanes and all(offset >= head.offset for offset in committed)
        known = bool(source_position.file)  # not before the source's first answer
        caught_up = known and head.position.file_order() >= source_position.file_order()
        slowest = min(reports, key=lambda report: (report.committed.segment, report.committed.byte), default=None)
        status = worker_pb2.SyncStatus(
            total_rows=total,
            total_rps=round(total / max(now - self._started_at, 0.001)),
            recent_rps=_recent_rate(recent, now, total),
            master_binlog=str(source_position),
            master_binlog_gtid=source_position.gtid_set,
            synced=drained and caught_up,
            binlog_type="relay",
            bytes_behind=bytes_between,
        )
        if slowest is not None:
            status.syncer_binlog = str(SourcePosition.from_proto(slowest.position))
            status.syncer_binlog_gtid = slowest.position.gtid_set
        if not drained:
            # Lag of what is not applied yet is at least its age; the lanes' last commits say the rest.
            behind = [time.time() - report.commit_time for report in reports if report.commit_time]
            status.seconds_behind_master = max((value for value in behind if value > 0), default=0.0)
        for report in reports:
            lag = (report.applied_time - report.commit_time) * 1000 if report.applied_time else 0.0
            status.lanes.append(
                worker_pb2.LaneStatus(
                    lane=report.who.index,
                    phase=report.phase,
                    committed=common_pb2.RelayOffset(segment=report.committed.segment, byte=report.committed.byte),
                    rows=report.rows,
                    lag_ms=max(lag, 0.0),
                )
            )
        return status


_RECENT_REPORTS = 80
_WATCH_SECONDS = 1.0
_SILENCE_SECONDS = 120.0  # a busy machine may need most of a minute to start a Python process
_RECENT_SECONDS = 5.0


def _recent_rate(recent: list[tuple[float, int]], now: float, total: int) -> int:
    window = [(at, rows) for at, rows in recent if now - at <= _RECENT_SECONDS]
    if not window:
        return 0
    at, rows = window[0]
    return round((total - rows) / max(now - at, 0.25))

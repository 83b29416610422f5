"""Coordinates the lanes of one run: collects their reports, brings them to barriers, notices lanes that are lost.

At a barrier every stream waits. When every lane has committed everything before it, the driver acts, and then either
resumes all streams (:meth:`LaneCoordinator.resume`) or ends them (:meth:`LaneCoordinator.refuse`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from shardmerge.proto import errors, relay_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_from_proto
from shardmerge.proto.tracing.spans import begin_span
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.replicate.alignment import AlignmentPoint
from shardmerge.worker.replicate.bounds.stream_limit import StreamLimit

_WATCH_SECONDS = 1.0
_SILENCE_SECONDS = 120.0  # a busy machine may need most of a minute to start a Python process
_RECENT_SECONDS = 5.0
_LEAST_SECONDS = 0.25  # lanes report that often


@dataclass(frozen=True, slots=True)
class BarrierFailure:
    """The lanes cannot continue after a barrier."""

    error: ShardmergeError


@dataclass(frozen=True, slots=True)
class LaneGone:
    """A lane's stream ended although the driver had not stopped it."""

    error: ShardmergeError


Event = BarrierFailure | LaneGone

BarrierPlace = Statement | AlignmentPoint
"""Where streams wait: right before a statement, or at an alignment."""


def committed(report: relay_pb2.LaneReport | None) -> RelayOffset | None:
    """The offset that a lane reports as committed; None before it has read its checkpoint."""
    if report is None or not report.HasField("committed"):
        return None
    return RelayOffset.from_proto(report.committed)


@dataclass(frozen=True, slots=True)
class LaneState:
    """The state of a lane as the driver knows it now.

    ``report``: its last one, None before the first. ``silent_seconds``: since then. ``recent_rps``: rows/s over the
    last seconds. ``barrier``: where it waits, None while it does not. ``applied_seconds``: since a report with a newer
    transaction arrived; measured here, because the lane's clock may be another one.
    """

    lane: int
    report: relay_pb2.LaneReport | None
    silent_seconds: float
    recent_rps: float
    barrier: BarrierPlace | None
    applied_seconds: float = 0.0


@dataclass(slots=True)
class _LaneReports:
    """The last report of a lane. ``recent``: (time, rows applied by then), of the last seconds. ``applied_at``: when
    the first report with the last applied transaction arrived."""

    at: float
    report: relay_pb2.LaneReport | None = None
    applied_at: float = 0.0
    recent: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])

    def add(self, report: relay_pb2.LaneReport, at: float) -> None:
        if self.report is None or report.applied_time != self.report.applied_time:
            self.applied_at = at
        self.at, self.report = at, report
        self.recent.append((at, report.rows))
        # One sample older than the window stays: the rate is measured from it.
        while len(self.recent) > 2 and at - self.recent[1][0] > _RECENT_SECONDS:
            self.recent.popleft()

    def rate(self, now: float) -> float:
        if not self.recent or now - self.at > _RECENT_SECONDS:
            return 0.0
        at, rows = self.recent[0]
        # A lane that was restarted counts from 0 again.
        return max(self.recent[-1][1] - rows, 0) / max(now - at, _LEAST_SECONDS)


class LaneCoordinator:
    """Shared by the task service's threads (reports, streams) and the unit's (decisions).

    ``until``: where the lanes' streams end, None: nowhere; ``stream_limit``: may end them earlier. One lock, held
    briefly; :attr:`stop` ends this run's streams.
    """

    def __init__(
        self,
        task: str,
        source: str,
        epoch: int,
        lanes: int,
        stop: StopSignal,
        until: RelayOffset | None = None,
        stream_limit: StreamLimit | None = None,
        stream: Stream = Stream.MAIN,
    ) -> None:
        self.task = task
        self.source = source
        self.epoch = epoch
        self.lanes = lanes
        self.stream = stream
        self.stop = stop
        self.started_at = time.monotonic()
        self._until = until
        self._stream_limit = stream_limit
        self._lock = threading.Condition()
        self._reports = {lane: _LaneReports(self.started_at) for lane in range(lanes)}
        self._places: dict[int, BarrierPlace] = {}
        self._reached: BarrierPlace | None = None
        self._resumed: dict[int, bytes] = {}
        self._event: Event | None = None
        self._starting = {lane: begin_span("lane start", task=task, source=source) for lane in range(lanes)}
        stop.call_when_set(self._wake)

    def report(self, report: relay_pb2.LaneReport) -> bool:
        """Record a lane's report; True: the lane has to stop."""
        heard = self._reports.get(report.who.index)
        if heard is None:
            return True
        if report.HasField("failed"):
            self.lane_gone(report.who.index, error_from_proto(report.failed))
            return True
        if heard.report is None:
            self._first_report(report.who.index)
        with self._lock:
            heard.add(report, time.monotonic())
            self._check_barrier()
        return self.stop.is_set

    def _first_report(self, lane: int) -> None:
        starting = self._starting.pop(lane, None)
        if starting is not None:
            starting.end()

    def barrier(self, place: BarrierPlace) -> int:
        """Record that a stream waits at ``place``; returns the barrier's number, the same for every lane."""
        number = _number(place)
        with self._lock:
            self._places[number] = place
            self._check_barrier()
        return number

    def wait_resumed(self, number: int, seconds: float) -> bytes | None:
        """Wait up to ``seconds`` for the change with which streams continue after barrier ``number``; None: not yet, or
        :attr:`stop` is set."""
        with self._lock:
            self._lock.wait_for(lambda: number in self._resumed or self.stop.is_set, seconds)
            return self._resumed.get(number)

    def wait_reached(self, seconds: float) -> BarrierPlace | None:
        """Wait up to ``seconds`` for a barrier before which every lane has committed everything; None: not yet, or
        :attr:`stop` is set."""
        with self._lock:
            self._lock.wait_for(lambda: self._reached is not None or self.stop.is_set, seconds)
            return self._reached

    def _wake(self) -> None:
        with self._lock:
            self._lock.notify_all()

    def resume(self, place: BarrierPlace, change: bytes) -> None:
        """Resume all streams after the barrier at ``place``, with ``change``."""
        with self._lock:
            self._reached = None
            # Only the last barrier's change is kept: a lane at the next barrier has resumed from this one.
            self._resumed = {_number(place): change}
            self._lock.notify_all()

    def refuse(self, error: ShardmergeError) -> None:
        """End all streams: the lanes cannot continue."""
        with self._lock:
            if self._event is None:
                self._event = BarrierFailure(error)
        self.stop.set()

    def lane_gone(self, lane: int, cause: ShardmergeError | None = None) -> None:
        """End all streams because a lane's stream has ended. ``cause``: why, None: its process ended or failed."""
        with self._lock:
            if self._event is None and not self.stop.is_set:
                if cause is None or cause.spec is errors.worker.STREAM_LOST:
                    cause = self._lost(lane, "its process or its connection to the worker has ended")
                self._event = LaneGone(cause)
        self.stop.set()

    def _lost(self, lane: int, reason: str) -> ShardmergeError:
        """The error for a lane that has not reported why it ends. What it last retried is most likely the reason."""
        heard = self._reports[lane].report if lane in self._reports else None
        if heard is not None and heard.HasField("retrying"):
            before = error_from_proto(heard.retrying)
            reason = f"{reason}; before that it tried again because of {before} (what to do: {before.workaround})"
        return errors.worker.LANE_STOPPED(lane=lane, task=self.task, source=self.source, reason=reason)

    def watch(self) -> None:
        """Until the streams are stopped, notice a lane that does not report (frozen, or it never reached the worker).

        Lanes report four times a second whatever they do. Runs in a thread of its own.
        """
        while not self.stop.wait(_WATCH_SECONDS):
            now = time.monotonic()
            with self._lock:
                silent = [
                    lane
                    for lane, heard in self._reports.items()
                    if now - heard.at > _SILENCE_SECONDS and not self._has_ended(heard.report)
                ]
            if silent:
                with self._lock:
                    lost = self._lost(silent[0], f"it has not reported for {_SILENCE_SECONDS:.0f} s")
                self.lane_gone(silent[0], lost)

    @property
    def event(self) -> Event | None:
        """Why this side stopped the streams; None: it did not."""
        with self._lock:
            return self._event

    def _check_barrier(self) -> None:
        """Record the barrier at which all lanes wait, except those whose stream has ended before it."""
        reports = [heard.report for heard in self._reports.values()]
        # A lane may wait at an alignment right where the stream ends, if the end was not known when it arrived.
        open_ones = [
            report for report in reports if report is not None and (report.barrier or not self._has_ended(report))
        ]
        numbers = {report.barrier for report in open_ones}
        if None not in reports and len(numbers) == 1 and self._event is None:
            number = numbers.pop()
            place = self._places.get(number)
            if place is not None and number not in self._resumed:
                self._reached = place
                self._lock.notify_all()

    def _has_ended(self, report: relay_pb2.LaneReport | None) -> bool:
        at = committed(report)
        ends = (self._until, self._stream_limit.found if self._stream_limit is not None else None)
        return at is not None and any(end is not None and at >= end for end in ends)

    def lowest(self) -> RelayOffset | None:
        """The lowest committed offset; None until every lane has reported (I7: a purge needs it)."""
        with self._lock:
            offsets = [committed(heard.report) for heard in self._reports.values()]
        known = [offset for offset in offsets if offset is not None]
        return min(known) if len(known) == len(offsets) else None

    def views(self) -> tuple[LaneState, ...]:
        """Every lane, by number."""
        now = time.monotonic()
        with self._lock:
            return tuple(
                LaneState(
                    lane,
                    heard.report,
                    now - heard.at,
                    heard.rate(now),
                    self._places.get(heard.report.barrier) if heard.report is not None else None,
                    now - heard.applied_at,
                )
                for lane, heard in sorted(self._reports.items())
            )


def _number(place: BarrierPlace) -> int:
    if isinstance(place, Statement):
        return (place.offset.segment << 40) + place.offset.byte
    return _ALIGNMENT | place.number


_ALIGNMENT = 1 << 63

"""What the driver knows of its lanes: their reports, who has reached the barrier, who went away.

At a barrier every stream waits. When every lane has committed what lies before it, the driver acts, and then either
lets all streams go on (:meth:`LaneBoard.resume`) or ends them (:meth:`LaneBoard.refuse`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from proto import errors, relay_pb2
from proto.errors import ShardmergeError
from worker.gate import Gate
from worker.position import RelayOffset
from worker.relay.model import Statement
from worker.replicate.meeting import MeetingPlace
from worker.replicate.stream import Stream
from worker.unit import StopSignal

_WATCH_SECONDS = 1.0
_SILENCE_SECONDS = 120.0  # a busy machine may need most of a minute to start a Python process
_RECENT_SECONDS = 5.0
_LEAST_SECONDS = 0.25  # lanes report that often


@dataclass(frozen=True, slots=True)
class Refused:
    """The lanes cannot go on behind a barrier."""

    error: ShardmergeError


@dataclass(frozen=True, slots=True)
class LaneGone:
    """A lane's stream ended though nobody asked for it."""

    error: ShardmergeError


Event = Refused | LaneGone

Place = Statement | MeetingPlace
"""Where streams wait: right before a statement, or at a meeting."""


def committed(report: relay_pb2.LaneReport | None) -> RelayOffset | None:
    """What a lane says it has committed; None before it knows."""
    if report is None or not report.HasField("committed"):
        return None
    return RelayOffset.from_proto(report.committed)


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane as the driver sees it now.

    ``report``: its last one, None before the first. ``silent_seconds``: since then. ``recent_rps``: rows/s over the
    last seconds. ``barrier``: where it stands and waits.
    """

    lane: int
    report: relay_pb2.LaneReport | None
    silent_seconds: float
    recent_rps: float
    barrier: Place | None


@dataclass(slots=True)
class _Heard:
    """``recent``: when how many rows had been applied."""

    at: float
    report: relay_pb2.LaneReport | None = None
    recent: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])

    def take(self, report: relay_pb2.LaneReport, at: float) -> None:
        self.at, self.report = at, report
        self.recent.append((at, report.rows))
        # One older than the window stays: from it on the rate is measured.
        while len(self.recent) > 2 and at - self.recent[1][0] > _RECENT_SECONDS:
            self.recent.popleft()

    def rate(self, now: float) -> float:
        if not self.recent or now - self.at > _RECENT_SECONDS:
            return 0.0
        at, rows = self.recent[0]
        # A lane that was restarted counts from 0 again.
        return max(self.recent[-1][1] - rows, 0) / max(now - at, _LEAST_SECONDS)


class LaneBoard:
    """Shared by the lane service's threads (reports, streams) and the unit's (decisions).

    ``until``: where the lanes' streams end, None: nowhere; ``gate``: they may end before. One lock, held briefly;
    :attr:`stop` ends this run's streams.
    """

    def __init__(
        self,
        task: str,
        source: str,
        epoch: int,
        lanes: int,
        stop: StopSignal,
        until: RelayOffset | None = None,
        gate: Gate | None = None,
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
        self._gate = gate
        self._lock = threading.Condition()
        self._heard = {lane: _Heard(self.started_at) for lane in range(lanes)}
        self._places: dict[int, Place] = {}
        self._reached: Place | None = None
        self._passed: dict[int, bytes] = {}
        self._event: Event | None = None

    def report(self, report: relay_pb2.LaneReport) -> bool:
        """Take a lane's report; True tells the lane to stop."""
        heard = self._heard.get(report.who.index)
        if heard is None:
            return True
        if report.HasField("failed"):
            self.gone(report.who.index)
            return True
        with self._lock:
            heard.take(report, time.monotonic())
            self._judge_barrier()
        return self.stop.is_set

    def barrier(self, place: Place) -> int:
        """A stream stands at ``place``: the barrier's number, the same for every lane."""
        number = _number(place)
        with self._lock:
            self._places[number] = place
            self._judge_barrier()
        return number

    def resumed(self, number: int, seconds: float) -> bytes | None:
        """The change that a stream is to go on with behind barrier ``number``; None: not yet, after ``seconds``."""
        with self._lock:
            self._lock.wait_for(lambda: number in self._passed, seconds)
            return self._passed.get(number)

    def reached(self, seconds: float) -> Place | None:
        """Where every lane stands with everything before it committed; None: nowhere, after ``seconds``."""
        with self._lock:
            self._lock.wait_for(lambda: self._reached is not None, seconds)
            return self._reached

    def resume(self, place: Place, change: bytes) -> None:
        """What was to be done there is done: all streams go on."""
        with self._lock:
            self._reached = None
            # The last one's is enough: whoever comes to the next has passed it.
            self._passed = {_number(place): change}
            self._lock.notify_all()

    def refuse(self, error: ShardmergeError) -> None:
        """The lanes cannot go on: all streams end."""
        with self._lock:
            if self._event is None:
                self._event = Refused(error)
        self.stop.set()

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
                silent = [
                    lane
                    for lane, heard in self._heard.items()
                    if now - heard.at > _SILENCE_SECONDS and not self._is_through(heard.report)
                ]
            if silent:
                self.gone(silent[0])

    @property
    def event(self) -> Event | None:
        """Why the streams were stopped by this side, if they were."""
        with self._lock:
            return self._event

    def _judge_barrier(self) -> None:
        """Whether every lane stands before the same statement, but for those whose stream has ended before it."""
        reports = [heard.report for heard in self._heard.values()]
        open_ones = [report for report in reports if report is not None and not self._is_through(report)]
        numbers = {report.barrier for report in open_ones}
        if None not in reports and len(numbers) == 1 and self._event is None:
            number = numbers.pop()
            place = self._places.get(number)
            if place is not None and number not in self._passed:
                self._reached = place
                self._lock.notify_all()

    def _is_through(self, report: relay_pb2.LaneReport | None) -> bool:
        at = committed(report)
        ends = (self._until, self._gate.found if self._gate is not None else None)
        return at is not None and any(end is not None and at >= end for end in ends)

    def lowest(self) -> RelayOffset | None:
        """The lowest committed offset; None until every lane has reported (I7: purge asks for it)."""
        with self._lock:
            offsets = [committed(heard.report) for heard in self._heard.values()]
        known = [offset for offset in offsets if offset is not None]
        return min(known) if len(known) == len(offsets) else None

    def views(self) -> tuple[LaneView, ...]:
        """Every lane, by number."""
        now = time.monotonic()
        with self._lock:
            return tuple(
                LaneView(
                    lane,
                    heard.report,
                    now - heard.at,
                    heard.rate(now),
                    self._places.get(heard.report.barrier) if heard.report is not None else None,
                )
                for lane, heard in sorted(self._heard.items())
            )


def _number(place: Place) -> int:
    if isinstance(place, Statement):
        return (place.offset.segment << 40) + place.offset.byte
    return _MEETING | place.number


_MEETING = 1 << 63

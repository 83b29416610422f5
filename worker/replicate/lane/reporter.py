"""Sends a lane's reports to its worker: how far it has committed, what it is doing, why it ends."""

from __future__ import annotations

import enum
import os
import threading
import time
from collections.abc import Callable

import grpc

from shardmerge.proto import relay_pb2, relay_pb2_grpc
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.rpc import client
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.replicate.lane.counters import CommitCounts, LaneCounters
from shardmerge.worker.target.records.checkpoint import Checkpoint

log = get_logger()

_REPORT_SECONDS = 0.25
_ANSWER_SECONDS = 5.0


class LanePhase(enum.StrEnum):
    """What a lane is doing; part of `query-status`, see docs/how-to/watch-a-task.md."""

    STARTING = "starting"
    READING = "reading"
    APPLYING = "applying"
    COMMITTING = "committing"
    RETRYING = "retrying"
    BARRIER = "barrier"


_CAUSES = {
    LanePhase.STARTING: "start",
    LanePhase.READING: "read",
    LanePhase.APPLYING: "decode",
    LanePhase.COMMITTING: "target",
    LanePhase.RETRYING: "retry",
    LanePhase.BARRIER: "barrier",
}
"""What the time of a phase is spent on. A lane that reads at the end of the relay log is idle; one that reads although
it has rows to commit gathers more of them."""


class Reporter:
    """Reports to the worker from a thread of its own, so that commits do not wait.

    ``held_back``: whether the lane's queue is full, so that its stream waits for it.
    """

    def __init__(
        self, stub: relay_pb2_grpc.RelayStub, who: relay_pb2.TaskIdentity, held_back: Callable[[], bool]
    ) -> None:
        self._stub = stub
        self._held_back = held_back
        self._report = relay_pb2.LaneReport(who=who, os_pid=os.getpid())
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lane-report", daemon=True)
        self._phase = LanePhase.STARTING
        self._since = time.monotonic()
        self._at_head = False
        self._gathers = False
        self._counters = LaneCounters()
        self._seconds: dict[str, float] = {}  # of phases that are over, by cause
        self._counted_at = self._since
        self._source_ahead = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._wake.set()

    def enter(self, phase: LanePhase, *, gathers: bool = False) -> None:
        """From now on the lane is in ``phase``. Called per block and commit: cheap if the phase does not change.
        ``gathers``: it reads although it has rows to commit, because its last commit took long.

        A lane that reads while it waits at a barrier stays in phase BARRIER, until :meth:`left_barrier`.
        """
        if phase is LanePhase.READING and self._report.barrier:
            phase = LanePhase.BARRIER
        if phase is self._phase and gathers is self._gathers:
            return
        with self._lock:
            now = time.monotonic()
            self._count_time(now)
            if phase is not self._phase:
                self._since = now
            self._phase, self._gathers = phase, gathers
            if phase is LanePhase.APPLYING:
                self._at_head = False
            if phase is not LanePhase.RETRYING:
                self._report.ClearField("attempt")
                self._report.ClearField("retrying")

    def reached_head(self) -> None:
        """The lane has received all of the relay log: until it applies further blocks, it is idle when it reads."""
        if self._at_head or self._phase is not LanePhase.READING:
            return
        with self._lock:
            self._count_time(time.monotonic())
            self._at_head = True

    def connected(self, number: int) -> None:
        """The lane has a new connection to the target, which has this number there."""
        with self._lock:
            self._report.connection_id = number

    def began(self, at: Checkpoint) -> None:
        """The lane has read its checkpoint."""
        with self._lock:
            self._fill(at)

    def committed(
        self,
        at: Checkpoint,
        changes: int,
        applied_at: float,
        held_keys: int = 0,
        counts: CommitCounts | None = None,
        *,
        is_awaited: bool = False,
    ) -> None:
        """The lane has committed. ``applied_at``: Unix time of the target's commit of ``changes`` row changes;
        ``held_keys``: how many keys the lane has begun to hold since it started; ``is_awaited``: report it at once,
        because other parts of the program wait for it."""
        with self._lock:
            self._fill(at)
            if counts is not None:
                self._counters.add(counts, self._source_ahead)
            self._report.held_keys = held_keys
            self._report.rows += changes
            if changes:
                self._report.commit_time = at.commit_time
                self._report.applied_time = applied_at
        if is_awaited:
            self._wake.set()

    def retrying(self, attempt: int, error: ShardmergeError) -> None:
        """The lane retries: ``attempt`` is next, the previous one failed with ``error``."""
        self.enter(LanePhase.RETRYING)
        with self._lock:
            self._report.attempt = attempt
            self._report.retrying.CopyFrom(error_to_proto(error))
        self._wake.set()

    def barrier(self, number: int, at: Checkpoint) -> None:
        """The lane waits at barrier ``number`` with everything before it committed."""
        self.enter(LanePhase.BARRIER)
        with self._lock:
            self._fill(at)
            self._report.barrier = number
        self._wake.set()

    def left_barrier(self) -> None:
        """The lane continues after its barrier."""
        with self._lock:
            self._report.ClearField("barrier")
        self.enter(LanePhase.READING)

    def report_now(self) -> None:
        """Send a report from the caller's thread: the process may end next."""
        self._send()

    def _count_time(self, now: float) -> None:
        """Count the time since the last call for the present phase."""
        cause = _CAUSES[self._phase]
        if self._phase is LanePhase.READING:
            cause = "gather" if self._gathers else "idle" if self._at_head else cause
        self._seconds[cause] = self._seconds.get(cause, 0.0) + now - self._counted_at
        self._counted_at = now

    def _fill(self, at: Checkpoint) -> None:
        self._report.committed.CopyFrom(at.offset.to_proto())
        self._report.position.CopyFrom(at.position.to_proto())
        self._report.position_time = at.commit_time

    def _run(self) -> None:
        while not self._ended.is_set():
            self._send()
            self._wake.wait(_REPORT_SECONDS)
            self._wake.clear()

    def _send(self) -> None:
        message = relay_pb2.LaneReport()
        with self._lock:
            now = time.monotonic()
            self._count_time(now)
            self._report.phase = self._phase.value
            self._report.phase_seconds = now - self._since
            self._report.held_back = self._held_back()
            message.CopyFrom(self._report)
            message.counters.CopyFrom(self._counters.message(self._seconds))
        answer = _send(self._stub, message)
        if answer is not None:
            self._source_ahead = answer.source_ahead


def report_failure(address: str, who: relay_pb2.TaskIdentity, error: ShardmergeError) -> None:
    """Send a lane's last report, why it ends, to the worker at ``address``. The lane may have failed at its start."""
    with client.channel(address) as channel:
        _send(relay_pb2_grpc.RelayStub(channel), relay_pb2.LaneReport(who=who, failed=error_to_proto(error)))


def _send(stub: relay_pb2_grpc.RelayStub, report: relay_pb2.LaneReport) -> relay_pb2.ReportAck | None:
    try:
        return stub.ReportLane(report, timeout=_ANSWER_SECONDS)
    except (grpc.RpcError, ValueError) as error:
        # If the worker has ended, the stream fails; a lost report alone is no error.
        log.debug("report not delivered", reason=type(error).__name__)
        return None

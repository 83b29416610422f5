"""A lane's reports to its worker: how far it has committed, what it is doing, why it ends."""

from __future__ import annotations

import enum
import os
import threading
import time
from collections.abc import Callable

import grpc

from proto import relay_pb2, relay_pb2_grpc, rpc
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.replicate.checkpoint import Checkpoint

log = get_logger()

_REPORT_SECONDS = 0.25
_ANSWER_SECONDS = 5.0


class LanePhase(enum.StrEnum):
    """What a lane is doing; part of `query-status`, see docs/dmctl.md."""

    STARTING = "starting"
    READING = "reading"
    APPLYING = "applying"
    COMMITTING = "committing"
    RETRYING = "retrying"
    BARRIER = "barrier"


class Reporter:
    """Tells the worker what the lane is doing, from a thread of its own so that commits do not wait.

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

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._wake.set()

    def enter(self, phase: LanePhase) -> None:
        """From now on the lane is in ``phase``. Called per block and commit: cheap when it is in it already.

        A lane at a barrier that waits for what comes next stands there still, until :meth:`passed`.
        """
        if phase is LanePhase.READING and self._report.barrier:
            phase = LanePhase.BARRIER
        if phase is self._phase:
            return
        with self._lock:
            self._phase, self._since = phase, time.monotonic()
            if phase is not LanePhase.RETRYING:
                self._report.ClearField("attempt")
                self._report.ClearField("retrying")

    def began(self, at: Checkpoint) -> None:
        """The lane has read where it stands."""
        with self._lock:
            self._fill(at)

    def committed(self, at: Checkpoint, changes: int, applied_at: float, held_keys: int = 0) -> None:
        """``applied_at``: Unix time of the target's commit of ``changes`` row changes; ``held_keys``: that the lane has
        begun to hold since it started."""
        with self._lock:
            self._fill(at)
            self._report.held_keys = held_keys
            self._report.rows += changes
            if changes:
                self._report.commit_time = at.commit_time
                self._report.applied_time = applied_at

    def retrying(self, attempt: int, error: ShardmergeError) -> None:
        """``attempt`` is next; the one before failed with ``error``."""
        self.enter(LanePhase.RETRYING)
        with self._lock:
            self._report.attempt = attempt
            self._report.retrying.CopyFrom(rpc.error_to_proto(error))
        self._wake.set()

    def barrier(self, number: int, at: Checkpoint) -> None:
        """The lane stands at barrier ``number`` with everything before it committed."""
        self.enter(LanePhase.BARRIER)
        with self._lock:
            self._fill(at)
            self._report.barrier = number
        self._wake.set()

    def passed(self) -> None:
        """The lane goes on behind its barrier."""
        with self._lock:
            self._report.ClearField("barrier")
        self.enter(LanePhase.READING)

    def report_now(self) -> None:
        """By the caller's thread: what happens next may be the process's end."""
        self._send()

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
            self._report.phase = self._phase.value
            self._report.phase_seconds = time.monotonic() - self._since
            self._report.held_back = self._held_back()
            message.CopyFrom(self._report)
        _send(self._stub, message)


def tell_failure(address: str, who: relay_pb2.TaskIdentity, error: ShardmergeError) -> None:
    """The last report of a lane, to the worker at ``address``: why it ends. The lane need not have come far."""
    with rpc.channel(address) as channel:
        _send(relay_pb2_grpc.RelayStub(channel), relay_pb2.LaneReport(who=who, failed=rpc.error_to_proto(error)))


def _send(stub: relay_pb2_grpc.RelayStub, report: relay_pb2.LaneReport) -> None:
    try:
        stub.ReportLane(report, timeout=_ANSWER_SECONDS)
    except (grpc.RpcError, ValueError) as error:
        # The stream tells the lane when the worker is gone; a lost report is none.
        log.debug("report not taken", reason=type(error).__name__)

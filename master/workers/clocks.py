"""Compares the clock of a worker with the master's, by an answer that carries it."""

from __future__ import annotations

import time

from shardmerge.master.workers.client import STATUS_SECONDS, Workers
from shardmerge.proto import state_pb2 as state
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.warnings.clocks import ClockDifference


def status_and_clock(
    workers: Workers, worker: state.WorkerRecord, task: str = "", seconds: float = STATUS_SECONDS
) -> tuple[pb.WorkerStatusResponse, ClockDifference | None]:
    """The worker's status, and how far its clock is ahead; None: a worker of an earlier version does not send it.
    Raises what :meth:`Workers.status` raises."""
    before = time.time()
    answer = workers.status(worker, task, seconds)
    return answer, difference(worker.name, answer.clock, before, time.time())


def difference(worker: str, clock: float, before: float, after: float) -> ClockDifference | None:
    """``clock``: what the worker sent at some time between ``before`` and ``after``; 0.0: nothing. Pure."""
    if not clock:
        return None
    return ClockDifference(f"worker {worker}", "the master", clock - (before + after) / 2, (after - before) / 2)

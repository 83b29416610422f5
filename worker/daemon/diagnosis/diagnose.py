"""diagnose: two samples of a subtask some seconds apart, and between them one look at its target."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from shardmerge.proto import diagnose_pb2 as pb
from shardmerge.worker.daemon.diagnosis.sample import SubTaskSample, use_between

DEFAULT_SECONDS = 3.0
_LEAST_SECONDS = 0.5
_MOST_SECONDS = 30.0
_LOOK_SECONDS = 1.5
"""How long before the second sample the target is looked at, at most."""

_MORE_SECONDS = 5.0
"""How long to wait for the target after the second sample."""

_WAITING_PHASES = frozenset({"starting", "committing", "retrying"})
_WAITING_SECONDS = 0.5


class PendingTargetLook(Protocol):
    """A look at the target in progress."""

    def result(self, seconds: float) -> pb.TargetLook: ...


Look = Callable[[Mapping[int, int], Sequence[str]], PendingTargetLook | None]
"""Begins to look at the target, with the connections of the waiting lanes and the names of the target tables; None: it
cannot be asked now."""


def diagnose(
    take: Callable[[], SubTaskSample], look: Look, seconds: float, is_over: threading.Event
) -> tuple[SubTaskSample, pb.SubTaskUse]:
    """The second sample, and what happened between both. ``seconds``: between them, 0: the default. ``is_over``: the
    caller has gone."""
    wanted = min(max(seconds, _LEAST_SECONDS), _MOST_SECONDS) if seconds > 0 else DEFAULT_SECONDS
    first = take()
    # A wait that has just begun is not seen; what is seen may have ended when the answer is read.
    left = min(wanted / 2, _LOOK_SECONDS)
    is_over.wait(wanted - left)
    middle = take()
    looking = None if is_over.is_set() else look(waiting_lanes(middle), target_names(middle))
    is_over.wait(left)
    second = take()
    use = use_between(first, second)
    if looking is not None:
        use.target.CopyFrom(looking.result(0.0 if is_over.is_set() else _MORE_SECONDS))
        waits = [wait for wait in use.target.waits if wait.statement or not _has_continued(wait.lane, middle, second)]
        del use.target.waits[:]
        use.target.waits.extend(waits)
    return second, use


def _has_continued(lane: int, middle: SubTaskSample, second: SubTaskSample) -> bool:
    """Whether the lane has committed since the look, or does something else: it waits for that lock no longer."""
    before, after = (sample.totals.lanes.get(lane) for sample in (middle, second))
    if before is not None and after is not None and after.transactions > before.transactions:
        return True
    phases = [shown.phase for shown in second.status.sync.lanes if shown.lane == lane]
    return not any(phase in _WAITING_PHASES for phase in phases)


def waiting_lanes(sample: SubTaskSample) -> dict[int, int]:
    """The connections of the lanes whose statement may wait for a lock, by lane, the longest wait first. Pure."""
    return {
        lane.lane: sample.connections[lane.lane]
        for lane in sorted(sample.status.sync.lanes, key=lambda lane: -lane.phase_seconds)
        if sample.connections.get(lane.lane)
        and lane.phase in _WAITING_PHASES
        and lane.phase_seconds >= _WAITING_SECONDS
    }


def target_names(sample: SubTaskSample) -> list[str]:
    """The quoted names of the target tables that lanes and readers write, as far as they are known. Pure."""
    status = sample.status
    loads = [status.load, status.join.load, *(copy.load for copy in status.copies)]
    return sorted(
        {plan.target_name for plan in sample.plans}
        | {target.quoted for target in (*sample.totals.tables, *sample.locked)}
        | {table.target_table for load in loads for table in load.tables}
    )

"""The outcome of a job of lanes, by what its tasks and the driver's side report."""

from __future__ import annotations

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.task_runner import TaskDone, TaskFailed, TaskOutcome, TaskStopped
from shardmerge.worker.replicate.lane_coordinator import BarrierFailure, Event, LaneGone
from shardmerge.worker.replicate.lane_job import job_outcome
from shardmerge.worker.unit.contract import Failed, Finished, Outcome, Stopped

LOST = errors.worker.STREAM_LOST(lane=1, address="h:1", reason="the stream ended")
BUSY = errors.replicate.TARGET_BUSY(host="h", port=1, reason="too many connections", errno=1040)
FENCED = errors.replicate.FENCED(task="t", source="s", epoch=1)
GONE = errors.worker.LANE_STOPPED(lane=1, task="t", source="s")


def failed(*found: ShardmergeError) -> list[TaskOutcome]:
    return [TaskStopped(), *(TaskFailed(error) for error in found)]


@pytest.mark.parametrize(
    ("outcomes", "event", "is_stopped", "expected"),
    [
        ([TaskDone(), TaskDone()], None, False, Finished()),
        ([TaskDone(), TaskDone()], None, True, Finished()),
        ([TaskDone(), TaskStopped()], None, True, Stopped()),
        (failed(LOST), None, True, Stopped()),
        (failed(LOST), None, False, Failed(LOST)),
        (failed(BUSY, FENCED), None, False, Failed(FENCED)),
        (failed(), BarrierFailure(BUSY), False, Failed(BUSY)),
        (failed(FENCED), BarrierFailure(BUSY), False, Failed(BUSY)),
        (failed(), BarrierFailure(BUSY), True, Stopped()),
        (failed(LOST, BUSY), LaneGone(GONE), False, Failed(BUSY)),
        (failed(LOST), LaneGone(GONE), False, Failed(GONE)),
        (failed(BUSY), LaneGone(GONE), True, Failed(BUSY)),
    ],
)
def test_the_error_that_explains_most_is_the_outcome(
    outcomes: list[TaskOutcome], event: Event | None, is_stopped: bool, expected: Outcome
) -> None:
    assert not FENCED.spec.retryable and BUSY.spec.retryable
    assert job_outcome(outcomes, event, is_stopped=is_stopped) == expected

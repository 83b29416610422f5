"""What a worker's answer says about a decision."""

from __future__ import annotations

import threading

import pytest

from shardmerge.master.workers.client import Workers
from shardmerge.master.workers.wait import (
    Goal,
    Judgement,
    NotYet,
    Reached,
    SubtaskFailure,
    Waiter,
    judge_decision,
    judge_released,
    judge_source,
    judge_subtask,
)
from shardmerge.proto import common_pb2, errors
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.common_pb2 import Stage
from shardmerge.proto.rpc.coded_errors import error_to_proto
from tests.unit.master.records import state

ERROR = error_to_proto(errors.master.SOURCE_UNBOUND(source="s"))


def _status(stage: Stage | None, *, failed: bool = False, revision: int = 10) -> pb.WorkerStatusResponse:
    status = pb.WorkerStatusResponse(source="s", observed_revision=revision)
    if stage is not None:
        subtask = status.subtasks.add(name="t", stage=stage)
        if failed:
            subtask.result.errors.append(ERROR)
    return status


@pytest.mark.parametrize(
    ("goal", "stage", "expected"),
    [
        (Goal.RUNNING, common_pb2.STAGE_NEW, NotYet("New")),
        (Goal.RUNNING, common_pb2.STAGE_RUNNING, Reached()),
        (Goal.RUNNING, common_pb2.STAGE_FINISHED, Reached()),
        (Goal.RUNNING, common_pb2.STAGE_PAUSED, NotYet("Paused")),
        (Goal.RUNNING, None, NotYet("not started by the worker")),
        (Goal.PAUSED, common_pb2.STAGE_RUNNING, NotYet("Running")),
        (Goal.PAUSED, common_pb2.STAGE_PAUSED, Reached()),
        (Goal.PAUSED, common_pb2.STAGE_FINISHED, Reached()),
        (Goal.PAUSED, None, NotYet("not started by the worker")),
        (Goal.GONE, common_pb2.STAGE_RUNNING, NotYet("Running")),
        (Goal.GONE, common_pb2.STAGE_STOPPED, Reached()),
        (Goal.GONE, None, Reached()),
    ],
)
def test_stage_decides_once_the_decision_was_read(goal: Goal, stage: Stage | None, expected: Judgement) -> None:
    assert judge_subtask(goal, "t", 10, _status(stage)) == expected
    assert isinstance(judge_subtask(goal, "t", 11, _status(stage)), NotYet)


@pytest.mark.parametrize(
    ("goal", "later", "revision", "replaced"),
    [
        (Goal.RUNNING, common_pb2.STAGE_PAUSED, 10, "Paused"),
        (Goal.PAUSED, common_pb2.STAGE_RUNNING, 10, "Running"),
        (Goal.GONE, common_pb2.STAGE_RUNNING, 10, "Running"),
        (Goal.RUNNING, None, 10, "Stopped"),
        (Goal.RUNNING, common_pb2.STAGE_RUNNING, 10, ""),
        (Goal.PAUSED, common_pb2.STAGE_PAUSED, 10, ""),
        (Goal.GONE, None, 10, ""),
        (Goal.RUNNING, common_pb2.STAGE_PAUSED, 101, ""),  # the records were read before the decision
    ],
)
def test_a_decision_that_a_later_one_replaced_is_not_waited_for(
    goal: Goal, later: Stage | None, revision: int, replaced: str
) -> None:
    records = () if later is None else (config.SubTaskConfig(task="t", source_id="s"),)
    known = state(bindings={"s": ""}, subtasks=records, stage=later or common_pb2.STAGE_RUNNING)
    found = judge_decision(goal, "t", "s", revision, known)
    assert (found is not None) is bool(replaced)
    if found is not None:
        assert found.error.code == errors.master.COMMAND_REPLACED.code
        assert found.error.message.endswith(f"stage {goal.value} of task t, another command decided stage {replaced}")


def test_subtask_that_came_up_with_an_error_has_failed() -> None:
    status = _status(common_pb2.STAGE_PAUSED, failed=True)
    assert judge_subtask(Goal.RUNNING, "t", 10, status) == SubtaskFailure(ERROR)
    assert judge_subtask(Goal.PAUSED, "t", 10, status) == Reached()


def test_source_is_taken_up_when_the_worker_names_it_and_its_relay_runs() -> None:
    status = _status(None)
    assert judge_source("s", 10, status) == Reached()
    assert isinstance(judge_source("other", 10, status), NotYet)
    assert isinstance(judge_source("s", 11, status), NotYet)
    status.relay.stage = common_pb2.STAGE_PAUSED
    status.relay.result.CopyFrom(ERROR)
    assert judge_source("s", 10, status) == SubtaskFailure(ERROR)
    assert isinstance(judge_released("s", 10, status), NotYet)
    assert judge_released("other", 10, status) == Reached()


def test_an_answer_about_a_source_names_no_task_and_no_worker_that_it_has_not() -> None:
    """60305: the message was "worker  has not reported stage Running for task "."""
    clients = Workers()
    try:
        waiter = Waiter(lambda: state(bindings={"s": ""}), clients, 0.0, threading.Event())
        [result] = waiter.wait_bound(["s"], 1)
    finally:
        clients.close()
    assert result.error.code == errors.master.STAGE_NOT_REACHED.code
    assert result.msg.endswith(
        "source s: a worker has not reported that it reads the source within 0 s (last seen: bound to no live worker)"
    )
    assert "`dmctl query-status -s s`" in result.error.workaround

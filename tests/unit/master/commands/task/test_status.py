"""A task's one phrase, and the members' list."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.master.commands.cluster.members import list_members
from shardmerge.master.commands.task.status import task_status
from shardmerge.master.state import Entry
from shardmerge.proto import common_pb2, errors
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto.common_pb2 import Stage
from shardmerge.proto.rpc.coded_errors import error_to_proto
from tests.unit.master.records import state

ERROR = error_to_proto(errors.master.SOURCE_UNBOUND(source="s"))


def _answer(stage: Stage, *, failed: bool = False) -> pb.SourceSubTasks:
    answer = pb.SourceSubTasks(result=True)
    answer.sub_task_status.add(name="other", stage=common_pb2.STAGE_PAUSED).result.errors.append(ERROR)
    subtask = answer.sub_task_status.add(name="t", stage=stage)
    if failed:
        subtask.result.errors.append(ERROR)
    return answer


def test_the_worst_of_all_sources_is_reported() -> None:
    running, paused = _answer(common_pb2.STAGE_RUNNING), _answer(common_pb2.STAGE_PAUSED)
    finished = _answer(common_pb2.STAGE_FINISHED)
    assert task_status("t", [running, running]) == "Running"
    assert task_status("t", [running, finished]) == "Running"
    assert task_status("t", [finished, finished]) == "Finished"
    assert task_status("t", [running, paused]) == "Paused"
    failed = task_status("t", [running, _answer(common_pb2.STAGE_PAUSED, failed=True)])
    assert failed.startswith("Error - Some error occurred in subtask. Please run `query-status t`")
    assert task_status("t", [running, pb.SourceSubTasks(result=False)]).startswith("Error - Some worker")
    broken_relay = _answer(common_pb2.STAGE_RUNNING)
    broken_relay.source_status.relay_status.result.CopyFrom(ERROR)
    assert task_status("t", [broken_relay]).startswith("Error - Some error occurred in relay")
    conflict = _answer(common_pb2.STAGE_RUNNING)
    group = conflict.sub_task_status[1].sync.unresolved_groups.add()
    assert task_status("t", [conflict]) == "Running"
    group.conflict.CopyFrom(ERROR)
    assert task_status("t", [running, conflict]).startswith("Error - Some error occurred in subtask")


def test_members_are_free_bound_starting_or_offline() -> None:
    now = state(workers=("w1", "w2"), bindings={"s1": "w1", "s2": "gone", "s3": "w3"})
    starting = {name: Entry(state_pb.WorkerRecord(name=name, address="h:1"), 1) for name in ("w2", "w3", "w4")}
    now = replace(now, starting=starting)
    answer = list_members(pb.ListMemberRequest(), now)
    assert [(one.name, one.stage, one.source) for one in answer.workers] == [
        ("gone", "offline", "s2"),
        ("w1", "bound", "s1"),
        ("w2", "free", ""),
        ("w3", "starting", "s3"),
        ("w4", "starting", ""),
    ]
    assert not list_members(pb.ListMemberRequest(leader=True), now).workers
    named = list_members(pb.ListMemberRequest(worker=True, names=["w2"]), now)
    assert [one.name for one in named.workers] == ["w2"]


def test_state_knows_who_is_where() -> None:
    subtasks = (
        config.SubTaskConfig(task="a", source_id="s1"),
        config.SubTaskConfig(task="a", source_id="s2"),
        config.SubTaskConfig(task="b", source_id="s2"),
    )
    now = state(workers=("w1",), bindings={"s1": "w1", "s2": "gone"}, subtasks=subtasks)
    assert now.sources_of("a") == ("s1", "s2")
    assert now.tasks_of("s2") == ("a", "b")
    holder = now.worker_of("s1")
    assert holder is not None
    assert holder.name == "w1"
    assert now.worker_of("s2") is None
    assert now.bound_name("s2") == "gone"

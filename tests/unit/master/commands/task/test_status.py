"""The phrase of a task, the warnings of its sources, and the list of members."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.master.commands.cluster.members import list_members
from shardmerge.master.commands.task.status import task_status, task_warnings
from shardmerge.master.state import VersionedRecord
from shardmerge.proto import common_pb2, errors
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto.common_pb2 import Stage
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.proto.worker_pb2 import StatusWarning
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
    starting = {
        name: VersionedRecord(state_pb.WorkerRecord(name=name, address="h:1"), 1) for name in ("w2", "w3", "w4")
    }
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


def _with_warnings(source: str, *warnings: tuple[str, float]) -> pb.SourceSubTasks:
    status = pb.SourceStatus(source=source)
    status.warnings.extend(StatusWarning(name=name, message=f"{name} of {source}", due=due) for name, due in warnings)
    return pb.SourceSubTasks(result=True, source_status=status)


def test_each_kind_has_the_warning_with_the_least_time() -> None:
    found = task_warnings(
        [
            _with_warnings("s1", ("clocks-differ", 0.0), ("binlog-expiring", 500.0)),
            _with_warnings(
                "s2", ("binlog-expiring", 200.0), ("certificate-expiring", 900.0), ("certificate-expiring", 800.0)
            ),
            _with_warnings("s3", ("binlog-expiring", 0.0)),
        ]
    )
    assert [(each.warning.name, each.source, each.warning.due, each.others) for each in found] == [
        ("binlog-expiring", "s2", 200, 2),
        ("certificate-expiring", "s2", 800, 1),
        ("clocks-differ", "s1", 0, 0),
    ]
    assert found[0].warning.message == "binlog-expiring of s2"


def test_a_source_that_cannot_be_asked_has_no_warnings() -> None:
    assert task_warnings([pb.SourceSubTasks(result=False), _with_warnings("s1")]) == []


def test_the_list_is_bounded() -> None:
    [found] = task_warnings([_with_warnings(f"s{n:02d}", *[("clocks-differ", 0.0)] * 10) for n in range(16)])
    assert (found.source, found.others) == ("s00", 159)

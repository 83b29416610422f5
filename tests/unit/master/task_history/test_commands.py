"""Commands as events: the verb and names, no contents; only of tasks that exist; nothing for a question."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from google.protobuf.message import Message

from shardmerge.master.task_history.commands import Answer, command_events
from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.task_history.event import Event

_SECRET = "hunter2"
_TASK = f"""\
name: merge
task-mode: all
target-database: {{host: 10.0.0.9, port: 4000, user: root, password: "{_SECRET}"}}
mysql-instances:
  - source-id: s1
"""
_FILE = pb.ConfigFile(name="merge.yaml", content=_TASK)
_DONE = pb.OperateTaskResponse(result=True)
_ON = {"s1": ["merge", "other"], "s2": ["merge"]}


def _events(request: Message, answer: Answer = _DONE, known: Sequence[str] = ("merge", "other")) -> list[Event]:
    return command_events(request, answer, "alice", 5.0, frozenset(known), lambda source: _ON.get(source, []))


@pytest.mark.parametrize(
    ("request_", "text", "sources"),
    [
        (pb.StartTaskRequest(file=_FILE), "start-task", ()),
        (
            pb.StartTaskRequest(file=_FILE, sources=["s1"], remove_meta=True, paused=True),
            "start-task --remove-meta --paused",
            ("s1",),
        ),
        (pb.UpdateTaskRequest(file=_FILE, rename_target=True), "update-task --rename-target", ()),
        (pb.OperateTaskRequest(op=pb.OperateTaskRequest.OP_PAUSE, name="merge"), "pause-task", ()),
        (
            pb.OperateTaskRequest(op=pb.OperateTaskRequest.OP_RESUME, name="merge", sources=["s2"]),
            "resume-task",
            ("s2",),
        ),
        (
            pb.OperateTaskRequest(op=pb.OperateTaskRequest.OP_STOP, file=_FILE, remove_meta=True),
            "stop-task --remove-meta",
            (),
        ),
        (
            pb.HandleBinlogRequest(
                op=pb.HandleBinlogRequest.OP_REPLACE, task="merge", binlog_pos="b.1:4", sqls=f"INSERT {_SECRET}"
            ),
            "binlog replace b.1:4",
            (),
        ),
        (
            pb.QuarantineRequest(op=worker_pb2.QUARANTINE_OP_DROP, task="merge", table="shop.orders", key=_SECRET),
            "quarantine drop shop.orders, one key",
            (),
        ),
        (
            pb.OperateSchemaRequest(
                op=worker_pb2.SCHEMA_OP_UPDATE, task="merge", database="d", table="t", schema=f"CREATE {_SECRET}"
            ),
            "binlog-schema update d.t",
            (),
        ),
        (
            pb.UnlockDDLLockRequest(id="merge-`shop`.`or-`ders`", replace_owner="s2"),
            "shard-ddl-lock unlock `shop`.`or-`ders` --owner s2",
            (),
        ),
        (
            pb.UnlockDDLLockRequest(id="merge-`shop`.`o`", action="skip", sources=["s1"]),
            "shard-ddl-lock unlock `shop`.`o` --action skip",
            ("s1",),
        ),
    ],
)
def test_a_command_about_a_task(request_: Message, text: str, sources: tuple[str, ...]) -> None:
    [event] = _events(request_)
    assert (event.task, event.text, event.sources, event.actor, event.at) == ("merge", text, sources, "alice", 5.0)
    assert (event.failed, event.message) == (False, "")
    assert _SECRET not in repr(event)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (pb.TransferSourceRequest(source="s1", worker="w2"), "transfer-source s1 to worker w2"),
        (pb.OperateRelayRequest(op=pb.OperateRelayRequest.OP_PAUSE, sources=["s1", "s1"]), "pause-relay s1"),
        (pb.PurgeRelayRequest(sources=["s1"], filename="b.4"), "purge-relay s1 before b.4"),
        (
            pb.OperateTaskRequest(op=pb.OperateTaskRequest.OP_PAUSE, sources=["s1"]),
            "pause-task",
        ),
    ],
)
def test_a_command_about_a_source_concerns_its_tasks(request_: Message, text: str) -> None:
    assert [(event.task, event.text, event.sources) for event in _events(request_)] == [
        ("merge", text, ("s1",)),
        ("other", text, ("s1",)),
    ]


def test_several_sources_are_one_event_of_each_task() -> None:
    request = pb.OperateRelayRequest(op=pb.OperateRelayRequest.OP_RESUME, sources=["s1", "s2", "s3"])
    assert [(event.task, event.sources) for event in _events(request)] == [("merge", ("s1", "s2")), ("other", ("s1",))]


def test_an_update_of_a_source_names_keys_and_no_values() -> None:
    change = pb.SourceChange(source="s1", key="from.host", before="10.0.0.1", after=_SECRET)
    answer = pb.OperateSourceResponse(
        result=True, sources=[pb.SourceResult(source="s1", result=True)], changes=[change]
    )
    request = pb.OperateSourceRequest(op=pb.OperateSourceRequest.OP_UPDATE, files=[_FILE])
    assert {event.text for event in _events(request, answer)} == {"operate-source update s1: from.host"}
    assert _SECRET not in repr(_events(request, answer))


@pytest.mark.parametrize(
    "request_",
    [
        pb.StartTaskRequest(file=_FILE, check_only=True),
        pb.UpdateTaskRequest(file=_FILE, dry_run=True),
        pb.HandleBinlogRequest(op=pb.HandleBinlogRequest.OP_LIST, task="merge"),
        pb.QuarantineRequest(op=worker_pb2.QUARANTINE_OP_LIST, task="merge"),
        pb.OperateSchemaRequest(op=worker_pb2.SCHEMA_OP_LIST, task="merge"),
        pb.OperateSourceRequest(op=pb.OperateSourceRequest.OP_SHOW, source_ids=["s1"]),
        pb.OperateSourceRequest(op=pb.OperateSourceRequest.OP_STOP, source_ids=["s1"], dry_run=True),
        pb.QueryStatusRequest(name="merge"),
        pb.OperateTaskRequest(name="merge"),
    ],
)
def test_a_question_is_no_event(request_: Message) -> None:
    assert _events(request_) == []


def test_a_failure_is_recorded_of_tasks_that_exist() -> None:
    pause = pb.OperateTaskRequest(op=pb.OperateTaskRequest.OP_PAUSE, name="merge")
    [event] = _events(pause, pb.OperateTaskResponse(result=False, msg="first line\nsecond"))
    assert (event.failed, event.message) == (True, "first line")
    unknown = errors.master.TASK_UNKNOWN(task="merge")
    [event] = _events(pause, unknown)
    assert (event.failed, event.code, event.message) == (True, unknown.code, unknown.message)
    assert _events(pause, unknown, known=()) == []
    assert [each.task for each in _events(pause, _DONE, known=())] == ["merge"]  # stop-task leaves no task


def test_a_command_for_another_master_is_no_event_of_this_one() -> None:
    pause = pb.OperateTaskRequest(op=pb.OperateTaskRequest.OP_PAUSE, name="merge")
    assert _events(pause, errors.master.NOT_LEADER(master="m2", leader="m1", address="x")) == []
    assert _events(pause, errors.master.NO_LEADER(master="m2")) == []


def test_an_error_about_a_file_keeps_its_text_out() -> None:
    wrong = errors.config.AMBIGUOUS_ROUTE(table=_SECRET)
    [event] = _events(pb.StartTaskRequest(file=_FILE), wrong)
    assert (event.code, event.name, event.message) == (wrong.code, wrong.spec.name, "")

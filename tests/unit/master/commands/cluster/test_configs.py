"""What is told of stored configurations."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from google.protobuf.message import Message

from shardmerge.master.commands.cluster.configs import stored
from shardmerge.master.state import State, parse
from shardmerge.proto import common_pb2, errors, etcd_keys
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto.config.task.task_file import parse_task, with_ends
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.proto.etcd import Record, RecordSnapshot

SOURCE = 'source-id: s1 # the first\nfrom: {host: h, port: 1, user: u, password: "s3cret"}\n'
TASK = """\
name: merge
task-mode: incremental
target-database: {host: h, port: 4000, user: u, password: "${DM_TARGET}"}
mysql-instances:
  - source-id: s1
    meta: {start-at: earliest}
  - source-id: s2
"""
_Kind = pb.GetConfigRequest


def _state(records: Mapping[str, Message]) -> State:
    return parse(
        RecordSnapshot(
            tuple(
                Record(key, etcd_keys.encode(value), mod_revision=number, create_revision=number, lease=0)
                for number, (key, value) in enumerate(sorted(records.items()), start=1)
            ),
            revision=100,
        )
    )


def _subtask(one: config.SubTaskConfig, stage: common_pb2.Stage, words: int = 0) -> state_pb.SubTaskRecord:
    return state_pb.SubTaskRecord(config=one, expected=stage, binlog_ops=[state_pb.BinlogOp()] * words)


def _world() -> State:
    first, second = with_ends(parse_task(TASK, "t", {"DM_TARGET": "x"}), "2026-01-02 03:04:05", "").to_subtasks()
    second = parse_task(TASK, "t", {"DM_TARGET": "x"}).to_subtasks()[1]
    return _state(
        {
            etcd_keys.source("s1"): state_pb.SourceRecord(config=config.SourceConfig(source_id="s1"), yaml=SOURCE),
            etcd_keys.source("old"): state_pb.SourceRecord(config=config.SourceConfig(source_id="old")),
            etcd_keys.task("merge"): state_pb.TaskRecord(name="merge", yaml=TASK),
            etcd_keys.subtask("merge", "s1"): _subtask(first, common_pb2.STAGE_PAUSED, 2),
            etcd_keys.subtask("merge", "s2"): _subtask(second, common_pb2.STAGE_RUNNING),
            etcd_keys.master("m1"): state_pb.MasterRecord(name="m1", settings="name: m1\n"),
            etcd_keys.worker("w1"): state_pb.WorkerRecord(name="w1", settings="name: w1\n"),
        }
    )


def _get(
    kind: pb.GetConfigRequest.Kind, *names: str, names_only: bool = False, with_secrets: bool = False
) -> list[pb.StoredConfig]:
    request = _Kind(kind=kind, names=names, names_only=names_only, with_secrets=with_secrets)
    return list(stored(request, _world()).configs)


def test_files_are_shown_as_they_were_given_but_for_passwords() -> None:
    [source] = _get(_Kind.KIND_SOURCE, "s1")
    assert source.cfg == SOURCE.replace("s3cret", "******")
    [whole] = _get(_Kind.KIND_SOURCE, "s1", with_secrets=True)
    assert whole.cfg == SOURCE
    [task] = _get(_Kind.KIND_TASK)
    assert task.cfg == TASK


def test_what_is_not_in_the_file_is_reported() -> None:
    [task] = _get(_Kind.KIND_TASK, "merge")
    assert list(task.subtasks) == [
        pb.StoredSubTask(source="s1", expected=common_pb2.STAGE_PAUSED, start_time="2026-01-02 03:04:05", binlog_ops=2),
        pb.StoredSubTask(source="s2", expected=common_pb2.STAGE_RUNNING),
    ]


def test_daemons_tell_their_settings_and_names_are_listed() -> None:
    assert [one.cfg for one in _get(_Kind.KIND_MASTER, "m1")] == ["name: m1\n"]
    assert [one.cfg for one in _get(_Kind.KIND_WORKER)] == ["name: w1\n"]
    assert [(one.name, one.cfg) for one in _get(_Kind.KIND_SOURCE, names_only=True)] == [("old", ""), ("s1", "")]


@pytest.mark.parametrize(
    ("kind", "name", "spec"),
    [
        (_Kind.KIND_TASK, "nope", errors.master.TASK_UNKNOWN),
        (_Kind.KIND_SOURCE, "nope", errors.master.SOURCE_UNKNOWN),
        (_Kind.KIND_MASTER, "nope", errors.master.MASTER_UNKNOWN),
        (_Kind.KIND_WORKER, "nope", errors.master.WORKER_UNKNOWN),
        (_Kind.KIND_UNSPECIFIED, "nope", errors.master.BAD_REQUEST),
        (_Kind.KIND_SOURCE, "old", errors.master.CONFIG_NOT_KEPT),
    ],
)
def test_what_is_not_there(kind: pb.GetConfigRequest.Kind, name: str, spec: ErrorSpec) -> None:
    with pytest.raises(ShardmergeError) as caught:
        _get(kind, name)
    assert caught.value.spec is spec
    assert spec is errors.master.BAD_REQUEST or name in caught.value.message

"""States of etcd, put together for pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message

from shardmerge.master.state import State, parse
from shardmerge.proto import common_pb2, etcd_keys
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.etcd import Record, RecordSnapshot


def state(
    *,
    workers: tuple[str, ...] = (),
    bindings: Mapping[str, str] | None = None,
    subtasks: tuple[config.SubTaskConfig, ...] = (),
    stage: common_pb2.Stage = common_pb2.STAGE_RUNNING,
    shards: Mapping[tuple[str, str], pb.ShardRecord] | None = None,
    locks: tuple[pb.LockRecord, ...] = (),
) -> State:
    """Every key of ``bindings`` is a source; "" binds it to no worker. ``shards``: by (task, source)."""
    bindings = bindings or {}
    records: dict[str, Message] = {
        **{etcd_keys.worker(name): pb.WorkerRecord(name=name, address=f"{name}:8262") for name in workers},
        **{etcd_keys.source(name): pb.SourceRecord(config=config.SourceConfig(source_id=name)) for name in bindings},
        **{
            etcd_keys.bound(name): pb.BindingRecord(source_id=name, worker=worker)
            for name, worker in bindings.items()
            if worker
        },
        **{etcd_keys.task(one.task): pb.TaskRecord(name=one.task) for one in subtasks},
        **{
            etcd_keys.subtask(one.task, one.source_id): pb.SubTaskRecord(config=one, expected=stage) for one in subtasks
        },
        **{etcd_keys.shard(*pair): record for pair, record in (shards or {}).items()},
        **{etcd_keys.lock(one.task, one.target_schema, one.target_table): one for one in locks},
        etcd_keys.PREFIX + "of-a-newer-version/x": pb.LeaderRecord(name="ignored"),
    }
    return parse(
        RecordSnapshot(
            tuple(
                Record(key, etcd_keys.encode(value), mod_revision=number, create_revision=number, lease=0)
                for number, (key, value) in enumerate(sorted(records.items()), start=1)
            ),
            revision=100,
        )
    )

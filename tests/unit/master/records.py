"""States of etcd, put together for pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message

from master.state import State, parse
from proto import common_pb2, keys
from proto import config_pb2 as config
from proto import state_pb2 as pb
from proto.etcd import Record, Snapshot


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
        **{keys.worker(name): pb.WorkerRecord(name=name, address=f"{name}:8262") for name in workers},
        **{keys.source(name): pb.SourceRecord(config=config.SourceConfig(source_id=name)) for name in bindings},
        **{
            keys.bound(name): pb.BindingRecord(source_id=name, worker=worker)
            for name, worker in bindings.items()
            if worker
        },
        **{keys.task(one.task): pb.TaskRecord(name=one.task) for one in subtasks},
        **{keys.subtask(one.task, one.source_id): pb.SubTaskRecord(config=one, expected=stage) for one in subtasks},
        **{keys.shard(*pair): record for pair, record in (shards or {}).items()},
        **{keys.lock(one.task, one.target_schema, one.target_table): one for one in locks},
        keys.PREFIX + "of-a-newer-version/x": pb.LeaderRecord(name="ignored"),
    }
    return parse(
        Snapshot(
            tuple(
                Record(key, keys.encode(value), mod_revision=number, create_revision=number, lease=0)
                for number, (key, value) in enumerate(sorted(records.items()), start=1)
            ),
            revision=100,
        )
    )

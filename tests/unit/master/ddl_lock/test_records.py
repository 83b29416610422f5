"""Tests which target tables may need a step of their lock, by the records."""

from __future__ import annotations

from shardmerge.master.ddl_lock.records import Target, targets
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import state_pb2 as pb
from tests.unit.master.records import state


def _targets(mode: config.ShardMode, *, parked: bool) -> tuple[Target, ...]:
    table = pb.ShardTable(schema="d", table="a", structure="S0")
    if parked:
        table.parked.CopyFrom(pb.ParkedAt(statement="ALTER A", form="fa", after="S1"))
    record = pb.ShardRecord(targets=[pb.ShardTarget(schema="shop", table="orders", tables=[table])])
    subtask = config.SubTaskConfig(task="t", source_id="s1", shard_mode=mode)
    return targets(state(subtasks=(subtask,), shards={("t", "s1"): record, ("gone", "s1"): record}))


def test_shard_tables_of_a_task_with_a_shard_mode() -> None:
    assert _targets(config.SHARD_MODE_OPTIMISTIC, parked=False) == (Target("t", "shop", "orders"),)


def test_a_table_that_was_parked_before_its_task_lost_its_shard_mode() -> None:
    assert _targets(config.SHARD_MODE_NONE, parked=True) == (Target("t", "shop", "orders"),)
    assert _targets(config.SHARD_MODE_NONE, parked=False) == ()

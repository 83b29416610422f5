"""From the records of etcd to what is decided from them and what people are shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.master.ddl_lock.records import Target, open_locks, situation, targets, to_lock, to_record
from shardmerge.master.ddl_lock.report import lock_message, sync_of, waiting_for
from shardmerge.master.ddl_lock.situation import Lock, LockMember, LockStage, ReportedStatement, Situation, SourceReport
from shardmerge.proto import common_pb2, errors
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import state_pb2 as pb
from tests.unit.master.records import state

ORDERS = Target("t", "shop", "orders")
LOCK = Lock("g", "s1", "ALTER A", "fa", "S0", "S1", 1000.0)
READY = LockMember("s1", "d", "a", "S0", ReportedStatement("ALTER A", "fa", "S1", "p1", 900.0))
PASSED = LockMember("s1", "d", "b", "S1")
MISSING = LockMember("s2", "d", "c", "S0")
CONFLICTING = LockMember("s3", "d", "e", "S0", ReportedStatement("ALTER B", "fb", "S2", "p3", 950.0))
REPORTS = {
    "s1": SourceReport((READY, PASSED), "g0"),
    "s2": SourceReport((MISSING,)),
    "s3": SourceReport((CONFLICTING,)),
    "s4": None,
    "s5": SourceReport(),
}
SITUATION = Situation(REPORTS, LOCK)


def _subtask(
    source: str, task: str = "t", mode: config.ShardMode = config.SHARD_MODE_PESSIMISTIC
) -> config.SubTaskConfig:
    return config.SubTaskConfig(task=task, source_id=source, shard_mode=mode)


def test_records_become_values_and_come_back() -> None:
    parked = pb.ParkedAt(statement="ALTER A", form="fa", after="S1", position="p1", since=900.0)
    tables = [
        pb.ShardTable(schema="d", table="a", structure="S0", parked=parked),
        pb.ShardTable(schema="d", table="b", structure="S1"),
    ]
    here = pb.ShardTarget(schema="shop", table="orders", tables=tables, executed="g0")
    idle = pb.ShardTarget(schema="shop", table="idle", tables=tables[1:])
    elsewhere = pb.ShardTarget(schema="shop", table="lines", tables=tables[:1], executed="g7")
    read = state(
        subtasks=(_subtask("s1"), _subtask("s4"), _subtask("s5"), _subtask("s1", "plain", config.SHARD_MODE_NONE)),
        shards={
            ("t", "s1"): pb.ShardRecord(targets=[elsewhere, here]),
            ("t", "s5"): pb.ShardRecord(targets=[]),
            ("t", "gone"): pb.ShardRecord(targets=[here]),
            ("plain", "s1"): pb.ShardRecord(targets=[here, idle]),
        },
        locks=(to_record(ORDERS, LOCK), to_record(Target("ended", "a/b", "c"), LOCK)),
    )
    seen = situation(ORDERS, read)
    assert seen == Situation(
        {"s1": REPORTS["s1"], "s4": None, "s5": SourceReport()}, LOCK, frozenset({"s1", "s4", "s5"})
    )
    # Without a shard-mode: where a table waits all the same, for it had one until just now.
    waits = Target("plain", "shop", "orders")
    assert targets(read) == (Target("ended", "a/b", "c"), waits, Target("t", "shop", "lines"), ORDERS)
    assert open_locks("plain", read) == (waits.lock_id,)
    assert open_locks("t", read) == (Target("t", "shop", "lines").lock_id, ORDERS.lock_id)
    assert situation(Target("ended", "a/b", "c"), read) == Situation({}, LOCK)


@pytest.mark.parametrize(
    ("stage", "worker", "expected"),
    [
        (common_pb2.STAGE_RUNNING, "w1", frozenset[str]()),
        (common_pb2.STAGE_PAUSED, "w1", frozenset({"s1"})),
        (common_pb2.STAGE_RUNNING, "dead", frozenset({"s1"})),
        (common_pb2.STAGE_RUNNING, "", frozenset({"s1"})),
    ],
)
def test_a_source_is_able_with_a_subtask_that_runs_at_a_live_worker(
    stage: common_pb2.Stage, worker: str, expected: frozenset[str]
) -> None:
    read = state(workers=("w1",), bindings={"s1": worker}, subtasks=(_subtask("s1"),), stage=stage)
    assert situation(ORDERS, read).unable == expected


@pytest.mark.parametrize("stage", LockStage)
def test_locks_come_back_from_their_records(stage: LockStage) -> None:
    lock = replace(LOCK, stage=stage, forced=stage is LockStage.RELEASED)
    assert to_lock(to_record(ORDERS, lock)) == lock


def test_sources_are_synced_when_all_their_tables_have_come() -> None:
    assert sync_of(SITUATION, LOCK) == (["s1"], ["s2", "s3", "s4"])


def test_what_is_shown_of_a_lock() -> None:
    message = lock_message(ORDERS, SITUATION, LOCK, 1060.0, "pessimistic")
    assert (message.id, message.task, message.mode, message.owner) == ("t-`shop`.`orders`", "t", "pessimistic", "s1")
    assert (message.since, message.seconds, list(message.ddls)) == ("1970-01-01T00:16:40Z", 60.0, ["ALTER A"])
    assert [(one.source, one.table, one.standing, one.since, one.seconds, one.ddl) for one in message.tables] == [
        ("s1", "a", "ready", "1970-01-01T00:15:00Z", 160.0, "ALTER A"),
        ("s1", "b", "passed", "", 0.0, ""),
        ("s2", "c", "missing", "1970-01-01T00:16:40Z", 60.0, ""),
        ("s3", "e", "conflicting", "1970-01-01T00:15:50Z", 110.0, "ALTER B"),
        ("s4", "", "unknown", "", 0.0, ""),
    ]
    assert message.conflict.code == errors.ddl.LOCK_CONFLICT.code
    for part in ("ALTER A", "ALTER B", "s3 `d`.`e`", "p3"):
        assert part in message.conflict.message
    released = replace(LOCK, stage=LockStage.RELEASED)
    assert not lock_message(ORDERS, SITUATION, released, 1060.0, "pessimistic").HasField("conflict")


def test_what_is_waited_for() -> None:
    said = waiting_for(SITUATION, LOCK)
    assert "source(s) s4 to report" in said
    assert "s2 `d`.`c` to reach the statement" in said
    assert "s3 `d`.`e` to wait no longer at another statement" in said
    assert "s1" not in said
    assert waiting_for(SITUATION, replace(LOCK, stage=LockStage.EXECUTING)) == (
        "source s1 to run the statement at the target"
    )
    assert waiting_for(SITUATION, replace(LOCK, stage=LockStage.RELEASED)) == "shard table(s) s1 `d`.`a` to continue"
    many = Situation(
        {"s": SourceReport(tuple(replace(MISSING, table=str(n)) for n in range(7))), "s1": REPORTS["s1"]}, LOCK
    )
    assert waiting_for(many, LOCK).endswith("`d`.`4` and 2 more to reach the statement")

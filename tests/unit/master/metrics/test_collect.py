"""Tests a master's metrics: from figures to samples."""

from __future__ import annotations

import time

import grpc

from shardmerge.master.leader.counts import LeaderCounts
from shardmerge.master.metrics.collect import MasterFigures, master_samples
from shardmerge.master.placement import Bind, Unbind
from shardmerge.master.state import State
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.metrics.exposition import exposition
from shardmerge.proto.metrics.process import ProcessFigures
from shardmerge.proto.rpc.call_counts import CallCounts
from shardmerge.proto.warnings.certificates import CertificateEnd, CertificateFile, Use
from shardmerge.proto.warnings.clocks import ClockDifference
from tests.support.metrics import Scrape, parse
from tests.unit.master.records import state

_PROCESS = ProcessFigures("dm-master", "1.2")
_NOW = 1_000.0


def _found(records: State | None, *, leads: bool = True, counts: LeaderCounts | None = None) -> Scrape:
    counts = counts or LeaderCounts()
    figures = MasterFigures(_NOW, _PROCESS, leads, counts.figures(), records, 0.5)
    series = list(master_samples(figures))
    keys = [(sample.family.name, sample.labels) for sample in series]
    assert len(keys) == len(set(keys)), "a series appears twice"
    return parse(exposition(series).decode())


def _subtask(task: str, source: str) -> config.SubTaskConfig:
    return config.SubTaskConfig(task=task, source_id=source)


def test_workers_and_sources() -> None:
    records = state(workers=("w1", "w2"), bindings={"s1": "w1", "s2": "gone", "s3": ""})
    found = _found(records)
    assert {each.labels["worker"]: each.value for each in found.of("dm_master_worker_state")} == {
        "gone": 0,
        "w1": 2,
        "w2": 1,
    }
    assert {each.labels["state"]: each.value for each in found.of("dm_workers")} == {"bound": 1, "free": 1}
    assert {each.labels["state"]: each.value for each in found.of("dm_sources")} == {
        "bound": 1,
        "unbound": 2,
        "disabled": 0,
    }
    assert found.one("dm_source_bound", source_id="s2", worker="gone") == 0
    assert found.one("dm_source_bound", source_id="s3", worker="") == 0
    assert found.one("dm_records_age_seconds") == 0.5
    assert found.one("dm_records_revision") == records.revision > 0


def test_a_follower_exports_nothing_of_the_records() -> None:
    found = _found(state(workers=("w1",)), leads=False)
    assert found.one("dm_leader") == 0
    assert not found.of("dm_workers")
    assert not found.of("dm_records_revision")
    assert not found.of("dm_master_worker_state")


def test_a_leader_that_has_read_nothing_yet_exports_nothing_of_the_records() -> None:
    found = _found(None)
    assert found.one("dm_leader") == 1
    assert not found.of("dm_records_age_seconds")


def test_locks_of_sharding_ddls() -> None:
    lock = pb.LockRecord(
        task="t",
        target_schema="d",
        target_table="x",
        generation="g",
        owner="s1",
        statement="ALTER TABLE x ADD c INT",
        since=_NOW - 90,
        stage=pb.LockRecord.STAGE_GATHERING,
    )
    records = state(
        workers=("w1", "w2"),
        bindings={"s1": "w1", "s2": "w2"},
        subtasks=(_subtask("t", "s1"), _subtask("t", "s2"), _subtask("other", "s1")),
        locks=(lock,),
    )
    found = _found(records)
    assert found.one("dm_ddl_lock_age_seconds", task="t") == 90
    assert not found.of("dm_ddl_lock_age_seconds", task="other")
    [oldest] = found.of("dm_ddl_lock_oldest")
    assert (oldest.labels, oldest.value) == ({"task": "t", "lock": "t-`d`.`x`"}, 1)
    assert found.one("dm_ddl_locks", task="t", stage="gathering") == 1
    assert found.one("dm_master_ddl_state_number", task="t", type="Un-synced") == 1
    assert found.one("dm_master_ddl_state_number", task="other", type="Un-synced") == 0
    assert found.one("dm_ddl_lock_sources", task="t", state="unsynced") == 2
    assert found.one("dm_subtasks", task="t", expected="running") == 2


def test_conflicts_of_sharding_ddls() -> None:
    def shards(table: str, since: float, form: str = "other") -> pb.ShardRecord:
        parked = pb.ParkedAt(statement="ALTER", form=form, after="S2", since=since)
        orders = pb.ShardTarget(schema="d", table="x")
        orders.tables.add(schema="shop", table=table, structure="S0").parked.CopyFrom(parked)
        return pb.ShardRecord(targets=[orders])

    def lock(table: str) -> pb.LockRecord:
        return pb.LockRecord(task="t", target_schema="d", target_table=table, generation="g", owner="s1", form="first",
                             before="S0", after="S1", since=_NOW - 90, stage=pb.LockRecord.STAGE_GATHERING)  # fmt: skip

    found = _found(
        state(
            bindings={"s1": "", "s2": "", "s3": ""},
            subtasks=(_subtask("t", "s1"), _subtask("t", "s2"), _subtask("t", "s3"), _subtask("other", "s1")),
            shards={("t", "s1"): shards("a", 5, "first"), ("t", "s2"): shards("b", 9), ("t", "s3"): shards("c", 7)},
            locks=(lock("x"), lock("y")),
        )
    )
    assert found.one("dm_ddl_lock_conflicts", task="t") == 1
    assert found.one("dm_ddl_lock_conflicts", task="other") == 0
    [oldest] = found.of("dm_ddl_lock_conflict_oldest")
    assert oldest.labels == {"task": "t", "lock": "t-`d`.`x`", "source_id": "s3", "table": "`shop`.`c`"}


def test_counters_of_the_leader() -> None:
    counts = LeaderCounts()
    counts.leads()
    counts.placed(Bind("s1", "w1"))
    counts.placed(Bind("s1", "w2", "w1"))
    counts.placed(Unbind("s1", "w2"))
    counts.lock_failed("t")
    found = _found(state(bindings={"s1": ""}, subtasks=(_subtask("t", "s1"),)), counts=counts)
    assert found.one("dm_master_start_leader_counter") == found.one("dm_master_start_leader_counter_total") == 1
    kinds = {each.labels["kind"]: each.value for each in found.of("dm_source_placements_total")}
    assert kinds == {"bind": 1, "rebind": 1, "unbind": 1}
    assert found.one("dm_master_shard_ddl_error", task="t", type="InfoPut - HandleLockError") == 1
    assert found.sum("dm_master_shard_ddl_error", task="t") == 1
    assert len(found.of("dm_master_shard_ddl_error", task="t")) == 5


def test_only_the_oldest_lock_of_a_task_is_named() -> None:
    locks = tuple(
        pb.LockRecord(task="t", target_schema="d", target_table=table, generation="g", since=_NOW - age)
        for table, age in (("x", 30), ("y", 900), ("z", 60))
    )
    found = _found(state(bindings={"s1": ""}, subtasks=(_subtask("t", "s1"),), locks=locks))
    [oldest] = found.of("dm_ddl_lock_oldest")
    assert oldest.labels == {"task": "t", "lock": "t-`d`.`y`"}
    assert found.one("dm_ddl_lock_age_seconds", task="t") == 900


def test_calls_certificates_and_clocks() -> None:
    calls = CallCounts()
    calls.answered("/shardmerge.v1.Master/StartTask", grpc.StatusCode.OK, 0.5)
    end = CertificateEnd(CertificateFile(Use.ETCD, "etcd", "etcd.pem"), 500.0)
    clock = ClockDifference("worker w1", "the master", -1.5, 0.1)

    def found(*, leads: bool) -> Scrape:
        figures = MasterFigures(
            _NOW, _PROCESS, leads, LeaderCounts().figures(), state(), 0.5, calls.figures(), (end,), {"w1": clock}
        )
        return parse(exposition(list(master_samples(figures))).decode())

    for one in (found(leads=True), found(leads=False)):
        assert one.one("dm_api_requests_total", method="StartTask", code="OK") == 1
        assert one.one("dm_api_request_seconds_total", method="StartTask") == 0.5
        assert one.one("dm_certificate_expiry_timestamp_seconds", use="etcd") == 500
    assert found(leads=True).one("dm_worker_clock_difference_seconds", worker="w1") == -1.5
    assert not found(leads=False).of("dm_worker_clock_difference_seconds")


def test_many_locks_take_time_in_proportion() -> None:
    """A migration may lock a thousand tables at once: a scrape that takes seconds gets no answer."""
    sources, tables = 16, 1024
    names = [f"s{number:02}" for number in range(sources)]
    parked = pb.ParkedAt(statement="ALTER", form="f", after="a", position="b:1", since=1.0)
    record = pb.ShardRecord(
        epoch=1,
        targets=[
            pb.ShardTarget(
                schema="shop", table=f"t{number}", tables=[pb.ShardTable(schema="a", table=f"t{number}", parked=parked)]
            )
            for number in range(tables)
        ],
    )
    locks = tuple(
        pb.LockRecord(task="a", target_schema="shop", target_table=f"t{number}", generation="1", form="f", after="a")
        for number in range(tables)
    )
    records = state(
        bindings=dict.fromkeys(names, "w"),
        subtasks=tuple(_subtask("a", name) for name in names),
        shards={("a", name): record for name in names},
        locks=locks,
    )
    began = time.process_time()
    found = _found(records)
    assert time.process_time() - began < 1.5
    assert found.one("dm_ddl_lock_sources", task="a", state="synced") == sources * tables

"""Tests a worker's metrics: from figures to samples."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import common_pb2, compare_pb2, errors, worker_pb2
from shardmerge.proto.metrics import dm_syncer
from shardmerge.proto.metrics.exposition import exposition
from shardmerge.proto.metrics.process import ProcessFigures
from shardmerge.proto.metrics.tables import PerTable
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.proto.warnings.certificates import CertificateEnd, CertificateFile, Use
from shardmerge.proto.warnings.clocks import ClockDifference
from shardmerge.worker.core.batch import ChangeCounts
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.core.task_runner import JvmHeap
from shardmerge.worker.daemon.forecast.binlog_expiry import Expiry, NoLimit
from shardmerge.worker.daemon.forecast.figures import NO_FORECAST, NOTHING_MEASURED, SourceForecast, WorkerForecast
from shardmerge.worker.daemon.forecast.rates import Rate
from shardmerge.worker.daemon.forecast.relay_disk import RelayDisk
from shardmerge.worker.daemon.metrics.binlog_place import file_and_position
from shardmerge.worker.daemon.metrics.collect import table_shares, worker_samples
from shardmerge.worker.daemon.metrics.figures import (
    Compared,
    SourceFigures,
    SparkFigures,
    SubTaskFigures,
    WorkerFigures,
)
from shardmerge.worker.daemon.metrics.lanes import lane_samples
from shardmerge.worker.daemon.metrics.run_counts import RunCounts
from shardmerge.worker.daemon.metrics.subtasks import lag_of
from shardmerge.worker.relay.fetch.fetch_counts import FetchFigures
from shardmerge.worker.relay.relay import DiskSpace, RelayFigures
from shardmerge.worker.replicate.lane_totals import Changes, LaneTotal, SubTaskTotals
from shardmerge.worker.unit.contract import Failed, Finished, Stopped
from tests.support.metrics import Scrape, parse

_PROCESS = ProcessFigures("dm-worker", "1.2", lease_left=5.0, is_ready=True, loop_ages={"reconcile": 0.5})
_SPARK = SparkFigures(total_slots=16, free_slots=14, is_up=True)
_OF = {"task": "t", "source_id": "s"}


def _subtask(**sync: object) -> SubTaskFigures:
    status = worker_pb2.SubTaskStatus(name="t", stage=common_pb2.STAGE_RUNNING, epoch=7)
    status.sync.CopyFrom(worker_pb2.SyncStatus(**sync))  # pyright: ignore[reportArgumentType]
    return SubTaskFigures(status, known_seconds=100.0)


def _found(
    *subtasks: SubTaskFigures,
    per_table: PerTable = PerTable.AUTO,
    bound: bool = True,
    forecast: SourceForecast = NO_FORECAST,
    worker: WorkerForecast = NOTHING_MEASURED,
    silent_seconds: float | None = None,
    registered: bool = True,
) -> Scrape:
    heard_at = None if silent_seconds is None else 50.0 - silent_seconds
    status = worker_pb2.RelayStatus(
        stage=common_pb2.STAGE_RUNNING,
        master_binlog="(mysql-bin.000004, 900)",
        relay_binlog="(mysql-bin.000003, 800)",
        bytes_on_disk=1_000,
    )
    relay = RelayFigures(FetchFigures(heard_at=heard_at), files=2, space=DiskSpace(100, 40))
    source = SourceFigures("s", status, relay, subtasks, forecast)
    figures = WorkerFigures("w", 50.0, _PROCESS, registered, _SPARK, source if bound else None, worker)
    series = list(worker_samples(figures, table_shares(figures, {}, per_table)))
    keys = [(sample.family.name, sample.labels) for sample in series]
    assert len(keys) == len(set(keys)), "a series appears twice"
    return parse(exposition(series).decode())


def test_a_task_that_has_ended_has_no_series() -> None:
    one = _subtask(synced=True)
    other = _subtask(synced=True)
    other.status.name = "other"
    assert _found(one, other).of("dm_worker_task_state", task="other")
    assert not [each for each in _found(one).series if each.labels.get("task") == "other"]


_OF_A_RUN = (
    "dm_worker_task_state",
    "dm_task_paused",
    "dm_task_seconds_since_progress",
    "dm_task_synced",
    "dm_syncer_shard_lock_resolving",
)


def test_without_a_lease_a_task_has_no_stage_and_no_progress() -> None:
    """Another worker may run it. Its stage here (Paused) would hide that of the other one from the alerts, and an old
    age of its progress would let DM_stalled fire."""
    running = _subtask(synced=True, bytes_behind=5, oldest_ms=9_000)
    interrupted = _subtask(unknown="it is paused")
    interrupted.status.stage = common_pb2.STAGE_PAUSED
    for name in _OF_A_RUN:
        assert _found(running).of(name, **_OF), name
        assert _found(interrupted).of(name, **_OF), name
        assert not _found(running, registered=False).of(name, **_OF), name
        assert not _found(interrupted, registered=False).of(name, **_OF), name
    assert not _found(running, registered=False).of("dm_task_lag_seconds", **_OF)
    assert _found(running, registered=False).of("dm_task_runs_total", **_OF), "counters do not vanish"


def test_without_a_lease_a_source_has_no_state() -> None:
    """Another worker may have it: what this one has would hide that it cannot connect, or announce a loss in vain."""
    forecast = SourceForecast(expiry=Expiry(86_400, 3_600, 3_600))
    names = ("dm_source_connected", "dm_relay_paused", "dm_relay_caught_up", "dm_source_binlog_expires_in_seconds")
    for name in names:
        assert _found(forecast=forecast).of(name, source_id="s"), name
        assert not _found(forecast=forecast, registered=False).of(name), name
    assert _found(registered=False).of("dm_relay_written_bytes_total", source_id="s"), "counters do not vanish"
    assert _found(registered=False).of("dm_relay_disk_bytes", source_id="s")


def test_an_error_that_has_paused_a_task_stays_without_a_lease() -> None:
    failed = _subtask(unknown="it is paused")
    failed.status.stage = common_pb2.STAGE_PAUSED
    failed.status.result.errors.append(
        error_to_proto(errors.snapshot.TABLE_GONE(source="s", schema="d", table="x", task="t"))
    )
    found = _found(failed, registered=False)
    assert found.one("dm_worker_task_state", **_OF) == common_pb2.STAGE_PAUSED
    assert found.one("dm_task_paused", **_OF, by="error") == 1


def test_names_of_any_characters_are_label_values() -> None:
    names = ('a"b', "a\\b", "a\nb", "a\\nb", "caf\u00e9 \U0001f600", "x" * 128, "a{b=}", " ", "a\x1b[31m\r\x00b")
    for name in names:
        subtask = _subtask(synced=True)
        subtask.status.name = name
        changes = {TargetTable(name, name): ChangeCounts(1, 2, 3)}
        subtask = replace(subtask, totals=SubTaskTotals({0: LaneTotal(Changes.of(changes))}, tuple(changes)))
        found = _found(subtask)
        assert {each.labels["task"] for each in found.series if "task" in each.labels} >= {name}
        [update] = found.of("dm_syncer_added_jobs_total", type="update", target_schema=name, target_table=name)
        assert update.value == 2


def test_a_free_worker_has_no_series_of_a_source() -> None:
    found = _found(bound=False)
    assert not [each for each in found.series if "source_id" in each.labels or each.name.startswith("dm_relay")]
    assert (found.one("dm_worker_bound"), found.one("dm_worker_registered")) == (0, 1)
    assert found.one("dm_worker_spark_slots", state="used") == 2
    assert not found.of("dm_worker_spark_executor_slots")
    assert found.one("dm_loop_age_seconds", loop="reconcile") == 0.5


def test_everything_is_zero_before_anything_happens() -> None:
    found = _found(_subtask(unknown="its lanes have not started"))
    for name in ("dm_syncer", "dm_dumpling", "dm_loader"):
        for resumable in ("true", "false"):
            assert found.one(f"{name}_exit_with_error_count", **_OF, resumable_err=resumable) == 0
    assert found.one("dm_relay_exit_with_error_count", resumable_err="false") == 0
    assert found.sum("dm_lane_rows_total", **_OF) == 0
    assert len(found.of("dm_lane_rows_total", **_OF)) == 3
    assert len(found.of("dm_syncer_finished_jobs_total", **_OF, type="insert")) == 1
    assert found.one("dm_syncer_txn_duration_time_count", **_OF) == 0
    assert not found.of("dm_task_failures_total")


def test_an_unknown_lag_has_no_series() -> None:
    found = _found(_subtask(unknown="the source has not answered for 20 s"))
    names = (
        "dm_task_lag_seconds",
        "dm_task_bytes_behind",
        "dm_syncer_replication_lag_gauge",
        "dm_syncer_remaining_time",
        "dm_task_checkpoint_age_seconds",
    )
    assert [name for name in names if found.of(name)] == []
    assert found.one("dm_task_synced", **_OF) == 0


def test_the_lag_stays_while_a_run_is_tried_again() -> None:
    retried = replace(_subtask(unknown="error 40003 target-lost has stopped it"), applied_seconds=42.0)
    retried.status.stage = common_pb2.STAGE_PAUSED
    assert not _found(retried).of("dm_task_lag_seconds"), "it is not tried again"
    found = _found(replace(retried, resume_seconds=3.0))
    assert found.one("dm_task_lag_seconds", **_OF, basis="retry") == 42
    assert found.one("dm_syncer_replication_lag_gauge", **_OF, worker="w") == 42
    assert found.one("dm_task_synced", **_OF) == 0
    begun = replace(_subtask(unknown="its lanes have not started"), applied_seconds=44.0)
    assert _found(begun).one("dm_task_lag_seconds", **_OF, basis="retry") == 44


@pytest.mark.parametrize(
    ("sync", "silent_seconds", "expected"),
    [
        (worker_pb2.SyncStatus(synced=True), 1.1, ("idle", 0.0)),
        (worker_pb2.SyncStatus(synced=True), 2.5, ("heartbeat", 2.5)),
        (worker_pb2.SyncStatus(synced=True), None, None),  # nothing of the source has arrived yet
        (worker_pb2.SyncStatus(oldest_ms=2_500, bytes_behind=10), 9.0, ("event", 2.5)),
        (worker_pb2.SyncStatus(oldest_ms=2_500), 0.1, ("event", 2.5)),  # seen at the source, not fetched
        (worker_pb2.SyncStatus(bytes_behind=10, lag_ms=700), 0.1, ("event", 0.7)),
        (worker_pb2.SyncStatus(bytes_behind=10), 0.1, None),  # a backlog of unknown age is not 0
        (worker_pb2.SyncStatus(unknown="it is paused"), 0.1, None),
    ],
)
def test_lag_and_its_basis(
    sync: worker_pb2.SyncStatus, silent_seconds: float | None, expected: tuple[str, float] | None
) -> None:
    assert lag_of(sync, silent_seconds) == expected


def test_lag_is_exported_with_dms_name_and_ours() -> None:
    found = _found(replace(_subtask(oldest_ms=2_500, bytes_behind=10), remaining_seconds=4.0))
    assert found.one("dm_task_lag_seconds", **_OF, basis="event") == 2.5
    assert found.one("dm_syncer_replication_lag_gauge", **_OF, worker="w") == 2.5
    assert found.one("dm_syncer_remaining_time", **_OF) == 4


def test_nothing_remains_when_everything_is_applied() -> None:
    applied = replace(_subtask(synced=True), remaining_seconds=None)
    assert _found(applied, silent_seconds=0.5).one("dm_syncer_remaining_time", **_OF) == 0
    assert not _found(applied, silent_seconds=9.0).of("dm_syncer_remaining_time", **_OF)


def test_positions_of_source_relay_and_lanes() -> None:
    found = _found(_subtask(master_binlog="(mysql-bin.000004, 900)", syncer_binlog="(mysql-bin.000002, 700)"))
    assert found.one("dm_relay_binlog_file", node="master") == 4
    assert found.one("dm_relay_binlog_pos", node="relay") == 800
    assert found.one("dm_syncer_binlog_file", **_OF, node="syncer") == 2
    assert found.one("dm_relay_space", type="available") == 40


def test_a_text_without_a_place_is_no_position() -> None:
    assert file_and_position("0-1-100") is None
    assert file_and_position("(, 0)") is None
    assert file_and_position("(a.b-1, c.000012, 34)") == (12, 34)


def test_progress_and_age_of_the_checkpoint() -> None:
    lanes = [worker_pb2.LaneStatus(lane=0, bytes_behind=5), worker_pb2.LaneStatus(lane=1)]
    totals = SubTaskTotals({}, (), {0: 20.0, 1: 45.0})  # at 50
    found = _found(replace(_subtask(lanes=lanes, bytes_behind=5, oldest_ms=9), totals=totals))
    assert found.one("dm_task_seconds_since_progress", **_OF) == 5
    assert found.one("dm_task_checkpoint_age_seconds", **_OF) == 30
    assert found.one("dm_lane_bytes_behind", **_OF, lane="0") == 5
    idle = _found(replace(_subtask(lanes=lanes[1:]), totals=totals))
    assert idle.one("dm_task_checkpoint_age_seconds", **_OF) == 0
    assert _found(_subtask()).one("dm_task_seconds_since_progress", **_OF) == 100


@pytest.mark.parametrize(
    ("lane", "expected"),
    [
        (worker_pb2.LaneStatus(), [0.0]),
        (worker_pb2.LaneStatus(bytes_behind=10, oldest_ms=2_500), [2.5]),
        (worker_pb2.LaneStatus(bytes_behind=10), []),  # the commit time of what it has not applied is not known
        (worker_pb2.LaneStatus(unknown="is silent", bytes_behind=10, oldest_ms=2_500), []),
    ],
)
def test_the_lag_of_a_lane(lane: worker_pb2.LaneStatus, expected: list[float]) -> None:
    found = _found(_subtask(lanes=[lane]))
    assert [each.value for each in found.of("dm_lane_lag_seconds", **_OF, lane="0")] == expected
    assert len(found.of("dm_lane_bytes_behind", **_OF, lane="0")) == (not lane.unknown)


def test_changes_by_lane_kind_and_table() -> None:
    one, two = TargetTable("d", "one"), TargetTable("d", "two")
    lanes = {
        0: LaneTotal(Changes.of({one: ChangeCounts(3, 2, 1)}), written_rows=4, statements=2, seconds={"target": 1.5}),
        1: LaneTotal(Changes.of({two: ChangeCounts(10, 0, 0)}), written_rows=10, statements=1, seconds={"target": 0.5}),
    }
    subtask = replace(_subtask(), totals=SubTaskTotals(lanes, (one, two), {}))
    found = _found(subtask)
    assert found.one("dm_lane_rows_total", **_OF, lane="0", kind="update") == 2
    assert found.one("dm_syncer_finished_jobs_total", **_OF, queueNo="0", type="delete", target_table="one") == 1
    assert found.sum("dm_syncer_finished_jobs_total", **_OF, type="insert") == 13
    assert found.one("dm_lane_seconds_total", **_OF, lane="1", cause="target") == 0.5
    assert found.one("dm_syncer_ideal_qps", **_OF) == 16  # 16 changes in 2 s of 2 lanes
    assert found.one("dm_metrics_merged_tables", **_OF) == 0
    off = _found(subtask, per_table=PerTable.OFF)
    assert {each.labels["target_table"] for each in off.of("dm_syncer_finished_jobs_total")} == {"_other"}
    assert off.sum("dm_syncer_finished_jobs_total", **_OF, type="insert") == 13
    assert off.one("dm_metrics_merged_tables", **_OF) == 2


_NAMES = [TargetTable("d", f"t{number}") for number in range(5)] + [TargetTable("_other", "_other")]
_COUNTS = st.builds(ChangeCounts, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
_PARTS = st.dictionaries(st.sampled_from(_NAMES), _COUNTS)


@given(
    st.dictionaries(st.integers(0, 3), st.lists(_PARTS, max_size=3), min_size=1),
    st.permutations(_NAMES),
    st.integers(0, 7),
)
def test_changes_of_all_tables_are_in_one_series_each(
    lanes: dict[int, list[dict[TargetTable, ChangeCounts]]], order: list[TargetTable], shown: int
) -> None:
    """Of every lane, kind and table: the series that hold it are those of the table, or `_other`."""
    tables = tuple(each for each in order if any(each in part for parts in lanes.values() for part in parts))
    totals = {
        lane: reduce(LaneTotal.plus, [LaneTotal(Changes.of(part)) for part in parts], LaneTotal())
        for lane, parts in lanes.items()
    }
    expected: dict[tuple[str, str, str, str], int] = {}
    for lane, parts in lanes.items():
        names = [*tables[:shown], *([_NAMES[-1]] if len(tables) > shown else [])] or [TargetTable("", "")]
        for name in names:
            for kind in ("insert", "update", "delete"):
                expected[str(lane), kind, *name] = 0
        for part in parts:
            for target, counts in part.items():
                name = target if target in tables[:shown] else _NAMES[-1]
                expected[str(lane), "insert", *name] += counts.inserts
                expected[str(lane), "update", *name] += counts.updates
                expected[str(lane), "delete", *name] += counts.deletes
    figures = replace(_subtask(), totals=SubTaskTotals(totals, tables))
    found = list(lane_samples(figures, "s", "w", shown))
    labels = ("queueNo", "type", "target_schema", "target_table")
    for family in (dm_syncer.ADDED_JOBS, dm_syncer.FINISHED_JOBS):
        series = [
            (tuple(dict(zip(family.labels, each.labels, strict=True))[label] for label in labels), each.value)
            for each in found
            if each.family is family
        ]
        assert len(series) == len(expected)
        assert dict(series) == expected


def test_the_time_of_readers_by_cause() -> None:
    found = _found(replace(_subtask(), reader_seconds={"read": 1.5, "throttle": 4.0}))
    assert {each.labels["cause"]: each.value for each in found.of("dm_snapshot_reader_seconds_total", **_OF)} == {
        "read": 1.5,
        "write": 0,
        "throttle": 4,
        "wait": 0,
    }
    assert found.one("dm_snapshot_reader_seconds_total", task=_OF["task"], cause="read") == 1.5


def test_ends_of_runs() -> None:
    counts = RunCounts()
    counts.ended(Finished(), in_snapshot=True)
    counts.ended(Stopped(), in_snapshot=False)
    counts.ended(Failed(errors.replicate.FENCED(task="t", source="s", epoch=1)), in_snapshot=False)
    refused = errors.snapshot.TABLE_GONE(source="s", schema="d", table="x", task="t")
    counts.ended(Failed(refused), in_snapshot=True)
    found = _found(replace(_subtask(), runs=counts.figures(), failures_in_row=2, resume_seconds=3.0))
    assert {each.labels["outcome"]: each.value for each in found.of("dm_task_runs_total")} == {
        "finished": 1,
        "stopped": 1,
        "failed": 2,
    }
    assert found.one("dm_task_failures_total", **_OF, code=str(refused.spec.code)) == 1
    assert found.one("dm_task_fenced_commits_total", **_OF) == 1
    assert found.sum("dm_dumpling_exit_with_error_count", **_OF) == 1
    assert found.sum("dm_loader_exit_with_error_count", **_OF) == 0
    assert found.sum("dm_syncer_exit_with_error_count", **_OF) == 1
    assert found.one("dm_task_auto_resume_attempts", **_OF) == 2
    assert found.one("dm_task_auto_resume_in_seconds", **_OF) == 3


def test_who_has_paused_a_task() -> None:
    paused = _subtask()
    paused.status.stage = common_pb2.STAGE_PAUSED
    by = {each.labels["by"]: each.value for each in _found(paused).of("dm_task_paused")}
    assert by == {"operator": 1, "error": 0}
    paused.status.result.errors.append(error_to_proto(errors.replicate.FENCED(task="t", source="s", epoch=1)))
    by = {each.labels["by"]: each.value for each in _found(paused).of("dm_task_paused")}
    assert by == {"operator": 0, "error": 1}
    by = {
        each.labels["by"]: each.value for each in _found(replace(paused, paused_by_operator=True)).of("dm_task_paused")
    }
    assert by == {"operator": 1, "error": 0}, "it fires no alert of a task that nobody looks at"


def test_the_history_is_shown_while_and_after_it_is_copied() -> None:
    load = worker_pb2.LoadStatus(finished_rows=50, total_rows=100, finished_chunks=1, total_chunks=2, eta_seconds=9)
    load.tables.add(finished_chunks=1, total_chunks=2)
    status = worker_pb2.SubTaskStatus(name="t", stage=common_pb2.STAGE_RUNNING, load=load)
    found = _found(SubTaskFigures(status))
    assert found.one("dm_snapshot_rows_done", **_OF) == found.one("dumpling_dump_finished_rows", **_OF) == 50
    assert found.one("dm_snapshot_eta_seconds", **_OF) == 9
    assert found.one("lightning_chunks", **_OF, state="estimated") == 2
    assert found.one("lightning_tables", **_OF, state="pending") == 1
    done = worker_pb2.LoadStatus(
        finished_rows=100, total_rows=100, finished_chunks=2, total_chunks=2, plan_complete=True, tables=load.tables
    )
    after = _found(replace(_subtask(), copied=done))
    assert after.one("dm_snapshot_eta_seconds", **_OF) == 0
    assert after.one("lightning_tables", **_OF, state="completed") == 1
    assert not _found(_subtask()).of("dm_snapshot_rows_done")


def test_an_unknown_time_of_the_history_has_no_series() -> None:
    status = worker_pb2.SubTaskStatus(name="t", load=worker_pb2.LoadStatus(total_chunks=2))
    assert not _found(SubTaskFigures(status)).of("dm_snapshot_eta_seconds")


def test_joining_tables_by_phase() -> None:
    subtask = _subtask()
    subtask.status.join.CopyFrom(worker_pb2.JoinStatus(tables=["a.b", "a.c"], phase="copying"))
    found = _found(subtask)
    assert {each.labels["phase"]: each.value for each in found.of("dm_task_joining_tables")} == {
        "starting": 0,
        "copying": 2,
        "following": 0,
        "failed": 0,
    }


def test_a_clock_that_is_read_too_slowly_is_not_known() -> None:
    """Else DM_clocks_differ would fire for a slow connection, without the warning that names both clocks."""
    coarse = ClockDifference("source s", "the worker", 2.0, 1.5)
    found = _found(forecast=SourceForecast(source_clock=coarse, target_clocks={"t": replace(coarse, ahead=-2.0)}))
    assert not found.of("dm_clock_difference_seconds")
    close = SourceForecast(source_clock=replace(coarse, ahead=0.5), target_clocks={"t": replace(coarse, ahead=9.0)})
    assert len(_found(forecast=close).of("dm_clock_difference_seconds")) == 2


def test_forecasts_of_a_source() -> None:
    clock = ClockDifference("source s", "the worker", 0.25, 0.001)
    forecast = SourceForecast(
        expiry=Expiry(kept=3_600.0, left=1_800.0, due=1_900.0),
        disk=RelayDisk(1_000, 400, 100, shrinking=Rate(0.5, 3_600.0)),
        source_clock=clock,
        target_clocks={"t": replace(clock, whose="target", ahead=-2.0)},
    )
    found = _found(forecast=forecast)
    assert found.one("dm_source_binlog_retention_seconds", source_id="s") == 3_600
    assert found.one("dm_source_binlog_retention_left_seconds", source_id="s") == 1_800
    assert found.one("dm_source_binlog_expires_in_seconds", source_id="s") == 1_900
    assert found.one("dm_relay_disk_full_in_seconds", source_id="s") == 1_000
    assert found.one("dm_clock_difference_seconds", source_id="s", of="source") == 0.25
    assert found.one("dm_clock_difference_seconds", source_id="s", task="t", of="target") == -2


@pytest.mark.parametrize("forecast", [NO_FORECAST, SourceForecast(expiry=NoLimit(), disk=RelayDisk(1_000, 400))])
def test_what_is_not_foreseen_has_no_series(forecast: SourceForecast) -> None:
    found = _found(forecast=forecast)
    names = {each.name for each in found.series}
    assert not {name for name in names if "retention" in name or "expires" in name or "full_in" in name}
    assert "dm_clock_difference_seconds" not in names


def test_a_relay_that_keeps_up_has_no_time_at_which_binlog_expires() -> None:
    found = _found(forecast=SourceForecast(expiry=Expiry(kept=3_600.0, left=3_600.0, due=None)))
    assert found.one("dm_source_binlog_retention_left_seconds", source_id="s") == 3_600
    assert not found.of("dm_source_binlog_expires_in_seconds")


def test_the_worker_itself() -> None:
    ends = (
        CertificateEnd(CertificateFile(Use.OWN, "this daemon", "own.pem"), 500.0),
        CertificateEnd(CertificateFile(Use.TARGET, "the target of task a", "a.pem"), 300.0),
        CertificateEnd(CertificateFile(Use.TARGET, "the target of task b", "b.pem"), 200.0),
    )
    found = _found(bound=False, worker=WorkerForecast(JvmHeap(10, 20, 30), ends))
    assert found.one("dm_certificate_expiry_timestamp_seconds", use="own") == 500
    assert found.one("dm_certificate_expiry_timestamp_seconds", use="target") == 200, "the first of all tasks"
    sizes = {each.labels["type"]: each.value for each in found.of("dm_worker_jvm_heap_bytes")}
    assert sizes == {"used": 10, "committed": 20, "max": 30}
    assert not _found(bound=False).of("dm_worker_jvm_heap_bytes")


def test_what_no_comparison_has_counted_has_no_series() -> None:
    none = _found(_subtask())
    assert (none.one("dm_compare_running", **_OF), none.of("dm_compare_rows")) == (0, [])
    assert not none.of("dm_compare_differences")
    rows = [compare_pb2.ComparedTable(source_table="s.a", rows=100, missing=1)]
    compared = Compared().after(compare_pb2.CompareRequest(), rows, 77.0)
    found = _found(replace(_subtask(), compared=replace(compared.figures(), is_running=True)))
    assert (found.one("dm_compare_running", **_OF), found.one("dm_compare_rows", **_OF)) == (1, 100)
    assert found.one("dm_compare_finished_timestamp_seconds", **_OF) == 77
    assert {each.labels["kind"]: each.value for each in found.of("dm_compare_differences")} == {
        "missing": 1,
        "extra": 0,
        "different": 0,
        "unjudged": 0,
        "repaired": 0,
    }

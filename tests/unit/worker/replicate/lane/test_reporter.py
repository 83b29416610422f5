"""Tests which reports of a lane are sent at once."""

from __future__ import annotations

import queue
from typing import cast

import pytest

from shardmerge.proto import relay_pb2, relay_pb2_grpc
from shardmerge.worker.core.batch import ChangeCounts
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.replicate.lane import reporter
from shardmerge.worker.replicate.lane.counters import CommitCounts
from shardmerge.worker.replicate.lane.reporter import LanePhase, Reporter
from shardmerge.worker.target.records.checkpoint import Checkpoint


class Stub:
    """Collects the reports."""

    def __init__(self) -> None:
        self.source_ahead = 0.0
        self.reports: queue.Queue[relay_pb2.LaneReport] = queue.Queue()

    def ReportLane(self, report: relay_pb2.LaneReport, timeout: float) -> relay_pb2.ReportAck:
        self.reports.put(report)
        return relay_pb2.ReportAck(source_ahead=self.source_ahead)


def _checkpoint(byte: int) -> Checkpoint:
    return Checkpoint(0, 1, 0, "r", RelayOffset(1, byte), 0, SourcePosition("b.1", byte), 0.0)


def test_a_commit_that_others_wait_for_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "_REPORT_SECONDS", 60.0)
    stub = Stub()
    made = Reporter(cast(relay_pb2_grpc.RelayStub, stub), relay_pb2.TaskIdentity(), lambda: False)
    made.start()
    try:
        stub.reports.get(timeout=20)
        made.committed(_checkpoint(100), 1, 0.0)
        with pytest.raises(queue.Empty):
            stub.reports.get(timeout=0.2)
        made.committed(_checkpoint(200), 1, 0.0, is_awaited=True)
        report = stub.reports.get(timeout=20)
        assert (report.committed.byte, report.rows) == (200, 2)
    finally:
        made.stop()


def test_time_is_counted_by_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(reporter.time, "monotonic", lambda: now[0])
    stub = Stub()
    made = Reporter(cast(relay_pb2_grpc.RelayStub, stub), relay_pb2.TaskIdentity(), lambda: False)

    def spend(seconds: float) -> None:
        now[0] += seconds

    spend(1)
    made.enter(LanePhase.READING)
    spend(2)
    made.reached_head()
    spend(4)
    made.enter(LanePhase.APPLYING)
    spend(8)
    made.enter(LanePhase.COMMITTING)
    spend(16)
    made.enter(LanePhase.READING)
    spend(32)
    made.barrier(1, _checkpoint(1))
    spend(64)
    made.left_barrier()
    made.enter(LanePhase.APPLYING)
    made.enter(LanePhase.READING, gathers=True)
    spend(128)
    made.reached_head()
    spend(256)
    made.enter(LanePhase.READING)
    spend(512)
    made.report_now()
    report = stub.reports.get(timeout=1)
    found = report.counters
    assert (found.start_seconds, found.read_seconds, found.idle_seconds) == (1, 34, 4 + 512)
    assert (found.decode_seconds, found.target_seconds, found.barrier_seconds) == (8, 16, 64)
    assert found.gather_seconds == 128 + 256, "also at the end of the relay log"
    assert (report.phase, report.phase_seconds) == ("reading", 128 + 256 + 512), "the phase is the same"


def test_lags_allow_for_the_clock_of_the_source() -> None:
    """Its worker answers each report with the difference."""
    stub = Stub()
    made = Reporter(cast(relay_pb2_grpc.RelayStub, stub), relay_pb2.TaskIdentity(), lambda: False)

    def counted(lag: float) -> tuple[int, float]:
        made.committed(_checkpoint(1), 6, 0.0, 0, CommitCounts({}, 5, 2, 0.1, lag))
        made.report_now()
        found = stub.reports.get(timeout=1).counters.lag_seconds
        return sum(found.counts), found.sum

    assert counted(0.7) == (1, pytest.approx(0.7))
    stub.source_ahead = 3600.0
    made.report_now()
    stub.reports.get(timeout=1)
    assert counted(-3599.5) == (2, pytest.approx(0.7 + 0.5))
    stub.source_ahead = 0.0
    made.report_now()
    stub.reports.get(timeout=1)
    assert counted(-0.2) == (3, pytest.approx(0.7 + 0.5)), "never below zero"


def test_a_report_has_the_counts_of_all_commits() -> None:
    stub = Stub()
    made = Reporter(cast(relay_pb2_grpc.RelayStub, stub), relay_pb2.TaskIdentity(), lambda: False)
    for _ in range(2):
        counts = CommitCounts({TargetTable("d", "t"): ChangeCounts(3, 2, 1)}, 5, 2, 0.1, 0.7)
        made.committed(_checkpoint(1), 6, 0.0, 0, counts)
    made.report_now()
    found = stub.reports.get(timeout=1).counters
    assert [(each.target_table, each.inserts, each.updates, each.deletes) for each in found.tables] == [("t", 6, 4, 2)]
    assert (found.written_rows, found.statements, sum(found.commit_seconds.counts)) == (10, 4, 2)

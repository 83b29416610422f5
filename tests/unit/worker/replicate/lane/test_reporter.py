"""Tests which reports of a lane are sent at once."""

from __future__ import annotations

import queue
from typing import cast

import pytest

from shardmerge.proto import relay_pb2, relay_pb2_grpc
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.replicate.lane import reporter
from shardmerge.worker.replicate.lane.reporter import Reporter
from shardmerge.worker.target.records.checkpoint import Checkpoint


class Stub:
    """Collects the reports."""

    def __init__(self) -> None:
        self.reports: queue.Queue[relay_pb2.LaneReport] = queue.Queue()

    def ReportLane(self, report: relay_pb2.LaneReport, timeout: float) -> None:
        self.reports.put(report)


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

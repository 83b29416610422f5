"""Tests the counts of a server's calls."""

from __future__ import annotations

import grpc

from shardmerge.proto.rpc.call_counts import NO_CALLS, CallCounts


def test_calls_by_method_and_status() -> None:
    counts = CallCounts()
    assert counts.figures() == NO_CALLS
    for status in (grpc.StatusCode.OK, grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE):
        counts.answered("/shardmerge.v1.Master/StartTask", status, 0.5)
    counts.answered("/grpc.health.v1.Health/Check", grpc.StatusCode.OK, 0.25)
    found = counts.figures()
    assert found.calls == {("StartTask", "OK"): 2, ("StartTask", "UNAVAILABLE"): 1, ("Check", "OK"): 1}
    assert found.seconds == {"StartTask": 1.5, "Check": 0.25}

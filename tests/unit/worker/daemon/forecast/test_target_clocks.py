"""Tests when the clocks of targets are read."""

from __future__ import annotations

from shardmerge.proto import config_pb2
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.mysql.server_clock import ClockReading
from shardmerge.worker.daemon.forecast.target_clocks import TargetClocks
from tests.support.fake_clock import FakeClock


def _config(task: str, port: int) -> config_pb2.SubTaskConfig:
    return config_pb2.SubTaskConfig(task=task, target=config_pb2.Endpoint(host="127.0.0.1", port=port))


def test_each_target_is_read_once_for_all_of_its_tasks() -> None:
    asked: list[int] = []

    def read(endpoint: Endpoint) -> ClockReading | None:
        asked.append(endpoint.port)
        return None if endpoint.port == 3 else ClockReading(f"target {endpoint.port}", 0.5, 0.1)

    configs = {"a": _config("a", 1), "b": _config("b", 1), "c": _config("c", 3)}
    clock = FakeClock()
    clocks = TargetClocks(lambda: dict(configs), read, clock)
    clock.run_for(290, clocks.run)
    assert sorted(asked) == [1, 3], "both targets are read"
    found = clocks.current()
    assert {task: each.ahead for task, each in found.items()} == {"a": 0.5, "b": 0.5}, "target 3 does not answer"
    configs["d"] = _config("d", 4)
    clock.run_for(6, clocks.run)
    assert "d" in clocks.current(), "a new task's target is read at once"
    assert sorted(asked) == [1, 3, 4]
    clock.run_for(20, clocks.run)
    assert sorted(asked) == [1, 1, 3, 3, 4], "again after five minutes"


def test_a_target_that_fails_unexpectedly_keeps_others_readable() -> None:
    asked: list[int] = []

    def read(endpoint: Endpoint) -> ClockReading | None:
        asked.append(endpoint.port)
        if endpoint.port == 1:
            raise RuntimeError("unexpected")
        return ClockReading("target", 0.5, 0.1)

    configs = {"a": _config("a", 1), "b": _config("b", 2)}
    clock = FakeClock()
    clocks = TargetClocks(lambda: dict(configs), read, clock)
    clock.run_for(20, clocks.run)
    assert "b" in clocks.current(), "the other one is read"
    configs["c"] = _config("c", 3)
    clock.run_for(20, clocks.run)
    assert "c" in clocks.current(), "a new one too"
    assert sorted(asked) == [1, 2, 3], "the failed one is not asked in a loop"

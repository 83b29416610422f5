"""Tests a source whose clock differs from the worker's, and jumps: lag figures allow for it, and no row depends on it.

The source has a clock of its own, so this module starts its own servers.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardmerge.proto import config_pb2
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.relay.clock_offset import ClockOffset
from shardmerge.worker.relay.model import PurgePolicy
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.relay.source_clock import PollingClock
from tests.integration.lane_rig import LaneRig, Run
from tests.integration.snapshot_rig import SOURCE, TASK, endpoint, subtask_config
from tests.support.database import Database
from tests.support.moved_clock import MovedClock
from tests.support.pair import KINDS
from tests.support.server_ids import unleased
from tests.support.wait import until

pytestmark = pytest.mark.turns

_HOUR = 3_600
_WAIT_SECONDS = 4.0
_TOLERANCE_SECONDS = 0.3


class _ClockRig(LaneRig):
    """Replication that measures the clock of its source, as the daemon does."""

    def __init__(self, source: Database, target: Database, directory: Path, config: config_pb2.SubTaskConfig) -> None:
        self.offset = ClockOffset()
        super().__init__(source, target, directory, config)

    def _new_relay(self, directory: Path) -> Relay:
        return Relay(
            directory,
            SOURCE,
            self.source_endpoint,
            self.source.flavor,
            unleased(4000),
            PurgePolicy(),
            clock_offset=self.offset,
        )


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.grid)])
def clock(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[MovedClock, Database, Database]]:
    made = MovedClock(tmp_path / "clock")
    kind = KINDS[request.param]
    source = kind(tmp_path / "source", 101)
    source.environment = made.environment
    target = kind(tmp_path / "target", 102)
    try:
        source.start()
        target.start()
        yield made, source, target
    finally:
        source.stop()
        target.stop()


@contextmanager
def _measured(rig: _ClockRig, endpoint: Endpoint) -> Generator[None]:
    polling = PollingClock(endpoint, SOURCE, rig.offset)
    try:
        until(lambda: rig.offset.seconds is not None, "the clock is read", 30)
        yield
    finally:
        polling.stop()


def _is_at(rig: _ClockRig, seconds: int) -> bool:
    found = rig.offset.reading
    return found is not None and abs(found.ahead - seconds) < 1


def test_lag_allows_for_the_clock_of_the_source(clock: tuple[MovedClock, Database, Database], tmp_path: Path) -> None:
    moved, source, target = clock
    moved.move(-2 * _HOUR)
    for server in (source, target):
        server.execute("CREATE DATABASE shard", "CREATE TABLE shard.t (id INT PRIMARY KEY, v INT)")
    with _ClockRig(source, target, tmp_path, subtask_config(target)) as rig, _measured(rig, endpoint(source)):
        run = rig.replicate(2)
        for number, ahead in enumerate((-2 * _HOUR, _HOUR, 0), 1):
            moved.move(ahead)
            until(lambda: _is_at(rig, ahead), "the new clock is read", 30)  # noqa: B023
            _until_lanes_know(rig)
            _shows_its_lag(rig, run, number)
            _shows_its_age(rig, run, number)
        assert run.stop()
        assert target.query("SELECT * FROM shard.t") == source.query("SELECT * FROM shard.t")


def _until_lanes_know(rig: _ClockRig) -> None:
    """Wait until each lane has reported twice: the first answer has the new difference of the clocks."""
    for _ in range(2):
        before = _reported(rig)
        until(lambda: all(seconds > before[lane] for lane, seconds in _reported(rig).items()), "lanes report", 30)  # noqa: B023


def _reported(rig: _ClockRig) -> dict[int, float]:
    """Return the time of which each lane has reported what it was spent on: it grows with each report."""
    lanes = rig.service.totals.of(TASK, SOURCE).lanes
    return {number: sum(lane.seconds.values()) for number, lane in lanes.items()}


def _shows_its_lag(rig: _ClockRig, run: Run, number: int) -> None:
    """A change is applied, and the time that it took is the lag that is shown and counted."""
    before, began = _counted(rig), time.monotonic()
    rig.source.execute(f"INSERT INTO shard.t VALUES ({number}, 0)")
    until(lambda: rig.target.query(f"SELECT 1 FROM shard.t WHERE id = {number}"), "the row is applied")
    took = time.monotonic() - began
    run.until_synced()
    until(lambda: run.status().lag_ms > 0, "the lag is known", 10)
    status = run.status()
    assert status.lag_ms / 1000 < took + _TOLERANCE_SECONDS
    assert status.oldest_ms == 0
    until(lambda: _counted(rig)[0] > before[0], "the lag is counted", 10)
    assert 0 <= _counted(rig)[1] - before[1] < took + _TOLERANCE_SECONDS


def _shows_its_age(rig: _ClockRig, run: Run, number: int) -> None:
    """What is not applied has its age, whatever the clock of the source shows."""
    locked = rig.target.connect()
    locked.begin()
    with locked.cursor() as cursor:
        cursor.execute("SELECT * FROM shard.t FOR UPDATE")
    rig.source.execute(f"UPDATE shard.t SET v = {number}")
    began = time.monotonic()
    until(lambda: run.status().oldest_ms >= 1000 * _WAIT_SECONDS, "it has an age", 30)
    assert run.status().oldest_ms / 1000 == pytest.approx(time.monotonic() - began, abs=1.5)
    locked.rollback()
    locked.close()
    run.until_synced()


def _counted(rig: _ClockRig) -> tuple[int, float]:
    """Return how many lags the lanes have counted, and their sum in seconds."""
    lanes = rig.service.totals.of(TASK, SOURCE).lanes.values()
    return sum(lane.lag_seconds.count for lane in lanes), sum(lane.lag_seconds.sum for lane in lanes)

"""Tests when the disk of the relay log is full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.daemon.forecast.rates import Rate
from shardmerge.worker.daemon.forecast.relay_disk import RelayDisk

_GIB = 1 << 30
_HOUR = 3_600.0


def _disk(shrinking: Rate | None, *, available: int = 40 * _GIB, purgeable: int = 0) -> RelayDisk:
    return RelayDisk(100 * _GIB, available, purgeable, shrinking)


def test_full_at_the_speed_of_the_last_hour() -> None:
    disk = _disk(Rate(40 * _GIB / 7_200, _HOUR))
    assert disk.full_in == pytest.approx(7_200)
    assert disk.is_near


@pytest.mark.parametrize(
    "rate", [None, Rate(0.0, _HOUR), Rate(-5.0, _HOUR), Rate(1e12, 30.0)], ids=["none", "constant", "grows", "started"]
)
def test_not_known_or_not_fuller(rate: Rate | None) -> None:
    assert _disk(rate).full_in is None
    assert not _disk(rate).is_near


def test_right_after_the_start_hours_are_not_known() -> None:
    # The relay fetches a backlog: full in an hour at this speed, which has been measured for two minutes.
    fast = 40 * _GIB / 3_600
    assert _disk(Rate(fast, 120.0)).full_in is None
    assert _disk(Rate(fast, 600.0)).full_in == pytest.approx(3_600)


def test_what_no_task_needs_counts_as_free() -> None:
    rate = Rate(40 * _GIB / 18_000, _HOUR)
    assert _disk(rate).is_near
    assert not _disk(rate, purgeable=20 * _GIB).is_near


def test_no_warning_while_half_of_the_disk_is_free() -> None:
    rate = Rate(60 * _GIB / 7_200, _HOUR)
    disk = _disk(rate, available=60 * _GIB)
    assert disk.full_in == pytest.approx(7_200)
    assert not disk.is_near


def test_a_pause_is_answered_without_the_limit_of_an_alarm() -> None:
    disk = RelayDisk(100 * _GIB, 40 * _GIB, 0, written=Rate(1 << 20, 120.0))
    assert disk.written_in == pytest.approx(40 * 1024)
    assert not disk.is_speed_unknown
    assert RelayDisk(1, 1, 0, written=Rate(5.0, 10.0)).is_speed_unknown
    assert RelayDisk(1, 1, 0, written=Rate(0.0, 100.0)).written_in is None


@given(
    room=st.integers(0, 1 << 50),
    speed=st.floats(1e-3, 1e12),
    measured=st.floats(0.0, 3_700.0),
)
def test_never_further_than_six_times_the_measured_time(room: int, speed: float, measured: float) -> None:
    found = RelayDisk(1 << 51, room, 0, Rate(speed, measured)).full_in
    assert found is None or (found <= 6 * measured and measured >= 60 and found == pytest.approx(room / speed))

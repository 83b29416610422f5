"""Tests the speed of a figure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.daemon.forecast.rates import Rate, RateWindow


def test_a_rate_needs_two_samples() -> None:
    window = RateWindow()
    assert window.rate() is None
    window.add(10.0, 5.0)
    assert window.rate() is None
    window.add(12.0, 9.0)
    assert window.rate() == Rate(2.0, 2.0)
    window.clear()
    assert window.rate() is None


def test_only_the_last_hour_counts() -> None:
    window = RateWindow()
    for second in range(0, 3_600, 5):
        window.add(float(second), second * 100.0)
    for second in range(3_600, 7_300, 5):
        window.add(float(second), 360_000.0)
    rate = window.rate()
    assert rate is not None
    assert rate.per_second == 0
    assert 3_500 <= rate.seconds <= 3_610


@given(
    speed=st.floats(-1e6, 1e6),
    steps=st.lists(st.floats(0.1, 500.0), min_size=2, max_size=300),
)
def test_a_constant_speed_is_found_whatever_the_samples(speed: float, steps: list[float]) -> None:
    window, at = RateWindow(), 0.0
    for step in steps:
        at += step
        window.add(at, at * speed)
    rate = window.rate()
    assert rate is not None
    assert abs(rate.per_second - speed) <= 1e-6 * max(1.0, abs(speed)) * max(1.0, at)
    assert rate.seconds <= 3_600 + 510

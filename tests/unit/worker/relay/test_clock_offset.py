"""How the offset of a source's clock follows from readings with errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.core.mysql.server_clock import ClockReading, compared
from shardmerge.worker.relay.clock_offset import ClockOffset


def offset(*readings: tuple[float, float]) -> ClockOffset:
    """Return the offset after readings (ahead, error)."""
    made = ClockOffset()
    for ahead, error in readings:
        made.add(ClockReading("s1", ahead, error))
    return made


def test_before_the_first_reading_it_is_not_known() -> None:
    assert ClockOffset().seconds is None
    assert ClockOffset().reading is None
    assert ClockOffset(0.0).seconds == 0.0


@pytest.mark.parametrize(
    ("ahead", "error", "expected"),
    [
        (0.0, 0.001, 0.0),
        (0.09, 0.001, 0.0),
        (-0.09, 0.001, 0.0),
        (0.3, 0.25, 0.0),  # a slow network: the clocks may be the same
        (0.3, 0.01, 0.3),
        (-7200.0, 0.5, -7200.0),
    ],
)
def test_small_differences_are_not_corrected(ahead: float, error: float, expected: float) -> None:
    assert offset((ahead, error)).seconds == expected


def test_the_most_exact_reading_counts() -> None:
    made = offset((10.3, 0.4), (10.0, 0.001), (9.8, 0.3))
    assert made.seconds == 10.0
    assert made.reading == ClockReading("s1", 10.0, 0.001)


def test_after_a_jump_earlier_readings_do_not_count() -> None:
    assert offset((3600.0, 0.0001), (3600.0, 0.0001), (-7200.0, 0.4)).seconds == -7200.0
    assert offset((3600.0, 0.0001), (0.01, 0.4)).seconds == 0.0


def test_readings_leave_after_a_minute() -> None:
    made = offset((10.0, 0.001), *[(10.04, 0.01)] * 59)
    assert made.seconds == 10.0
    made.add(ClockReading("s1", 10.04, 0.01))
    assert made.seconds == 10.04


@given(
    real=st.floats(-1e5, 1e5),
    errors=st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(-1.0, 1.0)), min_size=1, max_size=100),
)
def test_it_is_as_exact_as_its_best_reading(real: float, errors: list[tuple[float, float]]) -> None:
    """Each reading is off by at most its error."""
    made = offset(*((real + error * part, error) for error, part in errors))
    best = min(error for error, _ in errors[-60:])
    assert made.seconds is not None
    if made.seconds:
        assert abs(made.seconds - real) <= best + 1e-9
    else:
        assert abs(real) <= 0.1 + 2 * best + 1e-9


def test_a_reading_during_which_the_own_clock_changes_has_a_large_error() -> None:
    found = compared("s1", 1000.0, 1000.0, 1000.2)
    assert (found.ahead, found.error) == (pytest.approx(-0.1), pytest.approx(0.1))
    assert compared("s1", 1000.0, 1000.0, 400.0).error == 300.0

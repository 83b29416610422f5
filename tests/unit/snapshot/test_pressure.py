"""A source that has too much to do is left alone, and it is said why."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.snapshot.pressure import Bearable, Pressure, waits_for

LAGS = st.lists(st.none() | st.integers(0, 100), max_size=3)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), LAGS)
def test_above_a_limit_and_nowhere_else(threads: int, most: int, most_lag: int, lags: list[int | None]) -> None:
    why = waits_for(Bearable(most, most_lag), Pressure(threads, lags))
    lagging = any(lag is None or lag > most_lag for lag in lags)
    assert bool(why) == bool((most and threads > most) or (most_lag and lagging))


def test_what_is_said() -> None:
    limits = Bearable(threads_running=10, replica_lag=5)
    assert waits_for(limits, Pressure(10, (5, 0))) == ""
    assert waits_for(limits, Pressure(11, (6,))) == (
        "snapshot.max-threads-running: 11 threads run at the source, 10 may"
    )
    assert waits_for(limits, Pressure(1, (0, 6))) == (
        "snapshot.max-replica-lag: the source lags 6 s behind its own source, 5 s may be"
    )
    assert waits_for(limits, Pressure(1, (0, None))) == (
        "snapshot.max-replica-lag: the source is a replica that stands still"
    )
    assert not Bearable().is_limited

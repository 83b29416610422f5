"""No chunk begins at a source that exceeds a limit, and the reason is reported."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.snapshot.limits.source_load import LoadLimits, SourceLoad, throttle_reason

LAGS = st.lists(st.none() | st.integers(0, 100), max_size=3)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), LAGS)
def test_above_a_limit_and_nowhere_else(threads: int, most: int, most_lag: int, lags: list[int | None]) -> None:
    why = throttle_reason(LoadLimits(most, most_lag), SourceLoad(threads, lags))
    lagging = any(lag is None or lag > most_lag for lag in lags)
    assert bool(why) == bool((most and threads > most) or (most_lag and lagging))


def test_what_the_answer_has() -> None:
    limits = LoadLimits(threads_running=10, replica_lag=5)
    assert throttle_reason(limits, SourceLoad(10, (5, 0))) == ""
    assert throttle_reason(limits, SourceLoad(11, (6,))) == (
        "snapshot.max-threads-running: 11 threads run at the source, the limit is 10"
    )
    assert throttle_reason(limits, SourceLoad(1, (0, 6))) == (
        "snapshot.max-replica-lag: the source has a lag of 6 s to its own source, the limit is 5 s"
    )
    assert throttle_reason(limits, SourceLoad(1, (0, None))) == (
        "snapshot.max-replica-lag: the source is a replica whose replication is stopped"
    )
    assert not LoadLimits().is_limited

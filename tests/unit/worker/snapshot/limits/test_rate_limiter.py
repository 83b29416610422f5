"""A snapshot's readers keep to the limits, whatever the size of their chunks and whenever they ask."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.snapshot.limits.rate_limiter import ChunkSize, RateLimiter, RateLimits

AMOUNTS = st.builds(ChunkSize, st.integers(0, 500), st.integers(0, 50_000))
LIMITS = st.builds(RateLimits, st.integers(0, 1000), st.integers(0, 100_000)).filter(
    lambda limits: limits != RateLimits()
)


@given(
    LIMITS,
    AMOUNTS,
    st.integers(1, 4),
    st.lists(st.tuples(AMOUNTS, st.floats(0, 2), st.floats(0, 5)), min_size=1, max_size=40),
)
def test_no_more_is_read_than_the_limits_let_pass(
    limits: RateLimits, expected: ChunkSize, readers: int, chunks: list[tuple[ChunkSize, float, float]]
) -> None:
    """Each reader takes chunk after chunk, with pauses; the rows read before the last chunk are within the limit."""
    pace = RateLimiter(limits, expected)
    free = [0.0] * readers
    begun: float | None = None
    rows = size = 0
    for amount, reading, idle in chunks:
        reader = min(range(readers), key=free.__getitem__)
        now = free[reader] + idle
        now += pace.wait(now)
        assert pace.wait(now) <= 1e-9
        pace.begin(reader, now)
        begun = now if begun is None else begun
        free[reader] = now + reading
        # The shortest way to read too much: everything is reported at once.
        pace.read(reader, amount)
        rows, size = rows + amount.rows, size + amount.bytes
        elapsed = now - begun
        if limits.rows:
            assert rows - amount.rows <= limits.rows * elapsed + 1e-6
        if limits.bytes:
            assert size - amount.bytes <= limits.bytes * elapsed + 1e-6


def test_readers_that_begin_together_do_not_all_pass() -> None:
    pace = RateLimiter(RateLimits(rows=100), ChunkSize(200, 0))
    assert pace.wait(10.0) == 0
    pace.begin(0, 10.0)
    assert pace.wait(10.0) == 2.0
    pace.begin(1, 10.0)
    assert pace.wait(10.0) == 4.0
    pace.read(1, ChunkSize(0, 0))
    pace.begin(1, 10.0)
    pace.read(1, ChunkSize(0, 0))
    assert pace.wait(10.0) == 2.0
    pace.read(0, ChunkSize(50, 0))
    assert pace.wait(10.0) == 0.5


def test_idle_time_is_not_made_up_for() -> None:
    pace = RateLimiter(RateLimits(rows=100), ChunkSize(100, 0))
    pace.begin(0, 0.0)
    pace.read(0, ChunkSize(100, 0))
    assert pace.wait(1000.0) == 0
    pace.begin(0, 1000.0)
    pace.read(0, ChunkSize(100, 0))
    assert pace.wait(1000.0) == 1.0


def test_the_narrower_limit_is_named() -> None:
    assert RateLimiter(RateLimits(100, 1000), ChunkSize(10, 10)).tightest_limit == "snapshot.rows-per-second"
    assert RateLimiter(RateLimits(100, 1000), ChunkSize(10, 5000)).tightest_limit == "snapshot.bytes-per-second"
    assert RateLimiter(RateLimits(0, 1000), ChunkSize(10, 10)).tightest_limit == "snapshot.bytes-per-second"


def test_without_limits_nothing_waits() -> None:
    pace = RateLimiter(RateLimits(), ChunkSize(10, 10))
    pace.begin(0, 5.0)
    pace.read(0, ChunkSize(1 << 30, 1 << 40))
    assert pace.wait(5.0) == 0

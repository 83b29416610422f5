"""A snapshot's readers keep to the limits, whatever their chunks hold and whenever they ask."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.snapshot.pace import Amount, Limits, Pace

AMOUNTS = st.builds(Amount, st.integers(0, 500), st.integers(0, 50_000))
LIMITS = st.builds(Limits, st.integers(0, 1000), st.integers(0, 100_000)).filter(lambda limits: limits != Limits())


@given(
    LIMITS,
    AMOUNTS,
    st.integers(1, 4),
    st.lists(st.tuples(AMOUNTS, st.floats(0, 2), st.floats(0, 5)), min_size=1, max_size=40),
)
def test_no_more_is_read_than_the_limits_let_pass(
    limits: Limits, expected: Amount, readers: int, chunks: list[tuple[Amount, float, float]]
) -> None:
    """Each reader takes chunk after chunk, dawdling at times; what was read before the last one lies below the line."""
    pace = Pace(limits, expected)
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
        # The shortest way to read too much: all is told at once.
        pace.read(reader, amount)
        rows, size = rows + amount.rows, size + amount.bytes
        elapsed = now - begun
        if limits.rows:
            assert rows - amount.rows <= limits.rows * elapsed + 1e-6
        if limits.bytes:
            assert size - amount.bytes <= limits.bytes * elapsed + 1e-6


def test_readers_that_begin_together_do_not_all_pass() -> None:
    pace = Pace(Limits(rows=100), Amount(200, 0))
    assert pace.wait(10.0) == 0
    pace.begin(0, 10.0)
    assert pace.wait(10.0) == 2.0
    pace.begin(1, 10.0)
    assert pace.wait(10.0) == 4.0
    pace.read(1, Amount(0, 0))
    pace.begin(1, 10.0)
    pace.read(1, Amount(0, 0))
    assert pace.wait(10.0) == 2.0
    pace.read(0, Amount(50, 0))
    assert pace.wait(10.0) == 0.5


def test_idle_time_is_not_made_up_for() -> None:
    pace = Pace(Limits(rows=100), Amount(100, 0))
    pace.begin(0, 0.0)
    pace.read(0, Amount(100, 0))
    assert pace.wait(1000.0) == 0
    pace.begin(0, 1000.0)
    pace.read(0, Amount(100, 0))
    assert pace.wait(1000.0) == 1.0


def test_the_narrower_limit_is_named() -> None:
    assert Pace(Limits(100, 1000), Amount(10, 10)).waits_for == "snapshot.rows-per-second"
    assert Pace(Limits(100, 1000), Amount(10, 5000)).waits_for == "snapshot.bytes-per-second"
    assert Pace(Limits(0, 1000), Amount(10, 10)).waits_for == "snapshot.bytes-per-second"


def test_without_limits_nothing_waits() -> None:
    pace = Pace(Limits(), Amount(10, 10))
    pace.begin(0, 5.0)
    pace.read(0, Amount(1 << 30, 1 << 40))
    assert pace.wait(5.0) == 0

"""Counts observations in buckets, as a Prometheus histogram needs them. Without dependencies: lanes use it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


def doubled(first: float, count: int) -> tuple[float, ...]:
    """Upper bounds of buckets: each is twice the one before it."""
    return tuple(first * 2**number for number in range(count))


DURATIONS = doubled(5e-6, 25)
"""5 µs to 84 s; the bounds of DM's histograms of durations."""
SIZES = doubled(16, 20)
"""16 bytes to 8 MiB; the bounds of DM's histograms of sizes."""
STEPS = tuple(float(1 + 50 * number) for number in range(21))
"""1 to 1001; the bounds of DM's histograms of rows and of checkpoint intervals."""
LAGS = doubled(0.5, 12)
"""0.5 to 1024 s; the bounds of DM's histogram of the replication lag."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """``counts``: observations in each bucket, not cumulative; the last one counts those above all bounds. ``sum``: of
    the observed values."""

    counts: tuple[int, ...]
    sum: float

    @staticmethod
    def empty(bounds: Sequence[float]) -> Distribution:
        return Distribution((0,) * (len(bounds) + 1), 0.0)

    @property
    def count(self) -> int:
        return sum(self.counts)

    def plus(self, other: Distribution) -> Distribution:
        """Both together; they must have the same bounds."""
        return Distribution(
            tuple(one + two for one, two in zip(self.counts, other.counts, strict=True)), self.sum + other.sum
        )


NO_DURATIONS = Distribution.empty(DURATIONS)
NO_SIZES = Distribution.empty(SIZES)
NO_STEPS = Distribution.empty(STEPS)
NO_LAGS = Distribution.empty(LAGS)


class Histogram:
    """Collects observations; one thread writes, :meth:`read` may be called by another."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        # An upper bound belongs to its bucket.
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def read(self) -> Distribution:
        return Distribution(tuple(self._counts), self._sum)

"""Counts observations in buckets, as a Prometheus histogram needs them. Without dependencies: lanes use it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


def exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Upper bounds of buckets: each is ``factor`` times the one before it."""
    return tuple(first * factor**number for number in range(count))


def linear(first: float, step: float, count: int) -> tuple[float, ...]:
    """Upper bounds of buckets: each is ``step`` above the one before it."""
    return tuple(float(first + step * number) for number in range(count))


DURATIONS = exponential(5e-6, 2, 25)
"""5 µs to 84 s; the bounds of DM's histograms of durations."""
SIZES = exponential(16, 2, 20)
"""16 bytes to 8 MiB; the bounds of DM's histograms of sizes."""
STEPS = linear(1, 50, 21)
"""1 to 1001; the bounds of DM's histograms of rows and of checkpoint intervals."""
LAGS = exponential(0.5, 2, 12)
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

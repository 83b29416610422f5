"""Limits how fast a snapshot reads its source. Pure: the caller passes the time.

Chunks are the unit: a chunk that has begun is read as fast as the source delivers it, so that its read view is short;
the next one begins when the time of the chunks before it has elapsed. Idle time is not made up for later.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateLimits:
    """``rows`` and ``bytes`` per second, for all readers of one source together; 0: no limit."""

    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """The rows and bytes of a chunk."""

    rows: int
    bytes: int


class RateLimiter:
    """Computes when the next chunk may begin. ``expected``: the size of the first chunk. Not thread-safe.

    A chunk is charged when it begins, with the size of the last one, and again when it was read, with the difference.
    So readers that begin together do not all start before the first of them reports its size.
    """

    def __init__(self, limits: RateLimits, expected: ChunkSize) -> None:
        self._limits = limits
        self._expected = expected
        self._free_at = 0.0
        self._charged: dict[int, float] = {}

    def wait(self, now: float) -> float:
        """Seconds until the next chunk may begin; 0 when it may."""
        return max(0.0, self._free_at - now)

    @property
    def tightest_limit(self) -> str:
        """The limit that delays the next chunk, by its key in the task file."""
        rows, size = self._seconds(ChunkSize(self._expected.rows, 0)), self._seconds(ChunkSize(0, self._expected.bytes))
        return "snapshot.rows-per-second" if rows >= size else "snapshot.bytes-per-second"

    def begin(self, reader: int, now: float) -> None:
        """Charge the chunk that ``reader`` begins."""
        cost = self._charged[reader] = self._seconds(self._expected)
        self._free_at = max(self._free_at, now) + cost

    def read(self, reader: int, amount: ChunkSize) -> None:
        """Correct the charge of the chunk that ``reader`` has read."""
        self._free_at += self._seconds(amount) - self._charged.pop(reader, 0.0)
        self._expected = amount

    def _seconds(self, amount: ChunkSize) -> float:
        limits = self._limits
        rows = amount.rows / limits.rows if limits.rows else 0.0
        size = amount.bytes / limits.bytes if limits.bytes else 0.0
        return max(rows, size)

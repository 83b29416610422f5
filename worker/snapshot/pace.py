"""How fast a snapshot may read its source. Pure: whoever asks brings the time.

Chunks are the unit: one that has begun is read as fast as the source gives it, so that its read view is short; the next
begins when the ones before have had their time. Time in which nothing was read is not made up for later.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """``rows``, ``bytes``: per second, of all readers of one source together; 0: no limit."""

    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Amount:
    """What a chunk holds."""

    rows: int
    bytes: int


class Pace:
    """``expected``: of a chunk, before the first has been read. Not thread-safe.

    A chunk is charged when it begins, with what the last one held, and again when it was read, with the difference:
    readers that begin together do not all pass before the first of them tells what it took.
    """

    def __init__(self, limits: Limits, expected: Amount) -> None:
        self._limits = limits
        self._expected = expected
        self._free_at = 0.0
        self._charged: dict[int, float] = {}

    def wait(self, now: float) -> float:
        """Seconds until the next chunk may begin; 0 when it may."""
        return max(0.0, self._free_at - now)

    @property
    def waits_for(self) -> str:
        """The limit that holds chunks back, by its key in the task file."""
        rows, size = self._seconds(Amount(self._expected.rows, 0)), self._seconds(Amount(0, self._expected.bytes))
        return "snapshot.rows-per-second" if rows >= size else "snapshot.bytes-per-second"

    def begin(self, reader: int, now: float) -> None:
        """``reader`` begins a chunk."""
        cost = self._charged[reader] = self._seconds(self._expected)
        self._free_at = max(self._free_at, now) + cost

    def read(self, reader: int, amount: Amount) -> None:
        """What ``reader`` had begun was read."""
        self._free_at += self._seconds(amount) - self._charged.pop(reader, 0.0)
        self._expected = amount

    def _seconds(self, amount: Amount) -> float:
        limits = self._limits
        rows = amount.rows / limits.rows if limits.rows else 0.0
        size = amount.bytes / limits.bytes if limits.bytes else 0.0
        return max(rows, size)

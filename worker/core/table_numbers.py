"""Hands out the numbers of new shard tables to the streams of one run, which create tables at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from heapq import heappop, heappush


class TableNumbers:
    """Thread-safe. ``first``: the lowest number that no recorded table has."""

    def __init__(self, first: int) -> None:
        self._lock = threading.Lock()
        self._next = first
        self._returned: list[int] = []

    def take(self) -> int:
        """A number that no other table has or gets."""
        with self._lock:
            if self._returned:
                return heappop(self._returned)
            self._next += 1
            return self._next - 1

    def give_back(self, numbers: Iterable[int]) -> None:
        """No table was recorded under these numbers: they may be used again."""
        with self._lock:
            for number in numbers:
                heappush(self._returned, number)

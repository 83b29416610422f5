"""Measures how long ago each loop of a daemon began its last round: a loop that hangs makes /livez fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

STUCK_SECONDS = 300.0
"""A round may wait for time-outs of servers and for the end of runs, one after the other. Together they are shorter."""


class LoopAges:
    """Thread-safe. A loop is known from its first round to :meth:`ended`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: dict[str, float] = {}

    def begins(self, loop: str) -> None:
        """The loop begins a round."""
        with self._lock:
            self._begun[loop] = self._clock()

    def ended(self, loop: str) -> None:
        """The loop has ended as it should: its age no longer matters."""
        with self._lock:
            self._begun.pop(loop, None)

    def ages(self) -> Mapping[str, float]:
        """Seconds since each loop began its last round."""
        now = self._clock()
        with self._lock:
            return MappingProxyType({loop: max(0.0, now - begun) for loop, begun in sorted(self._begun.items())})


def stuck(ages: Mapping[str, float]) -> tuple[str, ...]:
    """The loops that began their last round too long ago. Pure."""
    return tuple(loop for loop, age in ages.items() if age > STUCK_SECONDS)

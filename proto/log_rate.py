"""Log lines that callers can cause at will: one of a kind in a while, with how many were left out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

_SECONDS = 10.0


class RateLimit:
    """Thread-safe. ``seconds``: between two lines of one kind; there must be few kinds."""

    def __init__(self, seconds: float = _SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._told: dict[Hashable, tuple[float, int]] = {}

    def left_out(self, kind: Hashable) -> int | None:
        """How many of ``kind`` were left out since the last line, if one is due now; None: leave this one out."""
        now = self._clock()
        with self._lock:
            at, count = self._told.get(kind, (float("-inf"), 0))
            if now - at < self._seconds:
                self._told[kind] = (at, count + 1)
                return None
            self._told[kind] = (now, 0)
            return count

"""A rate limit for log lines that any caller can cause: one line of a kind per interval, with a count of the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

_SECONDS = 10.0


class RateLimit:
    """Decides whether to log a line. Thread-safe. ``seconds``: interval between two lines of one kind; there must be
    few kinds."""

    def __init__(self, seconds: float = _SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._last_logged: dict[Hashable, tuple[float, int]] = {}

    def left_out(self, kind: Hashable) -> int | None:
        """How many of ``kind`` were left out since the last line, if one is due now; None: leave this one out."""
        now = self._clock()
        with self._lock:
            at, count = self._last_logged.get(kind, (float("-inf"), 0))
            if now - at < self._seconds:
                self._last_logged[kind] = (at, count + 1)
                return None
            self._last_logged[kind] = (now, 0)
            return count

"""Decides how long a comparison waits for a server that is away, as a restart makes it. Pure, but for the clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.process.periodic import Backoff

SECONDS = 300.0
"""A task retries without end; a command must end."""
_BACKOFF = Backoff(0.4, 5.0)


class Patience:
    """For one piece of work after the other. ``seconds``: from the first of several failures in a row."""

    def __init__(self, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._failures = 0
        self._failed_at = 0.0

    def succeeded(self) -> None:
        """Record that something was achieved: the time begins anew with the next failure."""
        self._failures = 0

    def pause(self, error: ShardmergeError) -> float | None:
        """Seconds to wait before the next attempt; None: ``error`` is final, as a task would not retry it either, or
        the time is over."""
        now = self._clock()
        if not self._failures:
            self._failed_at = now
        self._failures += 1
        if not error.spec.retryable or now - self._failed_at >= self._seconds:
            return None
        return _BACKOFF.seconds(self._failures)

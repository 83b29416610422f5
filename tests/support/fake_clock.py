"""Clocks for loops: one whose waits take no time, so that a test runs hours of a loop in its own thread, and a fast
one for loops in threads that use servers."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shardmerge.proto.process.periodic import Clock, Stop

_MOST_WAITS = 10_000


class FakeClock(Clock):
    """A wait only advances the time. ``waits``: how long each one lasted."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.waits: list[float] = []
        self._now = 1_000.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> float:
        return self._now

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call ``call`` that many seconds from now, during the wait that reaches this time."""
        self._due.append((self._now + seconds, call))

    def run_for(self, seconds: float, run: Callable[[threading.Event], None]) -> None:
        """Run a loop, and stop it that many seconds from now."""
        self.stop = threading.Event()
        self.after(seconds, self.stop.set)
        run(self.stop)

    def advance(self, seconds: float) -> None:
        """For work that takes time."""
        self._now += seconds

    def wait(self, stop: Stop, seconds: float) -> bool:
        assert len(self.waits) < _MOST_WAITS, "the loop neither waits nor ends"
        began, until = self._now, self._now + max(0.0, seconds)
        ended = stop.wait(0)
        while not ended and self._due and min(at for at, _ in self._due) <= until:
            at, call = min(self._due, key=lambda each: each[0])
            self._due.remove((at, call))
            self._now = max(self._now, at)
            call()
            ended = stop.wait(0)
        if not ended:
            self._now = until
        self.waits.append(self._now - began)
        return ended


class FastClock(Clock):
    """The real time, but no wait is longer than ``most`` seconds."""

    def __init__(self, most: float) -> None:
        self._most = most

    def wait(self, stop: Stop, seconds: float) -> bool:
        return stop.wait(min(seconds, self._most))

"""Repeats a step at an interval until a stop, and computes the pauses after failures. Tests supply a :class:`Clock`."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Protocol

from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.log_rate_limit import RateLimit

LAST: Final = math.inf
"""What a step returns after which there is no other one."""

_MOST_DOUBLINGS = 60  # more would exceed a float
_LOG_SECONDS = 600.0


class Stop(Protocol):
    """A ``threading.Event`` or a ``shardmerge.worker.core.stop_signal.StopSignal``; or what wraps one and ends a wait
    early, with False, when there is something to do."""

    def wait(self, seconds: float, /) -> bool:
        """Wait up to ``seconds``; True once stopped."""
        ...


class Clock:
    """The real time."""

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def wait(self, stop: Stop, seconds: float) -> bool:
        """Wait up to ``seconds``; True as soon as ``stop`` is set."""
        return stop.wait(seconds)


CLOCK: Final = Clock()


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses after failures: ``first``, doubled by each further failure, at most ``most``."""

    first: float
    most: float = math.inf

    def seconds(self, failures: int) -> float:
        """The pause after that many failures in a row, at least one."""
        return min(self.first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), self.most)


def repeat(
    step: Callable[[], float | None],
    seconds: float,
    stop: Stop,
    *,
    first: float | None = None,
    on_error: Callable[[ShardmergeError, int], float] | None = None,
    clock: Clock = CLOCK,
) -> None:
    """Wait ``seconds`` and carry out ``step``, again and again until ``stop``. ``first``: instead of the first wait.

    ``step``: returns how long to wait for the next one, None: ``seconds``, ``LAST``: never. ``on_error``: called with a
    coded error and the number of failures in a row, returns the pause. It is not called for an error after the stop:
    the stop may have closed the connection. Other errors, and all without ``on_error``, are raised.
    """
    failures = 0
    pause: float | None = seconds if first is None else first
    while pause != LAST and not clock.wait(stop, seconds if pause is None else pause):
        try:
            pause = step()
            failures = 0
        except ShardmergeError as error:
            if on_error is None:
                raise
            if stop.wait(0):
                return
            failures += 1
            pause = on_error(error, failures)


class LoopThread:
    """A thread that does not keep the process from ending, with a stop of its own."""

    def __init__(self, name: str, run: Callable[[threading.Event], None]) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=run, args=(self._stop,), name=name, daemon=True)
        self.start = self._thread.start
        self.is_alive = self._thread.is_alive

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    def end(self, seconds: float | None = None) -> None:
        """Stop it, and wait until it has ended. ``seconds``: at most so long; 0: do not wait."""
        self._stop.set()
        if self.is_alive():
            self._thread.join(seconds)


class Rounds:
    """Used by one thread. ``failed``: the text of the log line, once in ten minutes. ``expected``: errors that are not
    logged."""

    def __init__(self, failed: str, expected: Collection[ErrorSpec] = ()) -> None:
        self._failed = failed
        self._expected = expected
        self._log_limit = RateLimit(_LOG_SECONDS)

    def is_done(self, step: Callable[[], None]) -> bool:
        """Carry out ``step``; False: it has failed."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - what fails here must not end the thread without a word
            self._log(error)
            return False
        return True

    def _log(self, error: Exception) -> None:
        is_coded = isinstance(error, ShardmergeError)
        if is_coded and error.spec in self._expected:
            return
        left_out = self._log_limit.left_out("failed")
        if left_out is not None:
            text = str(error) if is_coded else f"{type(error).__name__}: {error}"
            get_logger().warning(self._failed, error=text, left_out=left_out, exc_info=not is_coded)

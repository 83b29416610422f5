"""The speed at which a figure changes, from samples of at most the last hour."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_APART_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Rate:
    """``per_second``: of the measured time, ``seconds``."""

    per_second: float
    seconds: float


class RateWindow:
    """Holds the samples of the last ``seconds``, one for each ten seconds, and the newest. Used by one thread."""

    def __init__(self, seconds: float = 3600.0) -> None:
        self._seconds = seconds
        self._samples: deque[tuple[float, float]] = deque()
        self._newest: tuple[float, float] | None = None

    def add(self, at: float, value: float) -> None:
        """``at``: seconds of a clock that only goes forward."""
        self._newest = at, value
        if not self._samples or at - self._samples[-1][0] >= _APART_SECONDS:
            self._samples.append((at, value))
        while len(self._samples) > 1 and at - self._samples[1][0] >= self._seconds:
            self._samples.popleft()

    def clear(self) -> None:
        """Forget all samples: what follows is not comparable with them."""
        self._samples.clear()
        self._newest = None

    def rate(self) -> Rate | None:
        """None: there are no two samples."""
        if self._newest is None or not self._samples:
            return None
        (first, before), (last, after) = self._samples[0], self._newest
        return Rate((after - before) / (last - first), last - first) if last > first else None

"""Determines how far a source's clock is ahead of the worker's, from readings that each have an error."""

from __future__ import annotations

from collections import deque

from shardmerge.worker.core.mysql.server_clock import ClockReading

_READINGS = 60
"""Readings from which the most exact one is used: those of a minute."""
_LEAST_SECONDS = 0.1
_DRIFT_SECONDS = 0.05
"""Clocks that a time server corrects run at up to 500 ppm of a different speed: 0.03 s in a minute."""


class ClockOffset:
    """The offset by which times of a source's clock and of the worker's are compared. One thread adds readings; all
    threads may read."""

    def __init__(self, seconds: float | None = None) -> None:
        """``seconds``: see :attr:`seconds`."""
        self._readings: deque[ClockReading] = deque(maxlen=_READINGS)
        self._best: ClockReading | None = None
        self._seconds = seconds

    @property
    def seconds(self) -> float | None:
        """How far the source's clock is ahead of the worker's; None: it has not been read yet.

        0.0 if the clocks may be the same, or differ by less than 0.1 s: lags of milliseconds must not change with the
        errors of readings.
        """
        return self._seconds

    @property
    def correction(self) -> float:
        """:attr:`seconds`, 0.0 before it is known."""
        return self._seconds or 0.0

    @property
    def reading(self) -> ClockReading | None:
        """The most exact of the readings that agree with the newest one; None: there is none."""
        return self._best

    def add(self, reading: ClockReading) -> None:
        """Add the newest reading. Earlier ones that contradict it are from before a change of one of the clocks."""
        kept = [each for each in self._readings if _agree(each, reading)]
        self._readings.clear()
        self._readings.extend((*kept, reading))
        best = min(self._readings, key=lambda each: each.error)
        self._best = best
        self._seconds = best.ahead if abs(best.ahead) - best.error > _LEAST_SECONDS else 0.0


def _agree(one: ClockReading, other: ClockReading) -> bool:
    return abs(one.ahead - other.ahead) <= one.error + other.error + _DRIFT_SECONDS

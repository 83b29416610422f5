"""When the disk of the relay log is full. Pure.

The speed is the one at which the free space has become less in the last hour, whichever process wrote to the disk. It
is never extrapolated further than six times the time that was measured: a minute after the start nothing is known about
hours.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.worker.daemon.forecast.rates import Rate

_LEAST_SECONDS = 60.0
_TRUSTED = 6.0
WARNING_SECONDS = 6 * 3600.0
_MUCH_FREE = 0.5


@dataclass(frozen=True, slots=True)
class RelayDisk:
    """``capacity``, ``available``: bytes of the file system; ``purgeable``: of segments that no task needs and that the
    relay removes when space is short. ``shrinking``: the bytes by which the free space becomes less; ``written``: bytes
    that the relay writes; each None: not measured yet."""

    capacity: int
    available: int
    purgeable: int = 0
    shrinking: Rate | None = None
    written: Rate | None = None

    @property
    def room(self) -> int:
        """Bytes that the relay can still write."""
        return self.available + self.purgeable

    @property
    def full_in(self) -> float | None:
        """Seconds until it is full; None: not known, it does not become fuller, or not within the trusted time."""
        return _time(self.room, self.shrinking)

    @property
    def is_near(self) -> bool:
        """Whether a warning is shown: never while half of the disk is free."""
        if self.capacity and self.available / self.capacity >= _MUCH_FREE:
            return False
        return self.full_in is not None and self.full_in < WARNING_SECONDS

    @property
    def written_in(self) -> float | None:
        """Seconds until the relay alone has filled the room, at its speed of the last hour; None: not measured, or it
        writes nothing. Without the limit of :attr:`full_in`: it is an answer to a question and no alarm."""
        if self.written is None or self.is_speed_unknown or self.written.per_second <= 0:
            return None
        return self.room / self.written.per_second

    @property
    def is_speed_unknown(self) -> bool:
        """Whether what the relay writes has not been measured for long enough."""
        return self.written is None or self.written.seconds < _LEAST_SECONDS


def _time(room: int, rate: Rate | None) -> float | None:
    if rate is None or rate.seconds < _LEAST_SECONDS or rate.per_second <= 0:
        return None
    seconds = room / rate.per_second
    return seconds if seconds <= _TRUSTED * rate.seconds else None

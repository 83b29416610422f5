"""Counts what the relay writes and the errors that interrupt it, for metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.metrics.distribution import DURATIONS, NO_DURATIONS, NO_SIZES, SIZES, Distribution, Histogram

_DAMAGED = (errors.relay.EVENT_CHECKSUM, errors.relay.GROUP_BROKEN, errors.relay.BAD_PACKET)
_DISK = (errors.relay.DISK_FULL, errors.relay.DISK_FAILED, errors.relay.RELAY_REMOVED)


@dataclass(frozen=True, slots=True)
class FetchFigures:
    """Since the worker has the source. ``bytes_written``: of the source's binlog; ``resumable``, ``final``: errors
    after which the relay continues by itself, or not; ``heard_at``: when an event or a heartbeat of the source last
    arrived, on the clock of :func:`time.monotonic`, None: none has."""

    bytes_written: int = 0
    write_bytes: Distribution = NO_SIZES
    write_seconds: Distribution = NO_DURATIONS
    damaged: int = 0
    write_errors: int = 0
    read_errors: int = 0
    resumable: int = 0
    final: int = 0
    heard_at: float | None = None

    def silent_seconds(self, now: float) -> float | None:
        """The time since an event or a heartbeat last arrived; None: none has."""
        return None if self.heard_at is None else max(0.0, now - self.heard_at)


NOTHING_FETCHED = FetchFigures()


class FetchCounts:
    """Written by the fetcher's thread only; :meth:`figures` may be called by any thread."""

    def __init__(self) -> None:
        self._bytes_written = 0
        self._write_bytes = Histogram(SIZES)
        self._write_seconds = Histogram(DURATIONS)
        self._damaged = self._write_errors = self._read_errors = 0
        self._resumable = self._final = 0
        self._heard_at: float | None = None

    def heard(self) -> None:
        """An event or a heartbeat of the source has arrived."""
        self._heard_at = time.monotonic()

    def wrote(self, size: int, seconds: float) -> None:
        """One write to the relay log is done."""
        self._bytes_written += size
        self._write_bytes.observe(size)
        self._write_seconds.observe(seconds)

    def failed(self, error: ShardmergeError, *, is_final: bool) -> None:
        """The relay was interrupted; ``is_final``: it does not continue by itself."""
        if error.spec in _DAMAGED:
            self._damaged += 1
        if error.spec in _DISK:
            self._write_errors += 1
        else:
            self._read_errors += 1
        if is_final:
            self._final += 1
        else:
            self._resumable += 1

    def figures(self) -> FetchFigures:
        return FetchFigures(
            self._bytes_written,
            self._write_bytes.read(),
            self._write_seconds.read(),
            self._damaged,
            self._write_errors,
            self._read_errors,
            self._resumable,
            self._final,
            self._heard_at,
        )

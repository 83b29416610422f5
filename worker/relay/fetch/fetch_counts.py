"""Counts what the relay writes and the errors that interrupt it, for metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

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
        self._counted = NOTHING_FETCHED
        self._bytes_written = 0
        self._write_bytes = Histogram(SIZES)
        self._write_seconds = Histogram(DURATIONS)
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
        known, is_disk = self._counted, error.spec in _DISK
        self._counted = replace(
            known,
            damaged=known.damaged + (error.spec in _DAMAGED),
            write_errors=known.write_errors + is_disk,
            read_errors=known.read_errors + (not is_disk),
            resumable=known.resumable + (not is_final),
            final=known.final + is_final,
        )

    def figures(self) -> FetchFigures:
        return replace(
            self._counted,
            bytes_written=self._bytes_written,
            write_bytes=self._write_bytes.read(),
            write_seconds=self._write_seconds.read(),
            heard_at=self._heard_at,
        )

"""When the source may delete binlog that is not fetched: its limits, and how far the relay is. Pure.

A source deletes a file of its binlog when the file was last written longer ago than the limit of the age allows, or
when all files together are larger than the limit of the size; never the file that it writes. So everything that is not
fetched stays for the whole limit while the relay is in the source's present file.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.daemon.forecast.rates import Rate, RateWindow
from shardmerge.worker.relay.binlog_retention import BinlogFile, bytes_from
from shardmerge.worker.relay.model import Head
from shardmerge.worker.relay.source_clock import SourceEnd, SourceReading

_LEAST_SECONDS = 30.0
"""A speed of the relay that was measured for a shorter time is not used."""
_SPEED_WINDOW_SECONDS = 600.0
WARNING_SECONDS = 86_400.0
WARNING_SHARE = 0.5
"""A warning is shown when less than a day is left, and less than this share of what the source keeps."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """``kept``: seconds for which the source keeps its binlog; ``left``: until it may delete what is not fetched, if
    the relay fetched nothing more; ``due``: the same at the relay's present speed, None: it keeps up."""

    kept: float
    left: float
    due: float | None

    @property
    def is_near(self) -> bool:
        """Whether a warning is shown."""
        return self.due is not None and self.due < min(WARNING_SECONDS, WARNING_SHARE * self.kept)


@dataclass(frozen=True, slots=True)
class NoLimit:
    """The source has no limit after which it deletes binlog, or none that its present speed reaches."""


@dataclass(frozen=True, slots=True)
class ExpiryUnknown:
    """``why``: one phrase."""

    why: str


BinlogExpiry = Expiry | NoLimit | ExpiryUnknown


def fetched_until(before: float, end: SourceEnd, head: Head) -> float:
    """The source's time up to which nothing may be deleted that is not fetched, by the age of the files: what is not
    fetched is in files that were written later. ``before``: the result of the previous call for the same server, 0.0:
    there was none."""
    in_present_file = head.position.same_server(end.position) and head.position.file == end.position.file
    if in_present_file or head.position.reaches(end.position):
        return max(before, end.since)
    return max(before, head.commit_time)


class FetchProgress:
    """How far the relay is in the source's time, and its speed there: 1.0 keeps up. Used by one thread."""

    def __init__(self) -> None:
        self._server = ""
        self._until = 0.0
        self._window = RateWindow(_SPEED_WINDOW_SECONDS)

    def add(self, at: float, end: SourceEnd, head: Head) -> None:
        """``at``: seconds of a clock that only goes forward."""
        if end.position.server != self._server:
            self._server, self._until = end.position.server, 0.0
            self._window.clear()
        self._until = fetched_until(self._until, end, head)
        if self._until:
            self._window.add(at, self._until)

    @property
    def until(self) -> float:
        """See :func:`fetched_until`; 0.0: not known."""
        return self._until

    def speed(self) -> Rate | None:
        """Seconds of the source's time that are fetched in a second."""
        return self._window.rate()


class SourceBytes:
    """The bytes that the source writes, from lists of its binlog files. Used by one thread."""

    def __init__(self) -> None:
        self._files: tuple[BinlogFile, ...] = ()
        self._written = 0
        self._window = RateWindow()

    def add(self, at: float, files: tuple[BinlogFile, ...]) -> None:
        """``files``: the same object until the list was read again."""
        if files is self._files or not files:
            return
        if self._files:
            newest = self._files[-1]
            size = bytes_from(files, SourcePosition(newest.name, 0))
            if size is None or size < newest.size:
                self._window.clear()  # another server, or all files are new
            else:
                self._written += size - newest.size
        self._files = files
        self._window.add(at, self._written)

    def rate(self) -> Rate | None:
        return self._window.rate()


def expiry(
    reading: SourceReading,
    head: SourcePosition,
    until: float,
    speed: Rate | None,
    source_bytes: Rate | None,
    *,
    is_fetching: bool,
) -> BinlogExpiry:
    """``until``, ``speed``: of :class:`FetchProgress`. ``source_bytes``: bytes that the source writes."""
    limits = reading.limits
    if limits is None or not reading.end.position.file:
        return ExpiryUnknown("the source's settings have not been read yet")
    found: list[tuple[float, float]] = []  # kept, left
    if limits.seconds is not None:
        if not until:
            return ExpiryUnknown("it is not known how far the relay log is")
        found.append((limits.seconds, max(0.0, limits.seconds - max(0.0, reading.now - until))))
    if limits.size is not None:
        needed = _bytes_needed(reading.files, head)
        if needed is None or source_bytes is None:
            return ExpiryUnknown("the source limits the size of its binlog, and its speed is not known yet")
        if source_bytes.per_second > 0:
            kept = limits.size / source_bytes.per_second
            left = max(0.0, limits.size - needed) / source_bytes.per_second
            found.append((kept, max(0.0, left - reading.files_age)))
    if not found:
        return NoLimit()
    kept, left = min(found, key=lambda each: each[1])
    return Expiry(kept, left, _due(left, speed, is_fetching=is_fetching))


def _bytes_needed(files: tuple[BinlogFile, ...], head: SourcePosition) -> int | None:
    """As :func:`shardmerge.worker.relay.binlog_retention.bytes_from`; 0 if ``head`` is in a file that was begun after
    the list was read."""
    if files and head.file_order() > SourcePosition(files[-1].name, files[-1].size).file_order():
        return files[-1].size if head.file == files[-1].name else 0
    return bytes_from(files, head)


def _due(left: float, speed: Rate | None, *, is_fetching: bool) -> float | None:
    if not is_fetching:
        return left
    if speed is None or speed.seconds < _LEAST_SECONDS or speed.per_second >= 1.0:
        return None
    return left / (1.0 - max(0.0, speed.per_second))

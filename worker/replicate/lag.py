"""Computes how far lanes are behind, in time. Pure, except for the samples in :class:`SourceProgress`.

Clocks: commit times are the source's (see worker/binlog/commit_time.py), times of applying are the lanes'. The measured
difference of the source's and the worker's clocks is taken into account (worker/relay/clock_offset.py). A difference
below 0.1 s, and one between the worker and a lane on another machine, appear as lag. No value here is ever below zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from shardmerge.worker.core.position import SourcePosition

_RECENT_SECONDS = 10.0
_KEEPS_UP_SECONDS = 1.0
_LEAST_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class AppliedTransaction:
    """A lane's last transaction with rows: commit at the source, commit at the target, in Unix seconds of the source's
    clock."""

    committed: float
    applied: float

    @property
    def lag_ms(self) -> float:
        return max(0.0, self.applied - self.committed) * 1000 if self.applied and self.committed else 0.0


def worst_lag_ms(lanes: Iterable[AppliedTransaction]) -> float:
    """The highest lag of the lanes' last transactions; one that was applied long before the newest is ignored."""
    known = [lane for lane in lanes if lane.applied]
    newest = max((lane.applied for lane in known), default=0.0)
    return max((lane.lag_ms for lane in known if newest - lane.applied <= _RECENT_SECONDS), default=0.0)


def age_ms(now: float, next_commit_time: float | None, applied_commit_time: float) -> float:
    """Age of a transaction that is not applied yet. ``now``: by the source's clock.

    ``next_commit_time``: its commit time, maybe rounded down to a second; None: there is none. ``applied_commit_time``:
    commit time of the one before it, which cannot be later.
    """
    if next_commit_time is None:
        return 0.0
    return max(0.0, now - max(next_commit_time, applied_commit_time)) * 1000


class CatchUp:
    """Estimates when a subtask has caught up, from samples of the bytes that it has not applied. Not thread-safe."""

    def __init__(self, seconds: float = 30.0) -> None:
        """``seconds``: over how long the speed is measured."""
        self._seconds = seconds
        self._samples: deque[tuple[float, int, int]] = deque()
        self._applied = 0

    def add(self, at: float, bytes_behind: int, applied: int = 0) -> None:
        """Record that it was ``bytes_behind`` at the time ``at``. ``applied``: bytes since the sample before."""
        self._applied += applied
        self._samples.append((at, bytes_behind, self._applied))
        while len(self._samples) > 2 and at - self._samples[1][0] >= self._seconds:
            self._samples.popleft()

    def remaining_seconds(self) -> float | None:
        """Seconds until it has caught up; None: unknown, or its lag grows."""
        if not self._samples:
            return None
        (since, before, applied), (at, behind, applied_now) = self._samples[0], self._samples[-1]
        if behind <= (applied_now - applied) / max(at - since, _LEAST_SECONDS) * _KEEPS_UP_SECONDS:
            # It keeps up: the rest is what is on its way, from whose changes the speed is not known.
            return behind / max(applied_now - applied, 1) * (at - since) if behind else 0.0
        return behind * (at - since) / (before - behind) if before > behind else None


class AppliedThrough:
    """Remembers up to when the source's transactions are applied, for the time in which no lane reports: while a run is
    tried again, or the source cannot be asked. Any thread may read."""

    def __init__(self) -> None:
        self._last: tuple[float, SourcePosition | None] | None = None

    def add(self, at: float, lag_seconds: float, end: SourcePosition | None) -> None:
        """Record that at the time ``at`` all was applied that had committed ``lag_seconds`` before. ``end``: everything
        was, up to there; None: something was not."""
        self._last = at - lag_seconds, end

    def seconds(self, now: float, end: SourcePosition | None) -> float | None:
        """The lag at the time ``now`` if nothing has been applied since: it grows, unless the source has written
        nothing. ``end``: the source's present end, None: it cannot be asked. None: nothing was recorded."""
        if self._last is None:
            return None
        through, applied = self._last
        if applied is not None and end is not None and applied.reaches(end):
            return 0.0
        return max(0.0, now - through)


class SourceProgress:
    """Samples of the end of the source's binlog; they determine since when something has not been fetched.

    Not thread-safe. ``keep``: how many samples are kept.
    """

    def __init__(self, keep: int = 600) -> None:
        self._keep = keep
        self._seen: list[tuple[float, SourcePosition]] = []

    def add(self, at: float, end: SourcePosition) -> None:
        """Record that the source's binlog ended at ``end`` at the time ``at``; an unchanged end is ignored."""
        if end.file and (not self._seen or self._seen[-1][1].file_order() != end.file_order()):
            self._seen.append((at, end))

    def unfetched_since(self, head: SourcePosition) -> float | None:
        """When an end after ``head`` was first seen; None: there is none. Samples before ``head`` are removed."""
        while self._seen and (head.reaches(self._seen[0][1]) or not head.same_server(self._seen[0][1])):
            del self._seen[0]
        # The oldest samples matter; the newest may be dropped.
        del self._seen[self._keep :]
        return self._seen[0][0] if self._seen else None


def unfetched_bytes(head: SourcePosition, end: SourcePosition) -> int:
    """Bytes of the source's binlog after ``head``, as far as known: of a later file only those up to ``end``."""
    if not head.same_server(end):
        return 0
    (head_file, head_pos), (end_file, end_pos) = head.file_order(), end.file_order()
    if end_file == head_file:
        return max(0, end_pos - head_pos)
    return end_pos if end_file > head_file else 0

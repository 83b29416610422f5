"""How far behind lanes are, in time. Pure, but for the memory of :class:`SourceTrail`.

Clocks: commit times are the source's (see worker/relay/commit_time.py), the moments of applying the lanes'. Where they
differ by more than a network's way, the difference shows as lag; no figure here is ever below zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from worker.position import SourcePosition

_RECENT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Applied:
    """A lane's last transaction with rows: commit at the source, commit at the target, in Unix seconds."""

    committed: float
    applied: float

    @property
    def lag_ms(self) -> float:
        return max(0.0, self.applied - self.committed) * 1000 if self.applied and self.committed else 0.0


def worst_lag_ms(lanes: Iterable[Applied]) -> float:
    """The worst of the lanes' last transactions; one applied long before the newest says nothing about now."""
    known = [lane for lane in lanes if lane.applied]
    newest = max((lane.applied for lane in known), default=0.0)
    return max((lane.lag_ms for lane in known if newest - lane.applied <= _RECENT_SECONDS), default=0.0)


def age_ms(now: float, first_behind: float | None, passed: float) -> float:
    """Age of a transaction that is not applied yet.

    ``first_behind``: its commit time, maybe rounded down to a second; None: there is none. ``passed``: commit time of
    the one before it, which cannot be later.
    """
    if first_behind is None:
        return 0.0
    return max(0.0, now - max(first_behind, passed)) * 1000


class SourceTrail:
    """Where the source's binlog ended, and when that was seen: for how long something has not been fetched.

    Not thread-safe. ``keep``: how many moments are remembered.
    """

    def __init__(self, keep: int = 600) -> None:
        self._keep = keep
        self._seen: list[tuple[float, SourcePosition]] = []

    def note(self, at: float, end: SourcePosition) -> None:
        """The source's binlog ended at ``end`` at the time ``at``; the same place again is no news."""
        if end.file and (not self._seen or self._seen[-1][1].file_order() != end.file_order()):
            self._seen.append((at, end))

    def unfetched_since(self, head: SourcePosition) -> float | None:
        """When something behind ``head`` was first seen; None: nothing is. What lies before ``head`` is forgotten."""
        while self._seen and (head.reaches(self._seen[0][1]) or not head.same_server(self._seen[0][1])):
            del self._seen[0]
        # The oldest say since when; the newest may go.
        del self._seen[self._keep :]
        return self._seen[0][0] if self._seen else None


def unfetched_bytes(head: SourcePosition, end: SourcePosition) -> int:
    """Bytes of the source's binlog behind ``head``, as far as known: of a later file only those up to ``end``."""
    if not head.same_server(end):
        return 0
    (head_file, head_pos), (end_file, end_pos) = head.file_order(), end.file_order()
    if end_file == head_file:
        return max(0, end_pos - head_pos)
    return end_pos if end_file > head_file else 0

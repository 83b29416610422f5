"""Collects changes that are evaluated together: Spark answers in milliseconds, for one row or for thousands."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.row_change import RowChange
from shardmerge.worker.core.uncomputed import StagedChange, UncomputedChange

_ROWS = 4000
_BYTES = 16 << 20


class PendingRows:
    """A lane's ``changes``, in order; in ``places`` the end position of each row change's event, by the change's
    id()."""

    def __init__(self) -> None:
        self.changes: list[StagedChange] = []
        self.places: dict[int, SourcePosition] = {}
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self.changes) >= _ROWS or self._bytes >= _BYTES

    def add(self, changes: Iterable[StagedChange], place: Callable[[RowChange], SourcePosition]) -> None:
        """``place``: returns the end position of a change's event."""
        for change in changes:
            self.changes.append(change)
            if isinstance(change, UncomputedChange):
                self._bytes += change.size
                continue
            self.places[id(change)] = place(change)
            self._bytes += sum(map(len, change.before)) + sum(map(len, change.after))

    def has_rows_of(self, shard: int) -> bool:
        """Whether it has changes of the shard table."""
        return any(change.plan.shard == shard for change in self.changes)

"""Collects changes that are evaluated together: Spark answers in milliseconds, for one row or for thousands."""

from __future__ import annotations

from collections.abc import Iterable

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.row_change import RowChange

_ROWS = 4000
_BYTES = 16 << 20


class PendingRows:
    """A lane's ``changes``, in order, and the end position of each one's event in ``places``, by the change's id()."""

    def __init__(self) -> None:
        self.changes: list[RowChange] = []
        self.places: dict[int, SourcePosition] = {}
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self.changes) >= _ROWS or self._bytes >= _BYTES

    def add(self, changes: Iterable[tuple[RowChange, SourcePosition]]) -> None:
        for change, place in changes:
            self.changes.append(change)
            self.places[id(change)] = place
            self._bytes += sum(map(len, change.before)) + sum(map(len, change.after))

"""Changes that wait to be evaluated together: Spark answers in tens of milliseconds, for one row or for thousands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from worker.position import SourcePosition
from worker.rows import RowChange

_ROWS = 4000
_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Waiting:
    """A lane's, in order, and where each one's event ends."""

    changes: list[RowChange]
    places: dict[int, SourcePosition]
    """By the change's identity."""

    @staticmethod
    def nobody() -> Waiting:
        return Waiting([], {})

    @property
    def is_full(self) -> bool:
        return len(self.changes) >= _ROWS or self._size() >= _BYTES

    def _size(self) -> int:
        return sum(sum(map(len, change.before)) + sum(map(len, change.after)) for change in self.changes)

    def add(self, changes: Iterable[tuple[RowChange, SourcePosition]]) -> None:
        for change, place in changes:
            self.changes.append(change)
            self.places[id(change)] = place

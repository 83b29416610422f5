"""The parts of a stream in which its lanes apply single tables' rows. Pure and picklable.

A table that is parked at a statement leaves the stream at the statement's end, and enters the stream of its replay
there. The lanes know these places in advance and do not stop at them: of a thousand statements in a row, only the first
is a barrier.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.rules.table_scope import TableName


@dataclass(frozen=True, slots=True)
class TableWindow:
    """A lane applies the rows of table ``name`` from group end ``begin`` (None: from its start) to group end ``end``
    (None: without an end)."""

    name: TableName
    begin: RelayOffset | None = None
    end: RelayOffset | None = None


class WindowCursor:
    """Tells which windows are open at a place of the stream, which only moves forward."""

    def __init__(self, windows: Iterable[TableWindow]) -> None:
        windows = tuple(windows)
        self._closed = {window.name for window in windows if window.begin is not None}
        begins = [(window.begin, True, window.name) for window in windows if window.begin is not None]
        ends = [(window.end, False, window.name) for window in windows if window.end is not None]
        self._edges = sorted(begins + ends, reverse=True)

    def is_open(self, name: TableName) -> bool:
        """Whether rows of the table are applied at the present place; True for a table without a window."""
        return name not in self._closed

    def is_at_edge(self, place: RelayOffset) -> bool:
        """Whether :meth:`advance` to ``place`` opens or closes a window."""
        return bool(self._edges) and self._edges[-1][0] <= place

    def advance(self, place: RelayOffset) -> frozenset[TableName]:
        """Move to group end ``place``; returns the tables whose windows have opened or closed."""
        changed: set[TableName] = set()
        while self.is_at_edge(place):
            _, opens, name = self._edges.pop()
            (self._closed.discard if opens else self._closed.add)(name)
            changed.add(name)
        return frozenset(changed)


def edges_of(windows: Iterable[TableWindow]) -> tuple[RelayOffset, ...]:
    """The places at which windows open or close, ascending."""
    return tuple(sorted({edge for window in windows for edge in (window.begin, window.end) if edge is not None}))

"""The shard tables of one run that wait before sharding DDLs; shared by its streams' drivers and its lock agent."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace

from worker.ddl.parked import Parked
from worker.position import RelayOffset


class WaitingTables:
    """Thread-safe. What is here is recorded at the target already: the lock agent reads it there, and may release a
    table before the driver that has recorded it comes to :meth:`park` it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._number = 0
        self._tables: dict[int, Parked] = {}
        self._behind: dict[int, RelayOffset] = {}

    def park(self, parked: Mapping[int, Parked], behind: RelayOffset) -> None:
        """A statement is passed, before which these tables wait, if any; ``behind``: where their rows go on, in the
        relay log at hand."""
        with self._changed:
            for number, item in parked.items():
                known = self._tables.get(number)
                if known is None or known != replace(item, released=True):
                    self._tables[number] = item
                self._behind[number] = behind
            self._tell()

    def release(self, released: Iterable[Parked]) -> None:
        """The statement lies behind these tables."""
        with self._changed:
            for item in released:
                self._tables[item.number] = item
            self._tell()

    def take(self, numbers: Iterable[int]) -> None:
        """These tables have a stream of their own: they wait no more."""
        with self._changed:
            for number in numbers:
                self._tables.pop(number, None)
                self._behind.pop(number, None)
            self._tell()

    def _tell(self) -> None:
        self._number += 1
        self._changed.notify_all()

    def number(self) -> int:
        """Another one after every change."""
        with self._changed:
            return self._number

    def released(self) -> dict[int, tuple[Parked, RelayOffset]]:
        """The tables whose rows may go on, and from where."""
        with self._changed:
            return {
                number: (item, self._behind[number])
                for number, item in self._tables.items()
                if item.released and number in self._behind
            }

    def waits(self) -> dict[int, Parked]:
        """The tables whose statement is still before them."""
        with self._changed:
            return {number: item for number, item in self._tables.items() if not item.released}

    def lowest(self) -> RelayOffset | None:
        """Where the relay log is needed from, for them; None: nowhere."""
        with self._changed:
            return min(self._behind.values(), default=None)

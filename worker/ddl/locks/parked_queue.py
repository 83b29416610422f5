"""The parked shard tables of one run; shared by its streams' drivers and its lock agent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.target.records.parked_tables import Parked


def _nothing() -> None:
    pass


class ParkedQueue:
    """Thread-safe. Its tables are recorded at the target already: the lock agent reads them there, and may release a
    table before the driver that recorded it calls :meth:`park`."""

    def __init__(self, on_change: Callable[[], None] = _nothing) -> None:
        """``on_change``: called after each change, by the thread that makes it."""
        self._on_change = on_change
        self._changed = threading.Condition()
        self._version = 0
        self._tables: dict[int, Parked] = {}
        self._resume_at: dict[int, RelayOffset] = {}
        self._departing: dict[int, RelayOffset] = {}
        self._copied: dict[int, int] = {}

    def announce(self, departing: Mapping[int, RelayOffset]) -> None:
        """These tables are about to be recorded as parked. The lanes still apply their rows up to these offsets."""
        with self._changed:
            self._departing.update(departing)

    def committed(self, lowest: RelayOffset | None) -> None:
        """All lanes have committed everything up to ``lowest``; None: that is not known."""
        with self._changed:
            passed = [number for number, at in self._departing.items() if lowest is not None and at <= lowest]
            for number in passed:
                del self._departing[number]
            if passed:
                self._notify()

    def departing(self) -> frozenset[int]:
        """The tables that are recorded as parked, but whose rows the lanes still apply."""
        with self._changed:
            return frozenset(self._departing)

    def park(self, parked: Mapping[int, Parked], resume_at: Mapping[int, RelayOffset]) -> None:
        """Statements were executed at which these tables are parked, if any. ``resume_at``: where their rows continue,
        in the current relay log."""
        with self._changed:
            for number, item in parked.items():
                known = self._tables.get(number)
                if known is None or replace(known, released=False, resumes_copy=0, skips=None) != item:
                    self._tables[number] = item
                self._resume_at[number] = resume_at[number]
            self._notify()

    def release(self, released: Iterable[Parked]) -> None:
        """These tables are released: they resume after their statement."""
        with self._changed:
            for item in released:
                self._tables[item.number] = item
            self._notify()

    def remove(self, numbers: Iterable[int]) -> None:
        """These tables have their own stream now: they are no longer parked."""
        with self._changed:
            for number in numbers:
                self._tables.pop(number, None)
                self._resume_at.pop(number, None)
            self._notify()

    def _notify(self) -> None:
        self._version += 1
        self._changed.notify_all()
        self._on_change()

    def version(self) -> int:
        """A number that changes with every change of the queue."""
        with self._changed:
            return self._version

    def released(self) -> dict[int, tuple[Parked, RelayOffset]]:
        """The tables whose rows may continue, and from where."""
        with self._changed:
            return self._released(copied=True)

    def uncopied(self) -> dict[int, tuple[Parked, RelayOffset]]:
        """The released tables of which the rest of the history has to be copied first."""
        with self._changed:
            return self._released(copied=False)

    def copied(self, numbers: Mapping[int, int]) -> None:
        """The rest of the history of these tables is copied, as far as that was possible after interruption ``number``
        (the value)."""
        with self._changed:
            self._copied.update(numbers)
            self._notify()

    def _released(self, *, copied: bool) -> dict[int, tuple[Parked, RelayOffset]]:
        return {
            number: (item, self._resume_at[number])
            for number, item in self._tables.items()
            if item.released
            and number in self._resume_at
            and (item.resumes_copy <= self._copied.get(number, 0)) is copied
        }

    def wait_released(self, seconds: float) -> None:
        """Wait up to ``seconds`` until :meth:`released` may have a table."""
        with self._changed:
            if not self._released(copied=True):
                self._changed.wait(seconds)

    def wait_change(self, version: int, seconds: float) -> None:
        """Wait up to ``seconds`` until :meth:`version` is no longer ``version``."""
        with self._changed:
            if self._version == version:
                self._changed.wait(seconds)

    def parked(self) -> dict[int, Parked]:
        """The tables that are still parked."""
        with self._changed:
            return {number: item for number, item in self._tables.items() if not item.released}

    def waiting(self) -> dict[int, tuple[Parked, RelayOffset]]:
        """The tables that are still parked, and from where on their rows wait."""
        with self._changed:
            return {
                number: (item, self._resume_at[number])
                for number, item in self._tables.items()
                if not item.released and number in self._resume_at
            }

    def lowest(self) -> RelayOffset | None:
        """From where they need the relay log; None: they need none."""
        with self._changed:
            return min(self._resume_at.values(), default=None)

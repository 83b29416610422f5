"""The parked shard tables of one run; shared by its streams' drivers and its lock agent.

announced ──▶ departing ──▶ parked ──▶ uncopied ──▶ ready ──▶ its own stream has it
                               │           ▲          ▲
                               └───────────┴──────────┘ the lock releases it
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.target.records.parked_tables import Parked


class Stage(enum.Enum):
    ANNOUNCED = enum.auto()  # about to be recorded as parked at a statement that the lanes have not reached
    DEPARTING = enum.auto()  # recorded as parked; the lanes still apply its rows
    PARKED = enum.auto()
    UNREPORTED = enum.auto()  # released by the lock agent, which reads the record before the driver reports the table
    UNCOPIED = enum.auto()  # released; the rest of its history has to be copied first
    READY = enum.auto()  # released; its rows may continue


@dataclass(frozen=True, slots=True)
class ParkedTable:
    """A shard table that has no stream, or that its stream is about to lose. Pure.

    ``item``: its record. ``resume_at``: where its rows continue, in the current relay log. ``leaves_at``: the lanes
    still apply its rows up to there. ``copied``: number of the last interruption after which the rest of its history
    was copied, as far as that was possible.
    """

    item: Parked | None = None
    resume_at: RelayOffset | None = None
    leaves_at: RelayOffset | None = None
    copied: int = 0

    @property
    def stage(self) -> Stage:
        item = self.item
        if item is None:
            return Stage.ANNOUNCED
        if self.leaves_at is not None:
            return Stage.DEPARTING
        if not item.released:
            return Stage.PARKED
        if self.resume_at is None:
            return Stage.UNREPORTED
        return Stage.UNCOPIED if item.resumes_copy > self.copied else Stage.READY

    def parked(self, item: Parked, resume_at: RelayOffset) -> ParkedTable:
        """The driver reports it. A release that the lock agent has reported before is kept."""
        known = self.item
        if known is not None and replace(known, released=False, resumes_copy=0, skips=None) == item:
            item = known
        return replace(self, item=item, resume_at=resume_at)


_PARKED = frozenset({Stage.DEPARTING, Stage.PARKED})


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
        self._tables: dict[int, ParkedTable] = {}
        self._leaving: frozenset[int] = frozenset()  # of _tables; asked for many times a second

    def announce(self, departing: Mapping[int, RelayOffset]) -> None:
        """These tables are about to be recorded as parked. The lanes still apply their rows up to these offsets."""
        with self._changed:
            for number, offset in departing.items():
                self._tables[number] = replace(self._of(number), leaves_at=offset)
            self._leaving = self._leaving.union(departing)

    def committed(self, lowest: RelayOffset | None) -> None:
        """All lanes have committed everything up to ``lowest``; None: that is not known."""
        with self._changed:
            leaving = [(number, self._tables[number].leaves_at) for number in self._leaving]
            passed = [number for number, at in leaving if lowest is not None and at is not None and at <= lowest]
            for number in passed:
                table = replace(self._tables.pop(number), leaves_at=None)
                if table.stage is not Stage.ANNOUNCED:
                    self._tables[number] = table
            self._leaving -= frozenset(passed)
            if passed:
                self._notify()

    def departing(self) -> frozenset[int]:
        """The tables that are recorded as parked, but whose rows the lanes still apply."""
        with self._changed:
            return self._leaving

    def park(self, parked: Mapping[int, Parked], resume_at: Mapping[int, RelayOffset]) -> None:
        """Statements were executed at which these tables are parked, if any. ``resume_at``: where their rows continue,
        in the current relay log."""
        with self._changed:
            for number, item in parked.items():
                self._tables[number] = self._of(number).parked(item, resume_at[number])
            self._notify()

    def release(self, released: Iterable[Parked]) -> None:
        """These tables are released: they resume after their statement."""
        with self._changed:
            for item in released:
                self._tables[item.number] = replace(self._of(item.number), item=item)
            self._notify()

    def remove(self, numbers: Iterable[int]) -> None:
        """These tables have their own stream now: they are no longer parked."""
        with self._changed:
            for number in numbers:
                self._tables.pop(number, None)
            self._leaving = self._leaving.intersection(self._tables)
            self._notify()

    def copied(self, numbers: Mapping[int, int]) -> None:
        """The rest of the history of these tables is copied, as far as that was possible after interruption ``number``
        (the value)."""
        with self._changed:
            for number, interruption in numbers.items():
                if number in self._tables:
                    self._tables[number] = replace(self._tables[number], copied=interruption)
            self._notify()

    def _of(self, number: int) -> ParkedTable:
        return self._tables.get(number) or ParkedTable()

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
            return self._placed(Stage.READY)

    def uncopied(self) -> dict[int, tuple[Parked, RelayOffset]]:
        """The released tables of which the rest of the history has to be copied first."""
        with self._changed:
            return self._placed(Stage.UNCOPIED)

    def waiting(self) -> dict[int, tuple[Parked, RelayOffset]]:
        """The tables that are still parked, and from where on their rows wait."""
        with self._changed:
            return self._placed(*_PARKED)

    def _placed(self, *stages: Stage) -> dict[int, tuple[Parked, RelayOffset]]:
        return {
            number: (table.item, table.resume_at)
            for number, table in self._tables.items()
            if table.item is not None and table.resume_at is not None and table.stage in stages
        }

    def wait_released(self, seconds: float) -> None:
        """Wait up to ``seconds`` until :meth:`released` may have a table."""
        with self._changed:
            if not self._placed(Stage.READY):
                self._changed.wait(seconds)

    def wait_change(self, version: int, seconds: float) -> None:
        """Wait up to ``seconds`` until :meth:`version` is no longer ``version``."""
        with self._changed:
            if self._version == version:
                self._changed.wait(seconds)

    def parked(self) -> dict[int, Parked]:
        """The tables that are still parked."""
        with self._changed:
            return {
                number: table.item
                for number, table in self._tables.items()
                if table.item is not None and table.stage in _PARKED
            }

    def lowest(self) -> RelayOffset | None:
        """From where they need the relay log; None: they need none."""
        with self._changed:
            return min((at for table in self._tables.values() if (at := table.resume_at) is not None), default=None)

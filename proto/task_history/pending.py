"""Entries that wait to be written: repeated events are merged, and their number is limited. Pure.

The first event of its kind is due at once. Its repetitions change the same entry, which is due again after a minute,
then after two, and so on up to a quarter of an hour: a task that fails every second for a day writes its entry about a
hundred times. A bucket of tokens for each kind of each task limits the entries of events that differ.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from shardmerge.proto.task_history.event import Event, HistoryEntry, HistoryEntryKind

GAP_SECONDS = 3600.0
"""A repetition that comes later after the one before it begins a new entry."""
SPAN_SECONDS = 86_400.0
"""An entry covers at most this time."""
BURST = 50
REFILL_SECONDS = 60.0
"""A process writes at most 50 entries of a kind of a task at once, and one more in each minute."""
FIRST_PAUSE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 900.0
MOST_WAITING = 2_000
MOST_OPEN = 1_000
MOST_BUCKETS = 5_000

_Group = tuple[str, tuple[str, ...], HistoryEntryKind, str]
_Counted = tuple[str, HistoryEntryKind]


@dataclass(slots=True)
class _Open:
    """An entry that takes repetitions. ``next_at``: when it may be written again, ``pause`` after the write before."""

    entry: HistoryEntry
    next_at: float
    pause: float = FIRST_PAUSE_SECONDS


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float

    def take(self, now: float) -> bool:
        self.tokens = min(float(BURST), self.tokens + max(0.0, now - self.at) / REFILL_SECONDS)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class PendingEntries:
    """Not thread-safe. ``writer``: distinguishes the process from all others, for the names of its entries. ``now`` is
    of one clock that does not go back."""

    def __init__(self, writer: str) -> None:
        self._writer = writer
        self._number = 0
        self._waiting: OrderedDict[str, tuple[float, HistoryEntry]] = OrderedDict()
        self._open: OrderedDict[_Group, _Open] = OrderedDict()
        self._open_groups: dict[str, _Group] = {}
        self._buckets: dict[_Counted, _Bucket] = {}
        self._left_out: dict[_Counted, int] = {}

    def add(self, event: Event, now: float) -> None:
        group = (event.task, event.sources, event.kind, event.same)
        known = self._open.get(group) if event.same else None
        if known is not None and self._repeats(known.entry, event):
            known.entry = replace(known.entry, event=event, count=known.entry.count + 1)
            self._open.move_to_end(group)
            self._wait(known.entry, known.next_at)
            return
        counted = (event.task, event.kind)
        if not self._bucket(counted, now).take(now):
            self._left_out[counted] = self._left_out.get(counted, 0) + 1
            return
        self._number += 1
        name = f"{max(0, round(event.at * 1000)):013d}-{self._writer}-{self._number:06d}"
        entry = HistoryEntry(name, event, event.at, left_out=self._left_out.pop(counted, 0))
        if event.same:
            if known is not None:
                self._close(group)
            self._open[group] = _Open(entry, now + FIRST_PAUSE_SECONDS)
            self._open_groups[entry.name] = group
            if len(self._open) > MOST_OPEN:
                self._close(next(iter(self._open)))
        self._wait(entry, now)

    def _bucket(self, counted: _Counted, now: float) -> _Bucket:
        if counted not in self._buckets and len(self._buckets) >= MOST_BUCKETS:
            full = now - BURST * REFILL_SECONDS
            self._buckets = {key: bucket for key, bucket in self._buckets.items() if bucket.at > full}
        return self._buckets.setdefault(counted, _Bucket(float(BURST), now))

    @staticmethod
    def _repeats(entry: HistoryEntry, event: Event) -> bool:
        return event.at - entry.event.at <= GAP_SECONDS and event.at - entry.first <= SPAN_SECONDS

    def separate(self, task: str, source: str) -> None:
        """See :class:`shardmerge.proto.task_history.event.History`."""
        for group in [each for each in self._open if each[0] == task and each[1] == (source,)]:
            self._close(group)

    def take_due(self, now: float, most: int) -> list[HistoryEntry]:
        """Up to ``most`` entries that are to be written now; they wait no longer."""
        due = [name for name, (at, _) in self._waiting.items() if at <= now][:most]
        taken = [self._waiting.pop(name)[1] for name in due]
        for entry in taken:
            known = self._open.get(self._open_groups.get(entry.name, ("", (), HistoryEntryKind.STAGE, "")))
            if known is not None:
                known.next_at = now + known.pause
                known.pause = min(known.pause * 2, LONGEST_PAUSE_SECONDS)
        return taken

    def put_back(self, entries: list[HistoryEntry], now: float) -> None:
        """``entries`` could not be written: they wait again, unless there is a newer form of them."""
        for entry in entries:
            if entry.name not in self._waiting:
                self._wait(entry, now)

    def hurry(self) -> None:
        """Every entry is due: the process ends."""
        self._waiting = OrderedDict((name, (0.0, entry)) for name, (_, entry) in self._waiting.items())

    def next_at(self) -> float | None:
        """When the next entry is due; None: none waits."""
        return min((at for at, _ in self._waiting.values()), default=None)

    def _wait(self, entry: HistoryEntry, at: float) -> None:
        before = self._waiting.get(entry.name)
        self._waiting[entry.name] = (at if before is None else min(at, before[0]), entry)
        if len(self._waiting) > MOST_WAITING:
            _, (_, lost) = self._waiting.popitem(last=False)
            counted = (lost.event.task, lost.event.kind)
            self._left_out[counted] = self._left_out.get(counted, 0) + lost.count + lost.left_out

    def _close(self, group: _Group) -> None:
        known = self._open.pop(group)
        self._open_groups.pop(known.entry.name, None)

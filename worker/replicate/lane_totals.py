"""Adds up what the lanes of each subtask report for metrics, over all of their runs at this worker.

A lane counts from 0 whenever it begins. The totals never fall while the subtask exists: what an earlier lane has
reported last is kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from shardmerge.proto import diagnose_pb2, relay_pb2
from shardmerge.proto.metrics.distribution import DURATIONS, LAGS, NO_DURATIONS, NO_LAGS, NO_STEPS, STEPS, Distribution
from shardmerge.worker.core.batch import ChangeCounts
from shardmerge.worker.core.table_plan import TargetTable

CAUSES = ("start", "idle", "read", "gather", "decode", "target", "retry", "barrier")
"""What a lane spends its time on; see LaneCounters in proto/relay.proto."""

NO_CHANGES = ChangeCounts(0, 0, 0)


def together(counts: Collection[ChangeCounts]) -> ChangeCounts:
    """The sum of ``counts``; faster than adding one to another."""
    return ChangeCounts(
        sum(each.inserts for each in counts), sum(each.updates for each in counts), sum(each.deletes for each in counts)
    )


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes by target table, and of all tables. ``parts``: what is added up; a table may be in several of them.

    To add two costs nothing for each table: there may be thousands, and most readers need only the sum.
    """

    parts: tuple[Mapping[TargetTable, ChangeCounts], ...] = ()
    kinds: ChangeCounts = NO_CHANGES

    @staticmethod
    def of(tables: Mapping[TargetTable, ChangeCounts]) -> Changes:
        return Changes((tables,), together(tables.values()))

    def plus(self, other: Changes) -> Changes:
        return Changes((*self.parts, *other.parts), self.kinds.plus(other.kinds))

    def in_table(self, target: TargetTable) -> ChangeCounts:
        found = NO_CHANGES
        for part in self.parts:
            counts = part.get(target)
            if counts is not None:
                found = counts if found is NO_CHANGES else found.plus(counts)
        return found

    def by_table(self) -> Mapping[TargetTable, ChangeCounts]:
        if len(self.parts) == 1:
            return self.parts[0]
        found: dict[TargetTable, ChangeCounts] = {}
        for part in self.parts:
            for target, counts in part.items():
                found[target] = found[target].plus(counts) if target in found else counts
        return found

    def merged(self) -> Changes:
        """The same in one part: what is added again and again must not have more parts each time."""
        return self if len(self.parts) <= 1 else Changes((self.by_table(),), self.kinds)


NO_TABLE_CHANGES = Changes()


@dataclass(frozen=True, slots=True)
class LaneTotal:
    """What a lane has done. ``seconds``: by cause. ``hot_key``: see LaneCounters in proto/relay.proto; read, never
    changed."""

    changes: Changes = NO_TABLE_CHANGES
    written_rows: int = 0
    statements: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    commit_seconds: Distribution = NO_DURATIONS
    changes_in_commit: Distribution = NO_STEPS
    statements_in_commit: Distribution = NO_STEPS
    lag_seconds: Distribution = NO_LAGS
    seconds_between_commits: Distribution = NO_STEPS
    hot_key: diagnose_pb2.HotKey | None = None

    @property
    def transactions(self) -> int:
        return self.commit_seconds.count

    @property
    def kinds(self) -> ChangeCounts:
        """The changes of all tables."""
        return self.changes.kinds

    def plus(self, other: LaneTotal) -> LaneTotal:
        seconds = {
            cause: self.seconds.get(cause, 0.0) + other.seconds.get(cause, 0.0)
            for cause in CAUSES
            if cause in self.seconds or cause in other.seconds
        }
        return LaneTotal(
            self.changes.plus(other.changes),
            self.written_rows + other.written_rows,
            self.statements + other.statements,
            seconds,
            self.commit_seconds.plus(other.commit_seconds),
            self.changes_in_commit.plus(other.changes_in_commit),
            self.statements_in_commit.plus(other.statements_in_commit),
            self.lag_seconds.plus(other.lag_seconds),
            self.seconds_between_commits.plus(other.seconds_between_commits),
            other.hot_key or self.hot_key,
        )

    def merged(self) -> LaneTotal:
        """See :meth:`Changes.merged`."""
        return replace(self, changes=self.changes.merged())


NOTHING = LaneTotal()


@dataclass(frozen=True, slots=True)
class SubTaskTotals:
    """What the lanes of a subtask have done, by lane. ``tables``: in the order in which they were first seen;
    ``moved_at``: when a lane's checkpoint was last seen to move, on the clock of :class:`LaneTotals`."""

    lanes: Mapping[int, LaneTotal] = field(default_factory=dict[int, LaneTotal])
    tables: tuple[TargetTable, ...] = ()
    moved_at: Mapping[int, float] = field(default_factory=dict[int, float])

    @property
    def all(self) -> LaneTotal:
        """All lanes together."""
        return _sum(self.lanes.values())


def _sum(totals: Iterable[LaneTotal]) -> LaneTotal:
    found = NOTHING
    for total in totals:
        found = total if found is NOTHING else found.plus(total)
    return found


NO_TOTALS = SubTaskTotals()


@dataclass(slots=True)
class _Lane:
    """``ended``: what its earlier processes have done; ``present``: of each stream, the process and what it has
    done."""

    ended: LaneTotal = NOTHING
    present: dict[int, tuple[tuple[int, float], LaneTotal]] = field(
        default_factory=dict[int, tuple[tuple[int, float], LaneTotal]]
    )
    place: tuple[int, int, int] | None = None
    moved_at: float = 0.0

    def parts(self) -> tuple[LaneTotal, ...]:
        """What makes up its total. A report replaces a part, and changes none."""
        return (self.ended, *(total for _, total in self.present.values()))


@dataclass(slots=True)
class _SubTask:
    """``tables``: by name, in the order in which they were first seen. They only become more."""

    lanes: dict[int, _Lane] = field(default_factory=dict[int, _Lane])
    tables: dict[tuple[str, str], TargetTable] = field(default_factory=dict[tuple[str, str], TargetTable])


class LaneTotals:
    """Thread-safe. One per worker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._subtasks: dict[tuple[str, str], _SubTask] = {}

    def begin(self, task: str, source: str) -> None:
        """The subtask exists from now on; its totals begin with 0."""
        with self._lock:
            self._subtasks[task, source] = _SubTask()

    def add(self, report: relay_pb2.LaneReport) -> None:
        """Take over a report of a lane that runs. Lanes of an older version report no counters. A report for a subtask
        that is forgotten is ignored: its lanes may report until they end."""
        who = report.who
        with self._lock:
            subtask = self._subtasks.get((who.task, who.source))
        if subtask is None:
            return
        total: LaneTotal | None = None
        fresh: list[TargetTable] = []
        if report.HasField("counters"):
            changes, fresh = _changes(report.counters, subtask.tables)
            total = _total(report.counters, changes)
        with self._lock:
            lane = subtask.lanes.setdefault(who.index, _Lane(moved_at=self._clock()))
            place = (report.committed.segment, report.committed.byte, report.rows)
            if place != lane.place:
                lane.place, lane.moved_at = place, self._clock()
            if total is None:
                return
            process = (who.epoch, report.counters.began)
            before = lane.present.get(who.stream)
            if before is not None and before[0] != process:
                lane.ended = lane.ended.plus(before[1]).merged()
            lane.present[who.stream] = process, total
            for target in fresh:
                subtask.tables.setdefault(target, target)

    def of(self, task: str, source: str) -> SubTaskTotals:
        """The totals of a subtask; empty ones if none of its lanes has reported."""
        with self._lock:
            subtask = self._subtasks.get((task, source))
            if subtask is None:
                return NO_TOTALS
            parts = {number: lane.parts() for number, lane in sorted(subtask.lanes.items())}
            tables = tuple(subtask.tables.values())
            moved_at = {number: lane.moved_at for number, lane in subtask.lanes.items()}
        # Outside of the lock: lanes wait for it when they report.
        return SubTaskTotals({number: _sum(each) for number, each in parts.items()}, tables, moved_at)

    def seconds(self, task: str, source: str) -> dict[str, float]:
        """The time of all lanes of a subtask by cause; cheaper than :meth:`of`."""
        found: dict[str, float] = {}
        with self._lock:
            subtask = self._subtasks.get((task, source))
            lanes = () if subtask is None else tuple(subtask.lanes.values())
            for lane in lanes:
                for total in lane.parts():
                    for cause, seconds in total.seconds.items():
                        found[cause] = found.get(cause, 0.0) + seconds
        return found

    def forget(self, task: str, source: str) -> None:
        """The subtask ends."""
        with self._lock:
            self._subtasks.pop((task, source), None)


def _total(counters: relay_pb2.LaneCounters, changes: Changes) -> LaneTotal:
    return LaneTotal(
        changes,
        counters.written_rows,
        counters.statements,
        {cause: seconds for cause in CAUSES if (seconds := float(getattr(counters, f"{cause}_seconds")))},
        _distribution(counters.commit_seconds, DURATIONS),
        _distribution(counters.changes_in_commit, STEPS),
        _distribution(counters.statements_in_commit, STEPS),
        _distribution(counters.lag_seconds, LAGS),
        _distribution(counters.seconds_between_commits, STEPS),
        counters.hot_key if counters.HasField("hot_key") else None,
    )


def _changes(
    counters: relay_pb2.LaneCounters, known: Mapping[tuple[str, str], TargetTable]
) -> tuple[Changes, list[TargetTable]]:
    """The changes of a report, and the tables that are not ``known``. Each report has all tables of its lane: to look
    one up is cheaper than to make it."""
    tables: dict[TargetTable, ChangeCounts] = {}
    fresh: list[TargetTable] = []
    all_inserts = all_updates = all_deletes = 0
    for table in counters.tables:
        names = table.target_schema, table.target_table
        target = known.get(names)
        if target is None:
            target = TargetTable(*names)
            fresh.append(target)
        inserts, updates, deletes = table.inserts, table.updates, table.deletes
        tables[target] = ChangeCounts(inserts, updates, deletes)
        all_inserts += inserts
        all_updates += updates
        all_deletes += deletes
    changes = Changes((tables,), ChangeCounts(all_inserts, all_updates, all_deletes)) if tables else NO_TABLE_CHANGES
    return changes, fresh


def _distribution(message: relay_pb2.Distribution, bounds: tuple[float, ...]) -> Distribution:
    """The observations of a message; none if it has other bounds, as one of another version may have."""
    if len(message.counts) != len(bounds) + 1:
        return Distribution.empty(bounds)
    return Distribution(tuple(message.counts), message.sum)

"""Adds up what the lanes of each subtask report for metrics, over all of their runs at this worker.

A lane counts from 0 whenever it begins. The totals never fall while the subtask exists: what an earlier lane has
reported last is kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

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
class LaneTotal:
    """What a lane has done. ``changes``: by target table; ``seconds``: by cause. ``hot_key``: see LaneCounters in
    proto/relay.proto; read, never changed."""

    changes: Mapping[TargetTable, ChangeCounts] = field(default_factory=dict[TargetTable, ChangeCounts])
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
        return together(self.changes.values())

    def plus(self, other: LaneTotal) -> LaneTotal:
        changes = dict(self.changes)
        for target, counts in other.changes.items():
            changes[target] = changes[target].plus(counts) if target in changes else counts
        seconds = {
            cause: self.seconds.get(cause, 0.0) + other.seconds.get(cause, 0.0)
            for cause in CAUSES
            if cause in self.seconds or cause in other.seconds
        }
        return LaneTotal(
            changes,
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
        found = NOTHING
        for total in self.lanes.values():
            found = found.plus(total)
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

    def total(self) -> LaneTotal:
        found = self.ended
        for _, total in self.present.values():
            found = found.plus(total)
        return found


@dataclass(slots=True)
class _SubTask:
    lanes: dict[int, _Lane] = field(default_factory=dict[int, _Lane])
    tables: dict[TargetTable, None] = field(default_factory=dict[TargetTable, None])


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
        total = _total(report.counters) if report.HasField("counters") else None
        with self._lock:
            subtask = self._subtasks.get((who.task, who.source))
            if subtask is None:
                return
            lane = subtask.lanes.setdefault(who.index, _Lane(moved_at=self._clock()))
            place = (report.committed.segment, report.committed.byte, report.rows)
            if place != lane.place:
                lane.place, lane.moved_at = place, self._clock()
            if total is None:
                return
            process = (who.epoch, report.counters.began)
            before = lane.present.get(who.stream)
            if before is not None and before[0] != process:
                lane.ended = lane.ended.plus(before[1])
            lane.present[who.stream] = process, total
            subtask.tables.update(dict.fromkeys(total.changes))

    def of(self, task: str, source: str) -> SubTaskTotals:
        """The totals of a subtask; empty ones if none of its lanes has reported."""
        with self._lock:
            subtask = self._subtasks.get((task, source))
            if subtask is None:
                return NO_TOTALS
            return SubTaskTotals(
                {number: lane.total() for number, lane in sorted(subtask.lanes.items())},
                tuple(subtask.tables),
                {number: lane.moved_at for number, lane in subtask.lanes.items()},
            )

    def seconds(self, task: str, source: str) -> dict[str, float]:
        """The time of all lanes of a subtask by cause; cheaper than :meth:`of`."""
        found: dict[str, float] = {}
        with self._lock:
            subtask = self._subtasks.get((task, source))
            lanes = () if subtask is None else tuple(subtask.lanes.values())
            for lane in lanes:
                for total in (lane.ended, *(present for _, present in lane.present.values())):
                    for cause, seconds in total.seconds.items():
                        found[cause] = found.get(cause, 0.0) + seconds
        return found

    def forget(self, task: str, source: str) -> None:
        """The subtask ends."""
        with self._lock:
            self._subtasks.pop((task, source), None)


def _total(counters: relay_pb2.LaneCounters) -> LaneTotal:
    changes: dict[TargetTable, ChangeCounts] = {}
    for table in counters.tables:
        target = TargetTable(table.target_schema, table.target_table)
        changes[target] = ChangeCounts(table.inserts, table.updates, table.deletes)
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


def _distribution(message: relay_pb2.Distribution, bounds: tuple[float, ...]) -> Distribution:
    """The observations of a message; none if it has other bounds, as one of another version may have."""
    if len(message.counts) != len(bounds) + 1:
        return Distribution.empty(bounds)
    return Distribution(tuple(message.counts), message.sum)

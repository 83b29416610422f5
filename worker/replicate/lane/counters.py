"""Counts what a lane does, for metrics: changes, statements, transactions, and the time by what it was spent on.

The lane's reports carry the numbers (LaneCounters in proto/relay.proto). They count from 0 when the lane begins: its
worker adds them up (worker/replicate/lane_totals.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardmerge.proto import relay_pb2
from shardmerge.proto.metrics.distribution import DURATIONS, LAGS, STEPS, Histogram
from shardmerge.worker.core.batch import Batch, ChangeCounts
from shardmerge.worker.core.table_plan import TargetTable

_MOST_TABLES = 1_000
_OTHER = TargetTable("_other", "_other")
"""Counts the changes of all tables after the first :data:`_MOST_TABLES`: a report must stay small."""


@dataclass(frozen=True, slots=True)
class CommitCounts:
    """What one transaction did. ``changes``: by target table; ``written_rows``: after compaction; ``seconds``: at the
    target; ``lag_seconds``: from the commit at the source to the commit at the target, None without rows."""

    changes: Mapping[TargetTable, ChangeCounts]
    written_rows: int
    statements: int
    seconds: float
    lag_seconds: float | None


def combined_counts(batches: Iterable[Batch]) -> dict[TargetTable, ChangeCounts]:
    """The changes of all ``batches`` by target table."""
    found: dict[TargetTable, ChangeCounts] = {}
    for batch in batches:
        for target, counts in batch.counts().items():
            found[target] = found[target].plus(counts) if target in found else counts
    return found


class LaneCounters:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._message = relay_pb2.LaneCounters(began=time.time())
        self._tables: dict[TargetTable, ChangeCounts] = {}
        self._commit_seconds = Histogram(DURATIONS)
        self._changes = Histogram(STEPS)
        self._statements = Histogram(STEPS)
        self._lag_seconds = Histogram(LAGS)
        self._between = Histogram(STEPS)
        self._committed_at: float | None = None

    def add(self, commit: CommitCounts) -> None:
        """Count a transaction that is committed."""
        changes = 0
        for target, counts in commit.changes.items():
            place = target if target in self._tables or len(self._tables) < _MOST_TABLES else _OTHER
            before = self._tables.get(place)
            self._tables[place] = counts if before is None else before.plus(counts)
            changes += counts.inserts + counts.updates + counts.deletes
        self._message.written_rows += commit.written_rows
        self._message.statements += commit.statements
        self._commit_seconds.observe(commit.seconds)
        self._changes.observe(changes)
        self._statements.observe(commit.statements)
        if commit.lag_seconds is not None:
            self._lag_seconds.observe(commit.lag_seconds)
        now = time.monotonic()
        if self._committed_at is not None:
            self._between.observe(now - self._committed_at)
        self._committed_at = now

    def message(self, seconds: Mapping[str, float]) -> relay_pb2.LaneCounters:
        """The present numbers. ``seconds``: by cause, see LaneCounters in proto/relay.proto."""
        found = relay_pb2.LaneCounters()
        found.CopyFrom(self._message)
        for target, counts in self._tables.items():
            found.tables.add(
                target_schema=target.schema,
                target_table=target.table,
                inserts=counts.inserts,
                updates=counts.updates,
                deletes=counts.deletes,
            )
        for part, histogram in (
            (found.commit_seconds, self._commit_seconds),
            (found.changes_in_commit, self._changes),
            (found.statements_in_commit, self._statements),
            (found.lag_seconds, self._lag_seconds),
            (found.seconds_between_commits, self._between),
        ):
            values = histogram.read()
            part.counts.extend(values.counts)
            part.sum = values.sum
        for cause, value in seconds.items():
            setattr(found, f"{cause}_seconds", value)
        return found

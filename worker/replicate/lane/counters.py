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
from shardmerge.worker.core.batch import Batch, ChangeCounts, KeyState, key_text
from shardmerge.worker.core.row_change import JoinedLiterals
from shardmerge.worker.core.table_plan import TablePlan, TargetTable

_MOST_TABLES = 1_000
_OTHER = TargetTable("_other", "_other")
"""Counts the changes of all tables after the first :data:`_MOST_TABLES`: a report must stay small."""


_REPEATED_CHANGES = 4
_FEW_ROWS = 16
_KEY_CHARACTERS = 100
_MOST_VOTES = 20
"""A key that was changed often an hour ago must not hide the present one for long."""


@dataclass(frozen=True, slots=True)
class RepeatedKey:
    """A key that has many of a transaction's changes. ``plan``: of the shard table that changed it last."""

    plan: TablePlan
    key: JoinedLiterals

    @property
    def text(self) -> str:
        found = key_text(self.plan, self.key[: 4 * _KEY_CHARACTERS])
        return found if len(found) <= _KEY_CHARACTERS else f"{found[: _KEY_CHARACTERS - 1]}…"


@dataclass(frozen=True, slots=True)
class CommitCounts:
    """What one transaction did. ``changes``: by target table; ``written_rows``: after compaction; ``seconds``: at the
    target; ``lag_seconds``: from the commit at the source to the commit at the target, each by its own clock, None
    without rows.
    ``repeated``: a key with many of the changes, None: there is none."""

    changes: Mapping[TargetTable, ChangeCounts]
    written_rows: int
    statements: int
    seconds: float
    lag_seconds: float | None
    repeated: RepeatedKey | None = None


def combined_counts(batches: Iterable[Batch]) -> dict[TargetTable, ChangeCounts]:
    """The changes of all ``batches`` by target table."""
    found: dict[TargetTable, ChangeCounts] = {}
    for batch in batches:
        for target, counts in batch.counts().items():
            found[target] = found[target].plus(counts) if target in found else counts
    return found


def repeated_key(batch: Batch) -> RepeatedKey | None:
    """The key that was changed last, if ``batch`` has many changes of few keys; None: it has not.

    Of several keys it is the one with the most changes in most transactions only: :class:`LaneCounters` lets the
    transactions vote.
    """
    if not 0 < batch.rows <= _FEW_ROWS or batch.changes < _REPEATED_CHANGES * batch.rows:
        return None
    keys = ((key, state) for _, states in batch.targets() for key, state in states.items())
    last: tuple[JoinedLiterals, KeyState] | None = max(
        keys, key=lambda each: (len(each[1].file), each[1].file, each[1].pos), default=None
    )
    return None if last is None else RepeatedKey(last[1].plan, last[0])


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
        self._repeated: RepeatedKey | None = None
        self._votes = 0
        self._repeated_at = 0.0

    def add(self, commit: CommitCounts, source_ahead: float = 0.0) -> None:
        """Count a transaction that is committed. ``source_ahead``: of the source's clock, compared with the target's
        commits."""
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
            self._lag_seconds.observe(max(0.0, commit.lag_seconds + source_ahead))
        now = time.monotonic()
        if self._committed_at is not None:
            self._between.observe(now - self._committed_at)
        self._committed_at = now
        if commit.repeated is not None:
            self._vote(commit.repeated, now)

    def _vote(self, repeated: RepeatedKey, now: float) -> None:
        """Boyer and Moore's majority vote: the key that most transactions name remains, at constant cost."""
        before = self._repeated
        if before is not None and (before.key, before.plan.target) == (repeated.key, repeated.plan.target):
            self._votes, self._repeated_at = min(self._votes + 1, _MOST_VOTES), now
        elif self._votes > 0:
            self._votes -= 1
        else:
            self._repeated, self._votes, self._repeated_at = repeated, 1, now

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
        repeated = self._repeated
        if repeated is not None and self._votes:
            found.hot_key.target_schema, found.hot_key.target_table = repeated.plan.target.names
            found.hot_key.key = repeated.text
            found.hot_key.transactions = self._votes
            found.hot_key.age_seconds = time.monotonic() - self._repeated_at
        return found

"""Applies blocks of the relay log at the target: from a block to a committed transaction with the lane's checkpoint."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardmerge.proto import failpoints, relay_pb2
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.replicate.lane.commit_timer import CommitTimer
from shardmerge.worker.replicate.lane.counters import CommitCounts, combined_counts, repeated_key
from shardmerge.worker.replicate.lane.lane_change import LaneChange
from shardmerge.worker.replicate.lane.lane_spec import LaneSpec
from shardmerge.worker.replicate.lane.row_collector import RowCollector
from shardmerge.worker.replicate.lane.target_writer import TargetWriter
from shardmerge.worker.target.apply.target_session import OnConnect, OnRetry
from shardmerge.worker.target.quarantine.skipped_events import SkippedRow
from shardmerge.worker.target.records.checkpoint import Checkpoint

log = get_logger()


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a lane. ``changes``: row changes of its transaction, applied at Unix time ``applied_at``;
    ``held_keys``: how many keys the lane has begun to hold since it started; ``passed_edge``: the lane is now beyond
    the place at which a table enters or leaves the stream; ``counts``: for metrics."""

    checkpoint: Checkpoint
    changes: int
    applied_at: float
    held_keys: int
    passed_edge: bool
    counts: CommitCounts


class BlockApplier:
    """Applies the blocks of one lane. Not shared between threads.

    :meth:`begin` comes first. Then :meth:`apply` collects the rows of one block after the other, until the caller, by
    :meth:`is_commit_due` or because its stream has reached a barrier or its end, calls :meth:`commit`.
    """

    def __init__(self, spec: LaneSpec, lane: int, on_retry: OnRetry, on_connect: OnConnect) -> None:
        self._spec = spec
        self._lane = lane
        self._writer = TargetWriter(spec.apply, lane, spec.epoch, on_retry, on_connect)
        self._rows = RowCollector(spec, lane, lambda: self._next.position)
        # From :meth:`begin` on:
        self._committed: Checkpoint
        self._is_translated: bool
        self._next: Checkpoint
        self._must_commit = self._has_reached_edge = False  # since the last commit
        self._timer: CommitTimer

    def begin(self) -> Checkpoint:
        """Read the lane's checkpoint and which keys are held; returns the checkpoint, with its offset in the current
        relay log. Raises STREAM_LOST, FENCED, and the target's coded errors."""
        found = self._writer.read_checkpoint()
        self._read_held()
        self._committed = replace(
            found, relay_id=self._spec.relay_id, offset=self._spec.first_offset(self._lane, found)
        )
        self._is_translated = found.relay_id != self._spec.relay_id
        self._next = self._committed
        self._timer = CommitTimer(self._spec.batch_rows, self._spec.batch_bytes, time.monotonic())
        return self._committed

    @property
    def committed(self) -> Checkpoint:
        """The lane's checkpoint at the target, with its offset in the current relay log."""
        return self._committed

    @property
    def has_uncommitted(self) -> bool:
        """Whether it has applied anything since the last commit, be it events without rows of this lane; also when the
        checkpoint at the target has the offset in another relay log: lanes at one place must have equal records."""
        return self._next is not self._committed or self._is_translated

    def open(self, format_description: bytes) -> None:
        """A file of the source's binlog begins."""
        self._rows.open(format_description)

    def apply(self, block: relay_pb2.Block, events: bytes) -> None:
        """Collect the rows of ``block``, whose bytes are ``events``. Raises as :meth:`RowCollector.collect` does."""
        skip = 0
        if self._next.skip_events > block.first_event:
            # A restart inside a large group: its first events were committed before.
            skip = self._next.skip_events - block.first_event
        position = SourcePosition.from_proto(block.end_position)
        found = self._rows.collect(block, events, skip, position)
        self._must_commit = found.must_commit
        self._has_reached_edge |= found.reached_edge
        if block.ends_group:
            self._advance(RelayOffset.from_proto(block.end), 0, position, block.commit_time)
        else:
            counted = block.first_event + found.events
            self._advance(
                RelayOffset.from_proto(block.group_start),
                max(counted, self._next.skip_events if skip else 0),
                position,
                block.commit_time,
            )

    def _advance(self, offset: RelayOffset, skip_events: int, position: SourcePosition, commit_time: float) -> None:
        self._next = self._committed.moved(offset, skip_events, position, commit_time or self._next.commit_time)

    def seconds_to_commit(self) -> float | None:
        """After how many seconds without further input :meth:`commit` is due; None: there are no rows to commit."""
        rows = self._rows
        if not rows.has_changes:
            return None
        return max(self._timer.eager_at - time.monotonic(), 0.0)

    def is_commit_due(self, *, dry: bool) -> bool:
        """Whether to commit now; ``dry``: no further input waits."""
        rows = self._rows
        now = time.monotonic()
        if self._must_commit:
            return True
        if rows.has_changes:
            return self._timer.is_due(now, rows.waiting_rows, rows.waiting_bytes, dry=dry)
        if self._next is self._committed:
            return False
        # Other parts of the program wait until every lane has passed the place at which a table leaves.
        return self._timer.is_move_due(now) or (dry and self._has_reached_edge)

    def commit(self) -> Commit:
        """Commit everything that was applied, with the checkpoint. Raises what :meth:`TargetWriter.commit` raises, and
        errors of the transforms."""
        began_at = time.monotonic()
        self._rows.evaluate_pending()
        failpoints.hit(f"lane{self._lane}.commit")
        following = replace(self._next, seq=self._committed.seq + 1)
        steps = self._rows.take_steps()
        batch, skipped = self._rows.batch, self._rows.take_skipped()
        sent_at, statements = time.monotonic(), self._writer.statements
        applied_at = self._writer.commit(batch, following, skipped, steps)
        seconds, statements = time.monotonic() - sent_at, self._writer.statements - statements
        self._log_skipped(skipped)
        self._committed = self._next = following
        self._is_translated = False
        passed_edge = self._has_reached_edge
        self._has_reached_edge = self._must_commit = False
        self._timer.committed(began_at, time.monotonic())
        if not batch.is_empty:
            self._begin_batch()
        batches = (batch, *(step.batch for step in steps))
        changes = sum(each.changes for each in batches)
        counts = CommitCounts(
            combined_counts(batches),
            sum(each.rows for each in batches),
            statements,
            seconds,
            applied_at - following.commit_time if changes and following.commit_time else None,
            repeated_key(batch),
        )
        return Commit(following, changes, applied_at, self._writer.held_keys, passed_edge, counts)

    def change_plans(self, change: LaneChange) -> None:
        """Continue after a barrier with other plans. Only right after a commit."""
        if change.is_statement:
            self._committed = self._next = replace(self._committed, seq=self._committed.seq + 1)
        self._rows.change_plans(change)
        self._read_held()  # also those of tables that have joined

    def keep_alive(self) -> None:
        """As :meth:`TargetWriter.keep_alive`."""
        self._writer.keep_alive(self._committed)

    def close(self) -> None:
        self._writer.close()
        self._rows.close()

    def _read_held(self) -> None:
        """Read which keys are held. Only between two batches."""
        self._writer.read_held()
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._rows.begin_batch(by_shard=self._writer.holds)

    def _log_skipped(self, skipped: Sequence[SkippedRow]) -> None:
        apply = self._spec.apply
        for row in skipped:
            log.warning(
                "row skipped by operator override",
                task=apply.task,
                source=apply.source,
                lane=self._lane,
                position=str(row.position),
                table=f"{row.plan.table.schema}.{row.plan.table.name}",
                target=row.plan.target_name,
                operation=row.operation,
            )

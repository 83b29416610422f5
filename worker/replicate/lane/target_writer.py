"""Writes a lane's batches at the target, each exactly once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.batch import Batch, RowOperation
from shardmerge.worker.replicate.lane.cascade_steps import CascadeStep
from shardmerge.worker.replicate.lane.committer import Committer, TransactionWork
from shardmerge.worker.replicate.lane.holding_committer import HoldingCommitter
from shardmerge.worker.target.apply.row_bisect import Group
from shardmerge.worker.target.apply.target_session import ApplySettings, OnConnect, OnRetry, TargetSession
from shardmerge.worker.target.quarantine.held_changes import combine_disjoint_groups
from shardmerge.worker.target.quarantine.skipped_events import SkippedRow
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.history import rowless_tables
from shardmerge.worker.target.tables.target_table import find_missing, is_missing, missing_error


class TargetWriter:
    """Writes one lane's batches to the target. Not shared between threads."""

    def __init__(
        self,
        settings: ApplySettings,
        lane: int,
        epoch: int,
        on_retry: OnRetry = lambda attempt, error: None,
        on_connect: OnConnect = lambda number: None,
    ) -> None:
        self._settings = settings
        self._target = TargetSession(settings, on_retry, on_connect)
        self._committer = Committer(settings, self._target, lane, epoch)
        self._holding = HoldingCommitter(settings, self._target, lane, self._committer)
        self._merged: set[int] = set()  # shard tables that are recorded to have rows at the target

    @property
    def held_keys(self) -> int:
        """How many keys this lane has begun to hold."""
        return self._holding.held_keys

    @property
    def statements(self) -> int:
        """How many statements with rows it has sent, repeated ones included."""
        return self._committer.statements

    @property
    def holds(self) -> bool:
        """See :attr:`HoldingCommitter.holds`."""
        return self._holding.holds

    def read_held(self) -> None:
        """Read which keys of the whole subtask are held. Raises the target's coded error after the retries."""
        self._target.retrying(self._holding.read)

    def read_checkpoint(self) -> Checkpoint:
        """This lane's checkpoint. Raises FENCED, or the target's coded error after the retries."""
        return self._target.retrying(self._committer.read_checkpoint)

    def commit(
        self,
        batch: Batch,
        following: Checkpoint,
        skipped: Sequence[SkippedRow] = (),
        steps: tuple[CascadeStep, ...] = (),
    ) -> float:
        """Apply ``steps``, then ``batch``, record ``skipped`` and move to ``following`` in one transaction; returns the
        Unix time of the commit.

        A lost answer to COMMIT is resolved by reading the checkpoint under its lock, so a batch is
        applied exactly once. Changes of a held key, or of one that the target refuses under ``quarantine``, are
        recorded in the same transaction instead. Raises FENCED, COLLISION, DIVERGED, ROW_REFUSED,
        TARGET_DUPLICATE_OTHER_KEY, which name the row's event, QUARANTINE_FULL, or the target's coded error.
        """
        first = True
        groups = combine_disjoint_groups(batch.targets())
        every = [*groups, *(group for step in steps for group in step.batch.targets())]
        merged = batch.shards().union(*(step.batch.shards() for step in steps)) - self._merged
        records = (*rowless_tables.delete_statements(self._settings.who, merged), *self._holding.records(skipped))
        work = TransactionWork(groups, batch.unkeyed, records, self._holding.absent(every, skipped), steps)

        def attempt() -> float:
            nonlocal first
            if not first:
                now = self._committer.read_checkpoint()
                if (now.seq, now.offset, now.skip_events) == (following.seq, following.offset, following.skip_events):
                    return time.time()  # the COMMIT whose answer was lost
                if now.seq != following.seq - 1:
                    raise self._committer.fenced()
            first = False
            return self._holding.commit(work, following)

        try:
            committed_at: float = self._target.retrying(attempt)
        except ShardmergeError as error:
            if not is_missing(error):
                raise
            raise self._naming_missing(error, every, batch.unkeyed, following) from error
        self._merged |= merged
        self._holding.committed(skipped)
        return committed_at

    def _naming_missing(
        self, error: ShardmergeError, groups: Iterable[Group], unkeyed: Iterable[RowOperation], following: Checkpoint
    ) -> ShardmergeError:
        """MERGED_TABLE_MISSING if a target of these changes does not exist; else ``error``."""
        plans = [next(iter(keys.values())).plan for _, keys in groups if keys]
        plans += {operation.plan.target: operation.plan for operation in unkeyed}.values()
        plan = self._target.retrying(lambda: find_missing(self._target.connected(), plans))
        where = f"while changes up to {following.position} were written"
        return error if plan is None else missing_error(plan, self._settings.task, where)

    def keep_alive(self, committed: Checkpoint) -> None:
        """Call it while there is nothing to commit: keeps the target from closing the idle connection. Raises FENCED if
        the target does not have ``committed``, the last checkpoint: it may have lost it, with rows."""
        self._target.keep_alive(lambda: self._committer.check_committed(committed.seq))

    def close(self) -> None:
        self._target.close()

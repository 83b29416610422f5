"""Commits one transaction of a lane at the target: rows and checkpoint together (I2), fenced by epoch (I3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain

import pymysql

from shardmerge.proto import errors, failpoints
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.batch import Keys, KeyState, RowOperation
from shardmerge.worker.core.mysql.connection import Session, send
from shardmerge.worker.replicate.lane.cascade_steps import CascadeStep
from shardmerge.worker.target.apply.affected_rows import CountAmbiguous, classify_refusal, verify
from shardmerge.worker.target.apply.cascades import SqlRows
from shardmerge.worker.target.apply.dml import Statement, unkeyed_statements
from shardmerge.worker.target.apply.row_bisect import Group, statements_of
from shardmerge.worker.target.apply.target_session import ApplySettings, TargetSession, send_batch
from shardmerge.worker.target.apply.upserts import needs_lookup, resolve_upserts
from shardmerge.worker.target.quarantine.held_changes import HeldKey, combine_disjoint_groups
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records.checkpoint import Checkpoint

STATEMENT_BYTES = 1 << 20
"""About how long a statement may be."""
# A small batch is sent to the target in two packets, the statements and COMMIT: on a busy machine each wait for an
# answer costs milliseconds.
_TOGETHER_BYTES = 1 << 16
_EXACT_COMMITS = 50  # a workload that writes rows back unchanged will do so again


class RollBack(Exception):
    """The transaction is rolled back, and the caller repeats it with other work."""


@dataclass(frozen=True, slots=True)
class TransactionWork:
    """What one transaction does to rows. ``records``: statements for the records written with them. ``absent``: the
    changes of rows that the target lacks because they were given up. ``steps``: come before the other rows."""

    groups: tuple[Group, ...]
    unkeyed: Sequence[RowOperation]
    records: Sequence[bytes]
    absent: Mapping[HeldKey, KeyState]
    steps: tuple[CascadeStep, ...] = ()


class Committer:
    """For one lane. Not shared between threads."""

    def __init__(self, settings: ApplySettings, target: TargetSession, lane: int, epoch: int) -> None:
        self._settings = settings
        self._target = target
        self._lane = lane
        self._epoch = epoch
        self._exact_for = 0
        self.statements = 0
        """How many statements with rows it has sent, repeated ones included."""

    def read_checkpoint(self) -> Checkpoint:
        """The lane's checkpoint. Raises FENCED and ``pymysql.MySQLError``."""
        settings = self._settings
        session = self._target.connected()
        send(session, b"START TRANSACTION")
        try:
            return checkpoints.read_locked(session, settings.who, self._lane, self._epoch, settings.stream)
        finally:
            send(session, b"ROLLBACK")

    def check_committed(self, seq: int) -> None:
        """Check that the lane's last commit, number ``seq``, is at the target. Raises FENCED and
        ``pymysql.MySQLError``."""
        settings = self._settings
        session = self._target.connected()
        # In a transaction: a proxy may send a read alone to a replica that lags.
        send(session, b"START TRANSACTION")
        try:
            found = checkpoints.is_committed(session, settings.who, self._lane, self._epoch, seq, settings.stream)
        finally:
            send(session, b"ROLLBACK")
        if not found:
            raise self.fenced()

    def fenced(self) -> ShardmergeError:
        """The error of a lane that another epoch has replaced."""
        return errors.replicate.FENCED(task=self._settings.task, source=self._settings.source, epoch=self._epoch)

    def exactly(self, commit: Callable[[], float]) -> float:
        """The result of ``commit``, which is called again if a row count was ambiguous. Either a row was unchanged or
        it is missing: writing the rows the other way shows which."""
        try:
            return commit()
        except CountAmbiguous:
            self._exact_for = _EXACT_COMMITS
            return commit()

    def commit(self, work: TransactionWork, following: Checkpoint) -> float:
        """Apply all of ``work`` and move to ``following``; returns the Unix time of the commit. Raises CountAmbiguous,
        RowRefused, FENCED, the errors of rows, and ``pymysql.MySQLError``."""
        session = self._target.connected()
        # It comes first because its row lock makes a zombie wait and then see the newer epoch.
        move = self._checkpoint_update(following)
        opening = (b"START TRANSACTION", move)
        try:
            looks_up = needs_lookup(work.groups, overwrite=self._overwrites)
            if work.steps or looks_up:
                send(session, b"START TRANSACTION")
                self._check_moved(send(session, move))
                opening = ()
            for step in work.steps:
                self._apply_step(session, step)
            if looks_up:
                work = replace(work, groups=resolve_upserts(session, work.groups))
            first = len(opening)
            together, rest = _split(self._statements(work.groups, work.unkeyed), _TOGETHER_BYTES)
            answers, error = send_batch(session, (*opening, *(item.sql for item, _ in together)))
            if first and len(answers) > 1:
                self._check_moved(answers[1])
            for (statement, keys), affected in zip(together, answers[first:], strict=False):
                verify(session, statement, keys, affected, safe_mode=self._settings.safe_mode)
            if error is not None:
                if len(answers) >= first:
                    raise classify_refusal(session, *together[len(answers) - first], error) from error
                raise error
            self._execute(session, rest)
            for record in work.records:
                send(session, record)
            failpoints.hit(f"lane{self._lane}.before_commit")
            send(session, b"COMMIT")
        except (ShardmergeError, CountAmbiguous):
            send(session, b"ROLLBACK")
            raise
        self._exact_for = max(self._exact_for - 1, 0)
        return time.time()

    @contextmanager
    def transaction(self, following: Checkpoint) -> Generator[Session]:
        """A transaction that moves to ``following``, under whose lock the block runs. An error of the block, or
        RollBack, rolls it back. Raises FENCED and ``pymysql.MySQLError``."""
        session = self._target.connected()
        try:
            send(session, b"START TRANSACTION")
            self._check_moved(send(session, self._checkpoint_update(following)))
            yield session
            failpoints.hit(f"lane{self._lane}.before_commit")
            send(session, b"COMMIT")
        except (ShardmergeError, CountAmbiguous, RollBack):
            send(session, b"ROLLBACK")
            raise
        self._exact_for = max(self._exact_for - 1, 0)

    def write(self, session: Session, groups: Sequence[Group], unkeyed: Sequence[RowOperation]) -> None:
        """Write these rows in the open transaction, and check the statements' counts. Raises as :meth:`commit`."""
        self._execute(session, self._statements(groups, unkeyed))

    def _execute(self, session: Session, statements: Iterable[tuple[Statement, Keys]]) -> None:
        for statement, keys in statements:
            try:
                affected = send(session, statement.sql)
            except pymysql.MySQLError as refusal:
                raise classify_refusal(session, statement, keys, refusal) from refusal
            verify(session, statement, keys, affected, safe_mode=self._settings.safe_mode)

    def _apply_step(self, session: Session, step: CascadeStep) -> None:
        """Apply the batch of a step, then what its changes cause, in the open transaction."""
        groups = combine_disjoint_groups(step.batch.targets())
        if needs_lookup(groups, overwrite=self._overwrites):
            groups = resolve_upserts(session, groups)
        self.write(session, groups, step.batch.unkeyed)
        failpoints.hit(f"lane{self._lane}.before_derived")
        step.cascades.apply(SqlRows(session), step.changes)

    def _check_moved(self, affected: int) -> None:
        if affected != 1:
            raise self.fenced()

    def _checkpoint_update(self, following: Checkpoint) -> bytes:
        settings = self._settings
        return checkpoints.update_statement(settings.who, following, settings.stream)

    def _statements(self, groups: Sequence[Group], unkeyed: Sequence[RowOperation]) -> Iterator[tuple[Statement, Keys]]:
        """The statements in order, each with the keys of its group."""
        safe_mode = self._settings.safe_mode
        if safe_mode:
            for _, keys in groups:
                _expect_all_present(keys)
        for item in statements_of(groups, STATEMENT_BYTES, overwrite=self._overwrites):
            self.statements += 1
            yield item
        for statement in unkeyed_statements(unkeyed):
            self.statements += 1
            yield statement, {}

    @property
    def _overwrites(self) -> bool:
        """Whether existing rows are overwritten in place: not while a row count may be ambiguous."""
        return not self._settings.safe_mode and self._exact_for == 0


def _expect_all_present(keys: Keys) -> None:
    for state in keys.values():
        state.existed = not state.existence_unknown


def _split(
    work: Iterator[tuple[Statement, Keys]], most: int
) -> tuple[list[tuple[Statement, Keys]], Iterator[tuple[Statement, Keys]]]:
    """The first statements, with ``most`` bytes together at most, and the others."""
    front: list[tuple[Statement, Keys]] = []
    size = 0
    for item in work:
        size += len(item[0].sql)
        if size > most:
            return front, chain((item,), work)
        front.append(item)
    return front, iter(())

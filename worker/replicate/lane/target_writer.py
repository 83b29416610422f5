"""Commits batches at the target: rows and checkpoint in one transaction (I2), fenced by epoch (I3)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pymysql

from shardmerge.proto import errors, failpoints
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.batch import Batch, Keys, KeyState, RowOperation, diverged
from shardmerge.worker.core.mysql.connection import Session, send
from shardmerge.worker.replicate.lane.cascade_steps import CascadeStep
from shardmerge.worker.target.apply.affected_rows import CountAmbiguous, RowRefused, classify_refusal, verify
from shardmerge.worker.target.apply.cascades import SqlRows
from shardmerge.worker.target.apply.dml import Statement, unkeyed_statements
from shardmerge.worker.target.apply.row_bisect import Group, RefusedRow, find_refused_rows, statements_of
from shardmerge.worker.target.apply.row_lookup import find_existing
from shardmerge.worker.target.apply.target_session import (
    ApplySettings,
    OnConnect,
    OnRetry,
    TargetSession,
    send_batch,
)
from shardmerge.worker.target.apply.upserts import as_plain, needs_lookup, resolve_upserts
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.quarantine import held_store
from shardmerge.worker.target.quarantine import skipped_store as skipped_records
from shardmerge.worker.target.quarantine.held_changes import (
    DROPPED,
    AbsentRows,
    HeldChange,
    HeldKey,
    combine_disjoint_groups,
    held_change,
    held_key,
    skip_marker,
    split_held,
    touches_held,
)
from shardmerge.worker.target.quarantine.held_store import Reason
from shardmerge.worker.target.quarantine.skipped_events import SkippedRow
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.history import rowless_tables
from shardmerge.worker.target.tables.target_table import find_missing, is_missing, missing_error

log = get_logger()

_STATEMENT_BYTES = 1 << 20
# A small batch is sent to the target in two packets, the statements and COMMIT: on a busy machine each wait for an
# answer costs milliseconds.
_TOGETHER_BYTES = 1 << 16
_EXACT_COMMITS = 50  # a workload that writes rows back unchanged will do so again
MOST_HELD = 10_000
"""Most keys of one subtask that may be held: every lane has them in memory, and more keys have one common cause."""
_ROW_ERRORS = (errors.replicate.COLLISION, errors.replicate.DIVERGED)
_MOST_SEARCHES = 3  # for the refused row: another writer may have corrected the target meanwhile


class _Released(Exception):
    """Keys that the lane treated as held, or as given up, are no longer so; the transaction is rolled back."""

    def __init__(self, keys: frozenset[HeldKey]) -> None:
        super().__init__(keys)
        self.keys = keys


@dataclass(frozen=True, slots=True)
class _TransactionWork:
    """What one transaction does to rows. ``records``: statements for the records written with them. ``absent``: the
    changes of rows that the target lacks because they were given up. ``steps``: come before the other rows."""

    groups: tuple[Group, ...]
    unkeyed: Sequence[RowOperation]
    records: Sequence[bytes]
    absent: Mapping[HeldKey, KeyState]
    steps: tuple[CascadeStep, ...] = ()


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
        self._lane = lane
        self._epoch = epoch
        self._exact_for = 0
        self._held: frozenset[HeldKey] = frozenset()
        self._absent = AbsentRows()
        self._released: frozenset[HeldKey] = frozenset()
        self._merged: set[int] = set()  # shard tables that are recorded to have rows at the target
        self.held_keys = 0
        """How many keys this lane has begun to hold."""
        self.statements = 0
        """How many statements with rows it has sent, repeated ones included."""

    def read_held(self) -> None:
        """Read which keys of the whole subtask are held. Raises the target's coded error after the retries."""
        found = self._target.retrying(lambda: held_store.read_keys(self._target.connected(), self._settings.who))
        self._held, self._absent = found.held, AbsentRows(found.absent)

    @property
    def holds(self) -> bool:
        """Whether rows are, or may be, held: then a batch has to distinguish keys by shard table."""
        return self._settings.quarantine or bool(self._held or self._absent.keys)

    def read_checkpoint(self) -> Checkpoint:
        """This lane's checkpoint. Raises FENCED, or the target's coded error after the retries."""
        return self._target.retrying(self._read_checkpoint)

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
        absent = self._absent.after_skips(skipped)
        every = [*groups, *(group for step in steps for group in step.batch.targets())]
        merged = batch.shards().union(*(step.batch.shards() for step in steps)) - self._merged
        records = (*rowless_tables.delete_statements(self._settings.who, merged), *self._records(skipped, absent))
        work = _TransactionWork(groups, batch.unkeyed, records, self._absent.touched(every, skipped), steps)

        def attempt() -> float:
            nonlocal first
            if not first:
                now = self._read_checkpoint()
                if (now.seq, now.offset, now.skip_events) == (following.seq, following.offset, following.skip_events):
                    return time.time()  # the COMMIT whose answer was lost
                if now.seq != following.seq - 1:
                    settings = self._settings
                    raise errors.replicate.FENCED(task=settings.task, source=settings.source, epoch=self._epoch)
            first = False
            return self._commit_or_hold(work, following)

        try:
            committed_at: float = self._target.retrying(attempt)
        except ShardmergeError as error:
            if not is_missing(error):
                raise
            raise self._naming_missing(error, every, batch.unkeyed, following) from error
        self._merged |= merged
        self._absent = AbsentRows(absent.keys - self._held - self._released)
        self._released = frozenset()
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

    def _records(self, skipped: Sequence[SkippedRow], absent: AbsentRows) -> Sequence[bytes]:
        """Statements that record the skipped rows, and the rows that the target lacks because of them."""
        if not skipped:
            return ()
        who = self._settings.who
        news = {change.at: change for row in skipped if row.added_key for change in (skip_marker(row),)}
        gone = [held_store.delete_marker_statement(who, key) for key in self._absent.keys - absent.keys - self._held]
        come = absent.keys - self._absent.keys - self._held
        return (
            *skipped_records.insert_statements(who, self._lane, skipped),
            *gone,
            *held_store.marker_statements(who, (news[key] for key in come)),
        )

    def _commit_or_hold(self, work: _TransactionWork, following: Checkpoint) -> float:
        """:meth:`_commit`; if a row is refused, it is found, and named in the error or held."""
        refused: dict[HeldKey, RefusedRow] = {}
        searches = 0
        if work.absent and not self._settings.quarantine:
            found = held_store.read_keys(self._target.connected(), self._settings.who)
            work = self._without_released(work, self._absent.keys - found.absent - found.held)
            for key, state in work.absent.items():
                raise diverged(state.plan, 1, key.key, state.position)
        while True:
            held = self._held | refused.keys() | work.absent.keys()
            try:
                if touches_held(work.groups, held):
                    return self._commit_holding(work, refused, following)
                return self._commit_exactly(work, following)
            except _Released as released:
                work = self._without_released(work, released.keys)
                continue
            except RowRefused as refusal:
                error: Exception = refusal.error
            except ShardmergeError as coded_error:
                if not self._settings.quarantine or coded_error.spec not in _ROW_ERRORS:
                    raise
                error = coded_error
            rest, _ = split_held(work.groups, held)
            rows = self._find_refused_rows(rest, work.unkeyed)
            if rows and not self._settings.quarantine:
                raise self._with_owner(rows[0]) from error
            searches += not rows
            if searches == _MOST_SEARCHES:
                raise error
            refused.update((held_key(one.key, one.state), one) for one in rows)

    def _with_owner(self, refused: RefusedRow) -> ShardmergeError:
        """The error of a row; if another row has its value of a unique key, with what is known of that row."""
        error = refused.error
        if error.spec is not errors.replicate.TARGET_DUPLICATE_OTHER_KEY:
            return error
        try:
            members = read_target_members(self._target.connected(), self._settings.who, is_executor=True)
        except (pymysql.MySQLError, ShardmergeError):
            return error  # which matters more than a name in its text
        target, merged_id = refused.state.plan.target, error.values.get("id", "")
        owner = members.owner_of(target, int(merged_id)) if merged_id else None
        if owner is not None:
            known = f", of {owner.table.full_name} of source {owner.source}"
        elif members.is_only_table(target):
            known = "; no other shard table is merged into this target table"
        else:
            return error
        return error.spec(**{**error.values, "reason": f"{error.values['reason']}{known}"})

    def _without_released(self, work: _TransactionWork, released: frozenset[HeldKey]) -> _TransactionWork:
        self._held -= released
        self._released |= released
        return replace(work, absent={key: state for key, state in work.absent.items() if key not in released})

    def _find_refused_rows(self, groups: Sequence[Group], unkeyed: Sequence[RowOperation]) -> list[RefusedRow]:
        safe_mode = self._settings.safe_mode
        return find_refused_rows(self._target.connected(), groups, unkeyed, _STATEMENT_BYTES, safe_mode=safe_mode)

    def _commit_holding(
        self, work: _TransactionWork, refused: Mapping[HeldKey, RefusedRow], following: Checkpoint
    ) -> float:
        """:meth:`_commit` what is not held, and record what is. Also raises _Released."""
        settings = self._settings
        session = self._target.connected()
        try:
            send(session, b"START TRANSACTION")
            self._check_moved(send(session, self._checkpoint_update(following)))
            waits = self._held | refused.keys() | work.absent.keys()
            rest, waiting = split_held(self._plain_held_changes(session, work.groups, waits), waits)
            rest = resolve_upserts(session, rest)
            for record in work.records:
                send(session, record)
            # Under the checkpoint's lock: no other session applies held changes meanwhile.
            last = held_store.last_seqs(session, settings.who, (change.at for change in waiting))
            self._check_held(waiting, last, refused)
            self._execute(session, self._statements(_TransactionWork(rest, work.unkeyed, (), {})))
            reasons = {key: Reason.of(one.error, one.errno) for key, one in refused.items()}
            held = [change for change in waiting if change.operation != DROPPED]
            for record in held_store.insert_statements(
                settings.who, held, last, reasons, following.relay_id, following.offset
            ):
                send(session, record)
            failpoints.hit(f"lane{self._lane}.before_commit")
            send(session, b"COMMIT")
        except CountAmbiguous:
            send(session, b"ROLLBACK")
            self._exact_for = _EXACT_COMMITS
            return self._commit_holding(work, refused, following)
        except (ShardmergeError, _Released):
            send(session, b"ROLLBACK")
            raise
        self._exact_for = max(self._exact_for - 1, 0)
        self._log_held(refused)
        self._held |= {change.at for change in held}
        return time.time()

    def _plain_held_changes(
        self, session: Session, groups: Sequence[Group], held: frozenset[HeldKey]
    ) -> tuple[Group, ...]:
        """Replace changes of ``held`` keys in tables that may lack rows by plain ones, by whether the row exists: after
        the changes that are already held, else at the target."""
        unsure = [
            (held_key(key, state), key, state)
            for _, keys in groups
            for key, state in keys.items()
            if state.plan.may_lack_rows and held_key(key, state) in held
        ]
        if not unsure:
            return tuple(groups)
        last = held_store.last_images(session, self._settings.who, (at for at, _, _ in unsure))
        plain: dict[HeldKey, KeyState | None] = {}
        for at, key, state in unsure:
            if state.existence_unknown:
                there = last[at] if at in last else bool(find_existing(session, state.plan, (key,)))
                plain[at] = as_plain(state, there=there)
            elif not state.existed and last.get(at, False):
                # The deletion of the held row was skipped: the shard table's own row is replaced.
                plain[at] = as_plain(state, there=True)
        left: list[Group] = []
        for name, keys in groups:
            now = {key: plain.get(held_key(key, state), state) for key, state in keys.items()}
            left.append((name, {key: state for key, state in now.items() if state is not None}))
        return tuple((name, keys) for name, keys in left if keys)

    def _check_held(
        self, waiting: Sequence[HeldChange], last: Mapping[HeldKey, int], refused: Mapping[HeldKey, RefusedRow]
    ) -> None:
        """Check that the changes in ``waiting`` must and may be held: raises _Released, QUARANTINE_FULL."""
        released = {change.at for change in waiting} - last.keys() - refused.keys()
        if released:
            raise _Released(frozenset(released))
        count = len(self._held | refused.keys())
        if not refused or count <= MOST_HELD:
            return
        key, one = list(refused.items())[-1]
        change = next(change for change in waiting if change.at == key)
        raise errors.replicate.QUARANTINE_FULL(
            source=self._settings.source,
            task=self._settings.task,
            count=count,
            limit=MOST_HELD,
            schema=change.source_schema,
            table=change.source_table,
            position=change.position,
            reason=one.error.message,
        )

    def _log_held(self, refused: Mapping[HeldKey, RefusedRow]) -> None:
        self.held_keys += len(refused)
        for key, one in refused.items():
            log.warning(
                "key held in quarantine",
                task=self._settings.task,
                source=self._settings.source,
                lane=self._lane,
                target=key.target.quoted,
                key=held_change(one.key, one.state).key_text,
                error=str(one.error),
            )

    def _commit_exactly(self, work: _TransactionWork, following: Checkpoint) -> float:
        try:
            return self._commit(work, following)
        except CountAmbiguous:
            # Either a row was unchanged or it is missing: writing them the other way shows which.
            self._exact_for = _EXACT_COMMITS
            return self._commit(work, following)

    def keep_alive(self) -> None:
        """Call it while there is nothing to commit: keeps the target from closing the idle connection."""
        self._target.keep_alive()

    def close(self) -> None:
        self._target.close()

    def _read_checkpoint(self) -> Checkpoint:
        settings = self._settings
        session = self._target.connected()
        send(session, b"START TRANSACTION")
        try:
            return checkpoints.read_locked(
                session,
                settings.who,
                self._lane,
                self._epoch,
                settings.stream,
            )
        finally:
            send(session, b"ROLLBACK")

    def _commit(self, work: _TransactionWork, following: Checkpoint) -> float:
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
            together, rest = _split(self._statements(work), _TOGETHER_BYTES)
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

    def _execute(self, session: Session, statements: Iterable[tuple[Statement, Keys]]) -> None:
        """Execute statements one by one and check their counts."""
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
        self._execute(session, self._statements(_TransactionWork(groups, step.batch.unkeyed, (), {})))
        failpoints.hit(f"lane{self._lane}.before_derived")
        step.cascades.apply(SqlRows(session), step.changes)

    def _check_moved(self, affected: int) -> None:
        settings = self._settings
        if affected != 1:
            raise errors.replicate.FENCED(task=settings.task, source=settings.source, epoch=self._epoch)

    def _checkpoint_update(self, following: Checkpoint) -> bytes:
        settings = self._settings
        return checkpoints.update_statement(settings.who, following, settings.stream)

    def _statements(self, work: _TransactionWork) -> Iterator[tuple[Statement, Keys]]:
        """The statements in order, each with the keys of its group."""
        safe_mode = self._settings.safe_mode
        if safe_mode:
            for _, keys in work.groups:
                _expect_all_present(keys)
        for item in statements_of(work.groups, _STATEMENT_BYTES, overwrite=self._overwrites):
            self.statements += 1
            yield item
        for statement in unkeyed_statements(work.unkeyed):
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

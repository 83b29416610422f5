"""Commits batches at the target: rows and checkpoint in one transaction (I2), fenced by epoch (I3)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pymysql

from proto import errors, hooks
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.connection import Session, send
from worker.quarantine import store
from worker.quarantine.held import (
    DROPPED,
    Absent,
    HeldChange,
    HeldKey,
    absence,
    held_change,
    held_key,
    split,
    together_where_apart,
    touches,
)
from worker.quarantine.store import Reason
from worker.replicate import checkpoint as checkpoints
from worker.replicate import skipped as skipped_records
from worker.replicate.batch import Batch, Keys, KeyState, RowOperation, diverged
from worker.replicate.checkpoint import Checkpoint
from worker.replicate.culprits import Culprit, Group, find_culprits, statements_of
from worker.replicate.loose import as_strict, needs_look, settled
from worker.replicate.presence import rows_at
from worker.replicate.proof import Ambiguous, RowRefused, check, why_refused
from worker.replicate.skips import SkippedRow
from worker.replicate.statements import Statement, unkeyed_statements
from worker.replicate.target import ApplySettings, OnRetry, TargetSession, send_together

log = get_logger()

_STATEMENT_BYTES = 1 << 20
# A small batch goes to the target in two packets, this and COMMIT: on a busy machine each answer that is waited for
# costs milliseconds.
_TOGETHER_BYTES = 1 << 16
_EXACT_COMMITS = 50  # a workload that writes rows back as they were will do so again
MOST_HELD = 10_000
"""Keys of one subtask that may be held: every lane has them in memory, and more than that have one cause."""
_OF_ROWS = (errors.replicate.COLLISION, errors.replicate.DIVERGED)
_LOOKS = 3  # for the row of a refusal: another writer may have mended the target meanwhile


class _Released(Exception):
    """Keys that the lane took for held, or for given up, are so no more; the transaction is rolled back."""

    def __init__(self, keys: frozenset[HeldKey]) -> None:
        super().__init__(keys)
        self.keys = keys


@dataclass(frozen=True, slots=True)
class _Work:
    """What one transaction does to rows; ``also``: and to the records beside them. ``absent``: the changes of rows that
    the target lacks because they were given up."""

    groups: tuple[Group, ...]
    unkeyed: Sequence[RowOperation]
    also: Sequence[bytes]
    absent: Mapping[HeldKey, KeyState]


class TargetWriter:
    """What one lane writes to the target. Not shared between threads."""

    def __init__(
        self,
        settings: ApplySettings,
        lane: int,
        epoch: int,
        on_retry: OnRetry = lambda attempt, error: None,
    ) -> None:
        self._settings = settings
        self._target = TargetSession(settings, on_retry)
        self._lane = lane
        self._epoch = epoch
        self._exact_for = 0
        self._held: frozenset[HeldKey] = frozenset()
        self._absent = Absent()
        self._released: frozenset[HeldKey] = frozenset()
        self.held_keys = 0
        """How many keys it has begun to hold."""

    def read_held(self) -> None:
        """Learn which keys are held, of the whole subtask. Raises the target's coded error after the retries."""
        found = self._target.retrying(lambda: store.read_keys(self._target.connected(), self._settings.who))
        self._held, self._absent = found.held, Absent(found.absent)

    @property
    def holds(self) -> bool:
        """Whether rows are, or may be, held: a batch has to tell shard tables' keys apart then."""
        return self._settings.quarantine or bool(self._held or self._absent.keys)

    def read_checkpoint(self) -> Checkpoint:
        """Where this lane stands. Raises FENCED, or the target's coded error after the retries."""
        return self._target.retrying(self._read_checkpoint)

    def commit(self, batch: Batch, following: Checkpoint, skipped: Sequence[SkippedRow] = ()) -> float:
        """Apply ``batch``, record ``skipped`` and move to ``following`` in one transaction; Unix time of the commit.

        A lost answer to COMMIT is resolved by reading the checkpoint under its lock, so a batch is
        applied exactly once. What is of a held key, or of one that the target refuses under ``quarantine``, is recorded
        in the same transaction instead. Raises FENCED, COLLISION, DIVERGED, ROW_REFUSED, TARGET_DUPLICATE_OTHER_KEY,
        which name the row's event, QUARANTINE_FULL, or the target's coded error.
        """
        first = True
        groups = together_where_apart(batch.targets())
        absent = self._absent.behind(skipped)
        work = _Work(groups, batch.unkeyed, self._records(skipped, absent), self._absent.touched(groups, skipped))

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

        committed_at: float = self._target.retrying(attempt)
        self._absent = Absent(absent.keys - self._held - self._released)
        self._released = frozenset()
        return committed_at

    def _records(self, skipped: Sequence[SkippedRow], absent: Absent) -> Sequence[bytes]:
        """Of the rows that are passed over, and of those that the target lacks from there on."""
        if not skipped:
            return ()
        who = self._settings.who
        news = {change.at: change for row in skipped if row.came for change in (absence(row),)}
        gone = [store.delete_statement(who, key) for key in self._absent.keys - absent.keys - self._held]
        come = absent.keys - self._absent.keys - self._held
        return (
            *skipped_records.insert_statements(who, self._lane, skipped),
            *gone,
            *store.absence_statements(who, (news[key] for key in come)),
        )

    def _commit_or_hold(self, work: _Work, following: Checkpoint) -> float:
        """:meth:`_commit`; a row that is refused is looked for, and named or held."""
        refused: dict[HeldKey, Culprit] = {}
        looks = 0
        if work.absent and not self._settings.quarantine:
            found = store.read_keys(self._target.connected(), self._settings.who)
            work = self._without(work, self._absent.keys - found.absent - found.held)
            for key, state in work.absent.items():
                raise diverged(state.plan, 1, key.key, state.position)
        while True:
            held = self._held | refused.keys() | work.absent.keys()
            try:
                if touches(work.groups, held):
                    return self._commit_holding(work, refused, following)
                return self._commit_exactly(work, following)
            except _Released as released:
                work = self._without(work, released.keys)
                continue
            except RowRefused as refusal:
                error: Exception = refusal.error
            except ShardmergeError as coded_error:
                if not self._settings.quarantine or coded_error.spec not in _OF_ROWS:
                    raise
                error = coded_error
            rest, _ = split(work.groups, held)
            culprits = self._find_culprits(rest, work.unkeyed)
            if culprits and not self._settings.quarantine:
                raise culprits[0].error from error
            looks += not culprits
            if looks == _LOOKS:
                raise error
            refused.update((held_key(one.key, one.state), one) for one in culprits)

    def _without(self, work: _Work, released: frozenset[HeldKey]) -> _Work:
        self._held -= released
        self._released |= released
        return replace(work, absent={key: state for key, state in work.absent.items() if key not in released})

    def _find_culprits(self, groups: Sequence[Group], unkeyed: Sequence[RowOperation]) -> list[Culprit]:
        safe_mode = self._settings.safe_mode
        return find_culprits(self._target.connected(), groups, unkeyed, _STATEMENT_BYTES, safe_mode=safe_mode)

    def _commit_holding(self, work: _Work, refused: Mapping[HeldKey, Culprit], following: Checkpoint) -> float:
        """:meth:`_commit` of what is not held, with the record of what is. Raises _Released too."""
        settings = self._settings
        session = self._target.connected()
        try:
            send(session, b"START TRANSACTION")
            self._check_moved(send(session, self._move(following)))
            waits = self._held | refused.keys() | work.absent.keys()
            rest, waiting = split(self._made_strict(session, work.groups, waits), waits)
            rest = settled(session, rest)
            for record in work.also:
                send(session, record)
            # Behind the checkpoint's lock: nobody applies held changes meanwhile.
            last = store.last_seqs(session, settings.who, (change.at for change in waiting))
            self._check_held(waiting, last, refused)
            for statement, keys in self._statements(_Work(rest, work.unkeyed, (), {})):
                try:
                    affected = send(session, statement.sql)
                except pymysql.MySQLError as refusal:
                    raise why_refused(session, statement, keys, refusal) from refusal
                check(session, statement, keys, affected, safe_mode=self._settings.safe_mode)
            reasons = {key: Reason.of(one.error, one.errno) for key, one in refused.items()}
            held = [change for change in waiting if change.operation != DROPPED]
            for record in store.insert_statements(
                settings.who, held, last, reasons, following.relay_id, following.offset
            ):
                send(session, record)
            hooks.reach(f"lane{self._lane}.before_commit")
            send(session, b"COMMIT")
        except Ambiguous:
            send(session, b"ROLLBACK")
            self._exact_for = _EXACT_COMMITS
            return self._commit_holding(work, refused, following)
        except (ShardmergeError, _Released):
            send(session, b"ROLLBACK")
            raise
        self._exact_for = max(self._exact_for - 1, 0)
        self._say_held(refused)
        self._held |= {change.at for change in held}
        return time.time()

    def _made_strict(self, session: Session, groups: Sequence[Group], held: frozenset[HeldKey]) -> tuple[Group, ...]:
        """With what loose tables change of ``held`` keys by whether their row is there: behind the changes that are
        held already, else at the target."""
        loose = [
            (held_key(key, state), key, state)
            for _, keys in groups
            for key, state in keys.items()
            if state.plan.loose and held_key(key, state) in held
        ]
        if not loose:
            return tuple(groups)
        last = store.last_images(session, self._settings.who, (at for at, _, _ in loose))
        strict: dict[HeldKey, KeyState | None] = {}
        for at, key, state in loose:
            if state.loose:
                there = last[at] if at in last else bool(rows_at(session, state.plan, (key,)))
                strict[at] = as_strict(state, there=there)
            elif not state.existed and last.get(at, False):
                # The removal of the row that waits was passed over: it is the shard table's own that is replaced.
                strict[at] = as_strict(state, there=True)
        left: list[Group] = []
        for name, keys in groups:
            now = {key: strict.get(held_key(key, state), state) for key, state in keys.items()}
            left.append((name, {key: state for key, state in now.items() if state is not None}))
        return tuple((name, keys) for name, keys in left if keys)

    def _check_held(
        self, waiting: Sequence[HeldChange], last: Mapping[HeldKey, int], refused: Mapping[HeldKey, Culprit]
    ) -> None:
        """Whether what is to wait has to, and may: raises _Released, QUARANTINE_FULL."""
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

    def _say_held(self, refused: Mapping[HeldKey, Culprit]) -> None:
        self.held_keys += len(refused)
        for key, one in refused.items():
            log.warning(
                "a key is held in the quarantine",
                task=self._settings.task,
                source=self._settings.source,
                lane=self._lane,
                target=key.target.quoted,
                key=held_change(one.key, one.state).key_text,
                error=str(one.error),
            )

    def _commit_exactly(self, work: _Work, following: Checkpoint) -> float:
        try:
            return self._commit(work, following)
        except Ambiguous:
            # Either a row was the same already or it is missing: the other way of writing them tells.
            self._exact_for = _EXACT_COMMITS
            return self._commit(work, following)

    def keep_alive(self) -> None:
        """To be called while there is nothing to commit: keeps the target from giving up on the connection."""
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
                settings.meta_schema,
                settings.task,
                settings.source,
                self._lane,
                self._epoch,
                settings.stream,
            )
        finally:
            send(session, b"ROLLBACK")

    def _commit(self, work: _Work, following: Checkpoint) -> float:
        session = self._target.connected()
        # First, for its row lock makes a zombie wait and then see the newer epoch.
        move = self._move(following)
        opening = (b"START TRANSACTION", move)
        try:
            if needs_look(work.groups, overwrite=self._overwrites):
                send(session, b"START TRANSACTION")
                self._check_moved(send(session, move))
                work = replace(work, groups=settled(session, work.groups))
                opening = ()
            first = len(opening)
            together, rest = _split(self._statements(work), _TOGETHER_BYTES)
            answers, error = send_together(session, (*opening, *(item.sql for item, _ in together)))
            if first and len(answers) > 1:
                self._check_moved(answers[1])
            for (statement, keys), affected in zip(together, answers[first:], strict=False):
                check(session, statement, keys, affected, safe_mode=self._settings.safe_mode)
            if error is not None:
                if len(answers) >= first:
                    raise why_refused(session, *together[len(answers) - first], error) from error
                raise error
            for statement, keys in rest:
                try:
                    affected = send(session, statement.sql)
                except pymysql.MySQLError as refusal:
                    raise why_refused(session, statement, keys, refusal) from refusal
                check(session, statement, keys, affected, safe_mode=self._settings.safe_mode)
            for record in work.also:
                send(session, record)
            hooks.reach(f"lane{self._lane}.before_commit")
            send(session, b"COMMIT")
        except (ShardmergeError, Ambiguous):
            send(session, b"ROLLBACK")
            raise
        self._exact_for = max(self._exact_for - 1, 0)
        return time.time()

    def _check_moved(self, affected: int) -> None:
        settings = self._settings
        if affected != 1:
            raise errors.replicate.FENCED(task=settings.task, source=settings.source, epoch=self._epoch)

    def _move(self, following: Checkpoint) -> bytes:
        settings = self._settings
        return checkpoints.update_statement(
            settings.meta_schema, settings.task, settings.source, following, settings.stream
        )

    def _statements(self, work: _Work) -> Iterator[tuple[Statement, Keys]]:
        """In order, each with the keys of its group."""
        safe_mode = self._settings.safe_mode
        if safe_mode:
            for _, keys in work.groups:
                _expect_all_present(keys)
        yield from statements_of(work.groups, _STATEMENT_BYTES, overwrite=self._overwrites)
        for statement in unkeyed_statements(work.unkeyed):
            yield statement, {}

    @property
    def _overwrites(self) -> bool:
        """Whether rows that exist are overwritten in place: not where a count may not prove it."""
        return not self._settings.safe_mode and self._exact_for == 0


def _expect_all_present(keys: Keys) -> None:
    for state in keys.values():
        state.existed = not state.loose


def _split(
    work: Iterator[tuple[Statement, Keys]], most: int
) -> tuple[list[tuple[Statement, Keys]], Iterator[tuple[Statement, Keys]]]:
    """The statements at the front that have ``most`` bytes together at most, and the others."""
    front: list[tuple[Statement, Keys]] = []
    size = 0
    for item in work:
        size += len(item[0].sql)
        if size > most:
            return front, chain((item,), work)
        front.append(item)
    return front, iter(())

"""Commits batches at the target: rows and checkpoint in one transaction (I2), fenced by epoch (I3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast

import pymysql
from pymysql.constants import ER
from tenacity import RetryCallState, Retrying, retry_if_exception, wait_random_exponential

from proto import errors, hooks
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.connection import Endpoint, Session, Side, coded, connect, errno_of
from worker.plan import TablePlan
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
from worker.replicate.batch import Batch, Keys, KeyState, RowOperation, collision, diverged
from worker.replicate.checkpoint import Checkpoint
from worker.replicate.culprits import Culprit, Group, find_culprits, statements_of
from worker.replicate.loose import as_strict, needs_look, rows_at, settled
from worker.replicate.refusal import is_of_row
from worker.replicate.skips import SkippedRow
from worker.replicate.statements import (
    DeleteKeys,
    DeleteRow,
    InsertRows,
    ReplaceRows,
    Statement,
    UpdateRow,
    count_sql,
    unkeyed_statements,
)
from worker.replicate.stream import Stream
from worker.rows import Joined

log = get_logger()

_STATEMENT_BYTES = 1 << 20
# A small batch goes to the target in two packets, this and COMMIT: on a busy machine each answer that is waited for
# costs milliseconds.
_TOGETHER_BYTES = 1 << 16
_ANSWER_SECONDS = 300.0
# A lane's process that hangs inside a transaction holds the lock that the next epoch needs: the target
# gives up on a silent connection after this long, and rolls it back.
_SILENCE_SECONDS = 30
_KEEP_ALIVE_SECONDS = 8.0
_EXACT_COMMITS = 50  # a workload that writes rows back as they were will do so again
MOST_HELD = 10_000
"""Keys of one subtask that may be held: every lane has them in memory, and more than that have one cause."""
_OF_ROWS = (errors.replicate.COLLISION, errors.replicate.DIVERGED)
_LOOKS = 3  # for the row of a refusal: another writer may have mended the target meanwhile


@dataclass(frozen=True, slots=True)
class ApplySettings:
    """``retry_seconds``: how long after its first failure a transaction is tried again before the lane gives up.

    ``safe_mode``: rows may be there already (targets pre-loaded by other means): keys are deleted
    before they are inserted, and missing rows are no error. ``stream``: whose lane it is. ``quarantine``: rows that
    the target refuses are held; else they end the lane.
    """

    task: str
    source: str
    meta_schema: str
    target: Endpoint
    safe_mode: bool
    stream: Stream = Stream.MAIN
    retry_seconds: float = 30.0
    quarantine: bool = False

    @property
    def who(self) -> tuple[str, str, str]:
        """Whose records: (meta schema, task, source)."""
        return self.meta_schema, self.task, self.source


class _Ambiguous(Exception):
    """Rows that should exist were overwritten, but the count does not prove that all of them did."""


class _RowRefused(Exception):
    """The target refused a statement because of a row in it; the transaction is rolled back."""

    def __init__(self, error: pymysql.MySQLError) -> None:
        super().__init__(error)
        self.error = error


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
    """One lane's connection to the target. Not shared between threads.

    ``on_retry``: told before an attempt is repeated its number (the first repetition is 2) and why.
    """

    def __init__(
        self,
        settings: ApplySettings,
        lane: int,
        epoch: int,
        on_retry: Callable[[int, ShardmergeError], None] = lambda attempt, error: None,
    ) -> None:
        self._on_retry = on_retry
        self._settings = settings
        self._lane = lane
        self._epoch = epoch
        self._session: Session | None = None
        self._used_at = 0.0
        self._exact_for = 0
        self._held: frozenset[HeldKey] = frozenset()
        self._absent = Absent()
        self._released: frozenset[HeldKey] = frozenset()
        self.held_keys = 0
        """How many keys it has begun to hold."""

    def read_held(self) -> None:
        """Learn which keys are held, of the whole subtask. Raises the target's coded error after the retries."""
        found = self._retrying(lambda: store.read_keys(self._connection(), self._settings.who))
        self._held, self._absent = found.held, Absent(found.absent)

    @property
    def holds(self) -> bool:
        """Whether rows are, or may be, held: a batch has to tell shard tables' keys apart then."""
        return self._settings.quarantine or bool(self._held or self._absent.keys)

    def read_checkpoint(self) -> Checkpoint:
        """Where this lane stands. Raises FENCED, or the target's coded error after the retries."""
        return self._retrying(self._read_checkpoint)

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

        committed_at: float = self._retrying(attempt)
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
            found = store.read_keys(self._connection(), self._settings.who)
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
            except _RowRefused as refusal:
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
        return find_culprits(self._connection(), groups, unkeyed, _STATEMENT_BYTES, safe_mode=safe_mode)

    def _commit_holding(self, work: _Work, refused: Mapping[HeldKey, Culprit], following: Checkpoint) -> float:
        """:meth:`_commit` of what is not held, with the record of what is. Raises _Released too."""
        settings = self._settings
        session = self._connection()
        try:
            _run(session, b"START TRANSACTION")
            self._check_moved(_run(session, self._move(following)))
            waits = self._held | refused.keys() | work.absent.keys()
            rest, waiting = split(self._made_strict(session, work.groups, waits), waits)
            rest = settled(session, rest)
            for record in work.also:
                _run(session, record)
            # Behind the checkpoint's lock: nobody applies held changes meanwhile.
            last = store.last_seqs(session, settings.who, (change.at for change in waiting))
            self._check_held(waiting, last, refused)
            for statement, keys in self._statements(_Work(rest, work.unkeyed, (), {})):
                try:
                    affected = _run(session, statement.sql)
                except pymysql.MySQLError as refusal:
                    raise self._refused(session, statement, keys, refusal) from refusal
                self._check(session, statement, keys, affected)
            reasons = {key: Reason.of(one.error, one.errno) for key, one in refused.items()}
            held = [change for change in waiting if change.operation != DROPPED]
            for record in store.insert_statements(
                settings.who, held, last, reasons, following.relay_id, following.offset
            ):
                _run(session, record)
            hooks.reach(f"lane{self._lane}.before_commit")
            _run(session, b"COMMIT")
        except _Ambiguous:
            _run(session, b"ROLLBACK")
            self._exact_for = _EXACT_COMMITS
            return self._commit_holding(work, refused, following)
        except (ShardmergeError, _Released):
            _run(session, b"ROLLBACK")
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
            if state.loose and held_key(key, state) in held
        ]
        if not loose:
            return tuple(groups)
        last = store.last_images(session, self._settings.who, (at for at, _, _ in loose))
        strict: dict[HeldKey, KeyState | None] = {}
        for at, key, state in loose:
            there = last[at] if at in last else bool(rows_at(session, state.plan, (key,)))
            strict[at] = as_strict(state, there=there)
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
        except _Ambiguous:
            # Either a row was the same already or it is missing: the other way of writing them tells.
            self._exact_for = _EXACT_COMMITS
            return self._commit(work, following)

    def keep_alive(self) -> None:
        """To be called while there is nothing to commit: keeps the target from giving up on the connection."""
        if self._session is not None and time.monotonic() - self._used_at > _KEEP_ALIVE_SECONDS:
            self._used_at = time.monotonic()
            self._retrying(lambda: _run(self._connection(), b"SELECT 1"))

    def close(self) -> None:
        if self._session is not None:
            try:
                self._session.close()
            except pymysql.MySQLError as error:
                log.debug("closing a target connection", errno=errno_of(error))
            self._session = None

    def _retrying(self, attempt: Any) -> Any:
        failed_at: float | None = None

        def too_long(state: RetryCallState) -> bool:
            # From the first failure on: one attempt alone may wait longer for a lock.
            nonlocal failed_at
            failed_at = time.monotonic() if failed_at is None else failed_at
            return time.monotonic() - failed_at >= self._settings.retry_seconds

        retrying = Retrying(
            retry=retry_if_exception(_is_retryable),
            stop=too_long,
            wait=wait_random_exponential(multiplier=0.05, max=2.0),
            before_sleep=self._before_retry,
            reraise=True,
        )
        return retrying(self._coding, attempt)

    def _before_retry(self, state: RetryCallState) -> None:
        self.close()
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, ShardmergeError):
            self._on_retry(state.attempt_number + 1, error)

    def _coding(self, attempt: Any) -> Any:
        try:
            return attempt()
        except pymysql.MySQLError as error:
            raise coded(error, self._settings.target, Side.TARGET, "target") from error

    def _connection(self) -> Session:
        if self._session is None:
            self._session = connect(
                self._settings.target,
                Side.TARGET,
                name="target",
                autocommit=True,
                read_timeout=_ANSWER_SECONDS,
                together=True,
            )
            _run(self._session, f"SET SESSION wait_timeout = {_SILENCE_SECONDS}".encode())
        self._used_at = time.monotonic()
        return self._session

    def _read_checkpoint(self) -> Checkpoint:
        settings = self._settings
        session = self._connection()
        _run(session, b"START TRANSACTION")
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
            _run(session, b"ROLLBACK")

    def _commit(self, work: _Work, following: Checkpoint) -> float:
        session = self._connection()
        # First, for its row lock makes a zombie wait and then see the newer epoch.
        move = self._move(following)
        opening = (b"START TRANSACTION", move)
        try:
            if needs_look(work.groups, overwrite=self._overwrites):
                _run(session, b"START TRANSACTION")
                self._check_moved(_run(session, move))
                work = replace(work, groups=settled(session, work.groups))
                opening = ()
            first = len(opening)
            together, rest = _split(self._statements(work), _TOGETHER_BYTES)
            answers, error = _run_together(session, (*opening, *(item.sql for item, _ in together)))
            if first and len(answers) > 1:
                self._check_moved(answers[1])
            for (statement, keys), affected in zip(together, answers[first:], strict=False):
                self._check(session, statement, keys, affected)
            if error is not None:
                if len(answers) >= first:
                    raise self._refused(session, *together[len(answers) - first], error) from error
                raise error
            for statement, keys in rest:
                try:
                    affected = _run(session, statement.sql)
                except pymysql.MySQLError as refusal:
                    raise self._refused(session, statement, keys, refusal) from refusal
                self._check(session, statement, keys, affected)
            for record in work.also:
                _run(session, record)
            hooks.reach(f"lane{self._lane}.before_commit")
            _run(session, b"COMMIT")
        except (ShardmergeError, _Ambiguous):
            _run(session, b"ROLLBACK")
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

    def _refused(
        self, session: Session, statement: Statement, keys: Keys, error: pymysql.MySQLError
    ) -> ShardmergeError | pymysql.MySQLError | _RowRefused:
        """What to raise for a statement that the target refused."""
        if not is_of_row(errno_of(error)):
            return error
        _run(session, b"ROLLBACK")
        if errno_of(error) == ER.DUP_ENTRY and isinstance(statement, InsertRows):
            fresh = tuple(key for key in statement.keys if not (keys[key].existed or keys[key].loose))
            found = _find(session, statement.plan, fresh, present=True) if fresh else None
            if found is not None:
                # What the statement's rows have in common is the target; each is of a shard table of its own.
                return collision(keys[found].plan, found, keys[found].position, None)
        return _RowRefused(error)

    def _check(self, session: Session, statement: Statement, keys: Keys, affected: int) -> None:
        """Whether a statement did what it should: raises DIVERGED, TARGET_REJECTED, _Ambiguous."""
        match statement:
            case DeleteKeys(plan=plan, keys=wanted, loose=loose):
                if affected != len(wanted) and not self._settings.safe_mode and not loose:
                    _run(session, b"ROLLBACK")
                    missing = _find(session, plan, wanted, present=False) or wanted[0]
                    state = keys[missing]
                    raise diverged(state.plan, len(wanted) - affected, missing, state.position)
            case ReplaceRows(count=count, any_count=any_count):
                if affected != 2 * count and not any_count:
                    raise _Ambiguous
            case InsertRows(plan=plan, count=count):
                if affected != count:
                    raise errors.replicate.TARGET_REJECTED(
                        target_schema=plan.target_schema,
                        target_table=plan.target_table,
                        source=plan.source,
                        reason=f"an INSERT of {count} rows affected {affected}",
                        errno=0,
                    )
            case DeleteRow(operation=operation):
                if affected != 1 and not operation.plan.loose:
                    raise diverged(operation.plan, 1, b"", operation.position)
            case UpdateRow():
                pass


def _expect_all_present(keys: Keys) -> None:
    for state in keys.values():
        state.existed = not state.loose


def _find(session: Session, plan: TablePlan, keys: tuple[Joined, ...], *, present: bool) -> Joined | None:
    """One of ``keys`` that exists at the target (or does not), by halving; None if there is none."""

    def odd(part: tuple[Joined, ...]) -> bool:
        with session.cursor() as cursor:
            execute: Any = cursor.execute
            execute(count_sql(plan, part))
            count = int(str((cursor.fetchone() or (0,))[0]))
        return count > 0 if present else count < len(part)

    while keys and odd(keys):
        if len(keys) == 1:
            return keys[0]
        half = len(keys) // 2
        keys = keys[:half] if odd(keys[:half]) else keys[half:]
    return None


def _run(session: Session, statement: bytes) -> int:
    """Send one statement as bytes (literals are in the column's bytes, not text); affected rows."""
    return int(cast("Any", session).query(statement))


def _run_together(session: Session, statements: Sequence[bytes]) -> tuple[list[int], pymysql.MySQLError | None]:
    """Send statements in one packet: affected rows of each, up to the first that fails, and what it failed with.

    The server executes none behind one that fails (MySQL Reference Manual, C API "Multiple Statement Execution").
    """
    answers: list[int] = []
    if not statements:
        return answers, None
    try:
        answers.append(_run(session, b";".join(statements)))
        for _ in statements[1:]:
            answers.append(int(cast("Any", session).next_result()))
    except pymysql.MySQLError as error:
        return answers, error
    return answers, None


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


def _is_retryable(error: BaseException) -> bool:
    # FENCED and collisions are not; lost connections, deadlocks, a read-only or full target are.
    return isinstance(error, ShardmergeError) and error.spec.retryable

"""Runs a statement at the target exactly once, whichever process is killed and whenever (I6).

A DDL cannot be rolled back and commits by itself, so no record can be written in the same transaction. Therefore the
definitions of its tables before it are recorded first (``statement_begun``). A process that finds this record compares
it with the current definitions: if they differ, the statement has run; if they are equal, it has not. A schema join
(``shard-mode: optimistic``) may change the definitions meanwhile: it corrects the records of other statements that have
not run. A statement that leaves the definitions unchanged (FORCE, a MODIFY to the current type) may run twice. That
changes nothing: no row is written in between, because all lanes of its tables have stopped. A statement that the
target runs in parts only has a record of its own (run_parts.py).

A killed client's statement continues at the server; at TiDB as a job of the cluster, whose end is waited for. A server
lock per subject, which ends with the connection, lets one session at a time run it. The epoch is checked under the
lock, so no older process can begin later (I3). A lock holder whose connection is idle is frozen or gone: its connection
is killed, so the holder gets an error when it continues.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import pymysql
from pymysql.constants import ER

from shardmerge.proto import errors, failpoints
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session, dialect_of, execute, quote_name, rows, text_of
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of, reason_of
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.execute.ddl_jobs import running_jobs, wait_for_jobs
from shardmerge.worker.ddl.execute.other_tasks import check_other_tasks
from shardmerge.worker.ddl.execute.run_parts import PartsRun, divided_at
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.target.apply.statement_waits import naming_waits, user_lock_phrase
from shardmerge.worker.target.records import ddl_progress, divided_statements, executed_locks
from shardmerge.worker.target.records.ddl_progress import Begun, StatementPlace, divided_subject
from shardmerge.worker.target.records.divided_statements import DividedStatement, StatementProgress
from shardmerge.worker.target.records.statement_session import StatementSession
from shardmerge.worker.target.tables.deferred_index_store import read_owed

log = get_logger()

_LOOK_SECONDS = 1
_LOCK_SECONDS = 1
_IDLE_SECONDS = 5
"""A connection that runs a statement, or is between two, is never idle for so long."""
_MDL_WAIT_SECONDS = 30
"""How long the statement waits for transactions that use the table; meanwhile other sessions wait for the statement."""

_AUTO_INCREMENT = re.compile(r" AUTO_INCREMENT=\d+")


def subject_of(targets: Sequence[TargetTable], number: int = 0) -> str:
    """The lock name for statements on these tables. ``number``: of several statements that run one after the other at
    the same position of the binlog."""
    text = "\n".join([*sorted(target.quoted for target in targets), *([str(number)] if number else [])])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def digest_of(session: Session, targets: Sequence[TargetTable]) -> str:
    """Digest of the tables' definitions: their CREATE TABLE without the next AUTO_INCREMENT value."""
    found = hashlib.sha256()
    for target in sorted(targets):
        found.update(f"{target.quoted}\n{_look(session, target)}\n".encode())
    return found.hexdigest()


def _look(session: Session, target: TargetTable) -> str:
    try:
        [(_, text, *_)] = rows(session, f"SHOW CREATE TABLE {target.quoted}")
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR):
            raise
        return "absent"
    return _AUTO_INCREMENT.sub("", text_of(text))


class NextStep(enum.Enum):
    """The next step of a statement that is to run once."""

    BEGIN = "begin"
    """Record it as begun, with the tables' definitions; then run it."""
    RUN = "run"
    """It was begun, and the tables' definitions are unchanged: run it."""
    HAS_RUN = "has run"
    """It was begun, and the tables' definitions have changed."""


def next_step(begun: Begun | None, statement: str, now: str) -> NextStep:
    """``begun``: the record for its tables. ``now``: digest of their current definitions. Pure."""
    if begun is None or begun.statement != statement:
        return NextStep.BEGIN
    return NextStep.RUN if begun.before == now else NextStep.HAS_RUN


def next_step_of_run(step: NextStep, others: Iterable[Begun], now: str, *, is_recorded: bool) -> NextStep:
    """The next step of a statement that any source of the task may run; ``step``: by the own record. ``others``: the
    records of all sources that have begun it. ``is_recorded``: read after these: the run is recorded, in the
    transaction that deletes them; another source has run it since this one was asked to. Pure."""
    if step is NextStep.BEGIN and (is_recorded or any(other.before != now for other in others)):
        return NextStep.HAS_RUN
    return step


def join_subject(target: TargetTable) -> str:
    """The name of the target's join lock; it differs from the lock of its statements."""
    return f"j{subject_of([target])[1:]}"


def ended_subject(target: TargetTable) -> str:
    """The subject of the statement of a schema join that ends a conflict."""
    return f"e{subject_of([target])[1:]}"


def computed_subjects(target: TargetTable) -> tuple[str, ...]:
    """The subjects of statements that are computed from the target's definition."""
    return join_subject(target), ended_subject(target), subject_of([target])


def key_of_run(targets: Sequence[TargetTable], run: str) -> str:
    """The key of the records of a statement that any source of the task may run. ``run``: identifies the run, the same
    for all sources."""
    return hashlib.sha256("\n".join([subject_of(targets), run]).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class OneRun:
    """A statement that changes ``targets`` at the target, and is to run once.

    ``settings``: of the source's statement. ``subject``: the lock name; "" for that of the tables. ``position``: the
    statement's position at the source. ``run``: of a statement that any source of the task may run once, see
    :func:`key_of_run`; a source that takes it over finds the record of the one before. ``computed``: the statement was
    computed from the tables' definitions under a lock that the caller holds, so it has not run, whatever was begun
    before. ``at``: the source's statement, where its tables alone identify the record. ``prepare``: called before the
    tables' definitions are read for the first time.
    """

    targets: Sequence[TargetTable]
    statement: str
    settings: StatementSession
    subject: str = ""
    position: object = ""
    run: str = ""
    computed: bool = False
    at: Statement | None = None
    prepare: Callable[[Session], None] = lambda _: None

    @property
    def lock_name(self) -> str:
        return self.subject or subject_of(self.targets)

    @property
    def key(self) -> str:
        """The key of its record."""
        return key_of_run(self.targets, self.run) if self.run else self.lock_name


def run_once(
    session: Session, who: SubtaskKey, epoch: int, one: OneRun, stop: StopSignal, on_wait: Callable[[str], None]
) -> None:
    """Run the statement unless it has run. Its record stays: the caller deletes it in the transaction that records the
    result. ``on_wait``: called with what it waits for, "" for nothing. Returns early, without a result, when ``stop``
    is set. Raises FENCED, DDL_REFUSED, OTHER_TASK_VALUES and ``pymysql.MySQLError``.
    """
    wait_for_indexes(session, who.schema, one.targets, stop, on_wait)
    if stop.is_set:
        return
    with subject_lock(session, who, epoch, one.lock_name, one.targets, stop, on_wait) as held:
        if held:
            wait_for_jobs(session, one.targets, stop, on_wait)
        if held and not stop.is_set:
            _run_alone(session, who, epoch, one, stop, on_wait)


def _run_alone(
    session: Session, who: SubtaskKey, epoch: int, one: OneRun, stop: StopSignal, on_wait: Callable[[str], None]
) -> None:
    """As :func:`run_once`, under the lock."""
    parts = StatementParts(session, who, one.key, one.targets, one.settings, one.position, stop, on_wait)
    known = None if one.computed else parts.recorded(one.statement, one.at, shared=bool(one.run))
    if known is not None:
        parts.run(*known)
        return
    step, now = _look_at(session, who, one)
    if step is NextStep.BEGIN:
        check_other_tasks(session, who, epoch, one.targets, one.statement, one.settings, one.position)
    divided = divided_at(session, one.statement, one.settings.sql_mode)
    match step:
        case NextStep.HAS_RUN:
            log.info("a statement has run already", task=who.task, source=who.source, statement=one.statement)
            return
        case _ if divided is not None:
            place = "" if one.at is None else StatementPlace.of(one.at).to_json()
            parts.begin(replace(divided, place=place, computed=one.computed), now)
            return
        case NextStep.BEGIN:
            ddl_progress.write_begun(session, who, one.key, Begun(one.statement, now))
        case NextStep.RUN:
            pass
    failpoints.hit("ddl.begun")
    try:
        with one.settings.applied_to(session):
            has_run = run_statement(session, who, one.targets, one.statement, one.position, stop, on_wait)
    except (ShardmergeError, pymysql.MySQLError):
        # The server answered with an error, so it has not run. If an operator repaired the tables by hand meanwhile,
        # their definitions differ and the record is kept.
        with suppress(pymysql.MySQLError):  # the connection is lost: the state stays unknown
            if not running_jobs(session, one.targets) and digest_of(session, one.targets) == now:
                ddl_progress.delete_begun(session, who, one.key)
        raise
    failpoints.hit("ddl.run")
    if one.computed and has_run:
        # Statements that were begun and not sent have still not run, though the definitions differ now.
        ddl_progress.move_begun(session, who, one.key, now, digest_of(session, one.targets))


def _look_at(session: Session, who: SubtaskKey, one: OneRun) -> tuple[NextStep, str]:
    """The next step of the statement, and the digest of the tables' present definitions."""
    begun = ddl_progress.read_begun(session, who, one.lock_name)
    if begun is None or begun.statement != one.statement:
        one.prepare(session)
    now = digest_of(session, one.targets)
    step = next_step(begun, one.statement, now)
    if one.computed and step is NextStep.HAS_RUN:
        step = NextStep.BEGIN
    if one.run and step is NextStep.BEGIN:
        others = ddl_progress.read_begun_by(session, *who[:2], one.key)
        # The owner before may have run it while this one waited for the lock of the statement.
        runs = executed_locks.read(session, *who[:2])
        recorded = any(target in runs and runs[target].generation == one.run for target in one.targets)
        step = next_step_of_run(step, others.values(), now, is_recorded=recorded)
    return step, now


@dataclass(frozen=True, slots=True)
class StatementParts:
    """A statement on ``targets`` that runs in parts, under the lock of its subject. ``key``: of its record. Methods
    return early when ``stop`` is set; they raise DDL_REFUSED, DDL_PART_REFUSED and ``pymysql.MySQLError``."""

    session: Session
    who: SubtaskKey
    key: str
    targets: Sequence[TargetTable]
    session_settings: StatementSession
    position: object
    stop: StopSignal
    on_wait: Callable[[str], None]

    def recorded(self, statement: str, at: Statement | None, *, shared: bool) -> tuple[str, StatementProgress] | None:
        """The record of the statement, and the source that has it; None: it was not begun in parts. ``shared``: any
        source of the task may have begun it."""
        if dialect_of(self.session).combines_actions:
            return None
        found = divided_statements.read_by(self.session, *self.who[:2], self.key)
        if shared:
            # Its key identifies the run.
            return max(found.items(), key=lambda each: each[1].divided.ran, default=None)
        source = self.who.source
        known = found.get(source)
        if known is None or known.divided.statement != statement:
            return None
        place = known.divided.place
        is_other = at is not None and place and not StatementPlace.from_json(place).is_exactly(at)
        return None if is_other else (source, known)

    def begin(self, divided: DividedStatement, now: str) -> None:
        """Record the parts, and run them. ``now``: digest of the tables' definitions."""
        ddl_progress.delete_begun(self.session, self.who, self.key)
        progress = StatementProgress(divided, now)
        divided_statements.write(self.session, self.who, self.key, progress)
        failpoints.hit("ddl.divided")
        self.run(self.who.source, progress)

    def run(self, source: str, progress: StatementProgress) -> None:
        """Run the parts that have not run. ``source``: which has the record."""
        _, task, own = self.who
        who = self.who._replace(source=source)
        if progress.is_complete:
            log.info("a statement has run already", task=task, source=own, statement=progress.divided.statement)
            return
        computed = progress.divided.computed

        def move(before: str, now: str) -> None:
            # Statements that were begun and not sent have still not run, though the definitions differ now.
            ddl_progress.move_begun(self.session, who, divided_subject(self.key), before, now)

        with self.session_settings.applied_to(self.session):
            PartsRun(
                self.session,
                who,
                self.key,
                lambda: digest_of(self.session, self.targets),
                lambda part: run_statement(
                    self.session, self.who, self.targets, part, self.position, self.stop, self.on_wait
                ),
                lambda: not running_jobs(self.session, self.targets),
                move if computed else lambda before, now: None,
            ).run(progress)


def finish_computed(
    session: Session, who: SubtaskKey, target: TargetTable, settings: StatementSession, stop: StopSignal
) -> None:
    """Finish the computed statements on ``target`` that a killed run, of any source of the task, has begun in parts:
    before another statement is computed, and under the lock that all of them hold. A statement whose next part the
    target refuses is computed again by its own source. Raises ``pymysql.MySQLError``."""
    if dialect_of(session).combines_actions:
        return
    for key in computed_subjects(target):
        for source, progress in divided_statements.read_by(session, *who[:2], key).items():
            if not progress.divided.computed or progress.is_complete:
                continue
            wait_for_jobs(session, [target], stop, lambda _: None)
            if stop.is_set:
                return
            parts = StatementParts(session, who, key, [target], settings, "(a schema join's)", stop, lambda _: None)
            try:
                parts.run(source, progress)
            except ShardmergeError as error:
                if error.spec not in (errors.ddl.DDL_REFUSED, errors.ddl.DDL_PART_REFUSED):
                    raise
                log.warning("a part of a schema join is refused", task=who.task, source=source, error=str(error))


def wait_for_indexes(
    session: Session, schema: str, targets: Sequence[TargetTable], stop: StopSignal, on_wait: Callable[[str], None]
) -> None:
    """Wait until the tables have their deferred indexes: the statement may be about them."""
    for target in targets:
        while not stop.is_set and read_owed(session, schema, target):
            on_wait(f"the indexes of {target.quoted}, which are being added after its load")
            stop.wait(_LOOK_SECONDS)


def run_statement(
    session: Session,
    who: SubtaskKey,
    tables: Sequence[TargetTable],
    statement: str,
    position: object,
    stop: StopSignal,
    on_wait: Callable[[str], None],
) -> bool:
    """Run a statement on ``tables`` at the target as soon as no other session locks them; False when ``stop`` is set
    before.

    ``position``: see :class:`OneRun`. Raises DDL_REFUSED and ``pymysql.MySQLError``.
    """
    _, task, source = who
    execute(session, f"SET SESSION lock_wait_timeout = {_MDL_WAIT_SECONDS}")
    running = f"the target to run: {statement}"

    def show(wait: str) -> None:
        on_wait(f"{running}; it waits for {wait}" if wait else running)

    on_wait(running)
    while not stop.is_set:
        try:
            with naming_waits(session, tables, show):
                execute(session, statement)
        except pymysql.MySQLError as error:
            kind = kind_of(errno_of(error))
            # Where a DDL is a job, it may still run: the caller begins again, and looks.
            if kind is ErrorKind.CONFLICT and not dialect_of(session).has_asynchronous_ddl:
                stop.wait(_LOCK_SECONDS)
                continue
            if kind in (ErrorKind.STATEMENT, ErrorKind.SESSION, ErrorKind.PRIVILEGE):
                raise refused_by_target(who, position, statement, error) from error
            raise
        log.info("a statement has run at the target", task=task, source=source, statement=statement)
        on_wait("")
        return True
    on_wait("")
    return False


def refused_by_target(who: SubtaskKey, position: object, statement: str, error: pymysql.MySQLError) -> ShardmergeError:
    """DDL_REFUSED with the target's error."""
    return errors.ddl.DDL_REFUSED(
        source=who.source,
        task=who.task,
        position=position,
        statement=statement,
        reason=reason_of(error),
        errno=errno_of(error),
    )


def check_epoch(session: Session, who: SubtaskKey, epoch: int, *, lock: bool = False) -> None:
    """Raises FENCED unless the subtask's epoch is ``epoch``. ``lock``: keeps it locked until the transaction ends."""
    schema, task, source = who
    found = rows(
        session,
        f"SELECT `epoch` FROM {quote_name(schema)}.`subtask` WHERE `task` = %s AND `source` = %s"
        + (" FOR UPDATE" if lock else ""),
        (task, source),
    )
    if [int(row[0]) for row in found] != [epoch]:
        raise errors.replicate.FENCED(task=task, source=source, epoch=epoch)


@contextmanager
def subject_lock(
    session: Session,
    who: SubtaskKey,
    epoch: int,
    subject: str,
    tables: Sequence[TargetTable],
    stop: StopSignal,
    on_wait: Callable[[str], None],
) -> Generator[bool]:
    """Hold the server's lock of ``subject``, with the newest epoch; False when ``stop`` came first. ``tables``: of the
    statements that it is for. Raises FENCED."""
    held, name = False, f"shardmerge.{subject}"
    while not stop.is_set and not held:
        [(answer,)] = rows(session, "SELECT GET_LOCK(%s, %s)", (name, _LOCK_SECONDS))
        held = answer == 1
        if not held:
            on_wait(user_lock_phrase(session, name, tables))
            _end_idle(session, name)
    try:
        if held:
            check_epoch(session, who, epoch)
        yield held
    finally:
        if held:
            with suppress(pymysql.MySQLError):  # the lock ends with the connection
                rows(session, "SELECT RELEASE_LOCK(%s)", (name,))


def _end_idle(session: Session, name: str) -> None:
    """Kill the lock holder's connection if it is idle."""
    [(holder,)] = rows(session, "SELECT IS_USED_LOCK(%s)", (name,))
    if holder is None:
        return
    # Id, User, Host, db, Command, Time, …: without an extra privilege only the user's own connections, as this one.
    found = [row for row in rows(session, "SHOW PROCESSLIST") if int(row[0]) == int(holder)]
    if found and text_of(found[0][4]) == "Sleep" and int(found[0][5] or 0) >= _IDLE_SECONDS:
        log.warning("an idle connection that holds a statement's lock is killed", connection=int(holder))
        with suppress(pymysql.MySQLError):  # it has just ended
            execute(session, f"KILL {int(holder)}")

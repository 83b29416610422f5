"""Running a statement at the target once, whoever is killed and whenever (I6).

A DDL does not roll back, and its COMMIT is its own: no record can be written in one transaction with it. So the tables'
looks before it are recorded first (``statement_begun``). Whoever finds that record looks at the tables again: unlike
the record, the statement has run; like it, it has not. A statement that leaves the looks as they were (FORCE, a
MODIFY to what is there) may run twice, which changes nothing: no row comes between, for all lanes of its tables wait.

A client that was killed leaves its statement running at the server. One at a time per subject, by a lock that ends
with the connection; the epoch is looked at under it, so nothing that is older can begin later (I3). A holder whose
connection does nothing is frozen or gone: its connection is ended, so that it finds itself without one when it wakes.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress

import pymysql
from pymysql.constants import ER

from proto import errors, hooks
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.connection import Session, execute, quote_name, rows, text_of
from worker.ddl import records
from worker.ddl.records import Begun
from worker.ddl.session import StatementSession
from worker.deferred.store import read_owed
from worker.plan import TargetTable
from worker.trouble import Trouble, errno_of, reason_of, trouble
from worker.unit import StopSignal

log = get_logger()

_LOOK_SECONDS = 1
_LOCK_SECONDS = 1
_IDLE_SECONDS = 5
"""A connection that runs a statement, or is between two, does not sleep for so long."""
_MDL_WAIT_SECONDS = 30
"""How long the statement waits for transactions that hold the table; whoever uses it waits behind the statement."""

_AUTO_INCREMENT = re.compile(r" AUTO_INCREMENT=\d+")

Who = tuple[str, str, str]


def subject_of(targets: Sequence[TargetTable], number: int = 0) -> str:
    """The name under which statements on these tables keep out of each other's way; ``number``: of several that run
    one after the other at one place of the binlog."""
    text = "\n".join([*sorted(target.quoted for target in targets), *([str(number)] if number else [])])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def digest_of(session: Session, targets: Sequence[TargetTable]) -> str:
    """What the tables look like: of their CREATE TABLE, without the next AUTO_INCREMENT."""
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


class Next(enum.Enum):
    """What comes next of a statement that is to run once."""

    BEGIN = "begin"
    """It is recorded as begun, with the tables' looks; then it runs."""
    RUN = "run"
    """It was begun, and the tables look as before it."""
    HAS_RUN = "has run"
    """It was begun, and the tables look otherwise."""


def next_step(begun: Begun | None, statement: str, now: str) -> Next:
    """``begun``: what is recorded for its tables; ``now``: digest of their looks. Pure."""
    if begun is None or begun.statement != statement:
        return Next.BEGIN
    return Next.RUN if begun.before == now else Next.HAS_RUN


def run_once(
    session: Session,
    who: Who,
    epoch: int,
    targets: Sequence[TargetTable],
    statement: str,
    given: StatementSession,
    stop: StopSignal,
    tell: Callable[[str], None],
    subject: str = "",
    prepare: Callable[[Session], None] = lambda _: None,
    position: object = "",
) -> None:
    """Run ``statement``, which changes ``targets``, unless it has run. The record of it stays: the caller forgets it in
    the transaction that records what it has led to.

    ``tell``: what it waits for, "" for nothing. ``subject``: of the tables, unless another is given. ``prepare``:
    before the tables are looked at for the first time. ``position``: the statement's at the source. Returns early when
    ``stop`` is set, with nothing decided. Raises FENCED, DDL_REFUSED and ``pymysql.MySQLError``.
    """
    _, task, source = who
    subject = subject or subject_of(targets)
    wait_for_indexes(session, who[0], targets, stop, tell)
    if stop.is_set:
        return
    with alone(session, who, epoch, subject, stop, tell) as held:
        if not held:
            return
        begun = records.read_begun(session, *who, subject)
        if begun is None or begun.statement != statement:
            prepare(session)
        now = digest_of(session, targets)
        match next_step(begun, statement, now):
            case Next.HAS_RUN:
                log.info("a statement has run already", task=task, source=source, statement=statement)
                return
            case Next.BEGIN:
                records.write_begun(session, *who, subject, Begun(statement, now))
            case Next.RUN:
                pass
        hooks.reach("ddl.begun")
        try:
            with given.taken_on(session):
                run(session, who, statement, position, stop, tell)
        except (ShardmergeError, pymysql.MySQLError):
            # It was answered and has not run. Whoever mends the tables by hand makes them look otherwise.
            with suppress(pymysql.MySQLError):  # lost: nothing is known of it
                if digest_of(session, targets) == now:
                    records.forget_begun(session, *who, subject)
            raise
        hooks.reach("ddl.run")


def wait_for_indexes(
    session: Session, schema: str, targets: Sequence[TargetTable], stop: StopSignal, tell: Callable[[str], None]
) -> None:
    """A table of ours that was just loaded may lack indexes still: the statement may be about them."""
    for target in targets:
        while not stop.is_set and read_owed(session, schema, target):
            tell(f"the indexes of {target.quoted}, which are being added after its load")
            stop.wait(_LOOK_SECONDS)


def run(
    session: Session, who: Who, statement: str, position: object, stop: StopSignal, tell: Callable[[str], None]
) -> bool:
    """Run a statement at the target as soon as no other session locks its tables; False when ``stop`` is set before.

    ``position``: see :func:`run_once`. Raises DDL_REFUSED and ``pymysql.MySQLError``.
    """
    _, task, source = who
    execute(session, f"SET SESSION lock_wait_timeout = {_MDL_WAIT_SECONDS}")
    while not stop.is_set:
        tell(f"the target to run: {statement}")
        try:
            execute(session, statement)
        except pymysql.MySQLError as error:
            kind = trouble(errno_of(error))
            if kind is Trouble.CONFLICT:
                tell(f"transactions at the target that hold a table of: {statement}")
                stop.wait(_LOCK_SECONDS)
                continue
            if kind in (Trouble.STATEMENT, Trouble.SESSION, Trouble.PRIVILEGE):
                raise errors.ddl.DDL_REFUSED(
                    source=source,
                    task=task,
                    position=position,
                    statement=statement,
                    reason=reason_of(error),
                    errno=errno_of(error),
                ) from error
            raise
        log.info("a statement has run at the target", task=task, source=source, statement=statement)
        tell("")
        return True
    tell("")
    return False


def check_epoch(session: Session, who: Who, epoch: int, *, lock: bool = False) -> None:
    """Raises FENCED unless the subtask's epoch is ``epoch``; ``lock``: and stays it until the transaction ends."""
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
def alone(
    session: Session, who: Who, epoch: int, subject: str, stop: StopSignal, tell: Callable[[str], None]
) -> Generator[bool]:
    """Hold the server's lock of ``subject``, with the newest epoch; False when ``stop`` came first. Raises FENCED."""
    held, name = False, f"shardmerge.{subject}"
    while not stop.is_set and not held:
        [(answer,)] = rows(session, "SELECT GET_LOCK(%s, %s)", (name, _LOCK_SECONDS))
        held = answer == 1
        if not held:
            tell("a statement that an earlier run has sent to the target")
            _end_idle(session, name)
    try:
        if held:
            check_epoch(session, who, epoch)
        yield held
    finally:
        if held:
            with suppress(pymysql.MySQLError):  # it ends with the connection
                rows(session, "SELECT RELEASE_LOCK(%s)", (name,))


def _end_idle(session: Session, name: str) -> None:
    """End the holder's connection if nothing runs in it."""
    [(holder,)] = rows(session, "SELECT IS_USED_LOCK(%s)", (name,))
    if holder is None:
        return
    # Id, User, Host, db, Command, Time, …: only the user's own without a further privilege, which this one is.
    found = [row for row in rows(session, "SHOW PROCESSLIST") if int(row[0]) == int(holder)]
    if found and text_of(found[0][4]) == "Sleep" and int(found[0][5] or 0) >= _IDLE_SECONDS:
        log.warning("a connection that holds a statement's lock and does nothing is ended", connection=int(holder))
        with suppress(pymysql.MySQLError):  # it has just ended
            execute(session, f"KILL {int(holder)}")

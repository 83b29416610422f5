"""An operator's statement runs at the target once, whoever is killed and whenever (I6).

As for a statement of the source (worker/ddl/execute.py), what it is about is looked at and recorded before it runs,
and looked at again by whoever does not know whether it has run. Unlike that one it is then recorded as run by itself:
several come one behind the other, a later one may undo what an earlier one did, and the operator may say something else
before the statement of the source is passed.

It may name any table or schema of the target: those that the task does not write to are looked at as well. A RENAME
takes a mark with it, for tables that swap their names may look alike. What leaves no trace in a look, such as TRUNCATE,
is not sent again where an earlier run may have sent it: the operator is asked.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass

import pymysql
from pymysql.constants import ER

from proto import errors, hooks
from proto.errors import ShardmergeError
from proto.lexer import tokens
from proto.log import get_logger
from worker.connection import Session, Side, execute, quote_name, rows, text_of
from worker.cutoff import session_until
from worker.ddl import operator_records, records
from worker.ddl.clause import Clause, ClauseKind
from worker.ddl.execute import Next, alone, digest_of, next_step, run, subject_of, wait_for_indexes
from worker.ddl.operator_records import OperatorStatement
from worker.ddl.renames import Marks, drop_marks, marks, with_mark
from worker.ddl.statement import (
    AlterSchema,
    AlterTable,
    CreateSchema,
    CreateTable,
    Ddl,
    DropSchema,
    RenameTables,
    TruncateTable,
)
from worker.ddl.work import Work
from worker.plan import TargetTable
from worker.trouble import errno_of

log = get_logger()


@dataclass(frozen=True, slots=True)
class AtTarget:
    """An operator's statement for the target's tables. ``tables``: all that it names there. ``routed``: those of them
    that shard tables are merged into. ``number``: its place among what the operator said, from 1; ``occurrence``: how
    many equal ones come before it there."""

    text: str
    ddl: Ddl
    tables: tuple[TargetTable, ...]
    routed: tuple[TargetTable, ...]
    number: int
    occurrence: int


def run_operator_statement(work: Work, wanted: AtTarget) -> None:
    """Run it unless it has run for the source's statement. Returns early when the work is stopped, with nothing
    decided. Raises FENCED, DDL_REFUSED, OPERATOR_STATEMENT_UNCLEAR and ``pymysql.MySQLError``."""
    who, stop = work.who, work.stop
    # A version before this one knew it by its place among what the operator said.
    earlier = subject_of(wanted.routed, wanted.number)
    work.passing.subjects.add(earlier)
    # A session of its own: it holds a lock while it lives.
    with session_until(stop, work.context.target_endpoint, Side.TARGET, name="target", read_timeout=None) as session:
        wait_for_indexes(session, who[0], wanted.tables, stop, work.tell)
        if stop.is_set:
            return
        subject = subject_of([*wanted.tables, *_schemas(wanted.ddl)])
        with alone(session, who, work.epoch, subject, stop, work.tell) as held:
            if held:
                _run_alone(session, work, wanted, earlier)


def _run_alone(session: Session, work: Work, wanted: AtTarget, earlier: str) -> None:
    who = work.who
    _, task, source = who
    one = operator_records.find(session, who, work.statement, wanted.text, wanted.occurrence)
    named = {"task": task, "source": source, "statement": one.text, "position": str(work.statement.position)}
    if one.ran:
        log.info("an operator's statement has run already", **named)
        return
    begun = records.read_begun(session, *who, one.subject) or records.read_begun(session, *who, earlier)
    is_known = begun is not None and begun.statement == one.text
    text = one.text
    marked: Marks | None = None
    if isinstance(wanted.ddl, RenameTables):
        marked = marks(work, one.subject)
        text = with_mark(text, marked)
        if not is_known:
            drop_marks(session, marked)
            execute(session, f"CREATE TABLE {marked[0].quoted} (id INT PRIMARY KEY)")
    before = _looks(session, wanted, marked)
    match next_step(begun, one.text, before):
        case Next.HAS_RUN:
            log.info("an operator's statement has run already", **named)
        case Next.RUN if leaves_no_trace(wanted.ddl, wanted.text):
            raise work.refusal(errors.ddl.OPERATOR_STATEMENT_UNCLEAR, given=wanted.text)
        case _:
            session.begin()
            operator_records.write_begun(session, who, one, before)
            session.commit()
            hooks.reach("ddl.begun")
            if not _sent(session, work, wanted, one, text, before, marked):
                return
            hooks.reach("ddl.run")
    operator_records.write_ran(session, who, one)
    hooks.reach("ddl.operator_recorded")
    if marked:
        drop_marks(session, marked)


def _sent(
    session: Session,
    work: Work,
    wanted: AtTarget,
    one: OperatorStatement,
    text: str,
    before: str,
    marked: Marks | None,
) -> bool:
    """Whether it has run; False when the work is stopped before."""
    try:
        with work.given.taken_on(session):
            return run(session, work.who, text, work.statement.position, work.stop, work.tell)
    except (ShardmergeError, pymysql.MySQLError):
        # It was answered and has not run. Whoever mends the tables by hand makes them look otherwise.
        with suppress(pymysql.MySQLError):  # lost: nothing is known of it
            if _looks(session, wanted, marked) == before:
                session.begin()
                operator_records.forget(session, work.who, one)
                session.commit()
                if marked:
                    drop_marks(session, marked)
        raise


def _schemas(ddl: Ddl) -> tuple[TargetTable, ...]:
    """The schema that the statement is about, as what a lock can be about."""
    return (TargetTable(ddl.schema, ""),) if isinstance(ddl, CreateSchema | AlterSchema | DropSchema) else ()


def _looks(session: Session, wanted: AtTarget, marked: Marks | None) -> str:
    """Digest of what it is about, as that is now."""
    found = digest_of(session, [*wanted.tables, *(marked or ())])
    for schema in _schemas(wanted.ddl):
        found = hashlib.sha256(f"{found}\n{_look_of_schema(session, schema.schema)}".encode()).hexdigest()
    return found


def _look_of_schema(session: Session, schema: str) -> str:
    try:
        [(_, text, *_)] = rows(session, f"SHOW CREATE DATABASE {quote_name(schema)}")
    except pymysql.MySQLError as error:
        if errno_of(error) != ER.BAD_DB_ERROR:
            raise
        return "absent"
    return text_of(text)


_NO_TRACE = ("TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT")


def leaves_no_trace(ddl: Ddl, text: str) -> bool:
    """Whether rows may come or go by it while its tables look as before. ``text``: of which ``ddl`` was read. Pure."""
    match ddl:
        case TruncateTable():
            return True
        case CreateTable(or_replace=or_replace):
            return or_replace
        case AlterTable(clauses=clauses, sql_mode=sql_mode):
            return any(_moves_rows(text, clause, sql_mode) for clause in clauses)
        case _:
            return False


def _moves_rows(text: str, clause: Clause, sql_mode: int) -> bool:
    if clause.kind is not ClauseKind.PARTITION_ROWS:
        return clause.kind is ClauseKind.OTHER
    return tokens(text[clause.start : clause.end], sql_mode)[0].is_word(*_NO_TRACE)

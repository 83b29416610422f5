"""An operator's statement runs at the target exactly once, whichever process is killed and whenever (I6).

As for a statement of the source (worker/ddl/execute.py), the worker records the definitions of the statement's tables
before it runs the statement. After a restart the worker compares them with the current definitions to find out whether
the statement has run. In contrast to a statement of the source, each operator's statement then gets its own record that
it has run: several of them run one after the other, a later one may revert an earlier one, and the operator may replace
the list before the statement of the source is passed.

The statement may name any table or schema of the target, so tables that the task does not write to are compared as
well. A RENAME also renames a marker table, because tables that swap their names may have equal definitions. A statement
that may leave the definitions unchanged, such as TRUNCATE, is not sent again if an earlier run may have sent it. Then
the operator must decide.
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
    """An operator's statement with the target's table names. ``tables``: all tables that it names. ``routed``: those of
    them that shard tables are merged into. ``number``: its number in the operator's list, from 1. ``occurrence``:
    number of equal statements before it in the list."""

    text: str
    ddl: Ddl
    tables: tuple[TargetTable, ...]
    routed: tuple[TargetTable, ...]
    number: int
    occurrence: int


def run_operator_statement(work: Work, wanted: AtTarget) -> None:
    """Run the statement unless it has already run for the source's statement. Returns early, without a result, when
    the work is stopped. Raises FENCED, DDL_REFUSED, OPERATOR_STATEMENT_UNCLEAR and ``pymysql.MySQLError``."""
    who, stop = work.who, work.stop
    # Earlier versions identified the statement by its number in the operator's list.
    earlier = subject_of(wanted.routed, wanted.number)
    work.passing.subjects.add(earlier)
    # A separate session: the lock is held until the session ends.
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
    before = _digest_of_definitions(session, wanted, marked)
    match next_step(begun, one.text, before):
        case Next.HAS_RUN:
            log.info("an operator's statement has run already", **named)
        case Next.RUN if may_keep_definitions(wanted.ddl, wanted.text):
            raise work.refusal(errors.ddl.OPERATOR_STATEMENT_UNCLEAR, given=wanted.text)
        case _:
            session.begin()
            operator_records.write_begun(session, who, one, before)
            session.commit()
            hooks.reach("ddl.begun")
            if not _run_recorded(session, work, wanted, one, text, before, marked):
                return
            hooks.reach("ddl.run")
    operator_records.write_ran(session, who, one)
    hooks.reach("ddl.operator_recorded")
    if marked:
        drop_marks(session, marked)


def _run_recorded(
    session: Session,
    work: Work,
    wanted: AtTarget,
    one: OperatorStatement,
    text: str,
    before: str,
    marked: Marks | None,
) -> bool:
    """Run the statement; False when the work is stopped before."""
    try:
        with work.given.taken_on(session):
            return run(session, work.who, text, work.statement.position, work.stop, work.tell)
    except (ShardmergeError, pymysql.MySQLError):
        # The server answered with an error, so the statement has not run. If an operator repaired the tables by hand in
        # the meantime, their definitions differ and the record is kept.
        with suppress(pymysql.MySQLError):  # the connection is lost: the state stays unknown
            if _digest_of_definitions(session, wanted, marked) == before:
                session.begin()
                operator_records.forget(session, work.who, one)
                session.commit()
                if marked:
                    drop_marks(session, marked)
        raise


def _schemas(ddl: Ddl) -> tuple[TargetTable, ...]:
    """The schema that the statement creates, alters or drops, in the form that locks use."""
    return (TargetTable(ddl.schema, ""),) if isinstance(ddl, CreateSchema | AlterSchema | DropSchema) else ()


def _digest_of_definitions(session: Session, wanted: AtTarget, marked: Marks | None) -> str:
    """Digest of the current definitions of all tables and schemas that the statement names."""
    found = digest_of(session, [*wanted.tables, *(marked or ())])
    for schema in _schemas(wanted.ddl):
        found = hashlib.sha256(f"{found}\n{_schema_definition(session, schema.schema)}".encode()).hexdigest()
    return found


def _schema_definition(session: Session, schema: str) -> str:
    try:
        [(_, text, *_)] = rows(session, f"SHOW CREATE DATABASE {quote_name(schema)}")
    except pymysql.MySQLError as error:
        if errno_of(error) != ER.BAD_DB_ERROR:
            raise
        return "absent"
    return text_of(text)


_CHANGES_ONLY_ROWS = ("TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT")


def may_keep_definitions(ddl: Ddl, text: str) -> bool:
    """Whether the statement may change rows while the definitions of its tables stay equal. ``text``: the text that
    ``ddl`` was parsed from. Pure."""
    match ddl:
        case TruncateTable():
            return True
        case CreateTable(or_replace=or_replace):
            return or_replace
        case AlterTable(clauses=clauses, sql_mode=sql_mode):
            return any(_may_change_only_rows(text, clause, sql_mode) for clause in clauses)
        case _:
            return False


def _may_change_only_rows(text: str, clause: Clause, sql_mode: int) -> bool:
    if clause.kind is not ClauseKind.PARTITION_ROWS:
        return clause.kind is ClauseKind.OTHER
    return tokens(text[clause.start : clause.end], sql_mode)[0].is_word(*_CHANGES_ONLY_ROWS)

"""An operator's statement runs at the target exactly once, whichever process is killed and whenever (I6).

As for a statement of the source (worker/ddl/execute/run_once.py), the worker records the definitions of the
statement's tables before it runs the statement. After a restart the worker compares them with the current definitions
to find out whether the statement has run. In contrast to a statement of the source, each operator's statement then
gets its own record that it has run: several of them run one after the other, a later one may revert an earlier one,
and the operator may replace the list before the statement of the source is executed.

The statement may name any table or schema of the target, so tables that the task does not write to are compared as
well. A RENAME also renames a marker table, because tables that swap their names may have equal definitions. A statement
that may leave the definitions unchanged, such as TRUNCATE, is not sent again if an earlier run may have sent it. Then
the operator must decide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pymysql
from pymysql.constants import ER

from shardmerge.proto import errors, failpoints
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.sql_lexer import tokens
from shardmerge.worker.core.mysql.cancellable_session import cancellable_session
from shardmerge.worker.core.mysql.connection import Session, Side, dialect_of, execute, quote_name, rows, text_of
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of
from shardmerge.worker.core.sql.clause import Clause, ClauseKind
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.execute.ddl_jobs import running_jobs, wait_for_jobs
from shardmerge.worker.ddl.execute.rename_targets import Marks, drop_marks, mark_names, with_mark
from shardmerge.worker.ddl.execute.run_once import (
    NextStep,
    digest_of,
    next_step,
    refused_by_target,
    run_statement,
    subject_lock,
    subject_of,
    wait_for_indexes,
)
from shardmerge.worker.ddl.execute.run_parts import PartsRun, divided_at
from shardmerge.worker.ddl.execute.statement_context import StatementContext
from shardmerge.worker.ddl.sql.rewrite import rename_tables
from shardmerge.worker.ddl.sql.statement import (
    AlterSchema,
    AlterTable,
    CreateSchema,
    CreateTable,
    Ddl,
    DropSchema,
    RenameTables,
    TruncateTable,
    names,
    parse_ddl,
)
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.records import ddl_progress, divided_statements, operator_statements
from shardmerge.worker.target.records.divided_statements import StatementProgress
from shardmerge.worker.target.records.operator_statements import OperatorStatement

log = get_logger()


@dataclass(frozen=True, slots=True)
class TargetStatement:
    """An operator's statement with the target's table names. ``tables``: all tables that it names. ``routed``: those of
    them that shard tables are merged into. ``number``: its number in the operator's list, from 1. ``occurrence``:
    number of equal statements before it in the list."""

    text: str
    ddl: Ddl
    tables: tuple[TargetTable, ...]
    routed: tuple[TargetTable, ...]
    number: int
    occurrence: int


def run_operator_statements(context: StatementContext, texts: Sequence[str]) -> None:
    """Run an operator's statements at the target, each exactly once for the source's statement. They use the source's
    table names. Returns early, without a result, when it is stopped. Raises FENCED, DDL_REFUSED, OPERATOR_STATEMENT,
    OPERATOR_STATEMENT_UNCLEAR and ``pymysql.MySQLError``."""
    before: list[str] = []
    for number, text in enumerate(texts, 1):
        wanted = _at_target(context, text, number, before)
        before.append(wanted.text)
        run_operator_statement(context, wanted)


def _at_target(context: StatementContext, text: str, number: int, before: Sequence[str]) -> TargetStatement:
    """The operator's statement ``text`` with the target's table names. ``before``: the texts of the statements before
    it in the operator's list, also with the target's table names."""
    schema, sql_mode = context.statement.schema, context.sql_mode

    def routed_to(name: TableName) -> TargetTable | None:
        route = context.run_context.rules.route(*name)
        return TargetTable(route.target_schema, route.target_table) if route is not None else None

    def new_name(schema: str, table: str) -> tuple[str, str] | None:
        target = routed_to((schema, table))
        return target.names if target is not None else None

    ddl = parse_ddl(text, schema, sql_mode)
    if ddl is None:
        raise context.refusal(errors.ddl.OPERATOR_STATEMENT, given=text)
    placed = rename_tables(text, ddl, new_name)
    found = [(name.name, routed_to(name.name)) for name in names(ddl)]
    # A name without a schema is not valid: the target reports the error.
    tables = {target or TargetTable(*name) for name, target in found if target or name[0]}
    routed = tuple(target for _, target in found if target is not None)
    at_target = parse_ddl(placed, schema, sql_mode)
    assert at_target is not None  # noqa: S101 - for the type checker: only names were replaced
    return TargetStatement(placed, at_target, tuple(sorted(tables)), routed, number, before.count(placed))


def run_operator_statement(context: StatementContext, wanted: TargetStatement) -> None:
    """Run the statement unless it has already run for the source's statement. Returns early, without a result, when
    it is stopped. Raises FENCED, DDL_REFUSED, OPERATOR_STATEMENT_UNCLEAR and ``pymysql.MySQLError``."""
    who, stop = context.who, context.stop
    # Earlier versions identified the statement by its number in the operator's list.
    earlier = subject_of(wanted.routed, wanted.number)
    context.changes.executed.subjects.add(earlier)
    # A separate session: the lock is held until the session ends.
    with cancellable_session(
        stop, context.run_context.target_endpoint, Side.TARGET, name="target", read_timeout=None
    ) as session:
        wait_for_indexes(session, who.schema, wanted.tables, stop, context.on_wait)
        if stop.is_set:
            return
        subject = subject_of([*wanted.tables, *_schemas(wanted.ddl)])
        with subject_lock(session, who, context.epoch, subject, wanted.tables, stop, context.on_wait) as held:
            if held:
                _run_alone(session, context, wanted, earlier)


def _run_alone(session: Session, context: StatementContext, wanted: TargetStatement, earlier: str) -> None:
    who = context.who
    _, task, source = who
    one = operator_statements.find(session, who, context.statement, wanted.text, wanted.occurrence)
    named = {"task": task, "source": source, "statement": one.text, "position": str(context.statement.position)}
    if one.ran:
        log.info("an operator's statement has run already", **named)
        return
    wait_for_jobs(session, wanted.tables, context.stop, context.on_wait)
    if context.stop.is_set:
        return
    begun = ddl_progress.read_begun(session, who, one.subject) or ddl_progress.read_begun(session, who, earlier)
    is_known = begun is not None and begun.statement == one.text
    text = one.text
    marked: Marks | None = None
    if isinstance(wanted.ddl, RenameTables):
        marked = mark_names(context, one.subject)
        text = with_mark(text, marked)
        if not is_known:
            drop_marks(session, marked)
            execute(session, f"CREATE TABLE {marked[0].quoted} (id INT PRIMARY KEY)")
    try:
        before = _digest_of_definitions(session, wanted, marked)
    except pymysql.MySQLError as error:
        if kind_of(errno_of(error)) is not ErrorKind.PRIVILEGE:
            raise
        # The operator has named a table that is none of the task's: with this error the statement can be given anew.
        raise refused_by_target(who, context.statement.position, one.text, error) from error
    in_parts = not dialect_of(session).combines_actions
    progress = divided_statements.read(session, who, one.subject) if in_parts else None
    divided = divided_at(session, one.text, context.sql_mode) if progress is None else None
    match next_step(begun, one.text, before):
        case _ if progress is not None:
            if not _run_parts(session, context, wanted, one, progress):
                return
        case NextStep.HAS_RUN:
            log.info("an operator's statement has run already", **named)
        case NextStep.RUN if may_keep_definitions(wanted.ddl, wanted.text):
            raise context.refusal(errors.ddl.OPERATOR_STATEMENT_UNCLEAR, given=wanted.text)
        case _ if divided is not None:
            session.begin()
            operator_statements.write_divided(session, who, one, StatementProgress(divided, before))
            session.commit()
            failpoints.hit("ddl.divided")
            if not _run_parts(session, context, wanted, one, StatementProgress(divided, before)):
                return
        case _:
            session.begin()
            operator_statements.write_begun(session, who, one, before)
            session.commit()
            failpoints.hit("ddl.begun")
            if not _run_recorded(session, context, wanted, one, text, before, marked):
                return
            failpoints.hit("ddl.run")
    operator_statements.write_ran(session, who, one)
    failpoints.hit("ddl.operator_recorded")
    if marked:
        drop_marks(session, marked)


def _run_recorded(
    session: Session,
    context: StatementContext,
    wanted: TargetStatement,
    one: OperatorStatement,
    text: str,
    before: str,
    marked: Marks | None,
) -> bool:
    """Run the statement; False when it is stopped before."""
    try:
        with context.source_session.applied_to(session):
            position, stop = context.statement.position, context.stop
            return run_statement(session, context.who, wanted.tables, text, position, stop, context.on_wait)
    except (ShardmergeError, pymysql.MySQLError):
        # The server answered with an error, so the statement has not run. If an operator repaired the tables by hand in
        # the meantime, their definitions differ and the record is kept.
        with suppress(pymysql.MySQLError):  # the connection is lost: the state stays unknown
            has_ended = not running_jobs(session, wanted.tables)
            if has_ended and _digest_of_definitions(session, wanted, marked) == before:
                session.begin()
                operator_statements.delete(session, context.who, one)
                session.commit()
                if marked:
                    drop_marks(session, marked)
        raise


def _run_parts(
    session: Session,
    context: StatementContext,
    wanted: TargetStatement,
    one: OperatorStatement,
    progress: StatementProgress,
) -> bool:
    """Run the parts of the statement that have not run; False when it is stopped before."""

    def send(part: str) -> bool:
        position, stop = context.statement.position, context.stop
        return run_statement(session, context.who, wanted.tables, part, position, stop, context.on_wait)

    parts = PartsRun(
        session,
        context.who,
        one.subject,
        lambda: _digest_of_definitions(session, wanted, None),
        send,
        lambda: not running_jobs(session, wanted.tables),
    )
    try:
        with context.source_session.applied_to(session):
            return parts.run(progress)
    except (ShardmergeError, pymysql.MySQLError):
        with suppress(pymysql.MySQLError):  # the connection is lost: the state stays unknown
            if divided_statements.read(session, context.who, one.subject) is None:  # none of the parts has run
                session.begin()
                operator_statements.delete(session, context.who, one)
                session.commit()
        raise


def _schemas(ddl: Ddl) -> tuple[TargetTable, ...]:
    """The schema that the statement creates, alters or drops, in the form that locks use."""
    return (TargetTable(ddl.schema, ""),) if isinstance(ddl, CreateSchema | AlterSchema | DropSchema) else ()


def _digest_of_definitions(session: Session, wanted: TargetStatement, marked: Marks | None) -> str:
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

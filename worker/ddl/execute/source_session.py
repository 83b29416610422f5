"""Finds the session settings under which a statement of the binlog ran at the source."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace

import pymysql
from pymysql.constants import ER

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, errno_of, rows, text_of
from shardmerge.worker.core.mysql.create_table import charset_of
from shardmerge.worker.core.mysql.target_dialect import TargetDialect
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table import ValueKind
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.decide.routed_statements import short_text
from shardmerge.worker.ddl.execute.time_zone import OffsetVaries, TimeLiterals, offset_of, time_literals
from shardmerge.worker.ddl.session.collation_names import CollationNames
from shardmerge.worker.ddl.session.lacking_settings import lacking_setting
from shardmerge.worker.ddl.sql.statement import CreateTable, Ddl, names
from shardmerge.worker.ddl.sql.target_statement import Changing
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.relay.serve.query_event import LoggedQuery
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.records import ddl_progress
from shardmerge.worker.target.records.statement_session import SourceNames, StatementSession
from shardmerge.worker.unit.run_context import RunContext


def find_source_session(
    context: RunContext,
    statement: Statement,
    ddl: Ddl | None,
    queried: LoggedQuery,
    plans: Iterable[TablePlan],
    target: TargetDialect,
    stop: StopSignal,
) -> StatementSession:
    """``ddl``: None for a statement that does not run at the target. ``plans``: of the shard tables before it.
    Raises SETTING_NOT_AT_TARGET, ZONE_VARIES and the source's coded errors."""
    with ExitStack() as sessions:
        return SourceSessions(context, sessions, stop).find(statement, ddl, queried, plans, target)


class SourceSessions:
    """As :func:`find_source_session`, for several statements, with one session at the source, which ``sessions``
    closes."""

    def __init__(self, context: RunContext, sessions: ExitStack, stop: StopSignal) -> None:
        self._context, self._sessions, self._stop = context, sessions, stop
        self._session: Session | None = None
        self._names = CollationNames(context, stop)
        self._known: dict[tuple[int, TimeLiterals], str | OffsetVaries] = {}

    def find(
        self,
        statement: Statement,
        ddl: Ddl | None,
        queried: LoggedQuery,
        plans: Iterable[TablePlan],
        target: TargetDialect,
    ) -> StatementSession:
        event, names, zone = queried.event, None, ""
        plans = tuple(plans)
        if ddl is not None:
            if lacking := lacking_setting(statement, ddl, queried, target):
                raise self._refusal(errors.ddl.SETTING_NOT_AT_TARGET, statement, lacking)
            names = self._source_names(statement, queried)
        if event.variables.time_zone == "SYSTEM":
            moments = time_literals(statement, ddl, _kinds(ddl, plans)) if ddl is not None else TimeLiterals()
            found = self._zone(event.second, moments)
            if isinstance(found, OffsetVaries):
                raise self._refusal(errors.ddl.ZONE_VARIES, statement, found.why)
            zone = found
        given = StatementSession.of(event, zone, names, is_mariadb=queried.is_mariadb)
        if given.explicit_timestamp is None and ddl is not None and _may_imply_time(statement, ddl, plans):
            return replace(given, explicit_timestamp=self._explicit_timestamp(statement, ddl, plans))
        return given

    def _explicit_timestamp(self, statement: Statement, ddl: Ddl, plans: Iterable[TablePlan]) -> bool:
        """The explicit_defaults_for_timestamp of a statement whose event lacks it: MariaDB before 10.8, MySQL before 8,
        and MySQL for a statement that declares no TIMESTAMP. The table as it is now shows what the server has made of
        its first TIMESTAMP; other columns do not depend on it. Else the global value.

        Raises SETTING_NOT_AT_TARGET if the column has got ON UPDATE by this statement or by a later one."""
        session = self._at_source()
        if isinstance(ddl, Changing):
            try:
                [(_, text, *_)] = rows(session, f"SHOW CREATE TABLE {TargetTable(*ddl.table.name).quoted}")
            except pymysql.MySQLError as error:
                if errno_of(error) not in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR):
                    raise
            else:
                now = _timestamps(text_of(text))
                first = next(iter(now), "")
                shows = bool(first) and _has_no_default(now[first])
                before = self._recorded(ddl.table.name, plans) if shows else None
                # Of another table of this name, or of a column that was replaced, it shows nothing.
                if shows and (before is None or first in before):
                    is_new = before is not None and _updates_itself(now[first]) and not _updates_itself(before[first])
                    if is_new and self._is_named_later(statement, ddl.table.name[1]):
                        reason = (
                            f"explicit_defaults_for_timestamp, which the binlog does not have for it: column {first} "
                            "has got ON UPDATE CURRENT_TIMESTAMP from this statement or from a later one"
                        )
                        raise self._refusal(errors.ddl.SETTING_NOT_AT_TARGET, statement, reason)
                    return not _updates_itself(now[first])
        [(given,)] = rows(session, "SELECT @@GLOBAL.explicit_defaults_for_timestamp")
        return text_of(given) == "1"

    def _recorded(self, name: TableName, plans: Iterable[TablePlan]) -> dict[str, str] | None:
        """The TIMESTAMP columns of the table before the statement; None: they are not known."""
        plan = next((each for each in plans if (each.table.schema, each.table.name) == name), None)
        if plan is None:
            return None
        who = self._context.who
        creation = self._context.at_target(lambda at: ddl_progress.read_creation(at, who, plan.shard))
        return None if creation is None else _timestamps(creation.text)

    def _is_named_later(self, statement: Statement, table: str) -> bool:
        """Whether the relay log has a later statement that may be about the table."""
        later = self._context.relay.statements_from(statement.group_end)
        return any(table.lower() in each.text.lower() for each in later)

    def _at_source(self) -> Session:
        if self._session is None:
            self._session = self._sessions.enter_context(self._context.at_source(self._stop))
        return self._session

    def _source_names(self, statement: Statement, queried: LoggedQuery) -> SourceNames:
        variables = queried.event.variables

        def name(number: int | None) -> str:
            found = "" if number is None else self._names.name(number)
            if number is not None and not found:
                reason = f"collation {number}, which the source does not know any more"
                raise self._refusal(errors.ddl.SETTING_NOT_AT_TARGET, statement, reason)
            return found

        pairs = [(charset_of(name(of)), name(collation)) for of, collation in variables.charset_collations]
        charsets = ",".join(f"{charset}={collation}" for charset, collation in pairs)
        return SourceNames(
            name(variables.connection), name(variables.utf8mb4_collation), charsets if queried.is_mariadb else None
        )

    def _refusal(self, spec: ErrorSpec, statement: Statement, reason: str) -> ShardmergeError:
        _, task, source = self._context.who
        return spec(
            source=source, task=task, position=statement.position, reason=reason, statement=short_text(statement)
        )

    def _zone(self, second: int, moments: TimeLiterals) -> str | OffsetVaries:
        known = self._known.get((second, moments))
        if known is None:
            known = self._known[second, moments] = offset_of(self._at_source(), second, moments)
        return known


_TIMESTAMP = re.compile(r"^ +`((?:[^`]|``)+)` timestamp\b(.*)$", re.MULTILINE)


def _timestamps(creation: str) -> dict[str, str]:
    """The definitions of the TIMESTAMP columns in SHOW CREATE TABLE, by name, in their order."""
    return dict(_TIMESTAMP.findall(creation))


def _has_no_default(definition: str) -> bool:
    return " NOT NULL" in definition and " DEFAULT " not in definition


def _updates_itself(definition: str) -> bool:
    return " ON UPDATE " in definition


def _may_imply_time(statement: Statement, ddl: Ddl, plans: Iterable[TablePlan]) -> bool:
    """Whether a TIMESTAMP of the statement may get the current time as its default without being declared so."""
    if isinstance(ddl, CreateTable):
        return "timestamp" in statement.text.lower()
    if not isinstance(ddl, Changing):
        return False
    return "timestamp" in statement.text.lower() or any(
        column.type_text.startswith("timestamp") and not column.nullable
        for plan in plans
        if (plan.table.schema, plan.table.name) == ddl.table.name
        for column in plan.table.columns
    )


def _kinds(ddl: Ddl, plans: Iterable[TablePlan]) -> dict[str, ValueKind]:
    """The value kinds of the columns of the tables that the statement names."""
    named = {(name.schema.lower(), name.table.lower()) for name in names(ddl)}
    return {
        column.name.lower(): column.kind
        for plan in plans
        if (plan.table.schema.lower(), plan.table.name.lower()) in named
        for column in plan.table.columns
    }

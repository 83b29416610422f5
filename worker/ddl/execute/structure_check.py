"""Computes a shard table's structure after a statement; refuses statements with another effect at the target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pymysql

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import quote_name, rows
from shardmerge.worker.core.mysql.information_schema import read_table
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable, read_create_table
from shardmerge.worker.core.table import Table, ValueKind
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.decide.actions import Create
from shardmerge.worker.ddl.execute.statement_context import StatementContext
from shardmerge.worker.ddl.session.schema_defaults import SchemaDefaults
from shardmerge.worker.ddl.sql.create_body import CreateBody, read_create_body
from shardmerge.worker.ddl.sql.dialect import Dialect
from shardmerge.worker.ddl.sql.statement import AlterTable, CreateTable, Ddl, parse_ddl
from shardmerge.worker.ddl.sql.target_statement import (
    Changing,
    ReplacedDates,
    changed_columns,
    names_other_constraint,
    nondeterministic_columns,
    removed_column_names,
    replaced_dates,
    target_statement,
)
from shardmerge.worker.ddl.sql.transform_conflicts import transform_conflict
from shardmerge.worker.ddl.structure.schema_tracker import SchemaTracker, Tracked
from shardmerge.worker.ddl.structure.source_structure import SourceStructures, present_table
from shardmerge.worker.ddl.structure.structure_after import StructureMemo, refusal_of, runner, structure_after
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.records import ddl_progress
from shardmerge.worker.target.tables.target_table import read_shard_creation


def indexed_columns(creation: CreateStatement) -> dict[str, tuple[str, ...]]:
    """The columns of each of the table's indexes, by its name in lower case; without indexes over expressions. {} when
    the CREATE TABLE cannot be read."""
    try:
        indexes = read_create_table(creation.text).secondary
    except UnreadableCreateTable:
        return {}
    return {index.key: index.names for index in indexes if not index.has_expressions}


def index_names(creation: CreateStatement) -> tuple[str, ...] | None:
    """Names of the table's indexes without the primary key; None when the CREATE TABLE cannot be read."""
    try:
        return tuple(index.name for index in read_create_table(creation.text).secondary)
    except UnreadableCreateTable:
        return None


def merged_statement(statement: Statement, ddl: Changing, table: Table, creation: CreateStatement | None) -> str:
    """The part of ``ddl`` that is for merged tables (:func:`target_statement`). ``table``: the shard table before it;
    ``creation``: None if its CREATE TABLE is not known."""
    numbered = {column.name.lower() for column in table.columns if column.auto_increment}
    return target_statement(statement, ddl, None if creation is None else index_names(creation), numbered)


def check_same_meaning(
    statement: Statement, ddl: Ddl, plan: TablePlan, creation: CreateStatement, refusal: Callable[..., ShardmergeError]
) -> None:
    """Check that ``ddl``'s names and values are the same at the target. Pure. Raises what ``refusal`` makes of
    CHECK_BY_NAME, VALUES_DRAWN, MAPPED_COLUMN, COLUMN_IN_RULE and TRANSFORMED_TABLE."""
    table = plan.table.full_name
    if names_other_constraint(ddl, index_names(creation) or ()):
        raise refusal(errors.ddl.CHECK_BY_NAME, table=table)
    if drawn := nondeterministic_columns(statement, ddl):
        raise refusal(errors.ddl.VALUES_DRAWN, table=table, column=", ".join(drawn))
    changed = changed_columns(ddl)
    for column in plan.columns:
        if column.mapping is not None and column.column.name.lower() in changed:
            raise refusal(errors.ddl.MAPPED_COLUMN, column=column.column.name, table=table)
    if plan.transform is not None:
        text = merged_statement(statement, ddl, plan.table, creation) if isinstance(ddl, Changing) else ""
        merged = parse_ddl(text, statement.schema, statement.sql_mode) if text else None
        known, mode = indexed_columns(creation), statement.sql_mode or 0
        if merged is not None and (reason := transform_conflict(text, merged, plan, known, mode)):
            raise refusal(errors.ddl.TRANSFORMED_TABLE, table=table, rule=plan.transform.rule, reason=reason)
    lost = removed_column_names(ddl)
    for rule in plan.filters:
        for column in (plan.read_columns[slot].column.name for slot in rule.columns):
            if column.lower() in lost:
                raise refusal(errors.ddl.COLUMN_IN_RULE, column=column, table=table, rule=rule.rule)


def check_mergeable(plan: TablePlan, merged: Iterable[TablePlan], refusal: Callable[..., ShardmergeError]) -> None:
    """Check that a lock can combine ``plan``'s table with the other shard tables of its target, which are among
    ``merged``: the lock compares the structures of the sources, which must be those of the target. Pure. Raises what
    ``refusal`` makes of TRANSFORMED_TABLE."""
    for other in (plan, *merged):
        if other.transform is not None and other.target == plan.target:
            raise refusal(
                errors.ddl.TRANSFORMED_TABLE,
                table=plan.table.full_name,
                rule=other.transform.rule,
                reason="a lock joins the columns of shard tables as the sources have them",
            )


def check_dates(context: StatementContext, plan: TablePlan) -> None:
    """Check that no row of the target has a date that the source, or the target, replaces if it copies the table for
    the statement: the binary log does not show whether the source did. All rows before the statement must be at the
    target. Raises DATES_REPLACED, ``pymysql.MySQLError``."""
    dates = [each for each in plan.columns if each.column.kind in (ValueKind.DATE, ValueKind.DATETIME)]
    if not dates or context.ddl is None:
        return
    replaced = replaced_dates(context.statement, context.ddl)
    if not replaced:
        return
    conditions = [_replaced(quote_name(each.target_name), replaced) for each in dates]
    # One read of the table, whatever the number of columns.
    listed = f"SELECT {', '.join(conditions)} FROM {plan.target.quoted} WHERE {' OR '.join(conditions)} LIMIT 1"
    for row in rows(context.session, listed):
        column = next(each.column.name for each, is_replaced in zip(dates, row, strict=True) if int(is_replaced or 0))
        raise context.refusal(
            errors.ddl.DATES_REPLACED, table=plan.table.full_name, column=column, target=plan.target.quoted
        )


def _replaced(column: str, replaced: ReplacedDates) -> str:
    """The SQL condition for such a date."""
    year, month, day = f"YEAR({column})", f"MONTH({column})", f"DAYOFMONTH({column})"
    found: list[str] = []
    if replaced.days:
        leap = f"({year} % 4 = 0 AND ({year} % 100 <> 0 OR {year} % 400 = 0))"
        last = f"CASE WHEN {month} = 2 THEN 28 + {leap} WHEN {month} IN (4, 6, 9, 11) THEN 30 ELSE 31 END"
        found.append(f"{day} > 28 AND {day} > {last}")
    if replaced.zero_parts:
        found.append(f"({month} = 0 OR {day} = 0) AND {year} + {month} + {day} > 0")
    return f"({' OR '.join(found)})"


@dataclass(frozen=True, slots=True)
class StatementStructures:
    """Structures of one statement's tables. Methods raise the ddl.* errors, coded errors, ``pymysql.MySQLError``."""

    context: StatementContext
    tracker: SchemaTracker
    dialect: Dialect
    memo: StructureMemo
    schemas: SchemaDefaults
    sources: SourceStructures
    recorded: Mapping[int, CreateStatement] = field(default_factory=dict[int, CreateStatement])
    """The recorded CREATE TABLEs, as far as they have been read already, by shard table's number."""

    def creation(self, plan: TablePlan) -> CreateStatement:
        """The shard table's recorded CREATE TABLE. For a subtask of an earlier version: the source's current one, if
        the table's columns there are still as recorded."""
        context, table = self.context, plan.table
        known = (
            context.changes.creation_of(plan.shard)
            or self.recorded.get(plan.shard)
            or ddl_progress.read_creation(context.session, context.who, plan.shard)
        )
        if known is not None:
            return known
        with self.context.at_source() as session:
            now = read_table(session, table.schema, table.name, source=plan.source)
            if now is None or now.structure != table.structure:
                raise context.refusal(errors.ddl.NO_CREATION, table=table.full_name)
            return read_shard_creation(session, plan)

    def after_alter(
        self, plan: TablePlan, creation: CreateStatement, text: str, *, by_operator: bool = False
    ) -> Tracked:
        """``plan``'s table after ``text``, the statement for merged tables. ``by_operator``: see
        :meth:`_as_at_source`."""
        context = self.context
        assert isinstance(context.ddl, Changing)  # noqa: S101 - for the type checker: nothing else alters
        tracked = structure_after(
            self.tracker,
            plan.table,
            creation,
            text,
            context.statement,
            context.ddl,
            context.source_session,
            self.dialect,
            self._refused,
            self.memo,
        )
        return self._as_at_source(tracked, by_operator=by_operator)

    def after_create(self, action: Create, *, by_operator: bool = False) -> Tracked:
        """The table that the statement creates. ``by_operator``: see :meth:`_as_at_source`; if the default of the
        schema is not known, the table is read from the source as it is now."""
        context, made = self.context, action.ddl
        if made.form == "like" and made.like is not None:
            return self._copied(action.name, made.like.name)
        text = self._table_text(made)
        if text is None:
            raise context.refusal(errors.ddl.ROWS_BY_STATEMENT, tables=".".join(action.name))
        collation = ""
        if not text.has_charset:
            try:
                collation = self.schemas.collation(context.run_context, context.statement, action.name[0], context.stop)
            except ShardmergeError as error:
                if not by_operator or error.spec is not errors.ddl.SCHEMA_DEFAULT_UNKNOWN:
                    raise
                return self._present(action.name, f"{error}")
        statement = self.dialect.for_target(
            text.create_statement(TargetTable(*self.tracker.place).quoted, collation), context.sql_mode
        )
        try:
            tracked = self.tracker.created(*action.name, runner(statement, context.source_session))
        except pymysql.MySQLError as error:
            raise refusal_of(error, ".".join(action.name), self._refused) from error
        tracked = Tracked(
            self.dialect.as_declared(tracked.table, context.statement, collation),
            self.dialect.default_after(tracked.creation, collation, context.statement),
        )
        return self._as_at_source(tracked, by_operator=by_operator)

    def check(self, plan: TablePlan, creation: CreateStatement) -> None:
        """Check that the statement's names and values are the same at the target."""
        context, ddl = self.context, self.context.ddl
        if ddl is not None:
            check_same_meaning(context.statement, ddl, plan, creation, context.refusal)
            kinds = (self.dialect.source_is_mariadb, self.dialect.target.is_mariadb)
            if context.source_session.explicit_timestamp is False and any(kinds):
                self._check_timestamps(plan, creation, ddl)

    # --- parts

    def _as_at_source(self, tracked: Tracked, *, by_operator: bool) -> Tracked:
        """Check that the source has the table as computed. ``by_operator``: the statement does not run at the target;
        then the source's table counts. Raises STRUCTURE_DIFFERS."""
        context = self.context
        found = self.sources.contradiction(
            context.run_context, context.statement, tracked, self.dialect.target, context.stop
        )
        if found is None:
            return tracked
        if by_operator:
            return found.present
        raise context.refusal(
            errors.ddl.STRUCTURE_DIFFERS, table=tracked.table.full_name, here=found.here, there=found.there
        )

    def _check_timestamps(self, plan: TablePlan, creation: CreateStatement, ddl: Ddl) -> None:
        """MariaDB sometimes gives such a TIMESTAMP the current time as its default, and sometimes does not: its
        promote_first_timestamp_column() (sql/sql_table.cc) also looks at what an ALTER TABLE has not set."""
        context, clauses = self.context, ddl.clauses if isinstance(ddl, AlterTable) else ()
        lost = {name.lower() for each in clauses if each.kind is ClauseKind.DROP_DEFAULT for name in each.columns}
        for column in plan.table.columns:
            if column.type_text.startswith("timestamp") and not column.nullable and not column.generated:
                item = read_create_table(creation.text).column(column.name)
                if column.name.lower() in lost or item is None or not (item.place("DEFAULT") or item.place("ON")):
                    reason = (
                        "explicit_defaults_for_timestamp=OFF, under which MariaDB may give the column "
                        f"{column.name}, a TIMESTAMP without a default, the current time as its default"
                    )
                    raise context.refusal(errors.ddl.SETTING_NOT_AT_TARGET, reason=reason)

    def _table_text(self, made: CreateTable) -> CreateBody | None:
        return read_create_body(self.context.statement.text, made, self.context.sql_mode)

    def _copied(self, name: TableName, like: TableName) -> Tracked:
        """CREATE TABLE … LIKE: the structure of the task's own table at this position, or the source's current one."""
        for plan in self.context.plans.values():
            if (plan.table.schema, plan.table.name) == like:
                return Tracked(replace(plan.table.structure, schema=name[0], name=name[1]), self.creation(plan))
        return self._present(name, f"{'.'.join(like)} is none of the task's tables")

    def _present(self, name: TableName, why: str) -> Tracked:
        """The table as the source has it now. ``why``: the reason to look there."""
        with self.context.at_source() as session:
            found = present_table(session, name, self.context.who.source)
            if found is None:
                reason = f"{why}, and the new table is gone from the source"
                raise self.context.refusal(errors.ddl.STRUCTURE_REFUSES, table=".".join(name), reason=reason, errno=0)
            return found

    def _refused(self, table: str, reason: object, errno: int) -> ShardmergeError:
        return self.context.refusal(errors.ddl.STRUCTURE_REFUSES, table=table, reason=reason, errno=errno)

"""What a statement makes of a shard table: found out at the tracker, refused where it cannot be told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import pymysql

from proto import errors
from worker.connection import Session, Side, execute, rows, text_of
from worker.create_table import UnreadableCreateTable, index_parts
from worker.cutoff import ANSWER_SECONDS, session_until
from worker.ddl import records
from worker.ddl.creation import Creation, read_creation
from worker.ddl.dialect import Dialect, declared_types
from worker.ddl.plan import Make
from worker.ddl.shape import changed_columns, drawn_column, named_checks, placed, renamed_columns
from worker.ddl.statement import CreateTable
from worker.ddl.tables import TableName
from worker.ddl.tabletext import TableText, table_text
from worker.ddl.tracker import Told, Tracked, Tracker
from worker.ddl.work import Work
from worker.plan import TablePlan, TargetTable
from worker.schema import read_table
from worker.target_table import describe
from worker.trouble import Trouble, errno_of, reason_of, trouble


def index_names(creation: Creation) -> tuple[str, ...] | None:
    """Of the table's indexes, but for the primary key; None when they cannot be read."""
    try:
        return tuple(part.name for part in index_parts(creation.text))
    except UnreadableCreateTable:
        return None


@dataclass(frozen=True, slots=True)
class Structures:
    """Of one statement's tables. Methods raise the ddl.* errors, coded errors and ``pymysql.MySQLError``."""

    work: Work
    tracker: Tracker
    dialect: Dialect

    def creation(self, plan: TablePlan) -> Creation:
        """The shard table's CREATE TABLE as recorded; for a subtask of an earlier version that of the source, if the
        table there still is what is recorded."""
        work, table = self.work, plan.table
        known = work.passing.creations.get(plan.shard) or work.context.at_target(
            lambda session: records.read_creations(session, *work.who)
        ).get(plan.shard)
        if known is not None:
            return known
        with self._at_source() as session:
            now = read_table(session, table.schema, table.name, source=plan.source)
            if now is None or now.structure != table.structure:
                raise work.refusal(errors.ddl.NO_CREATION, table=table.full_name)
            return describe(session, plan)

    def altered(self, plan: TablePlan, creation: Creation, text: str) -> Tracked:
        """``plan``'s table behind ``text``, which is that of the statement for merged tables."""
        work, table = self.work, plan.table
        moved = placed(text, work.statement, TargetTable(*self.tracker.place))
        try:
            return self.tracker.after(
                table,
                creation,
                self._runs(moved),
                lambda now: self.dialect.as_declared(now, work.statement),
                Told(
                    declared_types(work.statement.text, work.statement.schema, work.sql_mode).keys(),
                    renamed_columns(work.ddl) if work.ddl is not None else {},
                ),
            )
        except pymysql.MySQLError as error:
            raise self._refused(error, table.full_name) from error
        except UnreadableCreateTable as error:
            raise work.refusal(errors.ddl.STRUCTURE_REFUSES, table=table.full_name, reason=error, errno=0) from error

    def made(self, action: Make) -> Tracked:
        """The table that the statement makes."""
        work, made = self.work, action.ddl
        if made.form == "like" and made.like is not None:
            return self._copied(action.name, made.like.name)
        text = self._table_text(made)
        if text is None:
            raise work.refusal(errors.ddl.ROWS_BY_STATEMENT, tables=".".join(action.name))
        collation = "" if text.has_charset else self._default_collation(action.name[0])
        statement = self.dialect.spelt(text.named(TargetTable(*self.tracker.place).quoted, collation), work.sql_mode)
        try:
            tracked = self.tracker.created(*action.name, self._runs(statement))
        except pymysql.MySQLError as error:
            raise self._refused(error, ".".join(action.name)) from error
        return replace(tracked, table=self.dialect.as_declared(tracked.table, work.statement))

    def check(self, plan: TablePlan, creation: Creation) -> None:
        """Whether the statement's names and values are the same at the target."""
        work, table, ddl = self.work, plan.table.full_name, self.work.ddl
        if ddl is None:
            return
        if named_checks(ddl, index_names(creation) or ()):
            raise work.refusal(errors.ddl.CHECK_BY_NAME, table=table)
        if drawn := drawn_column(work.statement, ddl):
            raise work.refusal(errors.ddl.VALUES_DRAWN, table=table, column=drawn)
        changed = changed_columns(ddl)
        for column in plan.columns:
            if column.mapping is not None and column.column.name.lower() in changed:
                raise work.refusal(errors.ddl.MAPPED_COLUMN, column=column.column.name, table=table)

    # --- parts

    def _table_text(self, made: CreateTable) -> TableText | None:
        return table_text(self.work.statement.text, made, self.work.sql_mode)

    def _default_collation(self, schema: str) -> str:
        """The schema's at the source now, "" when it is gone: no statement of its tables tells it."""
        with self._at_source() as session:
            found = rows(
                session,
                "SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s",
                (schema,),
            )
        return text_of(found[0][0]) if found else ""

    def _copied(self, name: TableName, like: TableName) -> Tracked:
        """A table that is made as another one is: as ours at this place, or as the source has it now."""
        for plan in self.work.plans.values():
            if (plan.table.schema, plan.table.name) == like:
                return Tracked(replace(plan.table.structure, schema=name[0], name=name[1]), self.creation(plan))
        with self._at_source() as session:
            table = read_table(session, *name, source=self.work.who[2])
            if table is None:
                raise self.work.refusal(
                    errors.ddl.STRUCTURE_REFUSES,
                    table=".".join(name),
                    reason=f"{'.'.join(like)} is none of the task's tables, and the new table is gone from the source",
                    errno=0,
                )
            return Tracked(table.structure, read_creation(session, *name))

    def _at_source(self) -> AbstractContextManager[Session]:
        work = self.work
        return session_until(
            work.stop, work.context.source_endpoint, Side.SOURCE, name=work.who[2], read_timeout=ANSWER_SECONDS
        )

    def _runs(self, text: str) -> Callable[[Session], None]:
        def run(session: Session) -> None:
            with self.work.given.taken_on(session):
                execute(session, text)

        return run

    def _refused(self, error: pymysql.MySQLError, table: str) -> Exception:
        if trouble(errno_of(error)) not in (Trouble.STATEMENT, Trouble.SESSION):
            return error
        return self.work.refusal(
            errors.ddl.STRUCTURE_REFUSES, table=table, reason=reason_of(error), errno=errno_of(error)
        )

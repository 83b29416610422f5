"""What a statement makes of a shard table: found out at the tracker, refused where it cannot be told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pymysql

from proto import errors
from proto.errors import ShardmergeError
from worker.connection import rows, text_of
from worker.create_table import UnreadableCreateTable, index_parts
from worker.ddl import records
from worker.ddl.behind import behind, refusal_of, runs
from worker.ddl.creation import Creation, read_creation
from worker.ddl.dialect import Dialect
from worker.ddl.plan import Make
from worker.ddl.shape import Changing, changed_columns, drawn_column, lost_names, merged_text, named_checks
from worker.ddl.statement import CreateTable, Ddl, parse_ddl
from worker.ddl.tables import TableName
from worker.ddl.tabletext import TableText, table_text
from worker.ddl.tracker import Tracked, Tracker
from worker.ddl.transformed import beyond_transform
from worker.ddl.work import Work
from worker.plan import TablePlan, TargetTable
from worker.relay.model import Statement
from worker.schema import read_table
from worker.target_table import describe


def indexed_columns(creation: Creation) -> dict[str, tuple[str, ...]]:
    """The columns of each of the table's indexes, by its name in lower case; of those with expressions none. {} when
    they cannot be read."""
    try:
        parts = index_parts(creation.text)
    except UnreadableCreateTable:
        return {}
    return {part.name.lower(): part.columns for part in parts if not part.has_expressions}


def index_names(creation: Creation) -> tuple[str, ...] | None:
    """Of the table's indexes, but for the primary key; None when they cannot be read."""
    try:
        return tuple(part.name for part in index_parts(creation.text))
    except UnreadableCreateTable:
        return None


def check_meaning(
    statement: Statement, ddl: Ddl, plan: TablePlan, creation: Creation, refusal: Callable[..., ShardmergeError]
) -> None:
    """Whether ``ddl``'s names and values are the same at the target. Pure. Raises what ``refusal`` makes of
    CHECK_BY_NAME, VALUES_DRAWN, MAPPED_COLUMN, COLUMN_IN_RULE and TRANSFORMED_TABLE."""
    table = plan.table.full_name
    if named_checks(ddl, index_names(creation) or ()):
        raise refusal(errors.ddl.CHECK_BY_NAME, table=table)
    if drawn := drawn_column(statement, ddl):
        raise refusal(errors.ddl.VALUES_DRAWN, table=table, column=drawn)
    changed = changed_columns(ddl)
    for column in plan.columns:
        if column.mapping is not None and column.column.name.lower() in changed:
            raise refusal(errors.ddl.MAPPED_COLUMN, column=column.column.name, table=table)
    if plan.transform is not None:
        text = merged_text(statement, ddl, index_names(creation)) if isinstance(ddl, Changing) else ""
        merged = parse_ddl(text, statement.schema, statement.sql_mode) if text else None
        known, mode = indexed_columns(creation), statement.sql_mode or 0
        if merged is not None and (reason := beyond_transform(text, merged, plan, known, mode)):
            raise refusal(errors.ddl.TRANSFORMED_TABLE, table=table, rule=plan.transform.rule, reason=reason)
    lost = lost_names(ddl)
    for rule in plan.filters:
        for column in (plan.read_columns[slot].column.name for slot in rule.columns):
            if column.lower() in lost:
                raise refusal(errors.ddl.COLUMN_IN_RULE, column=column, table=table, rule=rule.rule)


def check_mergeable(plan: TablePlan, merged: Iterable[TablePlan], refusal: Callable[..., ShardmergeError]) -> None:
    """Whether a lock can join what a statement makes of ``plan``'s table with the other shard tables of its target,
    which are among ``merged``: the structures of the sources are compared, which must be those of the target. Pure.
    Raises what ``refusal`` makes of TRANSFORMED_TABLE."""
    for other in (plan, *merged):
        if other.transform is not None and other.target == plan.target:
            raise refusal(
                errors.ddl.TRANSFORMED_TABLE,
                table=plan.table.full_name,
                rule=other.transform.rule,
                reason="a lock joins the columns of shard tables as the sources have them",
            )


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
        known = work.passing.creations.get(plan.shard) or records.read_creation(work.session, *work.who, plan.shard)
        if known is not None:
            return known
        with self.work.at_source() as session:
            now = read_table(session, table.schema, table.name, source=plan.source)
            if now is None or now.structure != table.structure:
                raise work.refusal(errors.ddl.NO_CREATION, table=table.full_name)
            return describe(session, plan)

    def altered(self, plan: TablePlan, creation: Creation, text: str) -> Tracked:
        """``plan``'s table behind ``text``, which is that of the statement for merged tables."""
        work = self.work
        assert isinstance(work.ddl, Changing)  # noqa: S101 - for the type checker: nothing else alters
        return behind(
            self.tracker,
            plan.table,
            creation,
            text,
            work.statement,
            work.ddl,
            work.given,
            self.dialect,
            self._refused,
        )

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
            tracked = self.tracker.created(*action.name, runs(statement, work.given))
        except pymysql.MySQLError as error:
            raise refusal_of(error, ".".join(action.name), self._refused) from error
        return replace(tracked, table=self.dialect.as_declared(tracked.table, work.statement))

    def check(self, plan: TablePlan, creation: Creation) -> None:
        """Whether the statement's names and values are the same at the target."""
        work, ddl = self.work, self.work.ddl
        if ddl is not None:
            check_meaning(work.statement, ddl, plan, creation, work.refusal)

    # --- parts

    def _table_text(self, made: CreateTable) -> TableText | None:
        return table_text(self.work.statement.text, made, self.work.sql_mode)

    def _default_collation(self, schema: str) -> str:
        """The schema's at the source now, "" when it is gone: no statement of its tables tells it."""
        with self.work.at_source() as session:
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
        with self.work.at_source() as session:
            table = read_table(session, *name, source=self.work.who[2])
            if table is None:
                raise self.work.refusal(
                    errors.ddl.STRUCTURE_REFUSES,
                    table=".".join(name),
                    reason=f"{'.'.join(like)} is none of the task's tables, and the new table is gone from the source",
                    errno=0,
                )
            return Tracked(table.structure, read_creation(session, *name))

    def _refused(self, table: str, reason: object, errno: int) -> ShardmergeError:
        return self.work.refusal(errors.ddl.STRUCTURE_REFUSES, table=table, reason=reason, errno=errno)

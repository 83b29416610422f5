"""Follows online schema changes at a stream's barriers: records shadow tables' ALTER TABLEs, replays them at the swap.

A shadow table never stops the task before its swap: the tool may drop it and begin again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shardmerge.proto import errors, failpoints
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.actions import Create, DdlContext
from shardmerge.worker.ddl.execute.optimistic import STRICT
from shardmerge.worker.ddl.execute.statement_context import StatementContext
from shardmerge.worker.ddl.execute.structure_check import StatementStructures, merged_statement
from shardmerge.worker.ddl.online import derive_alter
from shardmerge.worker.ddl.online.classify import (
    OnlineStep,
    RenamedAway,
    ShadowAltered,
    ShadowCreated,
    ShadowRemoved,
    Swap,
    UnknownShadow,
)
from shardmerge.worker.ddl.online.derive_alter import CannotDerive
from shardmerge.worker.ddl.sql.dialect import Dialect
from shardmerge.worker.ddl.sql.statement import AlterTable, Ddl, parse_ddl
from shardmerge.worker.ddl.sql.table_definition import TableDefinition, parse_table_definition
from shardmerge.worker.ddl.sql.target_statement import Changing
from shardmerge.worker.ddl.sql.version_comments import Server, expand_version_comments
from shardmerge.worker.ddl.structure.recorded_structures import read_current
from shardmerge.worker.ddl.structure.schema_tracker import Tracked
from shardmerge.worker.ddl.structure.structure_after import structure_after
from shardmerge.worker.ddl.structure.structure_digest import CanonicalCreates
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.records.shadow_tables import (
    AwayTable,
    ShadowAlter,
    ShadowRecord,
    ShadowTable,
    UnclearShadow,
)
from shardmerge.worker.target.records.statement_session import StatementSession

log = get_logger()


@dataclass(frozen=True, slots=True)
class EffectiveStatement:
    """The statement's effect on the task's own tables, as a statement. ``session``: its session settings; None: those
    of the original statement."""

    statement: Statement
    ddl: Ddl | None
    session: StatementSession | None = None


@dataclass(frozen=True, slots=True)
class _Unchanged:
    """The swap does not change the structure."""


@dataclass(frozen=True, slots=True)
class OnlineChanges:
    """For one statement. ``records``: of shadow tables before it. ``server``: the server that logged it.

    Methods raise the ddl.* errors, coded errors and ``pymysql.MySQLError``.
    """

    context: StatementContext
    structures: StatementStructures
    dialect: Dialect
    canonical: CanonicalCreates
    ddl_context: DdlContext
    records: Mapping[TableName, ShadowRecord]
    server: Server

    def follow(self, step: OnlineStep, *, by_operator: bool) -> EffectiveStatement:
        """Collect the changes of ``step``, to be recorded with the statement. Returns the statement's effect.

        ``by_operator``: an operator's override decides what runs at the target; only the structure matters here.
        """
        context = self.context
        if (step.mixed or len(step.swaps) > 1) and by_operator:
            return EffectiveStatement(context.statement, None)  # the operator has decided about the whole statement
        if step.mixed or len(step.swaps) > 1:
            name = step.mixed or ", ".join(".".join(swap.shard.name) for swap in step.swaps)
            raise self._unclear(name, "the statement does more than swap one table with its shadow table")
        seen = dict(self.records)
        for change in step.changes:
            match change:
                case ShadowCreated():
                    seen[change.name] = self._made(change)
                case ShadowAltered():
                    seen[change.name] = self._altered(change, seen.get(change.name))
                case ShadowRemoved():
                    seen.pop(change.name, None)
                case UnknownShadow():
                    seen[change.name] = UnclearShadow(change.why)
                case RenamedAway():
                    seen[change.name] = AwayTable(change.shard.number)
        meant = EffectiveStatement(context.statement, step.rest)
        for swap in step.swaps:
            meant = self._swapped(swap, seen.pop(swap.shadow, None), forced=by_operator)
            seen = {name: one for name, one in seen.items() if one != AwayTable(swap.shard.number)}
        context.changes.executed.shadow_records.update(
            {
                name: seen.get(name)
                for name in self.records.keys() | seen.keys()
                if seen.get(name) != self.records.get(name)
            }
        )
        return meant

    # --- shadow tables

    def _made(self, change: ShadowCreated) -> ShadowRecord:
        ddl = change.ddl
        shown = ".".join(change.name)
        if ddl.form == "select":
            return UnclearShadow(f"{shown} was created by CREATE TABLE … SELECT")
        if ddl.form == "like":
            shard = self.ddl_context.find(ddl.like) if ddl.like is not None else None
            if shard is None:
                return UnclearShadow(f"{shown} was created like a table that is none of the task's")
            plan = self.context.plans[shard.number]
            return ShadowTable(plan.table, self.structures.creation(plan))
        try:
            tracked = self.structures.after_create(Create(change.name, ddl, None))
        except ShardmergeError as error:
            if error.spec.retryable:
                raise
            return UnclearShadow(str(error))
        return ShadowTable(tracked.table, tracked.creation)

    def _altered(self, change: ShadowAltered, shadow: ShadowRecord | None) -> ShadowRecord:
        context, shown = self.context, ".".join(change.name)
        if isinstance(shadow, UnclearShadow):
            return shadow
        if not isinstance(shadow, ShadowTable):
            return UnclearShadow(f"the CREATE TABLE of {shown} was not read")
        if not isinstance(change.ddl, AlterTable):
            return UnclearShadow(f"{shown} was changed by another statement than ALTER TABLE")
        text = merged_statement(context.statement, change.ddl, shadow.table, shadow.creation)
        if not text:
            return shadow
        kept = ShadowAlter(context.statement.text, context.statement.schema, context.sql_mode, context.source_session)
        try:
            tracked = self._after(
                shadow.table, shadow.creation, text, context.statement, change.ddl, context.source_session
            )
        except ShardmergeError as error:
            if error.spec is not errors.ddl.STRUCTURE_REFUSES:
                raise
            return UnclearShadow(str(error))
        return ShadowTable(tracked.table, tracked.creation, (*shadow.alters, kept))

    # --- the swap

    def _swapped(self, swap: Swap, shadow: ShadowRecord | None, *, forced: bool) -> EffectiveStatement:
        """The swap as an ALTER TABLE of the table itself, or no statement where the structure does not change."""
        context, shown = self.context, ".".join(swap.shard.name)
        plan = context.plans[swap.shard.number]
        if isinstance(shadow, ShadowTable):
            found = self._from_alters(plan, shadow, forced=forced)
            if isinstance(found, CannotDerive) and forced:
                found = self._from_source(plan, found.why, forced=True)
        else:
            why = shadow.why if isinstance(shadow, UnclearShadow) else "the creation of its shadow table was not read"
            found = self._from_source(plan, why, forced=forced)
        if isinstance(found, CannotDerive):
            raise self._unclear(shown, found.why)
        failpoints.hit("ddl.swap")
        log.info(
            "a table is swapped with its shadow table",
            task=context.who.task,
            source=context.who.source,
            table=plan.table.full_name,
            shadow=".".join(swap.shadow),
            position=str(context.statement.position),
            statement=found.text if isinstance(found, ShadowAlter) else "",
        )
        if isinstance(found, _Unchanged):
            return EffectiveStatement(context.statement, None)
        statement = replace(context.statement, text=found.text, schema=found.schema, sql_mode=found.sql_mode)
        ddl = parse_ddl(found.text, found.schema, found.sql_mode)
        if not isinstance(ddl, AlterTable):
            raise self._unclear(shown, f"the derived statement cannot be parsed: {found.text}")
        return EffectiveStatement(statement, ddl, found.session)

    def _from_alters(
        self, plan: TablePlan, shadow: ShadowTable, *, forced: bool
    ) -> ShadowAlter | CannotDerive | _Unchanged:
        """Derive from the shadow table's ALTER TABLEs, which must give the table the structure of the shadow table."""
        try:
            creation = self.structures.creation(plan)
            before = self._definition(plan.table, creation)
            after = self._definition(shadow.table, shadow.creation)
            if not shadow.alters:
                if derive_alter.same_structure(before, after):
                    return _Unchanged()
                return CannotDerive("its shadow table was created with another structure, and not altered")
            table = (plan.table.schema, plan.table.name)
            derived = derive_alter.alter_from_shadow(table, shadow.alters)
            if isinstance(derived, CannotDerive):
                return derived
            statement = replace(
                self.context.statement, text=derived.text, schema=derived.schema, sql_mode=derived.sql_mode
            )
            ddl = parse_ddl(derived.text, derived.schema, derived.sql_mode)
            if not isinstance(ddl, AlterTable):
                return CannotDerive(f"the derived statement cannot be parsed: {derived.text}")
            text = merged_statement(statement, ddl, plan.table, creation)
            tracked = self._after(plan.table, creation, text, statement, ddl, derived.session)
            if not derive_alter.same_structure(self._definition(tracked.table, tracked.creation), after):
                return CannotDerive(
                    "the ALTER TABLEs of its shadow table would give it another structure than the shadow table has"
                )
        except ShardmergeError as error:
            if error.spec is not errors.ddl.STRUCTURE_REFUSES:
                raise
            return CannotDerive(f"the ALTER TABLEs of its shadow table do not fit it: {error}")
        except UnreadableCreateTable as error:
            return CannotDerive(str(error))
        if not forced:
            self._check_values(plan, before, after, ddl)
        return derived

    def _from_source(self, plan: TablePlan, why: str, *, forced: bool) -> ShadowAlter | CannotDerive | _Unchanged:
        """Derive from the table's current structure at the source. If that has changed since, later rows and statements
        of the binlog do not fit the structure recorded here, and are refused. ``why``: the reason why the shadow
        table's ALTER TABLEs cannot be used."""
        context, table = self.context, plan.table
        with context.at_source() as session:
            now = read_current(session, table.schema, table.name, context.who.task, plan.source)
        if now is None:
            return CannotDerive(f"{why}, and the table no longer exists")
        try:
            before = self._definition(table, self.structures.creation(plan))
            after = self._definition(now.table, now.creation)
            clauses = derive_alter.difference(before, after, parse_table_definition(now.creation), forced=forced)
        except UnreadableCreateTable as error:
            return CannotDerive(str(error))
        if isinstance(clauses, CannotDerive):
            return CannotDerive(f"{why}, and from the structures alone: {clauses.why}")
        if not clauses:
            return _Unchanged()
        text = expand_version_comments(
            derive_alter.alter_table((table.schema, table.name), clauses), STRICT.sql_mode, self.server
        )
        ddl = parse_ddl(text, table.schema, STRICT.sql_mode)
        if not forced and isinstance(ddl, AlterTable):
            self._check_values(plan, before, after, ddl)
        return ShadowAlter(
            text, table.schema, STRICT.sql_mode, replace(context.source_session, sql_mode=STRICT.sql_mode)
        )

    # --- parts

    def _check_values(self, plan: TablePlan, before: TableDefinition, after: TableDefinition, ddl: AlterTable) -> None:
        """Check that the tool copied the rows with the values that the statement would give them."""
        if column := derive_alter.tool_generated_column(before, after, ddl):
            raise self.context.refusal(errors.ddl.VALUES_DRAWN, table=plan.table.full_name, column=column)
        if column := derive_alter.tool_converted_column(before, after, ddl):
            reason = f"values of column `{column}` were converted in the tool's own time zone"
            raise self._unclear(plan.table.full_name, reason)

    def _after(
        self,
        table: Table,
        creation: CreateStatement,
        text: str,
        statement: Statement,
        ddl: Changing,
        given: StatementSession,
    ) -> Tracked:
        """Raises STRUCTURE_REFUSES too."""
        spelt = self.dialect.for_target(text, statement.sql_mode or 0)
        return structure_after(
            self.structures.tracker, table, creation, spelt, statement, ddl, given, self.dialect, self._refused
        )

    def _definition(self, table: Table, creation: CreateStatement) -> TableDefinition:
        return parse_table_definition(self.canonical.canonical(table, creation, self.structures.tracker))

    def _refused(self, table: str, reason: object, errno: int) -> ShardmergeError:
        return self.context.refusal(errors.ddl.STRUCTURE_REFUSES, table=table, reason=reason, errno=errno)

    def _unclear(self, table: str, reason: str) -> ShardmergeError:
        return self.context.refusal(errors.ddl.SWAP_UNCLEAR, table=table, reason=reason)

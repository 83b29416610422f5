"""Follows online schema changes at a stream's barriers: keeps what was said of shadow tables, and says it of their
tables when they are swapped.

A shadow table never stops the task before its swap: the tool may drop it and begin again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from proto import errors, hooks
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.create_table import UnreadableCreateTable
from worker.ddl.behind import behind
from worker.ddl.creation import Creation
from worker.ddl.described import Shape, described
from worker.ddl.dialect import Dialect
from worker.ddl.digests import Printed
from worker.ddl.online import meaning
from worker.ddl.online.meaning import NotTold
from worker.ddl.online.records import Away, Kept, Seen, Shadow, Unclear
from worker.ddl.online.step import Altered, Gone, Left, Made, Step, Strange, Swap
from worker.ddl.optimistic import STRICT
from worker.ddl.plan import Make, Scene
from worker.ddl.recorded import as_now
from worker.ddl.session import StatementSession
from worker.ddl.shape import Changing, merged_text
from worker.ddl.statement import AlterTable, Ddl, parse_ddl
from worker.ddl.structure import Structures, index_names
from worker.ddl.tables import TableName
from worker.ddl.tracker import Tracked
from worker.ddl.versioned import Server, unwrapped
from worker.ddl.work import Work
from worker.plan import TablePlan
from worker.relay.model import Statement
from worker.table import Table

log = get_logger()


@dataclass(frozen=True, slots=True)
class Meant:
    """What a statement comes to for the task's own tables. ``given``: the session in which it was said; None: the
    statement's own."""

    statement: Statement
    ddl: Ddl | None
    given: StatementSession | None = None


@dataclass(frozen=True, slots=True)
class _Same:
    """The structure stays as it was."""


@dataclass(frozen=True, slots=True)
class OnlineChanges:
    """Of one statement. ``seen``: the records before it; ``server``: that has logged it.

    Methods raise the ddl.* errors, coded errors and ``pymysql.MySQLError``.
    """

    work: Work
    structures: Structures
    dialect: Dialect
    printed: Printed
    scene: Scene
    seen: Mapping[TableName, Seen]
    server: Server

    def follow(self, step: Step, *, by_operator: bool) -> Meant:
        """Note the changes of ``step``, to be recorded as the statement is passed, and tell what is left to do.

        ``by_operator``: what runs at the target for it has been said; it is about the structure alone.
        """
        work = self.work
        if (step.mixed or len(step.swaps) > 1) and by_operator:
            return Meant(work.statement, None)  # the operator answers for all of it
        if step.mixed or len(step.swaps) > 1:
            name = step.mixed or ", ".join(".".join(swap.shard.name) for swap in step.swaps)
            raise self._unclear(name, "the statement does more than to swap one table with its shadow table")
        seen = dict(self.seen)
        for change in step.changes:
            match change:
                case Made():
                    seen[change.name] = self._made(change)
                case Altered():
                    seen[change.name] = self._altered(change, seen.get(change.name))
                case Gone():
                    seen.pop(change.name, None)
                case Strange():
                    seen[change.name] = Unclear(change.why)
                case Left():
                    seen[change.name] = Away(change.shard.number)
        meant = Meant(work.statement, step.rest)
        for swap in step.swaps:
            meant = self._swapped(swap, seen.pop(swap.shadow, None), forced=by_operator)
            seen = {name: one for name, one in seen.items() if one != Away(swap.shard.number)}
        work.passing.online.update(
            {name: seen.get(name) for name in self.seen.keys() | seen.keys() if seen.get(name) != self.seen.get(name)}
        )
        return meant

    # --- shadow tables

    def _made(self, change: Made) -> Seen:
        ddl = change.ddl
        shown = ".".join(change.name)
        if ddl.form == "select":
            return Unclear(f"{shown} was made by CREATE TABLE … SELECT")
        if ddl.form == "like":
            shard = self.scene.find(ddl.like) if ddl.like is not None else None
            if shard is None:
                return Unclear(f"{shown} was made like a table that is none of the task's")
            plan = self.work.plans[shard.number]
            return Shadow(plan.table, self.structures.creation(plan))
        try:
            tracked = self.structures.made(Make(change.name, ddl, None))
        except ShardmergeError as error:
            if error.spec.retryable:
                raise
            return Unclear(str(error))
        return Shadow(tracked.table, tracked.creation)

    def _altered(self, change: Altered, shadow: Seen | None) -> Seen:
        work, shown = self.work, ".".join(change.name)
        if isinstance(shadow, Unclear):
            return shadow
        if not isinstance(shadow, Shadow):
            return Unclear(f"the CREATE TABLE of {shown} was not seen")
        if not isinstance(change.ddl, AlterTable):
            return Unclear(f"{shown} was changed by another statement than ALTER TABLE")
        text = merged_text(work.statement, change.ddl, index_names(shadow.creation))
        if not text:
            return shadow
        kept = Kept(work.statement.text, work.statement.schema, work.sql_mode, work.given)
        try:
            tracked = self._behind(shadow.table, shadow.creation, text, work.statement, change.ddl, work.given)
        except ShardmergeError as error:
            if error.spec is not errors.ddl.STRUCTURE_REFUSES:
                raise
            return Unclear(str(error))
        return Shadow(tracked.table, tracked.creation, (*shadow.kept, kept))

    # --- the swap

    def _swapped(self, swap: Swap, shadow: Seen | None, *, forced: bool) -> Meant:
        """The swap as an ALTER TABLE of the table itself, or nothing where the structure stays as it was."""
        work, shown = self.work, ".".join(swap.shard.name)
        plan = work.plans[swap.shard.number]
        if isinstance(shadow, Shadow):
            found = self._said(plan, shadow, forced=forced)
            if isinstance(found, NotTold) and forced:
                found = self._now(plan, found.why, forced=True)
        else:
            why = shadow.why if isinstance(shadow, Unclear) else "its shadow table was not seen to come to be"
            found = self._now(plan, why, forced=forced)
        if isinstance(found, NotTold):
            raise self._unclear(shown, found.why)
        hooks.reach("ddl.swap")
        log.info(
            "a table is swapped with its shadow table",
            task=work.who[1],
            source=work.who[2],
            table=plan.table.full_name,
            shadow=".".join(swap.shadow),
            position=str(work.statement.position),
            statement=found.text if isinstance(found, Kept) else "",
        )
        if isinstance(found, _Same):
            return Meant(work.statement, None)
        statement = replace(work.statement, text=found.text, schema=found.schema, sql_mode=found.sql_mode)
        ddl = parse_ddl(found.text, found.schema, found.sql_mode)
        if not isinstance(ddl, AlterTable):
            raise self._unclear(shown, f"it comes to {found.text}, which is not understood")
        return Meant(statement, ddl, found.given)

    def _said(self, plan: TablePlan, shadow: Shadow, *, forced: bool) -> Kept | NotTold | _Same:
        """By what was said of the shadow table, which must make of the table what the shadow table is."""
        try:
            creation = self.structures.creation(plan)
            before = self._shape(plan.table, creation)
            after = self._shape(shadow.table, shadow.creation)
            if not shadow.kept:
                if meaning.is_like(before, after):
                    return _Same()
                return NotTold("its shadow table was made otherwise than the table is, and not altered")
            table = (plan.table.schema, plan.table.name)
            said = meaning.said_of(table, shadow.kept)
            if isinstance(said, NotTold):
                return said
            statement = replace(self.work.statement, text=said.text, schema=said.schema, sql_mode=said.sql_mode)
            ddl = parse_ddl(said.text, said.schema, said.sql_mode)
            if not isinstance(ddl, AlterTable):
                return NotTold(f"it comes to {said.text}, which is not understood")
            text = merged_text(statement, ddl, index_names(creation))
            tracked = self._behind(plan.table, creation, text, statement, ddl, said.given)
            if not meaning.is_like(self._shape(tracked.table, tracked.creation), after):
                return NotTold("what was said of its shadow table makes another table of it than the shadow table is")
        except ShardmergeError as error:
            if error.spec is not errors.ddl.STRUCTURE_REFUSES:
                raise
            return NotTold(f"what was said of its shadow table does not fit it: {error}")
        except UnreadableCreateTable as error:
            return NotTold(str(error))
        if not forced:
            self._check_values(plan, before, after, ddl)
        return said

    def _now(self, plan: TablePlan, why: str, *, forced: bool) -> Kept | NotTold | _Same:
        """By what the source has in the table's place now. Should it have changed since, then what follows in the
        binlog does not fit it and says so: rows and statements meet the structure recorded here. ``why``: the shadow
        table does not tell."""
        work, table = self.work, plan.table
        with work.at_source() as session:
            now = as_now(session, table.schema, table.name, work.who[1], plan.source)
        if now is None:
            return NotTold(f"{why}, and the table is gone by now")
        try:
            before = self._shape(table, self.structures.creation(plan))
            after = self._shape(now.table, now.creation)
            clauses = meaning.difference(before, after, described(now.creation), forced=forced)
        except UnreadableCreateTable as error:
            return NotTold(str(error))
        if isinstance(clauses, NotTold):
            return NotTold(f"{why}, and by the structures alone {clauses.why}")
        if not clauses:
            return _Same()
        text = unwrapped(meaning.alter_table((table.schema, table.name), clauses), STRICT.sql_mode, self.server)
        ddl = parse_ddl(text, table.schema, STRICT.sql_mode)
        if not forced and isinstance(ddl, AlterTable):
            self._check_values(plan, before, after, ddl)
        return Kept(text, table.schema, STRICT.sql_mode, replace(work.given, sql_mode=STRICT.sql_mode))

    # --- parts

    def _check_values(self, plan: TablePlan, before: Shape, after: Shape, ddl: AlterTable) -> None:
        """Whether the tool's rows have the values that the statement gives them."""
        if column := meaning.drawn_by_tool(before, after, ddl):
            raise self.work.refusal(errors.ddl.VALUES_DRAWN, table=plan.table.full_name, column=column)
        if column := meaning.converted_by_tool(before, after, ddl):
            reason = f"values of column `{column}` were converted in a time zone of the tool's own"
            raise self._unclear(plan.table.full_name, reason)

    def _behind(
        self,
        table: Table,
        creation: Creation,
        text: str,
        statement: Statement,
        ddl: Changing,
        given: StatementSession,
    ) -> Tracked:
        """Raises STRUCTURE_REFUSES too."""
        spelt = self.dialect.spelt(text, statement.sql_mode or 0)
        return behind(
            self.structures.tracker, table, creation, spelt, statement, ddl, given, self.dialect, self._refused
        )

    def _shape(self, table: Table, creation: Creation) -> Shape:
        return described(self.printed.creation(table, creation, self.structures.tracker))

    def _refused(self, table: str, reason: object, errno: int) -> ShardmergeError:
        return self.work.refusal(errors.ddl.STRUCTURE_REFUSES, table=table, reason=reason, errno=errno)

    def _unclear(self, table: str, reason: str) -> ShardmergeError:
        return self.work.refusal(errors.ddl.SWAP_UNCLEAR, table=table, reason=reason)

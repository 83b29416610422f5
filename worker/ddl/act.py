"""What each action of a statement does at the target. Every method may be called again after a kill."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from proto import config_pb2, errors, hooks
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.connection import Side, coding
from worker.ddl.creation import Creation
from worker.ddl.dialect import Dialect
from worker.ddl.digests import Printed
from worker.ddl.everyone import everyone
from worker.ddl.execute import alone, run_once, subject_of, wait_for_indexes
from worker.ddl.operator import Word
from worker.ddl.operator_run import AtTarget, run_operator_statement
from worker.ddl.optimistic import STRICT, Join, join_subject, join_target
from worker.ddl.parked import Parked
from worker.ddl.plan import Action, Alter, Drop, Empty, Make, Rename, Shard
from worker.ddl.records import StatementPlace
from worker.ddl.removal import drop, empty
from worker.ddl.renames import run_renames
from worker.ddl.rewrite import renamed
from worker.ddl.shape import Changing, merged_text, placed
from worker.ddl.shards import NotJoinable
from worker.ddl.statement import AlterTable, names, parse_ddl
from worker.ddl.structure import Structures, check_mergeable, index_names
from worker.ddl.tables import TableName
from worker.ddl.tracker import Tracked
from worker.ddl.widen import Widening
from worker.ddl.work import Work
from worker.plan import TablePlan, TargetTable
from worker.rules import check_partitions
from worker.target_table import compare_target, make_target

log = get_logger()


@dataclass(frozen=True, slots=True)
class Actor:
    """For one statement.

    Methods raise the ddl.* errors, FENCED, the rules' and the target's coded errors and ``pymysql.MySQLError``; they
    return early when the work is stopped.
    """

    work: Work
    structures: Structures
    dialect: Dialect
    printed: Printed

    def do(self, action: Action) -> None:
        """As the statement says."""
        match action:
            case Alter():
                self.alter(action)
            case Make():
                self.make(action)
            case Drop(shard=shard):
                drop(self.work, shard)
            case Empty(shard=shard):
                empty(self.work, shard)
            case Rename(moves=moves):
                self.rename(moves)

    def alter(self, action: Alter) -> None:
        """The structure of one shard table changes, and its target's with it."""
        work, shard = self.work, action.shard
        ddl = work.ddl
        assert isinstance(ddl, Changing)  # noqa: S101 - for the type checker: nothing else alters
        text = merged_text(work.statement, ddl)
        if not text:
            return  # it is the source's own affair
        if shard.together > 1:
            raise work.refusal(
                errors.ddl.NEEDS_SHARD_MODE,
                table=shard.plan.table.full_name,
                shards=shard.together,
                target=shard.target.quoted,
            )
        creation = self.structures.creation(shard.plan)
        self.structures.check(shard.plan, creation)
        text = merged_text(work.statement, ddl, index_names(creation))
        if not text:
            return
        text = self.dialect.spelt(text, work.sql_mode)
        tracked = self.structures.altered(shard.plan, creation, text)
        plan = self._planned(shard.number, tracked)
        work.run([shard.target], placed(text, work.statement, shard.target))
        work.passing.put(plan, tracked.creation)

    def alter_by_word(self, action: Alter, word: Word) -> None:
        """The structure of one shard table changes; at the target an operator's statements run, and then its own if it
        is to."""
        work, shard = self.work, action.shard
        ddl = work.ddl
        assert isinstance(ddl, Changing)  # noqa: S101 - for the type checker: nothing else alters
        creation = self.structures.creation(shard.plan)
        if word.own:
            self.structures.check(shard.plan, creation)
        text = merged_text(work.statement, ddl, index_names(creation))
        tracked = Tracked(shard.plan.table, creation)
        if text:
            text = self.dialect.spelt(text, work.sql_mode)
            try:
                tracked = self.structures.altered(shard.plan, creation, text)
            except ShardmergeError as error:
                # The recorded structure may be younger than the statement: an operator can say so.
                if word.own or error.spec is not errors.ddl.STRUCTURE_REFUSES:
                    raise
        plan = self._planned(shard.number, tracked)
        self.run_texts(word.texts)
        if text and word.own:
            work.run([shard.target], placed(text, work.statement, shard.target))
        work.passing.put(plan, tracked.creation)

    def structures_of(self, shard: Shard) -> tuple[Creation, Creation | None]:
        """The shard table before and behind the statement; None: it is the source's own affair."""
        work, ddl = self.work, self.work.ddl
        assert isinstance(ddl, Changing)  # noqa: S101 - for the type checker: nothing else alters
        creation = self.structures.creation(shard.plan)
        text = merged_text(work.statement, ddl, index_names(creation))
        if not text:
            return creation, None
        return creation, self.structures.altered(shard.plan, creation, self.dialect.spelt(text, work.sql_mode)).creation

    def run_texts(self, texts: Sequence[str]) -> None:
        """Statements of an operator, at the target: they name the tables as at the source."""
        before: list[str] = []
        for number, text in enumerate(texts, 1):
            wanted = self._at_target(text, number, before)
            before.append(wanted.text)
            run_operator_statement(self.work, wanted)

    def leave(self, shard: Shard) -> None:
        """A shard table takes no part any more; its rows stay at the target."""
        self.work.passing.gone.add(shard.number)

    def park(self, action: Alter, *, is_mariadb: bool) -> None:
        """A sharding DDL: the shard table waits before it, with its rows from here on."""
        found = self._merged(action.shard)
        if found is not None:
            self._check_constant(action.shard.plan)
            self._park(action.shard, found[1], is_mariadb=is_mariadb)

    def join(self, action: Alter, held: ExitStack, *, is_mariadb: bool) -> None:
        """A sharding DDL: the target takes the join of its shard tables at once; where there is none, the shard table
        waits before it. ``held``: what is held until the statement is recorded."""
        work, shard = self.work, action.shard
        found = self._merged(shard)
        if found is None:
            return
        creation, text = found
        tracked = self.structures.altered(shard.plan, creation, text)
        plan = self._planned(shard.number, tracked)
        subject = join_subject(shard.target)
        # Without a stop it is held: the session ends with the block in which the statement is recorded.
        if not held.enter_context(alone(work.session, work.who, work.epoch, subject, work.stop, work.tell)):
            return
        # The target is looked at next: with all its indexes.
        wait_for_indexes(work.session, work.who[0], [shard.target], work.stop, work.tell)
        if work.stop.is_set:
            return
        hooks.reach("join.held")
        match join_target(work, shard.plan, creation, tracked, self.structures.tracker, self.printed):
            case NotJoinable(reason=why, waits=waits):
                self._park(shard, text, is_mariadb=is_mariadb, why=why, contradicts=not waits)
            case Join(clauses=clauses, dropped=dropped):
                work.passing.subjects.add(subject)
                if clauses:
                    run_once(
                        work.session,
                        work.who,
                        work.epoch,
                        [shard.target],
                        f"ALTER TABLE {shard.target.quoted} {', '.join(clauses)}",
                        STRICT,
                        work.stop,
                        work.tell,
                        subject,
                        position=work.statement.position,
                    )
                work.passing.put(plan, tracked.creation)
                work.passing.dropped.update(dropped)

    def _check_constant(self, plan: TablePlan) -> None:
        """A column must not come that the target has from a route. Raises EXTRACT_CLASH."""
        ddl = self.work.ddl
        constant = {item.target_name.lower() for item in plan.columns if item.is_constant}
        clauses = ddl.clauses if isinstance(ddl, AlterTable) else ()
        for name in (name for clause in clauses for name in (*clause.columns, clause.new_name)):
            if name.lower() in constant:
                raise errors.config.EXTRACT_CLASH(
                    source=plan.source, schema=plan.table.schema, table=plan.table.name, column=name
                )

    def _merged(self, shard: Shard) -> tuple[Creation, str] | None:
        """The shard table's CREATE TABLE before the statement, and the statement as merged tables get it; None when
        that is nothing."""
        work, ddl = self.work, self.work.ddl
        assert isinstance(ddl, Changing)  # noqa: S101 - for the type checker: nothing else alters
        creation = self.structures.creation(shard.plan)
        text = merged_text(work.statement, ddl, index_names(creation))
        if not text:
            return None  # it is the source's own affair
        found = everyone(work.session, *work.who)
        merged = [shard.plan, *found.mine.values(), *found.others]
        check_mergeable(shard.plan, merged, work.refusal)
        self.structures.check(shard.plan, creation)
        return creation, self.dialect.spelt(text, work.sql_mode)

    def _park(self, shard: Shard, text: str, *, is_mariadb: bool, why: str = "", contradicts: bool = False) -> None:
        work, statement = self.work, self.work.statement
        if why:
            log.warning(
                "a shard table waits: its target cannot take a sharding DDL at once",
                task=work.who[1],
                source=work.who[2],
                table=shard.plan.table.full_name,
                position=str(statement.position),
                statement=text,
                reason=why,
            )
        work.passing.parked[shard.number] = Parked(
            shard.number,
            text,
            statement.schema,
            work.sql_mode,
            is_mariadb,
            work.given,
            StatementPlace.of(statement),
            work.context.relay.position_at(statement.group_end),
            time.time(),
            why,
            contradicts,
        )

    def make(self, action: Make) -> None:
        """A table comes to be: it is the subtask's from here on."""
        work = self.work
        if action.replaces is not None:
            drop(work, action.replaces)
        tracked = self.structures.made(action)
        plan = self._planned(work.passing.next_number, tracked)
        check_partitions([*work.plans.values(), plan])
        if work.context.config.shard_mode == config_pb2.SHARD_MODE_OPTIMISTIC and plan.transform is None:
            with coding(work.context.target_endpoint, Side.TARGET, "target"):
                Widening(work.session, work.who, work.epoch, work.stop)(plan, tracked.creation)
            if work.stop.is_set:
                return
        with (
            alone(work.session, work.who, work.epoch, subject_of([plan.target]), work.stop, work.tell) as held,
            coding(work.context.target_endpoint, Side.TARGET, "target"),
        ):
            if not held:
                return
            make_target(
                work.session,
                [*self._companions(plan), plan],
                tracked.creation,
                meta_schema=work.context.config.meta_schema,
            )
        hooks.reach("ddl.made")
        work.passing.put(plan, tracked.creation)

    def rename(self, moves: Sequence[tuple[Shard, TableName]]) -> None:
        """Shard tables get other names; their targets too, where the rules say so."""
        work = self.work
        places: list[tuple[TargetTable, TargetTable]] = []
        moving = {shard.number for shard, _ in moves}
        for shard, name in moves:
            before = work.plans.get(shard.number, shard.plan)
            creation = self.structures.creation(before)
            table = replace(before.table, schema=name[0], name=name[1])
            plan = self._planned(shard.number, Tracked(table, creation))
            if _mappings(before) != _mappings(plan):
                raise self._remaps(shard, name, "its ids would be mapped otherwise than those before")
            if before.transform != plan.transform or _names(before) != _names(plan):
                raise self._remaps(shard, name, "another transform would hold for its rows")
            if before.filters != plan.filters:
                raise self._remaps(shard, name, "other expression filters would hold for its rows")
            if plan.target != shard.target:
                if shard.together > 1:
                    raise self._remaps(shard, name, "its rows would go to another target than those before")
                if any(other.target == plan.target for at, other in work.plans.items() if at not in moving):
                    raise self._remaps(shard, name, "its rows would go to the target of other shard tables")
                places.append((shard.target, plan.target))
            work.passing.put(plan, creation)
        if places:
            run_renames(work, places)

    def settle(self) -> None:
        """The targets as they are now must take the rows as they are now."""
        work = self.work
        for plan in work.passing.plans.values():
            if plan.shard in work.passing.gone:
                continue
            with coding(work.context.target_endpoint, Side.TARGET, "target"):
                facts = compare_target(work.session, [*self._companions(plan), plan])
            if facts is None:
                raise errors.replicate.TARGET_TABLE_DIFFERS(
                    source=plan.source,
                    schema=plan.table.schema,
                    table=plan.table.name,
                    target_schema=plan.target_schema,
                    target_table=plan.target_table,
                    differences="it is not there",
                )
            work.passing.one_lane[plan.target] = facts.one_lane

    # --- parts

    def _at_target(self, text: str, number: int, before: Sequence[str]) -> AtTarget:
        """The operator's statement ``text`` with the target's table names. ``before``: the texts of the statements
        before it in the operator's list, also with the target's table names."""
        work = self.work
        ddl = parse_ddl(text, work.statement.schema, work.sql_mode)
        if ddl is None:
            raise work.refusal(errors.ddl.OPERATOR_STATEMENT, given=text)
        placed = renamed(text, ddl, lambda schema, table: _pair(self._routed(schema, table)))
        found = [(name.name, self._routed(*name.name)) for name in names(ddl)]
        # A name without a schema is not valid: the target reports the error.
        tables = {target or TargetTable(*name) for name, target in found if target or name[0]}
        routed = tuple(target for _, target in found if target is not None)
        at_target = parse_ddl(placed, work.statement.schema, work.sql_mode)
        assert at_target is not None  # noqa: S101 - for the type checker: only names were replaced
        return AtTarget(placed, at_target, tuple(sorted(tables)), routed, number, before.count(placed))

    def _routed(self, schema: str, table: str) -> TargetTable | None:
        route = self.work.context.rules.route(schema, table)
        return TargetTable(route.target_schema, route.target_table) if route is not None else None

    def _planned(self, number: int, tracked: Tracked) -> TablePlan:
        context = self.work.context
        return context.rules.plan(number, context.source.source_id, tracked.table)

    def _companions(self, plan: TablePlan) -> list[TablePlan]:
        """The subtask's other shard tables of the same target."""
        plans = sorted(self.work.plans.items())
        return [other for number, other in plans if other.target == plan.target and number != plan.shard]

    def _remaps(self, shard: Shard, name: TableName, reason: str) -> ShardmergeError:
        return self.work.refusal(
            errors.ddl.RENAME_REMAPS, table=shard.plan.table.full_name, new=".".join(name), reason=reason
        )


def _pair(target: TargetTable | None) -> tuple[str, str] | None:
    return target.names if target is not None else None


def _names(plan: TablePlan) -> list[str]:
    return [column.target_name for column in plan.columns]


def _mappings(plan: TablePlan) -> dict[str, object]:
    return {column.column.name: column.mapping for column in plan.columns if column.mapping is not None}

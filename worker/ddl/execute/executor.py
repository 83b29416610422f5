"""Executes the actions of one statement at the target. Every method may be repeated after a kill."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from operator import attrgetter

from shardmerge.proto import config_pb2, errors, failpoints
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Side, coded_errors
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.decide.actions import (
    Action,
    Alter,
    Create,
    Drop,
    Rename,
    ShardTarget,
    Truncate,
    shard_numbers,
)
from shardmerge.worker.ddl.decide.operator_override import OperatorOverride
from shardmerge.worker.ddl.execute.added_keys import target_keys, with_extracted_columns
from shardmerge.worker.ddl.execute.operator_run import run_operator_statements
from shardmerge.worker.ddl.execute.optimistic import (
    STRICT,
    TargetJoin,
    check_mergeable_in_task,
    check_values_of_time,
    join_target,
)
from shardmerge.worker.ddl.execute.remove_rows import drop_shard, truncate_shard
from shardmerge.worker.ddl.execute.rename_targets import run_renames
from shardmerge.worker.ddl.execute.run_once import (
    OneRun,
    finish_computed,
    join_subject,
    run_once,
    subject_lock,
    subject_of,
    wait_for_indexes,
)
from shardmerge.worker.ddl.execute.statement_context import StatementContext
from shardmerge.worker.ddl.execute.structure_check import StatementStructures, check_mergeable, merged_statement
from shardmerge.worker.ddl.execute.widen_target import TargetWidener
from shardmerge.worker.ddl.schema_join.model import NotJoinable
from shardmerge.worker.ddl.sql.dialect import Dialect
from shardmerge.worker.ddl.sql.statement import AlterTable
from shardmerge.worker.ddl.sql.target_statement import Changing, for_table
from shardmerge.worker.ddl.structure.parked_definitions import ParkedDefinitions
from shardmerge.worker.ddl.structure.schema_tracker import Tracked
from shardmerge.worker.ddl.structure.structure_digest import CanonicalCreates
from shardmerge.worker.rules import check_partitions
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.members.member_cache import TaskMembers
from shardmerge.worker.target.members.merged_targets import MergedTargets
from shardmerge.worker.target.records import dropped_columns
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.tables.target_table import ensure_target_from, naming_missing, require_target

log = get_logger()


@dataclass(frozen=True, slots=True)
class AlteredShard:
    """A shard table that a statement alters. ``before``: its recorded CREATE TABLE; ``text``: the statement for merged
    tables; ``tracked``, ``plan``: the table after it."""

    before: CreateStatement
    text: str
    tracked: Tracked
    plan: TablePlan


@dataclass(frozen=True, slots=True)
class StatementExecutor:
    """Executes the actions of one statement. ``held``: locks that are held until the statement is recorded.

    Methods raise the ddl.* errors, FENCED, the rules' and the target's coded errors and ``pymysql.MySQLError``; they
    return early when ``context.stop`` is set.
    """

    context: StatementContext
    structures: StatementStructures
    dialect: Dialect
    canonical: CanonicalCreates
    parked_definitions: ParkedDefinitions
    held: ExitStack

    def run(self, action: Action) -> None:
        """Execute one action as the statement says."""
        with self.naming_missing(action):
            match action:
                case Alter():
                    self.alter(action)
                case Create():
                    self.create(action)
                case Drop(shard=shard):
                    drop_shard(self.context, shard)
                case Truncate(shard=shard):
                    truncate_shard(self.context, shard)
                case Rename(moves=moves):
                    self.rename(moves)

    def run_overridden(self, override: OperatorOverride, actions: Sequence[Action]) -> None:
        """Run the operator's statements at the target, and the original if the override says so. The shard tables'
        structures follow the source in any case."""
        if not any(isinstance(action, Alter) for action in actions):
            run_operator_statements(self.context, override.texts)
        for action in actions:
            match action:
                case Alter():
                    self._alter_overridden(action, override)
                case _ if override.runs_original:
                    self.run(action)
                case Create():
                    self.create(action, by_operator=True)  # its rows will arrive: the target must be able to take them
                case Drop(shard=shard):
                    self.detach(shard)
                case Rename(moves=moves):
                    for shard, _ in moves:
                        self.detach(shard)
                case Truncate():
                    pass

    def naming_missing(self, action: Action) -> AbstractContextManager[None]:
        """If the action fails because its target does not exist, the block raises MERGED_TABLE_MISSING."""
        context, known = self.context, self.context.plans
        plans = [known[number] for number in shard_numbers(action) if number in known]
        return naming_missing(context.run_context.target_endpoint, plans, context.who.task, context.place)

    def alter(self, action: Alter) -> None:
        """The structure of one shard table changes, and its target's structure too."""
        context, shard = self.context, action.shard
        ddl = context.ddl
        assert isinstance(ddl, Changing)  # noqa: S101 - for the type checker: nothing else alters
        if not merged_statement(context.statement, ddl, shard.plan.table, None):
            return  # it has no effect on merged tables
        if shard.shard_count > 1:
            raise context.refusal(
                errors.ddl.NEEDS_SHARD_MODE,
                table=shard.plan.table.full_name,
                shards=shard.shard_count,
                target=shard.target.quoted,
            )
        creation = self.structures.creation(shard.plan)
        self.structures.check(shard.plan, creation)
        text = merged_statement(context.statement, ddl, shard.plan.table, creation)
        if not text:
            return
        text = self._for_target_alone(text, shard, creation)
        tracked = self.structures.after_alter(shard.plan, creation, text)
        plan = self._planned(shard.number, tracked)
        context.run([shard.target], self._for_target(text, shard))
        context.changes.change(plan, tracked.creation)

    def _alter_overridden(self, action: Alter, override: OperatorOverride) -> None:
        """The structure of one shard table changes; at the target the operator's statements run, then the original if
        the override says so."""
        context, shard = self.context, action.shard
        ddl = context.ddl
        assert isinstance(ddl, Changing)  # noqa: S101 - for the type checker: nothing else alters
        creation = self.structures.creation(shard.plan)
        if override.runs_original:
            self.structures.check(shard.plan, creation)
        text = merged_statement(context.statement, ddl, shard.plan.table, creation)
        tracked = Tracked(shard.plan.table, creation)
        if text:
            text = self._for_target_alone(text, shard, creation)
            try:
                tracked = self.structures.after_alter(
                    shard.plan, creation, text, by_operator=not override.runs_original
                )
            except ShardmergeError as error:
                # The recorded structure may be newer than the statement; then an operator's override is right.
                if override.runs_original or error.spec is not errors.ddl.STRUCTURE_REFUSES:
                    raise
        plan = self._planned(shard.number, tracked)
        if not override.runs_original:
            # What has begun of the original is abandoned.
            context.changes.executed.subjects.update((subject_of([shard.target]), join_subject(shard.target)))
        run_operator_statements(self.context, override.texts)
        if text and override.runs_original:
            context.run([shard.target], self._for_target(text, shard))
        context.changes.change(plan, tracked.creation)
        self._record_dropped_columns(shard, tracked)

    def _for_target_alone(self, text: str, shard: ShardTarget, creation: CreateStatement) -> str:
        """The statement of a shard table that shares no lock with others: its text depends on its columns."""
        mode = self.context.sql_mode
        text = self.dialect.with_longer_texts(text, creation, shard.plan.table.columns, mode)
        return self.dialect.for_target(text, mode)

    def _record_dropped_columns(self, shard: ShardTarget, tracked: Tracked) -> None:
        """Record the columns that the shard table no longer has (optimistic): its rows at the target may still have
        their values, which it would get back with a column of that name."""
        context, (_, task, source) = self.context, self.context.who
        names = frozenset(column.name.lower() for column in tracked.table.columns)
        gone = {column.name.lower() for column in shard.plan.table.columns} - names
        config = context.run_context.config
        if not gone or config.shard_mode != config_pb2.SHARD_MODE_OPTIMISTIC:
            return
        member = (source, shard.number)
        before = dropped_columns.read(context.session, config.meta_schema, task).get(member, frozenset[str]())
        context.changes.executed.dropped[member] = (before | gone) - names

    def structures_around(self, shard: ShardTarget) -> tuple[CreateStatement, CreateStatement | None]:
        """The shard table before and after the statement; None: it has no effect on merged tables."""
        context, ddl = self.context, self.context.ddl
        assert isinstance(ddl, Changing)  # noqa: S101 - for the type checker: nothing else alters
        creation = self.structures.creation(shard.plan)
        text = merged_statement(context.statement, ddl, shard.plan.table, creation)
        if not text:
            return creation, None
        return creation, self.structures.after_alter(
            shard.plan, creation, self.dialect.for_target(text, context.sql_mode)
        ).creation

    def detach(self, shard: ShardTarget) -> None:
        """The shard table takes no further part; its rows stay at the target."""
        self.context.changes.remove(shard.number)

    def park(self, action: Alter, *, is_mariadb: bool, members: TaskMembers | None = None) -> None:
        """A sharding DDL: park the shard table at it, with its rows from here on. ``members``: None to read them."""
        context = self.context
        found = self._merged(action.shard)
        if found is not None:
            members = members or context.run_context.members.read(context.session)
            check_mergeable_in_task(context, members, action.shard.plan)
            check_values_of_time(context, members, action.shard.plan, is_mariadb=is_mariadb)
            self._check_constant(action.shard.plan)
            self._park(action.shard, found[1], members, is_mariadb=is_mariadb)

    def join_schemas(self, action: Alter, *, is_mariadb: bool) -> None:
        """A sharding DDL: the target takes the schema join of its shard tables at once; where there is none, the shard
        table is parked."""
        context, shard = self.context, action.shard
        found = self.altered(shard)
        if found is None:
            return
        creation, text, tracked, plan = found.before, found.text, found.tracked, found.plan
        subject = join_subject(shard.target)
        # Unless stopped, it is held: the session ends with the block in which the statement is recorded.
        if not self.held.enter_context(
            subject_lock(
                context.session, context.who, context.epoch, subject, [shard.target], context.stop, context.on_wait
            )
        ):
            return
        # The target's structure is read next: it must have all its indexes.
        wait_for_indexes(context.session, context.who.schema, [shard.target], context.stop, context.on_wait)
        finish_computed(context.session, context.who, shard.target, STRICT, context.stop)
        if context.stop.is_set:
            return
        failpoints.hit("join.held")
        tracker = self.structures.tracker
        known = (self.canonical, self.parked_definitions)
        match join_target(context, shard.plan, creation, tracked, tracker, *known, is_mariadb=is_mariadb):
            case NotJoinable(reason=why, waits=waits):
                members = context.run_context.members.read(context.session)
                self._park(shard, text, members, is_mariadb=is_mariadb, why=why, contradicts=not waits)
            case TargetJoin(clauses=clauses, dropped=dropped):
                context.changes.executed.subjects.add(subject)
                context.changes.executed.joined.add(shard.target)
                if clauses:
                    text = f"ALTER TABLE {shard.target.quoted} {', '.join(clauses)}"
                    one = OneRun([shard.target], text, STRICT, subject, context.statement.position, computed=True)
                    run_once(context.session, context.who, context.epoch, one, context.stop, context.on_wait)
                context.changes.change(plan, tracked.creation)
                context.changes.executed.dropped.update(dropped)

    def altered(self, shard: ShardTarget) -> AlteredShard | None:
        """The shard table after the statement; None when the statement has no effect on merged tables."""
        found = self._merged(shard)
        if found is None:
            return None
        creation, text = found
        tracked = self.structures.after_alter(shard.plan, creation, text)
        return AlteredShard(creation, text, tracked, self._planned(shard.number, tracked))

    def _check_constant(self, plan: TablePlan) -> None:
        """The statement must not add a column that the target gets from a route. Raises EXTRACT_CLASH."""
        ddl = self.context.ddl
        constant = {item.target_name.lower() for item in plan.columns if item.is_constant}
        clauses = ddl.clauses if isinstance(ddl, AlterTable) else ()
        for name in (name for clause in clauses for name in (*clause.columns, clause.new_name)):
            if name.lower() in constant:
                raise errors.config.EXTRACT_CLASH(
                    source=plan.source, schema=plan.table.schema, table=plan.table.name, column=name
                )

    def _merged(self, shard: ShardTarget) -> tuple[CreateStatement, str] | None:
        """The shard table's CREATE TABLE before the statement, and the statement for merged tables; None when it has no
        effect on them."""
        context, ddl = self.context, self.context.ddl
        assert isinstance(ddl, Changing)  # noqa: S101 - for the type checker: nothing else alters
        creation = self.structures.creation(shard.plan)
        text = merged_statement(context.statement, ddl, shard.plan.table, creation)
        if not text:
            return None  # it has no effect on merged tables
        check_mergeable(shard.plan, context.plans.values(), context.refusal)
        self.structures.check(shard.plan, creation)
        if lacking := self.dialect.lacking_charsets(text, context.sql_mode):
            raise context.refusal(
                errors.ddl.CHARSET_NOT_AT_TARGET, table=shard.plan.table.full_name, charsets=", ".join(lacking)
            )
        return creation, self.dialect.for_target(text, context.sql_mode)

    def _park(
        self,
        shard: ShardTarget,
        text: str,
        members: TaskMembers,
        *,
        is_mariadb: bool,
        why: str = "",
        contradicts: bool = False,
    ) -> None:
        context, statement = self.context, self.context.statement
        run = members.runs.get(shard.target)
        if why:
            log.warning(
                "a shard table is parked: its target cannot take a sharding DDL at once",
                task=context.who.task,
                source=context.who.source,
                table=shard.plan.table.full_name,
                position=str(statement.position),
                statement=text,
                reason=why,
            )
        context.changes.park(
            Parked(
                shard.number,
                text,
                statement.schema,
                context.sql_mode,
                is_mariadb,
                context.source_session,
                StatementPlace.of(statement),
                context.run_context.relay.position_at(statement.group_end),
                time.time(),
                why,
                contradicts,
                after_run="" if run is None else run.generation,
            )
        )

    def create(self, action: Create, *, by_operator: bool = False) -> None:
        """A table is created: it belongs to the subtask from here on. ``by_operator``: the target was created by the
        operator's statements."""
        context = self.context
        if action.replaces is not None:
            drop_shard(context, action.replaces)
        tracked = self.structures.after_create(action, by_operator=by_operator)
        number = action.number if action.number is not None else context.changes.take_number()
        plan = self._planned(number, tracked)
        check_partitions([*context.plans.values(), plan])
        if context.run_context.config.shard_mode == config_pb2.SHARD_MODE_OPTIMISTIC and plan.transform is None:
            with coded_errors(context.run_context.target_endpoint, Side.TARGET, "target"):
                TargetWidener(context.session, context.who, context.epoch, context.stop).widen(plan, tracked.creation)
            if context.stop.is_set:
                return
        # Until the table is recorded: the owner of a lock looks for it in the records before it runs a statement.
        if not self.held.enter_context(
            subject_lock(
                context.session,
                context.who,
                context.epoch,
                subject_of([plan.target]),
                [plan.target],
                context.stop,
                context.on_wait,
            )
        ):
            return
        with coded_errors(context.run_context.target_endpoint, Side.TARGET, "target"):
            ensure_target_from(
                context.session,
                [*self._companions(plan), plan],
                tracked.creation,
                MergedTargets(
                    context.who,
                    context.epoch,
                    context.run_context.members,
                    context.place,
                    context.removed_shards | {number},
                ),
                meta_schema=context.run_context.config.meta_schema,
            )
        failpoints.hit("ddl.made")
        context.changes.change(plan, tracked.creation)

    def rename(self, moves: Sequence[tuple[ShardTarget, TableName]]) -> None:
        """Shard tables get other names; their targets too, where the rules route the new names to other targets."""
        context = self.context
        places: list[tuple[TargetTable, TargetTable]] = []
        moving = {shard.number for shard, _ in moves}
        others: list[TablePlan] | None = None
        for shard, name in moves:
            before = context.plans.get(shard.number, shard.plan)
            creation = self.structures.creation(before)
            table = replace(before.table, schema=name[0], name=name[1])
            plan = self._planned(shard.number, Tracked(table, creation))
            if _mappings(before) != _mappings(plan):
                raise self._remaps(shard, name, "its ids would be mapped differently from those before")
            if before.transform != plan.transform or _names(before) != _names(plan):
                raise self._remaps(shard, name, "another transform would apply to its rows")
            if before.filters != plan.filters:
                raise self._remaps(shard, name, "other expression filters would apply to its rows")
            if plan.target != shard.target:
                others = self._other_members(moving) if others is None else others
                if shard.shard_count > 1 or any(other.target == shard.target for other in others):
                    raise self._remaps(shard, name, "its rows would go to another target than those before")
                if any(other.target == plan.target for other in others):
                    raise self._remaps(shard, name, "its rows would go to the target of other shard tables")
                places.append((shard.target, plan.target))
            context.changes.change(plan, creation)
        if places:
            run_renames(context, places)

    def check_targets(self) -> None:
        """Check that the current targets accept rows of the current structures."""
        context = self.context
        for changed in context.changes.changed.values():
            plan = changed.plan
            merged = [*self._companions(plan), plan]
            with coded_errors(context.run_context.target_endpoint, Side.TARGET, "target"):
                facts = require_target(context.session, merged, context.who.task, context.place)
            context.changes.one_lane[plan.target] = facts.one_lane or self._keeps_one_lane(merged)

    # --- parts

    def _for_target(self, text: str, shard: ShardTarget) -> str:
        """``text``, the statement for merged tables, as it runs at the target."""
        context = self.context
        text = for_table(text, context.statement, shard.target)
        return with_extracted_columns(text, context.sql_mode, target_keys(context.session, shard.plan))

    def _planned(self, number: int, tracked: Tracked) -> TablePlan:
        context = self.context.run_context
        return context.rules.plan(number, context.source.source_id, tracked.table)

    def _keeps_one_lane(self, merged: Collection[TablePlan]) -> bool:
        """See :meth:`shardmerge.worker.target.records.partitioning.Partitioning.keep_one_lane`."""
        if self.context.run_context.config.shard_mode != config_pb2.SHARD_MODE_OPTIMISTIC:
            return False
        before = self.context.changes.before.plans
        return any(plan.shard in before and before[plan.shard].one_lane and plan.has_further_key for plan in merged)

    def _companions(self, plan: TablePlan) -> list[TablePlan]:
        """The subtask's other shard tables of the same target."""
        target = plan.target
        found = [other for other in self.context.plans.values() if other.target == target and other.shard != plan.shard]
        return sorted(found, key=attrgetter("shard"))

    def _other_members(self, numbers: Collection[int]) -> list[TablePlan]:
        """The task's shard tables at all sources, also those that are parked, without these of this source."""
        context = self.context
        members = context.run_context.members.read(context.session).sources.items()
        mine = context.run_context.source.source_id
        return [
            plan
            for source, found in members
            for number, plan in found.plans.items()
            if source != mine or number not in numbers
        ]

    def _remaps(self, shard: ShardTarget, name: TableName, reason: str) -> ShardmergeError:
        return self.context.refusal(
            errors.ddl.RENAME_REMAPS, table=shard.plan.table.full_name, new=".".join(name), reason=reason
        )


def _names(plan: TablePlan) -> list[str]:
    return [column.target_name for column in plan.columns]


def _mappings(plan: TablePlan) -> dict[str, object]:
    return {column.column.name: column.mapping for column in plan.columns if column.mapping is not None}

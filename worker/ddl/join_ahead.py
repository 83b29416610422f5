"""Executes equal ALTERs of further shard tables at statements of the relay log that the lanes have not reached yet.

    lanes wait at an ALTER ── the target becomes the schema join ── the following ALTERs change the target no more ──
    one transaction records them all ── the lanes use each table's new structure from its statement on

For ``shard-mode: optimistic``. A following statement takes part if it adds the same columns to a table that has the
same structure before, if the target has exactly these columns by now, and if rows without the columns get the same
values at the target as at the source. This stays so until all lanes have passed the statement: a schema join keeps a
column that one of the shard tables has, accepts each one's values, and changes a default only if all of them have the
new one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeGuard

from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.mysql.show_create import read_create_statement
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.decide.routed_statements import short_text
from shardmerge.worker.ddl.decide.statement_changes import StatementChanges
from shardmerge.worker.ddl.decide.track import Changed, LaterStructure
from shardmerge.worker.ddl.execute.optimistic import (
    TargetJoin,
    check_mergeable_in_task,
    check_values_of_time,
    compute_join,
    distinct_schemas,
    is_strict,
    other_shards,
    parked_of,
    shard_label,
)
from shardmerge.worker.ddl.following import Around, FollowingAlter, FollowingStatements, MayExecute
from shardmerge.worker.ddl.schema_join.model import NotJoinable, ShardSchema
from shardmerge.worker.ddl.sql.statement import AlterTable, Ddl
from shardmerge.worker.ddl.sql.table_definition import TableDefinition, parse_table_definition
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.target.records import dropped_columns
from shardmerge.worker.target.records.dropped_columns import Member
from shardmerge.worker.target.records.partitioning import Growing

log = get_logger()

_ADDS = frozenset({ClauseKind.ADD_COLUMN, ClauseKind.HOW})


@dataclass(frozen=True, slots=True)
class _Series:
    """ALTERs that add ``columns`` to shard tables of ``target`` with the structure ``before``. ``dropped``: see
    worker/target/records/dropped_columns.py. ``is_strict``: see :func:`is_strict`."""

    target: TargetTable
    before: TableDefinition
    after: TableDefinition
    columns: tuple[str, ...]
    dropped: frozenset[Member]
    is_strict: bool


@dataclass(frozen=True, slots=True)
class JoinAhead:
    """Executes the statements that follow ``first``, whose parsed text is ``ddl``. ``began``: see
    :meth:`FollowingStatements.execute`."""

    following: FollowingStatements
    first: Statement
    ddl: AlterTable
    session: Session
    changes: StatementChanges
    began: float

    def execute(self, may_execute: MayExecute, stop: StopSignal) -> Statement:
        """Add to :attr:`changes` the structures after the statements that follow; returns the last of these statements,
        the first one if there are none. Raises what :meth:`FollowingStatements.execute` raises."""
        joined, changed = next(iter(self.changes.executed.joined), None), self.changes.changed
        altered = next(iter(changed.values()), None)
        if joined is None or altered is None or len(changed) > 1:
            return self.first

        def begin(around: Around) -> Callable[[FollowingAlter], bool] | None:
            series = self._series(altered, joined, around)
            return None if series is None else lambda found: self._join(found, series, around)

        return self.following.execute(self.first, self.session, self.changes, may_execute, stop, begin, self.began)

    # --- parts

    def _series(self, altered: Changed, target: TargetTable, around: Around) -> _Series | None:
        """The ALTERs that are equal to the first one; None: further ones may change the target."""
        changes, (schema, task, source) = self.changes, self.following.context.who
        number = altered.plan.shard
        plan, recorded = changes.before.plans[number], around.recorded(source).get(number)
        own: Member = (source, number)
        if recorded is None or changes.executed.dropped != {own: frozenset[str]()}:
            return None
        if any(other.filters or other.transform for other in changes.before.plans.values() if other.target == target):
            return None
        if changes.one_lane.get(target, plan.one_lane) != plan.one_lane or parked_of(around.members, target):
            return None
        canonical, tracker = self.following.known.canonical, around.tracker
        before = canonical.definition(plan.table, recorded, tracker)
        after = canonical.definition(altered.plan.table, altered.creation, tracker)
        columns = _added(before, after)
        goal = parse_table_definition(read_create_statement(self.session, *target.names))
        if not columns or any(_differs(after, goal, column) for column in columns):
            return None
        dropped = dropped_columns.read(self.session, schema, task)
        members = {
            (other.source, other.shard): other
            for each in around.members.sources.values()
            for other in each.plans.values()
            if other.target == target and (other.source, other.shard) != own
        }
        others = other_shards(around.members, members, dropped, tracker, canonical, goal)
        if isinstance(others, NotJoinable):
            return None
        name, strict = shard_label(plan), is_strict(self.first.sql_mode or 0, plan.table)
        was = ShardSchema(name, before)
        schemas = distinct_schemas((*others.values(), ShardSchema(name, after), was))
        by_member: dict[Member, ShardSchema] = {("", at): shard for at, shard in enumerate(schemas)}
        answer = compute_join(goal, by_member, own, was, after, self.ddl, strict=strict)
        if answer != TargetJoin((), {own: frozenset[str]()}):
            return None
        return _Series(target, before, after, columns, frozenset(dropped), strict)

    def _join(self, found: FollowingAlter, series: _Series, around: Around) -> bool:
        """Whether the statement belongs to the series: then its table has the structure after it from there on."""
        context, changes = self.following.context, self.changes
        plan, statement = found.shard.plan, found.statement
        if plan.target != series.target or plan.shard in changes.before.copies or not adds_columns(found.ddl):
            return False
        if (plan.source, plan.shard) in series.dropped:
            return False
        if is_strict(statement.sql_mode or 0, plan.table) != series.is_strict:
            return False
        check_mergeable_in_task(found.executor.context, around.members, plan)
        check_values_of_time(found.executor.context, around.members, plan, is_mariadb=found.is_mariadb)
        altered = found.executor.altered(found.shard)
        if altered is None:
            return False
        canonical, tracker = self.following.known.canonical, around.tracker
        before = canonical.definition(plan.table, altered.before, tracker)
        after = canonical.definition(altered.tracked.table, altered.tracked.creation, tracker)
        if before is not series.before or after is not series.after:
            return False
        table = altered.tracked.table
        columns = tuple(column.name for column in table.columns if column.name.lower() in series.columns)
        if table.without_columns(columns).structure != plan.table.structure:
            return False
        later = replace(altered.plan, one_lane=plan.one_lane, may_lack_rows=plan.may_lack_rows)
        record = Growing(plan.shard, context.relay.position_at(statement.group_end), columns)
        changes.change_later(LaterStructure(later, statement.group_end, record), altered.tracked.creation)
        log.info(
            "the structure of a shard table changes at a following statement",
            task=context.who.task,
            source=context.who.source,
            table=plan.table.full_name,
            position=str(statement.position),
            statement=short_text(statement),
        )
        return True


def adds_columns(ddl: Ddl | None) -> TypeGuard[AlterTable]:
    """Whether the statement only adds columns. A statement of a series does."""
    return isinstance(ddl, AlterTable) and not ddl.ignore and all(clause.kind in _ADDS for clause in ddl.clauses)


def _added(before: TableDefinition, after: TableDefinition) -> tuple[str, ...]:
    """The lower-case names of the columns that are the only difference; () if there are others."""
    known = {column.key for column in before.columns}
    added = tuple(column.key for column in after.columns if column.key not in known)
    rest = tuple(column for column in after.columns if column.key in known)
    return added if replace(after, columns=rest) == before else ()


def _differs(after: TableDefinition, goal: TableDefinition, name: str) -> bool:
    """Whether rows without the column could get another value at the target, or the target could need a change."""
    column, there = after.column(name), goal.column(name)
    return column is None or there is None or bool(column.unfillable) or column.same != there.same

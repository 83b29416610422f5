"""A stream's tables at a barrier, and the changes that one statement makes to the subtask's records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_numbers import TableNumbers
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.decide.given_names import NO_NAMES, GivenNames
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.rules.table_window import TableWindow
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.dropped_columns import Member
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import (
    AwayName,
    Growing,
    Leaving,
    Partitioning,
    merge_partitionings,
)
from shardmerge.worker.target.records.shadow_tables import ShadowRecord
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION


@dataclass(frozen=True, slots=True)
class TimedTable:
    """A table that enters or leaves a stream without a barrier: at group end ``offset``, where the statement at
    ``place`` ends."""

    plan: TablePlan
    offset: RelayOffset
    place: StatementPlace


@dataclass(frozen=True, slots=True)
class InterruptedTable:
    """A table that is copied in part. It leaves the stream at the statement whose group begins at ``offset``.
    ``number``: of the interruption, see worker/target/records/history/interrupted_copies.py."""

    number: int
    offset: RelayOffset


@dataclass(frozen=True, slots=True)
class GrowingTable:
    """A table that gets columns at a later place of the stream, without a barrier. ``plan``: from group end ``offset``
    on; ``record``: what is recorded of it."""

    plan: TablePlan
    offset: RelayOffset
    record: Growing


@dataclass(frozen=True, slots=True)
class StreamTables:
    """A subtask's tables at a position of a stream. ``tables``: by number, including former ones, as recorded; those of
    ``growing`` have the structure of the later place. ``plans``: of those that take part in the stream, by number.
    ``partitioning``: of their rows. ``scope``: the tables whose rows the stream applies. ``arriving``: tables that
    enter the stream at a later place, after the statement at which they were parked. ``departing``: tables that are
    parked at a later place of the stream, whose rows it applies up to there. ``interrupted``: tables of the stream that
    are copied in part. ``growing``: tables of the stream that get columns at a later place. ``away``: of the main
    stream, the names of the tables that other streams have, with their numbers; also names of tables that those have
    dropped. ``kept``: of another stream, the names of tables that were dropped in it, with their numbers."""

    tables: tuple[Table, ...]
    plans: Mapping[int, TablePlan]
    partitioning: Partitioning
    scope: TableScope
    arriving: Mapping[int, TimedTable] = field(default_factory=dict[int, TimedTable])
    departing: Mapping[int, TimedTable] = field(default_factory=dict[int, TimedTable])
    interrupted: Mapping[int, InterruptedTable] = field(default_factory=dict[int, InterruptedTable])
    growing: Mapping[int, GrowingTable] = field(default_factory=dict[int, GrowingTable])
    away: Mapping[TableName, int] = field(default_factory=dict[TableName, int])
    kept: Mapping[TableName, int] = field(default_factory=dict[TableName, int])

    def at_barrier(self, offset: RelayOffset) -> StreamTables:
        """The tables at a barrier at ``offset``: every lane has reached it, and no lane is beyond it."""
        if not self.arriving and not self.departing and not self.growing:
            return self
        arrived = {number: item.plan for number, item in self.arriving.items() if item.offset <= offset}
        grown = {number: item.plan for number, item in self.growing.items() if item.offset <= offset}
        plans = {**self.plans, **arrived, **grown}
        scope = self.scope
        if scope.only is not None:
            scope = replace(scope, only=scope.only.union(map(_name, arrived.values())))
        departing = {number: item for number, item in self.departing.items() if item.offset > offset}
        growing = {number: item for number, item in self.growing.items() if item.offset > offset}
        return replace(
            self,
            plans=plans,
            scope=scope,
            partitioning=replace(
                self.partitioning, shards=frozenset(plans), leaving=_leaving(departing), growing=_growing(growing)
            ),
            arriving={number: item for number, item in self.arriving.items() if number not in arrived},
            departing=departing,
            growing=growing,
        )

    def is_whole_at(self, offset: RelayOffset) -> bool:
        """Whether all tables that enter the stream have entered it at ``offset``."""
        return all(item.offset <= offset for item in self.arriving.values())

    @property
    def statements(self) -> TableScope:
        """The tables whose statements concern the stream, at this place or at a later one."""
        scope = self.scope
        if scope.only is None or not self.arriving:
            return scope
        return replace(scope, only=scope.only.union(_name(item.plan) for item in self.arriving.values()))

    @property
    def plans_in_order(self) -> tuple[TablePlan, ...]:
        """The plans by number."""
        return tuple(plan for _, plan in sorted(self.plans.items()))

    @property
    def recorded_plans(self) -> tuple[TablePlan, ...]:
        """The plans for the structures that are recorded, by number."""
        later = {number: item.plan for number, item in self.growing.items()}
        return tuple(plan for _, plan in sorted({**self.plans, **later}.items()))

    @property
    def timed_plans(self) -> tuple[TablePlan, ...]:
        """The plans of the tables that enter or leave the stream without a barrier."""
        return tuple(item.plan for items in (self._next_arriving, self.departing) for _, item in sorted(items.items()))

    @property
    def windows(self) -> tuple[TableWindow, ...]:
        """Where the lanes apply the rows of :attr:`timed_plans`."""
        return (
            *(TableWindow(_name(item.plan), begin=item.offset) for _, item in sorted(self._next_arriving.items())),
            *(TableWindow(_name(item.plan), end=item.offset) for _, item in sorted(self.departing.items())),
        )

    @property
    def _next_arriving(self) -> Mapping[int, TimedTable]:
        """The tables that can enter the stream before its next barrier: not those with a name that another table of the
        stream has until a statement takes it away, at a barrier."""
        if not self.arriving:
            return self.arriving
        used = set(map(_name, self.plans.values()))
        found: dict[int, TimedTable] = {}
        for number, item in sorted(self.arriving.items(), key=lambda pair: pair[1].offset):
            if _name(item.plan) not in used:
                used.add(_name(item.plan))
                found[number] = item
        return found

    def with_joined(self, other: StreamTables) -> StreamTables:
        """The tables of this stream and ``other`` after both were merged, at a place where ``other`` is whole."""
        joined = {**other.plans, **{number: item.plan for number, item in other.arriving.items()}}
        tables = list(self.tables)
        for number, plan in sorted(joined.items()):
            _put(tables, number, plan.table)
        # At this place, all its names belong to ``other`` here too, also those of tables that it has dropped.
        names = frozenset(map(_name, joined.values())) | (other.scope.only or frozenset())
        whole = replace(other.partitioning, shards=frozenset(joined))
        partitioning = merge_partitionings(self.partitioning, whole)
        named = tuple(item for item in partitioning.away if item.number not in joined and item.name not in names)
        return StreamTables(
            tuple(tables),
            {**self.plans, **joined},
            replace(partitioning, away=named),
            replace(self.scope, others=self.scope.others - names),
            departing={number: item for number, item in self.departing.items() if number not in joined},
            interrupted={**self.interrupted, **other.interrupted},
            growing=self.growing,
            away={name: number for name, number in self.away.items() if name not in names},
        )


def plans_by_number(plans: tuple[TablePlan, ...]) -> dict[int, TablePlan]:
    return {plan.shard: plan for plan in plans}


@dataclass(slots=True)
class BarrierChanges:
    """The changes that the actions of one statement make; recorded in one transaction.

    ``before``: the tables before the statement. ``numbers``: for new tables; ``taken``: those that this statement has
    taken. ``departing``: of the parked tables, those that are parked at a later statement. ``growing``: tables that get
    columns at a later statement. ``subjects``: lock names
    under which statements were begun at the target. ``rename_marks``: those of them that left a marker table there.
    ``dropped``: see worker/target/records/dropped_columns.py. ``shadow_records``: see
    worker/target/records/shadow_tables.py, None for records to delete. ``joined``: targets that have become the schema
    join of their shard tables. ``names``: how the statement changes the names of the tables that other streams have, or
    of those that this stream has if it is not the main one. ``left``: the new table that another stream creates.
    ``dropped_away``: the names of tables of other streams that the statement drops.
    """

    before: StreamTables
    numbers: TableNumbers
    taken: list[int] = field(default_factory=list[int])
    tables: dict[int, Table] = field(default_factory=dict[int, Table])
    creations: dict[int, CreateStatement] = field(default_factory=dict[int, CreateStatement])
    plans: dict[int, TablePlan] = field(default_factory=dict[int, TablePlan])
    removed: set[int] = field(default_factory=set[int])
    one_lane: dict[TargetTable, bool] = field(default_factory=dict[TargetTable, bool])
    subjects: set[str] = field(default_factory=set[str])
    parked: dict[int, Parked] = field(default_factory=dict[int, Parked])
    departing: dict[int, TimedTable] = field(default_factory=dict[int, TimedTable])
    growing: dict[int, GrowingTable] = field(default_factory=dict[int, GrowingTable])
    joined: set[TargetTable] = field(default_factory=set[TargetTable])
    rename_marks: set[str] = field(default_factory=set[str])
    dropped: dict[Member, frozenset[str]] = field(default_factory=dict[Member, frozenset[str]])
    shadow_records: dict[TableName, ShadowRecord | None] = field(default_factory=dict[TableName, ShadowRecord | None])
    names: GivenNames = NO_NAMES
    left: AwayName | None = None
    dropped_away: frozenset[TableName] = frozenset()

    def leave_table(self, name: TableName, place: StatementPlace, owner: int) -> None:
        """Leave the new table ``name``, which the statement at ``place`` creates, to the stream of table ``owner``. It
        gets its number here, and its structure when that stream creates it."""
        number = self.take_number()
        self.tables[number] = replace(self.before.tables[owner], schema=name[0], name=name[1])
        self.left = AwayName(number, *name, place, owner)

    def detach_renamed(self) -> None:
        """Remove the tables of this stream whose names belong to another stream after the statement. An operator or a
        filter has skipped their part of it. A name that no table of the main stream has taken stays another stream's:
        a table that joins may have begun after the statement."""
        gone = self.names.gained.keys() if self.before.scope.only is None else self.names.lost
        if self.before.scope.only is None and self.names.lost:
            moved = frozenset(self.names.gained.values())
            used = set(map(_name, {**self.before.plans, **self.plans}.values()))
            self.names = replace(self.names, lost=frozenset(self.names.lost & (moved | used)))
        if gone:
            plans = {**self.before.plans, **self.plans}
            self.removed.update(number for number, plan in plans.items() if _name(plan) in gone)

    def take_number(self) -> int:
        """A number for a new shard table."""
        self.taken.append(self.numbers.take())
        return self.taken[-1]

    def set_structure(self, plan: TablePlan, creation: CreateStatement) -> None:
        """Set the shard table's structure after the statement."""
        self.tables[plan.shard] = plan.table
        self.creations[plan.shard] = creation
        self.plans[plan.shard] = plan

    def set_later_structure(self, later: GrowingTable, creation: CreateStatement) -> None:
        """Set the shard table's structure after a later statement, which the lanes have not reached."""
        number = later.plan.shard
        self.tables[number] = later.plan.table
        self.creations[number] = creation
        self.growing[number] = later

    def leave_to_copy(self, statement: Statement, resume_at: SourcePosition, now: float) -> None:
        """Let the tables leave the stream whose copy ``statement`` has interrupted, unless it parks or removes them.
        ``resume_at``: the end of its group; ``now``: Unix seconds."""
        for number, item in self.before.interrupted.items():
            if item.offset <= statement.group_start and number not in self.removed and number not in self.parked:
                self.parked[number] = Parked(
                    number,
                    "",
                    statement.schema,
                    statement.sql_mode or 0,
                    is_mariadb=False,
                    session=UNKNOWN_SESSION,
                    place=StatementPlace.of(statement),
                    resume_at=resume_at,
                    since=now,
                    released=True,
                    resumes_copy=item.number,
                )

    def apply(self) -> StreamTables:
        """The subtask's tables after the statement."""
        before = self.before
        tables = list(before.tables)
        for number, table in sorted(self.tables.items()):
            _put(tables, number, table)
        away = self.removed | self.parked.keys()
        plans = {number: plan for number, plan in {**before.plans, **self.plans}.items() if number not in away}
        plans = {
            plan.shard: _in_one_lane(plan, self.one_lane)
            for plan in before.partitioning.apply_may_lack_rows(plans.values())
        }
        partitioning = replace(
            before.partitioning,
            shards=frozenset(plans),
            one_lane=frozenset(plan.target_name for plan in plans.values() if plan.one_lane),
            may_lack_rows=before.partitioning.may_lack_rows.union(
                plan.shard for plan in plans.values() if plan.may_lack_rows
            ),
        )
        waiting = {_name(self.plans.get(number) or before.plans[number]): number for number in self.parked}
        departing = {**before.departing, **self.departing}
        growing = {**before.growing, **self.growing}
        partitioning = replace(partitioning, leaving=_leaving(departing), growing=_growing(growing))
        scope, others, kept = before.scope, before.away, before.kept
        if scope.only is None:
            if waiting or self.names or self.left is not None or self.dropped_away:
                others, partitioning = self._away_after(waiting), replace(partitioning, away=self._named_after())
                made = () if self.left is None else ((self.left.schema, self.left.table),)
                scope = replace(scope, others=self.names.apply(scope.others).union(made, waiting))
        else:
            made = (_name(plan) for number, plan in self.plans.items() if number not in before.plans)
            only = self.names.apply(scope.only).union(made).difference(waiting)
            scope, kept = replace(scope, only=only), self._kept_after(only, plans)
        interrupted = {number: item for number, item in before.interrupted.items() if number not in away}
        return StreamTables(
            tuple(tables),
            plans,
            partitioning,
            scope,
            before.arriving,
            departing,
            interrupted,
            growing,
            others,
            kept,
        )

    def _away_after(self, waiting: Mapping[TableName, int]) -> dict[TableName, int]:
        """The names of the tables that other streams have, after the statement."""
        before = self.before.away
        after = {name: number for name, number in before.items() if name not in self.names.lost}
        for name, origin in self.names.gained.items():
            number = before.get(origin, before.get(name))
            if number is not None:  # a shadow table has none, and takes the name of its table
                after[name] = number
        if self.left is not None:
            after[self.left.schema, self.left.table] = self.left.number
        return {**after, **waiting}

    def _named_after(self) -> tuple[AwayName, ...]:
        """The records of these names."""
        before, after = self.before.away, self._away_after({})
        found = {item.number: item for item in self.before.partitioning.away}
        if self.left is not None:
            found[self.left.number] = self.left
        names = {number: name for name, number in after.items() if before.get(name) != number}
        moved = {number for name, number in before.items() if after.get(name) != number} | names.keys()
        for number in moved:
            item = found.get(number, AwayName(number, "", ""))
            schema, table = names.get(number, ("", ""))
            found[number] = replace(item, schema=schema, table=table, dropped=False)
        for name in self.names.gained:
            if after.get(name) in found:
                found[after[name]] = replace(found[after[name]], dropped=False)
        for name in self.dropped_away:
            item = found.get(after[name], AwayName(after[name], *name))
            found[item.number] = replace(item, dropped=True)
        return tuple(item for _, item in sorted(found.items()) if item.number not in self.parked)

    def _kept_after(self, only: frozenset[TableName], plans: Mapping[int, TablePlan]) -> dict[TableName, int]:
        """The names of the tables that were dropped in this stream."""
        before = self.before
        kept = {**before.kept, **{_name(before.plans[at]): at for at in self.removed if at in before.plans}}
        if not kept:
            return kept
        used = frozenset(map(_name, plans.values()))
        return {name: number for name, number in kept.items() if name in only and name not in used}


def _put(tables: list[Table], number: int, table: Table) -> None:
    """Numbers in between are those of tables that another stream has created: nothing looks them up here."""
    tables.extend([table] * (number + 1 - len(tables)))
    tables[number] = table


def _leaving(departing: Mapping[int, TimedTable]) -> tuple[Leaving, ...]:
    return tuple(Leaving(number, item.place, item.plan.one_lane) for number, item in sorted(departing.items()))


def _growing(growing: Mapping[int, GrowingTable]) -> tuple[Growing, ...]:
    return tuple(item.record for _, item in sorted(growing.items()))


def _in_one_lane(plan: TablePlan, one_lane: Mapping[TargetTable, bool]) -> TablePlan:
    """The same object where nothing changes: thousands of plans stay as they are."""
    wanted = one_lane.get(plan.target, plan.one_lane) if one_lane else plan.one_lane
    return plan if wanted == plan.one_lane else replace(plan, one_lane=wanted)


def _name(plan: TablePlan) -> TableName:
    return plan.table.schema, plan.table.name

"""A stream's tables at a barrier, and the changes that one statement makes to the subtask's records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.rules.table_window import TableWindow
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.dropped_columns import Member
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import Leaving, Partitioning, merge_partitionings
from shardmerge.worker.target.records.shadow_tables import ShadowRecord


@dataclass(frozen=True, slots=True)
class TimedTable:
    """A table that enters or leaves a stream without a barrier: at group end ``offset``, where the statement at
    ``place`` ends."""

    plan: TablePlan
    offset: RelayOffset
    place: StatementPlace


@dataclass(frozen=True, slots=True)
class StreamTables:
    """A subtask's tables at a position of a stream. ``tables``: by number, including former ones. ``plans``: of those
    that take part in the stream, by number. ``partitioning``: of their rows. ``scope``: the tables whose rows the
    stream applies. ``arriving``: tables that enter the stream at a later place, after the statement at which they were
    parked. ``departing``: tables that are parked at a later place of the stream, whose rows it applies up to there."""

    tables: tuple[Table, ...]
    plans: Mapping[int, TablePlan]
    partitioning: Partitioning
    scope: TableScope
    arriving: Mapping[int, TimedTable] = field(default_factory=dict[int, TimedTable])
    departing: Mapping[int, TimedTable] = field(default_factory=dict[int, TimedTable])

    def at_barrier(self, offset: RelayOffset) -> StreamTables:
        """The tables at a barrier at ``offset``: every lane has reached it, and no lane is beyond it."""
        if not self.arriving and not self.departing:
            return self
        arrived = {number: item.plan for number, item in self.arriving.items() if item.offset <= offset}
        plans = {**self.plans, **arrived}
        scope = self.scope
        if scope.only is not None:
            scope = replace(scope, only=scope.only.union(map(_name, arrived.values())))
        departing = {number: item for number, item in self.departing.items() if item.offset > offset}
        return replace(
            self,
            plans=plans,
            scope=scope,
            partitioning=replace(self.partitioning, shards=frozenset(plans), leaving=_leaving(departing)),
            arriving={number: item for number, item in self.arriving.items() if number not in arrived},
            departing=departing,
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
    def timed_plans(self) -> tuple[TablePlan, ...]:
        """The plans of the tables that enter or leave the stream without a barrier."""
        return tuple(item.plan for items in (self.arriving, self.departing) for _, item in sorted(items.items()))

    @property
    def windows(self) -> tuple[TableWindow, ...]:
        """Where the lanes apply the rows of :attr:`timed_plans`."""
        return (
            *(TableWindow(_name(item.plan), begin=item.offset) for _, item in sorted(self.arriving.items())),
            *(TableWindow(_name(item.plan), end=item.offset) for _, item in sorted(self.departing.items())),
        )

    def with_joined(self, other: StreamTables) -> StreamTables:
        """The tables of this stream and ``other`` after both were merged, at a place where ``other`` is whole."""
        joined = {**other.plans, **{number: item.plan for number, item in other.arriving.items()}}
        tables = list(self.tables)
        for number, plan in joined.items():
            tables[number] = plan.table
        names = frozenset(map(_name, joined.values()))
        whole = replace(other.partitioning, shards=frozenset(joined))
        return StreamTables(
            tuple(tables),
            {**self.plans, **joined},
            merge_partitionings(self.partitioning, whole),
            replace(self.scope, others=self.scope.others - names),
            departing={number: item for number, item in self.departing.items() if number not in joined},
        )


def plans_by_number(plans: tuple[TablePlan, ...]) -> dict[int, TablePlan]:
    return {plan.shard: plan for plan in plans}


@dataclass(slots=True)
class BarrierChanges:
    """The changes that the actions of one statement make; recorded in one transaction. ``before``: the tables before
    the statement. ``departing``: of the parked tables, those that are parked at a later statement. ``subjects``: lock
    names under which statements were begun at the target. ``rename_marks``: those of them that left a marker table
    there. ``dropped``: see worker/target/records/dropped_columns.py. ``shadow_records``: see
    worker/target/records/shadow_tables.py, None for records to delete. ``joined``: targets that have become the schema
    join of their shard tables."""

    before: StreamTables
    tables: dict[int, Table] = field(default_factory=dict[int, Table])
    creations: dict[int, CreateStatement] = field(default_factory=dict[int, CreateStatement])
    plans: dict[int, TablePlan] = field(default_factory=dict[int, TablePlan])
    removed: set[int] = field(default_factory=set[int])
    one_lane: dict[TargetTable, bool] = field(default_factory=dict[TargetTable, bool])
    subjects: set[str] = field(default_factory=set[str])
    parked: dict[int, Parked] = field(default_factory=dict[int, Parked])
    departing: dict[int, TimedTable] = field(default_factory=dict[int, TimedTable])
    joined: set[TargetTable] = field(default_factory=set[TargetTable])
    rename_marks: set[str] = field(default_factory=set[str])
    dropped: dict[Member, frozenset[str]] = field(default_factory=dict[Member, frozenset[str]])
    shadow_records: dict[TableName, ShadowRecord | None] = field(default_factory=dict[TableName, ShadowRecord | None])

    @property
    def next_number(self) -> int:
        return len(self.before.tables) + sum(number >= len(self.before.tables) for number in self.tables)

    def set_structure(self, plan: TablePlan, creation: CreateStatement) -> None:
        """Set the shard table's structure after the statement."""
        self.tables[plan.shard] = plan.table
        self.creations[plan.shard] = creation
        self.plans[plan.shard] = plan

    def apply(self) -> StreamTables:
        """The subtask's tables after the statement."""
        before = self.before
        tables = list(before.tables)
        for number, table in sorted(self.tables.items()):
            tables[number : number + 1] = [table]
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
        waiting = frozenset(_name(before.plans[number]) for number in self.parked)
        scope = before.scope
        if scope.only is None:
            scope = replace(scope, others=scope.others | waiting)
        else:
            scope = replace(scope, only=scope.only - waiting)
        departing = {**before.departing, **self.departing}
        partitioning = replace(partitioning, leaving=_leaving(departing))
        return StreamTables(tuple(tables), plans, partitioning, scope, before.arriving, departing)


def _leaving(departing: Mapping[int, TimedTable]) -> tuple[Leaving, ...]:
    return tuple(Leaving(number, item.place, item.plan.one_lane) for number, item in sorted(departing.items()))


def _in_one_lane(plan: TablePlan, one_lane: Mapping[TargetTable, bool]) -> TablePlan:
    """The same object where nothing changes: thousands of plans stay as they are."""
    wanted = one_lane.get(plan.target, plan.one_lane) if one_lane else plan.one_lane
    return plan if wanted == plan.one_lane else replace(plan, one_lane=wanted)


def _name(plan: TablePlan) -> TableName:
    return plan.table.schema, plan.table.name

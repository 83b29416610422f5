"""What a stream has come to at a barrier, and what becomes of its subtask's records behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from worker.ddl.creation import Creation
from worker.ddl.dropped import Member
from worker.ddl.online.records import Seen
from worker.ddl.parked import Parked
from worker.ddl.tables import TableName, TableScope
from worker.plan import TablePlan, TargetTable
from worker.replicate.dealing import Dealing, merged
from worker.table import Table


@dataclass(frozen=True, slots=True)
class TablesStanding:
    """A subtask's tables at a place of a stream. ``tables``: by number, those of the past too. ``plans``: of those
    that take part in the stream, by number. ``dealing``: how their rows are dealt. ``scope``: whose rows are the
    stream's affair. ``entering``: the tables that come in at a statement of theirs, which is the stream's too."""

    tables: tuple[Table, ...]
    plans: Mapping[int, TablePlan]
    dealing: Dealing
    scope: TableScope
    entering: frozenset[TableName] = frozenset()

    @property
    def statements(self) -> TableScope:
        """Whose statements are the stream's affair."""
        scope = self.scope
        return scope if scope.only is None else replace(scope, only=scope.only | self.entering)

    @property
    def in_order(self) -> tuple[TablePlan, ...]:
        """The plans by number."""
        return tuple(plan for _, plan in sorted(self.plans.items()))

    def with_joined(self, other: TablesStanding) -> TablesStanding:
        """This stream's tables and those of ``other``, once both are one."""
        tables = list(self.tables)
        for number, plan in other.plans.items():
            tables[number] = plan.table
        names = frozenset((plan.table.schema, plan.table.name) for plan in other.plans.values())
        return TablesStanding(
            tuple(tables),
            {**self.plans, **other.plans},
            merged(self.dealing, other.dealing),
            replace(self.scope, others=self.scope.others - names),
        )


def plans_by_number(plans: tuple[TablePlan, ...]) -> dict[int, TablePlan]:
    return {plan.shard: plan for plan in plans}


@dataclass(slots=True)
class Passing:
    """What the actions of one statement have led to so far; recorded all at once. ``subjects``: under which statements
    were begun at the target; ``marked``: those of them that have left a mark there; ``dropped``: see
    worker/ddl/dropped.py; ``online``: see worker/ddl/online/records.py, None for records that go."""

    standing: TablesStanding
    tables: dict[int, Table] = field(default_factory=dict[int, Table])
    creations: dict[int, Creation] = field(default_factory=dict[int, Creation])
    plans: dict[int, TablePlan] = field(default_factory=dict[int, TablePlan])
    gone: set[int] = field(default_factory=set[int])
    one_lane: dict[TargetTable, bool] = field(default_factory=dict[TargetTable, bool])
    subjects: set[str] = field(default_factory=set[str])
    parked: dict[int, Parked] = field(default_factory=dict[int, Parked])
    entered: list[TablePlan] = field(default_factory=list[TablePlan])
    marked: set[str] = field(default_factory=set[str])
    dropped: dict[Member, frozenset[str]] = field(default_factory=dict[Member, frozenset[str]])
    online: dict[TableName, Seen | None] = field(default_factory=dict[TableName, Seen | None])

    @property
    def next_number(self) -> int:
        return len(self.standing.tables) + sum(number >= len(self.standing.tables) for number in self.tables)

    def enter(self, plan: TablePlan) -> None:
        """A table that the stream has not had comes in here, as it is recorded."""
        self.plans[plan.shard] = plan
        self.entered.append(plan)

    def put(self, plan: TablePlan, creation: Creation) -> None:
        """The shard table is as ``plan`` says from here on."""
        self.tables[plan.shard] = plan.table
        self.creations[plan.shard] = creation
        self.plans[plan.shard] = plan

    def result(self) -> TablesStanding:
        """The subtask's tables behind the statement."""
        before = self.standing
        tables = list(before.tables)
        for number, table in sorted(self.tables.items()):
            tables[number : number + 1] = [table]
        away = self.gone | self.parked.keys()
        plans = {number: plan for number, plan in {**before.plans, **self.plans}.items() if number not in away}
        plans = {
            plan.shard: replace(plan, one_lane=self.one_lane.get(plan.target, plan.one_lane))
            for plan in before.dealing.still_loose(plans.values())
        }
        dealing = replace(
            before.dealing,
            shards=frozenset(plans),
            one_lane=frozenset(plan.target_name for plan in plans.values() if plan.one_lane),
            loose=before.dealing.loose.union(plan.shard for plan in plans.values() if plan.loose),
        )
        waiting = frozenset(_name(before.plans[number]) for number in self.parked)
        coming = frozenset(map(_name, self.entered))
        scope = before.scope
        if scope.only is None:
            scope = replace(scope, others=scope.others | waiting)
        else:
            scope = replace(scope, only=scope.only - waiting | coming)
        return TablesStanding(tuple(tables), plans, dealing, scope, before.entering - coming)


def _name(plan: TablePlan) -> TableName:
    return plan.table.schema, plan.table.name

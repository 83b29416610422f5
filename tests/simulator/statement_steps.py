"""Computes what a statement makes of a simulated stream's tables, like the program's StatementDriver.act."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from shardmerge.worker.core.table_numbers import TableNumbers
from shardmerge.worker.ddl.decide.actions import Alter, Create, DdlContext, Drop, Rename, Truncate, actions_of
from shardmerge.worker.ddl.decide.given_names import dropped_elsewhere, given_names, left_to_others, reserved_number
from shardmerge.worker.ddl.decide.routed_statements import RoutedScope
from shardmerge.worker.ddl.decide.statement_changes import NameChanges, StatementChanges
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import Leaving
from shardmerge.worker.ddl.sql.statement import AlterTable, CreateTable
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.parked_tables import Parked
from tests.simulator.source_log import FIRST, RULES, Columns, DdlEvent, Event, Structure, columns_of, creation_of
from tests.simulator.worker_state import Durable, StreamState, plan_of

Park = Callable[[DdlEvent, int], Parked]
"""Makes the record of a table, by its number, that is parked at an event."""


class StatementSteps:
    """The changes of the statement ``event`` to a stream's tables ``state`` at the barrier before it.

    ``removed``: the tables whose rows it removes. ``must_wait``: why it cannot be executed now; "" if it can.
    """

    def __init__(self, durable: Durable, state: StreamState, event: DdlEvent, target: Columns, park: Park) -> None:
        self.event, self._source, self._park = event, state.source, park
        self.before = state.tables.at_barrier(event.statement.group_start)
        self.changes = StatementChanges(self.before, TableNumbers(len(durable.tables)))
        self.removed: set[int] = set()
        self.must_wait = ""
        self._target = target
        if RoutedScope(self.before.scope, with_shadow_tables=True)(event.statement):
            context = StreamState(state.source, self.before).context
            self._act(replace(context, reserved_number=lambda: self._reserved_number(durable)))
        self.changes.detach_renamed()

    @property
    def needs_main(self) -> bool:
        """Whether the main stream has to execute the statement first: it decides which stream has the names."""
        return not self.before.is_main and (bool(self.changes.names) or isinstance(self.event.ddl, CreateTable))

    def park_ahead(self, log: Sequence[Event]) -> Iterator[Statement]:
        """Park tables at the following statements (worker/ddl/park_ahead.py), one after the other; generate these."""
        shards = StreamState(self._source, self.before).context.shards
        for event in log[self.event.statement.group_end.byte :] if self.changes.parked else ():
            if not isinstance(event, DdlEvent):
                continue
            parked = frozenset(change.name for change in self.changes.parked.values())
            scope = replace(self.before.scope, others=self.before.scope.others | parked)
            statement = event.statement
            if not RoutedScope(scope, with_shadow_tables=True)(statement):
                continue
            shard = shards.get(event.ddl.table.name) if isinstance(event.ddl, AlterTable) else None
            if shard is None or shard.number in self.changes.tables:
                return
            self.changes.park(self._park(event, shard.number))
            leaving = Leaving(shard.plan, statement.group_end, StatementPlace.of(statement))
            self.changes.park_later(self.changes.parked[shard.number], leaving)
            yield statement

    # --- parts

    def _act(self, context: DdlContext) -> None:
        ddl, changes = self.event.ddl, self.changes
        self._follow_names(context)
        for action in actions_of(ddl, self.event.statement, context):
            match action:
                case Alter(shard=shard):
                    changes.park(self._park(self.event, shard.number))
                case Drop(shard=shard):
                    self.removed.add(shard.number)
                    changes.remove(shard.number)
                case Truncate(shard=shard):
                    self.removed.add(shard.number)
                case Create():
                    self._create(action, context)
                case Rename(moves=moves):
                    for shard, (_, name) in moves:
                        columns = columns_of(shard.plan.table)
                        plan = plan_of(self._source, shard.number, Structure(name, columns))
                        changes.change(plan, creation_of(columns))

    def _create(self, action: Create, context: DdlContext) -> None:
        columns = FIRST
        if action.ddl.like is not None:
            like = context.find(action.ddl.like)
            assert like is not None, "a stream creates tables like its own only"
            columns = columns_of(like.plan.table)
        if not set(columns) <= set(self._target):
            self.must_wait = f"the target lacks columns of {action.name}"
        number = self.changes.take_number() if action.number is None else action.number
        self.changes.change(plan_of(self._source, number, Structure(action.name[1], columns)), creation_of(columns))

    def _follow_names(self, context: DdlContext) -> None:
        """Do as StatementDriver._follow_names."""
        ddl, before, scope = self.event.ddl, self.before, self.before.scope

        def owned(name: TableName) -> TableName | None:
            at = scope.owned_name(*name)
            return at if scope.only is not None else name if at is None else None

        names = NameChanges(given_names(ddl, owned, lambda name: RULES.route(*name) is not None))
        if before.is_main:
            dropped = {item.number for item in before.partitioning.away if item.dropped}
            left = left_to_others(
                ddl, before.names_elsewhere, dropped, RULES, lambda name: context.find(name) is not None
            )
            self.changes.names = replace(names, dropped=dropped_elsewhere(ddl, before.names_elsewhere))
            if left is not None:
                self.changes.leave_table(left[0], StatementPlace.of(self.event.statement), left[1])
        else:
            self.changes.names = names

    def _reserved_number(self, durable: Durable) -> int | None:
        before: StreamTables = self.before
        if before.is_main:
            return None
        numbers = frozenset((*before.plans, *before.dropped.values()))
        return reserved_number(StatementPlace.of(self.event.statement), durable.dealing.away, numbers)

"""Parks shard tables at statements of the relay log that the lanes have not reached yet.

    lanes wait at a statement ── its table is parked ── so are those at the statements that follow ── one transaction

A migration alters one shard table after the other. If the lanes stopped at each of these statements, a thousand of them
would take a thousand barriers. So at the first one, the following ones that only park one further table each are
recorded with it. Their tables' rows are still applied up to the places where the tables are parked: the lanes know the
places (worker/rules/table_window.py). The lock agent regards a table as parked once all lanes have committed everything
up to there (I6).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session, server_info
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.ddl.decide.actions import Alter, DdlContext, ShardTarget
from shardmerge.worker.ddl.decide.barrier_state import BarrierChanges, TimedTable
from shardmerge.worker.ddl.decide.copied_tables import CopiedUntil
from shardmerge.worker.ddl.decide.ddl_context import read_ddl_context
from shardmerge.worker.ddl.decide.ddl_filter import FilteredActions, FilteredStatement
from shardmerge.worker.ddl.decide.operator_override import Ops
from shardmerge.worker.ddl.decide.routed_statements import RoutedScope, short_text
from shardmerge.worker.ddl.decide.statement_reader import override_for, read_statement
from shardmerge.worker.ddl.execute.executor import StatementExecutor
from shardmerge.worker.ddl.execute.source_session import SourceSessions
from shardmerge.worker.ddl.execute.statement_context import StatementContext
from shardmerge.worker.ddl.execute.structure_check import StatementStructures
from shardmerge.worker.ddl.online.classify import OnlineContext, classify
from shardmerge.worker.ddl.sql.dialect import Dialect
from shardmerge.worker.ddl.sql.statement import Ddl
from shardmerge.worker.ddl.sql.target_statement import Changing
from shardmerge.worker.ddl.structure.parked_definitions import ParkedDefinitions
from shardmerge.worker.ddl.structure.schema_tracker import SchemaTracker, open_tracker
from shardmerge.worker.ddl.structure.structure_after import StructureMemo
from shardmerge.worker.ddl.structure.structure_digest import CanonicalCreates
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.relay.serve.query_event import LoggedQuery
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.members.member_cache import TaskMembers
from shardmerge.worker.target.quarantine import held_store as quarantine
from shardmerge.worker.target.records import shadow_tables as online_records
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.shadow_tables import ShadowRecord
from shardmerge.worker.target.tables.target_table import find_fallback_collations
from shardmerge.worker.unit.run_context import RunContext

log = get_logger()

_SECONDS = 0.25
"""For so long the lanes wait in addition: rows of other tables wait with them."""

MayExecute = Callable[[RelayOffset], bool]
"""Whether a statement that ends at a group end may be executed before the lanes reach it."""


@dataclass(frozen=True, slots=True)
class _Around:
    """What does not change while the following statements are looked at."""

    session: Session
    changes: BarrierChanges
    scene: DdlContext
    shadow_tables: dict[TableName, ShadowRecord]
    members: TaskMembers
    tracker: SchemaTracker
    dialect: Callable[[LoggedQuery], Dialect]
    sources: SourceSessions
    stop: StopSignal


@dataclass(frozen=True, slots=True)
class ParkAhead:
    """For the main stream of one run of a subtask under ``shard-mode: pessimistic``."""

    context: RunContext
    ops: Ops
    copied_until: CopiedUntil
    memo: StructureMemo
    canonical: CanonicalCreates
    parked_definitions: ParkedDefinitions
    on_wait: Callable[[str], None]

    def park(
        self, first: Statement, session: Session, changes: BarrierChanges, may_execute: MayExecute, stop: StopSignal
    ) -> Statement:
        """Add to ``changes`` the tables that are parked at the statements after ``first``; returns the last of these
        statements, ``first`` if there are none. The first statement at which anything else is to be done, or which must
        not be executed, ends this: the lanes will stop at it.

        Raises FENCED, coded errors of the source and the target, ``pymysql.MySQLError``.
        """
        context, last = self.context, first
        following = self._following(first, changes, may_execute)
        statement = next(following, None)
        # Held rows have the structure before a statement.
        if statement is None or quarantine.count_keys(session, context.who):
            return last
        with ExitStack() as sessions:
            around = self._around(session, changes, sessions, stop)
            ends_at = time.monotonic() + _SECONDS
            while statement is not None and not stop.is_set and time.monotonic() < ends_at:
                try:
                    parked = self._park(statement, around)
                except ShardmergeError as error:
                    if error.spec.retryable:
                        raise
                    break  # it is raised again when the lanes have reached the statement
                if parked is None:
                    break
                changes.departing[parked.number] = TimedTable(
                    parked.plan, statement.group_end, StatementPlace.of(statement)
                )
                last = statement
                log.info(
                    "a shard table is parked at a following statement",
                    task=context.who[1],
                    source=context.who[2],
                    table=parked.plan.table.full_name,
                    position=str(statement.position),
                    statement=short_text(statement),
                )
                statement = next(following, None)
        return last

    # --- parts

    def _following(self, first: Statement, changes: BarrierChanges, may_execute: MayExecute) -> Iterator[Statement]:
        """The statements after ``first`` at which the lanes would stop, as ``changes`` parks further tables."""
        before = changes.before
        for statement in self.context.relay.statements_from(first.group_end):
            if not may_execute(statement.group_end):
                return
            names = {number: before.plans[number].table for number in changes.parked}
            parked = frozenset((table.schema, table.name) for table in names.values())
            scope = replace(before.scope, others=before.scope.others | parked)
            try:
                concerns = RoutedScope(scope, with_shadow_tables=True)(statement)
            except ShardmergeError:
                return  # it is raised again when the lanes have reached the statement
            if concerns:
                yield statement

    def _around(self, session: Session, changes: BarrierChanges, sessions: ExitStack, stop: StopSignal) -> _Around:
        context, who = self.context, self.context.who
        is_mariadb = server_info(session).is_mariadb

        def dialect(queried: LoggedQuery) -> Dialect:
            return Dialect(queried.is_mariadb, is_mariadb, lambda names: find_fallback_collations(session, names))

        return _Around(
            session,
            changes,
            read_ddl_context(context, changes.before, session, stop, waits=True),
            dict(online_records.read(session, *who)) if context.rules.online.is_on else {},
            context.members.read(session),
            open_tracker(session, who, "ahead", context.epoch),
            dialect,
            SourceSessions(context, sessions, stop),
            stop,
        )

    def _park(self, statement: Statement, around: _Around) -> ShardTarget | None:
        """Park the statement's table; None: something else is to be done at this statement."""
        context, changes = self.context, around.changes
        if override_for(context, self.ops, statement) is not None:
            return None
        queried = context.relay.read_query_event(statement)
        statement, ddl = read_statement(context, statement, queried, None)
        shard = self._altered(statement, ddl, around) if queried.event.is_text else None
        if shard is None or ddl is None:
            return None
        given = around.sources.find(statement, ddl, queried, (shard.plan,))
        statement_context = StatementContext(
            context, statement, ddl, given, around.session, changes, around.stop, self.on_wait, frozenset()
        )
        mine = around.members.sources.get(context.who[2])
        dialect = around.dialect(queried)
        structures = StatementStructures(
            statement_context, around.tracker, dialect, self.memo, mine.creations if mine is not None else {}
        )
        executor = StatementExecutor(statement_context, structures, dialect, self.canonical, self.parked_definitions)
        executor.park(Alter(shard), is_mariadb=queried.is_mariadb, members=around.members)
        return shard if shard.number in changes.parked else None

    def _altered(self, statement: Statement, ddl: Ddl | None, around: _Around) -> ShardTarget | None:
        """The one table that the statement alters, under exactly its name; None: the statement is of another kind."""
        if not isinstance(ddl, Changing):
            return None
        rules, changes, scene = self.context.rules, around.changes, around.scene
        shard = scene.shards.get((ddl.table.schema, ddl.table.table))
        if shard is None or shard.number in changes.parked:
            return None
        if (until := self.copied_until.get(shard.number)) is not None and statement.offset < until:
            return None
        if rules.online.is_on:
            course = OnlineContext(rules.online, around.shadow_tables, changes.before.scope.holds, scene)
            if not classify(ddl, course).is_empty:
                return None
        try:
            found = FilteredStatement(rules.events, ddl, statement, scene, _undecided).filter()
        except _UndecidedError:
            return None
        return shard if found == FilteredActions((Alter(shard),)) else None


class _UndecidedError(Exception):
    """An event filter depends on the table's structure after the statement."""


def _undecided(shard: ShardTarget) -> tuple[CreateStatement, CreateStatement | None]:
    raise _UndecidedError(shard.name)

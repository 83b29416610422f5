"""Reads the statements that follow the one at which the lanes of a stream wait.

A migration alters one shard table after the other. If the lanes stopped at each of these statements, a thousand of them
would take a thousand barriers. So at the first one, the following ones that each alter one further table in the same
way are executed with it (park_ahead.py, join_ahead.py), and recorded in one transaction. The lanes know the places of
the statements, and do not stop there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, dialect_of
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.sql.foreign_keys import added_foreign_keys, adds_cascade
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.ddl.decide.actions import Alter, DdlContext, ShardTarget
from shardmerge.worker.ddl.decide.copied_tables import CopiedUntil
from shardmerge.worker.ddl.decide.ddl_context import read_ddl_context
from shardmerge.worker.ddl.decide.ddl_filter import FilteredActions, FilteredStatement
from shardmerge.worker.ddl.decide.operator_override import Ops
from shardmerge.worker.ddl.decide.routed_statements import RoutedScope
from shardmerge.worker.ddl.decide.statement_changes import StatementChanges
from shardmerge.worker.ddl.decide.statement_reader import override_for, read_statement
from shardmerge.worker.ddl.execute.executor import StatementExecutor
from shardmerge.worker.ddl.execute.source_session import SourceSessions
from shardmerge.worker.ddl.execute.statement_context import StatementContext
from shardmerge.worker.ddl.execute.structure_check import StatementStructures
from shardmerge.worker.ddl.online.classify import OnlineContext, classify
from shardmerge.worker.ddl.session.schema_defaults import SchemaDefaults
from shardmerge.worker.ddl.sql.dialect import Dialect
from shardmerge.worker.ddl.sql.target_statement import Changing, replaced_dates
from shardmerge.worker.ddl.structure.parked_definitions import ParkedDefinitions
from shardmerge.worker.ddl.structure.schema_tracker import SchemaTracker, open_tracker
from shardmerge.worker.ddl.structure.source_structure import SourceStructures
from shardmerge.worker.ddl.structure.structure_after import StructureMemo
from shardmerge.worker.ddl.structure.structure_digest import CanonicalCreates
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.relay.serve.query_event import LoggedQuery
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.members.member_cache import TaskMembers
from shardmerge.worker.target.quarantine import held_store as quarantine
from shardmerge.worker.target.records import shadow_tables as online_records
from shardmerge.worker.target.records.shadow_tables import ShadowRecord
from shardmerge.worker.target.tables.target_table import find_fallback_collations
from shardmerge.worker.unit.run_context import RunContext

SECONDS = 0.25
"""For so long the lanes wait in addition: rows of other tables wait with them."""

LONGEST_SECONDS = 2.0
"""The most that they wait in addition where the first statement took longer than :data:`SECONDS`."""

MayExecute = Callable[[RelayOffset], bool]
"""Whether a statement that ends at a group end may be executed before the lanes reach it."""


@dataclass(frozen=True, slots=True)
class KnownStructures:
    """What a stream's driver keeps of structures between statements."""

    memo: StructureMemo = field(default_factory=StructureMemo)
    canonical: CanonicalCreates = field(default_factory=CanonicalCreates)
    schemas: SchemaDefaults = field(default_factory=SchemaDefaults)
    sources: SourceStructures = field(default_factory=SourceStructures)
    parked: ParkedDefinitions = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parked", ParkedDefinitions(self.memo))


@dataclass(frozen=True, slots=True)
class FollowingAlter:
    """A statement that the lanes have not reached and that alters one of the stream's tables, under exactly its name.
    ``executor``: executes it; ``is_mariadb``: the source."""

    statement: Statement
    ddl: Changing
    shard: ShardTarget
    executor: StatementExecutor
    is_mariadb: bool


@dataclass(frozen=True, slots=True)
class Around:
    """What does not change while the following statements are looked at."""

    session: Session
    changes: StatementChanges
    scene: DdlContext
    shadow_tables: dict[TableName, ShadowRecord]
    members: TaskMembers
    tracker: SchemaTracker
    dialect: Callable[[LoggedQuery], Dialect]
    sources: SourceSessions
    stop: StopSignal

    def recorded(self, source: str) -> Mapping[int, CreateStatement]:
        """The recorded CREATE TABLEs of the source's shard tables, by number."""
        mine = self.members.sources.get(source)
        return mine.creations if mine is not None else {}


@dataclass(frozen=True, slots=True)
class FollowingStatements:
    """For one stream of a run of a subtask, or for the tables between two streams. ``on_wait``: called with what a
    statement waits for. ``asker``: see :func:`open_tracker`."""

    context: RunContext
    ops: Ops
    copied_until: CopiedUntil
    known: KnownStructures
    on_wait: Callable[[str], None]
    asker: str = "ahead"

    def execute(
        self,
        first: Statement,
        session: Session,
        changes: StatementChanges,
        may_execute: MayExecute,
        stop: StopSignal,
        begin: Callable[[Around], Callable[[FollowingAlter], bool] | None],
        began: float,
    ) -> Statement:
        """Execute the statements after ``first`` until one at which anything else is to be done, or which must not be
        executed; returns the last executed one, ``first`` if there are none. The lanes will stop at the next.

        ``began``: when the lanes began to wait (``time.monotonic``). With thousands of shard tables a barrier takes
        seconds however few statements it executes, so the following ones get as long as the first one took. ``begin``:
        called once if there is a following statement; returns the function that executes one statement and
        returns whether it did, None if none can be executed. Raises FENCED, coded errors of the source and the target,
        ``pymysql.MySQLError``.
        """
        last = first
        following = self._following(first, changes, may_execute)
        statement = next(following, None)
        # Held rows have the structure before a statement.
        if statement is None or quarantine.count_keys(session, self.context.who):
            return last
        with ExitStack() as sessions:
            around = self.around(session, changes, sessions, stop)
            execute = begin(around)
            now = time.monotonic()
            ends_at = now + min(max(SECONDS, now - began), LONGEST_SECONDS)
            while execute is not None and statement is not None and not stop.is_set and time.monotonic() < ends_at:
                try:
                    found = self.alter(statement, around)
                    if found is None or not execute(found):
                        break
                except ShardmergeError as error:
                    if error.spec.retryable:
                        raise
                    break  # it is raised again when the lanes have reached the statement
                last, statement = statement, next(following, None)
        return last

    def around(self, session: Session, changes: StatementChanges, sessions: ExitStack, stop: StopSignal) -> Around:
        """``sessions``: closes sessions at the source. Raises coded errors and ``pymysql.MySQLError``."""
        context, who = self.context, self.context.who
        target = dialect_of(session)

        def dialect(queried: LoggedQuery) -> Dialect:
            return Dialect(queried.is_mariadb, target, lambda names: find_fallback_collations(session, names))

        return Around(
            session,
            changes,
            read_ddl_context(context, changes.before, session, stop, waits=True),
            dict(online_records.read(session, who)) if context.rules.online.is_on else {},
            context.members.read(session),
            open_tracker(session, who, self.asker, context.epoch),
            dialect,
            SourceSessions(context, sessions, stop),
            stop,
        )

    def alter(self, statement: Statement, around: Around) -> FollowingAlter | None:
        """None: the statement is of another kind. Raises coded errors and ``pymysql.MySQLError``."""
        context, changes = self.context, around.changes
        if override_for(context, self.ops, statement) is not None:
            return None
        queried = context.relay.read_query_event(statement)
        statement, ddl = read_statement(context, statement, queried, None, around.stop)
        if not isinstance(ddl, Changing) or not queried.event.is_text:
            return None
        mode = statement.sql_mode or 0
        if adds_cascade(statement.text, mode) or added_foreign_keys(statement.text, mode):
            return None  # whether the key is allowed is decided where the lanes have reached the statement
        shard = self._altered(statement, ddl, around)
        if shard is None or (shard.plan.table.has_dates and replaced_dates(statement, ddl)):
            return None
        given = around.sources.find(statement, ddl, queried, (shard.plan,), dialect_of(around.session))
        statement_context = StatementContext(
            context, statement, ddl, given, around.session, changes, around.stop, self.on_wait, frozenset()
        )
        dialect = around.dialect(queried)
        structures = StatementStructures(
            statement_context,
            around.tracker,
            dialect,
            self.known.memo,
            self.known.schemas,
            self.known.sources,
            around.recorded(context.who.source),
        )
        no_locks = ExitStack()  # an ALTER that follows is only parked
        known = (self.known.canonical, self.known.parked)
        executor = StatementExecutor(statement_context, structures, dialect, *known, no_locks)
        return FollowingAlter(statement, ddl, shard, executor, queried.is_mariadb)

    # --- parts

    def _following(self, first: Statement, changes: StatementChanges, may_execute: MayExecute) -> Iterator[Statement]:
        """The statements after ``first`` at which the lanes would stop, as ``changes`` parks further tables."""
        before = changes.before
        for statement in self.context.relay.statements_from(first.group_end):
            if not may_execute(statement.group_end):
                return
            parked = frozenset(change.name for change in changes.parked.values())
            scope = replace(before.scope, others=before.scope.others | parked)
            try:
                concerns = RoutedScope(scope, with_shadow_tables=True)(statement)
            except ShardmergeError:
                return  # it is raised again when the lanes have reached the statement
            if concerns:
                yield statement

    def _altered(self, statement: Statement, ddl: Changing, around: Around) -> ShardTarget | None:
        """The one table that the statement alters, under exactly its name; None: the statement is of another kind."""
        rules, changes, scene = self.context.rules, around.changes, around.scene
        shard = scene.shards.get((ddl.table.schema, ddl.table.table))
        if shard is None or shard.number in changes.tables:
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

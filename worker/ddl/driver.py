"""Handles a DDL statement while all lanes of a stream have stopped at the barrier before it.

    actions (pure) ── execute, table by table ── one transaction: structures, partitioning, "executed" ── lanes resume

After a kill, another process may repeat every step before the transaction from its beginning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import MappingProxyType

from shardmerge.proto import config_pb2, errors, failpoints
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.cascades import CascadeKeys
from shardmerge.worker.core.mysql.cancellable_session import cancellable_session
from shardmerge.worker.core.mysql.connection import Session, Side, dialect_of
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.sql.foreign_keys import added_foreign_keys, adds_cascade
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.stored_override import StoredOverride
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.decide.actions import Action, Alter, DdlContext, ShardTarget, removed_by, shard_numbers
from shardmerge.worker.ddl.decide.cascade_guard import changes_cascades
from shardmerge.worker.ddl.decide.copied_tables import CopiedUntil, copied_later
from shardmerge.worker.ddl.decide.ddl_context import read_ddl_context
from shardmerge.worker.ddl.decide.ddl_filter import FilteredActions, FilteredStatement
from shardmerge.worker.ddl.decide.given_names import dropped_elsewhere, given_names, left_to_others, reserved_number
from shardmerge.worker.ddl.decide.operator_override import OperatorOverride, Ops, actions_with_override
from shardmerge.worker.ddl.decide.routed_statements import RoutedScope, short_text
from shardmerge.worker.ddl.decide.statement_changes import NameChanges, StatementChanges
from shardmerge.worker.ddl.decide.statement_reader import override_for, read_statement, refusal, unknown_statement_error
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.execute.executor import StatementExecutor
from shardmerge.worker.ddl.execute.rename_targets import drop_rename_marks
from shardmerge.worker.ddl.execute.source_session import find_source_session
from shardmerge.worker.ddl.execute.statement_context import StatementContext
from shardmerge.worker.ddl.execute.structure_check import StatementStructures, check_dates
from shardmerge.worker.ddl.following import FollowingStatements, KnownStructures, MayExecute
from shardmerge.worker.ddl.join_ahead import JoinAhead, adds_columns
from shardmerge.worker.ddl.locks.parked_queue import ParkedQueue
from shardmerge.worker.ddl.online.classify import OnlineContext, classify, with_renamed_away
from shardmerge.worker.ddl.online.follow import EffectiveStatement, OnlineChanges
from shardmerge.worker.ddl.outcome import ActedOn, outcome_of
from shardmerge.worker.ddl.park_ahead import park_ahead
from shardmerge.worker.ddl.sql.dialect import Dialect
from shardmerge.worker.ddl.sql.statement import AlterTable, CreateTable, Ddl
from shardmerge.worker.ddl.sql.version_comments import Server
from shardmerge.worker.ddl.structure.schema_tracker import open_tracker
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.relay.serve.query_event import LoggedQuery
from shardmerge.worker.rules.reference_check import wrongly_mapped
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.quarantine import held_store as quarantine
from shardmerge.worker.target.records import (
    checkpoint,
    ddl_progress,
    dropped_columns,
    executed_locks,
    operator_statements,
    parked_tables,
    subtask_record,
)
from shardmerge.worker.target.records import shadow_tables as online_records
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.history import interrupted_copies
from shardmerge.worker.target.records.partitioning import Partitioning
from shardmerge.worker.target.tables.target_table import find_fallback_collations
from shardmerge.worker.unit.run_context import RunContext

log = get_logger()

_LOOK_SECONDS = 0.05

_NOT_AT_TARGET = OperatorOverride((), runs_original=False)

RowColumns = Callable[[StreamTables], Mapping[str, str]]
"""Converts a stream's tables to columns of the subtask's row."""


def main_columns(tables: StreamTables) -> Mapping[str, str]:
    """The columns for a subtask's own lanes."""
    return {"dealing": tables.partitioning.to_json()}


def _always(_: Statement) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class SharedByStreams:
    """What the streams of one run of a subtask share. ``queue``: needed with ``locks``, and if tables may be copied in
    part. ``locks``: the subtask takes part in sharding-DDL locks. ``main_has_executed``: whether the main stream is
    past a statement; the streams of joining tables ask."""

    ops: Ops = tuple
    queue: ParkedQueue | None = None
    locks: bool = False
    main_has_executed: Callable[[Statement], bool] = _always


@dataclass(frozen=True, slots=True)
class _CurrentStatement:
    """The statement that a stream has reached. ``ddl``: None when it changes nothing, or an operator overrides it.
    ``held``: locks that are held until the statement is recorded."""

    statement: Statement
    queried: LoggedQuery
    ddl: Ddl | None
    override: OperatorOverride | None
    session: Session
    changes: StatementChanges
    stop: StopSignal
    held: ExitStack


class StatementDriver:
    """For one run of one stream. One thread calls :meth:`act`.

    ``tables``: the stream's tables where it begins. ``columns``: see :data:`RowColumns`.
    """

    def __init__(
        self,
        context: RunContext,
        stream: Stream,
        tables: StreamTables,
        shared: SharedByStreams,
        columns: RowColumns = main_columns,
        copied_until: CopiedUntil = MappingProxyType({}),
        *,
        relay_id: str,
        executed_to: RelayOffset | None = None,
    ) -> None:
        """``relay_id``: of the relay log in which all offsets of the stream are. ``executed_to``: statements before
        this offset have no effect: the recorded structures contain them."""
        self._shared = shared
        self._copied_until = copied_until
        # Statements up to where tables grow are executed: the lanes of a new run may meet them again.
        self._executed_to = max((later.offset for later in tables.later.values()), default=executed_to)
        self.relay_id = relay_id
        self._context = context
        self._stream = stream
        self._columns = columns
        self._waits_for = ""
        self._known = KnownStructures()
        self._following = FollowingStatements(context, shared.ops, copied_until, self._known, self._set_waiting)
        self._acted_on = ActedOn()  # of the present statement
        self.tables = tables

    def ops(self) -> tuple[StoredOverride, ...]:
        """The operator's current overrides for the source's binlog."""
        return self._shared.ops()

    def activity(self) -> str:
        """What the driver waits for, "" for nothing."""
        return self._waits_for

    def last_passed(self) -> StatementPlace | None:
        """The last statement that the stream has executed, read from the target."""
        who = self._context.who
        return self._context.at_target(lambda session: ddl_progress.read_passed(session, who, self._stream))

    def has_executed(self, statement: Statement) -> bool:
        """Whether this run has executed ``statement``, perhaps before the lanes have reached it."""
        return self._executed_to is not None and statement.offset <= self._executed_to

    def act(
        self, statement: Statement, stop: StopSignal, may_execute: MayExecute = lambda _: False
    ) -> StreamTables | None:
        """Execute ``statement``, and parks of other tables at the following statements. Returns the tables with which
        the stream resumes; None: ``stop`` came first. ``may_execute``: whether a statement that ends at a group end may
        be executed before the lanes reach it.

        Raises the ddl.* errors, FENCED, the rules' and the target's coded errors.
        """
        began = time.monotonic()
        self._acted_on = ActedOn()
        context, (_, task, source) = self._context, self._context.who
        queried = context.relay.read_query_event(statement)
        override = override_for(context, self._shared.ops, statement)
        statement, ddl = read_statement(context, statement, queried, override, stop)
        failpoints.hit("ddl.before")
        target = context.target_endpoint
        with (
            cancellable_session(stop, target, Side.TARGET, name="target", read_timeout=None) as session,
            ExitStack() as held,
        ):
            before = self.tables = self.tables.at_barrier(statement.group_start)
            changes = StatementChanges(before, context.numbers)
            held.callback(self._give_back, changes)
            statement_context: StatementContext | None = None
            last = statement
            if RoutedScope(before.scope, with_shadow_tables=True)(statement) and (
                ddl is not None or override is not None
            ):
                met = _CurrentStatement(statement, queried, ddl, override, session, changes, stop, held)
                statement_context = self._act(met)
                if stop.is_set:
                    return None
            changes.detach_renamed()
            parks = bool(changes.parked)
            self._leave_to_copy(statement, changes)
            if override is None:
                last = self._execute_following(statement, ddl, session, changes, may_execute, stop, began, parks=parks)
            parked = changes.parked_records
            leaving = {at: change.leaving.offset for at, change in changes.parked.items() if change.leaving is not None}
            if self._shared.queue is not None:
                # Before the records: the lock agent reads these first.
                self._shared.queue.announce(leaving)
            failpoints.hit("ddl.before_passing")
            changes.taken = []  # also if it is not known whether the transaction was committed
            after = self._record(session, last, changes)
            failpoints.hit("ddl.passed")
            if statement_context is not None:
                drop_rename_marks(statement_context)
        self._waits_for = ""
        self.tables = after
        self._executed_to = last.offset
        if self._shared.queue is not None:
            # Also without parked tables: the lock agent must publish tables that were added, removed or altered.
            self._shared.queue.park(parked, dict.fromkeys(parked, statement.group_end) | leaving)
        log.info(
            "DDL applied, stream resumed",
            task=task,
            source=source,
            position=str(statement.position),
            statement=short_text(statement),
            by_operator=override is not None,
            parked=len(parked),
        )
        if statement_context is not None:
            context.on_ddl(outcome_of(statement, self._acted_on, override, len(parked), self._routed_target))
        return self.tables

    # --- parts

    def _give_back(self, changes: StatementChanges) -> None:
        self._context.numbers.give_back(changes.taken)

    def _leave_to_copy(self, statement: Statement, changes: StatementChanges) -> None:
        """See :meth:`StatementChanges.leave_to_copy`."""
        if changes.before.copies:
            changes.leave_to_copy(statement, self._context.relay.position_at(statement.group_end), time.time())

    def _execute_following(
        self,
        statement: Statement,
        ddl: Ddl | None,
        session: Session,
        changes: StatementChanges,
        may_execute: MayExecute,
        stop: StopSignal,
        began: float,
        *,
        parks: bool,
    ) -> Statement:
        """Execute the statements that follow ``statement`` and have the same effect on further tables; returns the last
        of them. ``began``: see :meth:`FollowingStatements.execute`. ``parks``: ``statement`` has parked tables."""
        config, following = self._context.config, self._following
        # With quarantine, a lane may hold a row, with the structure before, at any time.
        if self._stream is not Stream.MAIN or config.replicate.quarantine:
            return statement
        if config.shard_mode == config_pb2.SHARD_MODE_PESSIMISTIC and parks:
            return park_ahead(following, statement, session, changes, may_execute, stop, began)
        if config.shard_mode == config_pb2.SHARD_MODE_OPTIMISTIC and not changes.parked and adds_columns(ddl):
            return JoinAhead(following, statement, ddl, session, changes, began).execute(may_execute, stop)
        return statement

    def _act(self, met: _CurrentStatement) -> StatementContext | None:
        """None: the statement has no effect here."""
        context = self._context
        scene, meant = self._effective(met)
        if not self._follow_names(met, meant, scene):
            return None
        override = met.override
        if override is None:
            self._check_foreign_keys(met)
        if override is not None:
            actions = actions_with_override(override, meant.ddl, meant.statement, scene)
            self._check_held(actions, meant.statement, met.session)
            self._acted_on = ActedOn(actions)
            actor = self._executor(met, meant, removed_by(actions))
            actor.run_overridden(override, actions)
            actor.check_targets()
            return actor.context
        if meant.ddl is None:
            return None
        sorted_ = self._filtered(met, meant, scene)
        actions, passed_over = sorted_.run, sorted_.skipped
        if not actions and not passed_over:
            return None
        if not met.queried.event.is_text:
            raise unknown_statement_error(self._context, met.statement)
        self._check_held((*actions, *passed_over), meant.statement, met.session)
        self._check_copied(actions, meant)
        self._acted_on = ActedOn(actions, passed_over)
        actor = self._executor(met if actions else replace(met, override=_NOT_AT_TARGET), meant, removed_by(actions))
        actor.run_overridden(_NOT_AT_TARGET, passed_over)
        is_mariadb = met.queried.is_mariadb
        for action in actions:
            if isinstance(action, Alter):
                with actor.naming_missing(action):
                    check_dates(actor.context, action.shard.plan)
                    if not self._shared.locks:
                        actor.alter(action)
                    elif context.config.shard_mode == config_pb2.SHARD_MODE_OPTIMISTIC:
                        actor.join_schemas(action, is_mariadb=is_mariadb)
                    else:
                        actor.park(action, is_mariadb=is_mariadb)
            else:
                actor.run(action)
            if met.stop.is_set:
                return actor.context
        actor.check_targets()
        return actor.context

    def _follow_names(self, met: _CurrentStatement, meant: EffectiveStatement, scene: DdlContext) -> bool:
        """Determine which stream has each name that the statement gives to a table. The names are those at the source,
        whatever runs at the target. False: the stop came first.
        """
        ddl, changes = meant.ddl, met.changes
        if ddl is None:
            return True
        before, rules = changes.before, self._context.rules
        scope = before.scope

        def owned(name: TableName) -> TableName | None:
            at = scope.owned_name(*name)
            return at if scope.only is not None else name if at is None else None

        names = NameChanges(given_names(ddl, owned, lambda name: rules.route(*name) is not None))
        left = None
        if scope.only is None:
            dropped = {item.number for item in before.partitioning.away if item.dropped}
            left = left_to_others(
                ddl, before.names_elsewhere, dropped, rules, lambda name: scene.find(name) is not None
            )
            names = replace(names, dropped=dropped_elsewhere(ddl, before.names_elsewhere))
        if (names or left is not None) and not met.queried.event.is_text:
            raise unknown_statement_error(self._context, met.statement)
        changes.names = names
        if left is not None:
            changes.leave_table(left[0], StatementPlace.of(met.statement), left[1])
        if scope.only is not None and (names or isinstance(ddl, CreateTable)):
            # The main stream decides which stream has the names.
            return self._wait_for_main(met.statement, met.stop)
        return True

    def _wait_for_main(self, statement: Statement, stop: StopSignal) -> bool:
        """Wait until the main stream is past the statement, which it reaches whatever this stream does."""
        if self._shared.main_has_executed(statement):
            return True
        self._set_waiting(f"the main stream to reach {statement.position}")
        while not stop.wait(_LOOK_SECONDS):
            if self._shared.main_has_executed(statement):
                self._set_waiting("")
                return True
        return False

    def _reserved_number(self, met: _CurrentStatement) -> int | None:
        """See :class:`DdlContext`."""
        if self._stream is Stream.MAIN:
            return None
        row = subtask_record.read_row(met.session, self._context.who)
        recorded = Partitioning.from_json(row.partitioning) if row is not None else None
        if recorded is None:
            return None
        numbers = frozenset((*self.tables.plans, *self.tables.dropped.values()))
        return reserved_number(StatementPlace.of(met.statement), recorded.away, numbers)

    def _filtered(self, met: _CurrentStatement, meant: EffectiveStatement, scene: DdlContext) -> FilteredActions:
        """The statement's actions after the event filters."""
        ddl, statement = meant.ddl, meant.statement
        assert ddl is not None  # noqa: S101 - for the type checker: the caller has checked

        def structures(shard: ShardTarget) -> tuple[CreateStatement, CreateStatement | None]:
            if not met.queried.event.is_text:
                raise unknown_statement_error(self._context, met.statement)
            return self._executor(met, meant, frozenset()).structures_around(shard)

        found = FilteredStatement(self._context.rules.events, ddl, statement, scene, structures).filter()
        for action in found.skipped:
            log.info(
                "event filter skips a statement: it does not run at the target",
                task=self._context.who.task,
                source=self._context.who.source,
                position=str(statement.position),
                statement=short_text(statement),
                tables=shard_numbers(action),
            )
        return found

    def _effective(self, met: _CurrentStatement) -> tuple[DdlContext, EffectiveStatement]:
        """The statement's effect on the task's own tables: for an online schema change it may be another statement."""
        scene, meant = self._ddl_context(met), EffectiveStatement(met.statement, met.ddl)
        rules, tables = self._context.rules, self.tables.scope
        if met.ddl is None or not rules.online.is_on:
            return scene, meant
        seen = online_records.read(met.session, self._context.who)
        course = OnlineContext(rules.online, seen, tables.holds, scene)
        step = classify(met.ddl, course)
        scene = replace(scene, shards=with_renamed_away(scene, course))
        if step.is_empty:
            return scene, meant
        if not met.queried.event.is_text:
            raise unknown_statement_error(self._context, met.statement)
        actor = self._executor(met, meant, frozenset())
        server = Server(met.queried.is_mariadb, met.queried.version)
        changes = OnlineChanges(
            actor.context, actor.structures, actor.dialect, self._known.canonical, scene, seen, server
        )
        return scene, changes.follow(step, by_operator=met.override is not None and not met.override.runs_original)

    def _check_held(self, actions: Sequence[Action], statement: Statement, session: Session) -> None:
        """Held rows have the structure before the statement. Raises HELD_ROWS."""
        shards = frozenset(number for action in actions for number in shard_numbers(action))
        count = quarantine.count_keys(session, self._context.who, shards) if shards else 0
        if count:
            raise refusal(self._context, errors.ddl.HELD_ROWS, statement, count=count)

    def _check_foreign_keys(self, met: _CurrentStatement) -> None:
        """Rows that a foreign key changes by cascade are not in the binlog, and a column with another mapping than the
        one that it refers to would refer to other rows. Raises ADDS_CASCADE, CHANGES_CASCADE, ADDS_REFERENCE."""
        ddl, statement = met.ddl, met.statement
        keys = CascadeKeys(self.tables.partitioning.cascades)
        if keys.keys and ddl is not None and (found := changes_cascades(ddl, keys, self.tables.plans)) is not None:
            raise refusal(self._context, errors.ddl.CHANGES_CASCADE, statement, table=".".join(found))
        if not isinstance(ddl, (AlterTable, CreateTable)):
            return
        schema, table = ddl.table.schema, ddl.table.table
        if adds_cascade(statement.text, statement.sql_mode or 0):
            raise refusal(self._context, errors.ddl.ADDS_CASCADE, statement, table=f"{schema}.{table}")
        rules = self._context.rules
        if not rules.mapper.rules:
            return
        for key in added_foreign_keys(statement.text, statement.sql_mode or 0):
            wrong = wrongly_mapped(rules, schema, table, key)
            if wrong is not None:
                column, to = wrong
                raise refusal(
                    self._context,
                    errors.ddl.ADDS_REFERENCE,
                    statement,
                    column=f"{schema}.{table}.{column}" if column else f"a column of {schema}.{table}",
                    to=f"{key.schema or schema}.{key.table}.{to}",
                )

    def _check_copied(self, actions: Sequence[Action], meant: EffectiveStatement) -> None:
        """Raises COPIED_LATER."""
        shard = copied_later(actions, meant.ddl, meant.statement.offset, self._copied_until)
        if shard is not None:
            raise refusal(self._context, errors.ddl.COPIED_LATER, meant.statement, table=".".join(shard.name))

    def _ddl_context(self, met: _CurrentStatement) -> DdlContext:
        return read_ddl_context(
            self._context,
            self.tables,
            met.session,
            met.stop,
            lambda: self._reserved_number(met),
            waits=self._shared.locks,
        )

    def _executor(self, met: _CurrentStatement, meant: EffectiveStatement, going: frozenset[int]) -> StatementExecutor:
        context, session = self._context, met.session
        given = meant.session
        if given is None:
            # An operator's replacement statement contains its own time literals.
            ddl = None if met.override is not None and not met.override.runs_original else met.ddl
            plans = self.tables.plans.values()
            target = dialect_of(session)
            given = find_source_session(context, met.statement, ddl, met.queried, plans, target, met.stop)
        tracker = open_tracker(session, context.who, self._stream.name, context.epoch)
        statement_context = StatementContext(
            context, meant.statement, meant.ddl, given, session, met.changes, met.stop, self._set_waiting, going
        )
        dialect = Dialect(
            met.queried.is_mariadb,
            dialect_of(session),
            lambda names: find_fallback_collations(session, names),
        )
        return StatementExecutor(
            statement_context,
            StatementStructures(
                statement_context, tracker, dialect, self._known.memo, self._known.schemas, self._known.sources
            ),
            dialect,
            self._known.canonical,
            self._known.parked,
            met.held,
        )

    def _routed_target(self, name: TableName) -> TargetTable | None:
        route = self._context.rules.route(*name)
        return None if route is None else TargetTable(route.target_schema, route.target_table)

    def _set_waiting(self, waits_for: str) -> None:
        self._waits_for = waits_for

    def _record(self, session: Session, statement: Statement, changes: StatementChanges) -> StreamTables:
        who, stream = self._context.who, self._stream
        result = changes.apply().checked(changes.before, f"the statement at {statement.position}")
        uncopied, executed = changes.removed & changes.before.copies.keys(), changes.executed
        creations = {number: creation for number, (_, creation) in changes.structures.items()}
        parked = changes.parked_records

        def also(inner: Session) -> None:
            ddl_progress.write_creations(inner, who, creations)
            parked_tables.write(inner, who, parked)
            dropped_columns.write(inner, *who[:2], executed.dropped)
            online_records.write(inner, who, executed.shadow_records)
            interrupted_copies.forget(inner, who, uncopied)
            ddl_progress.write_passed(inner, who, stream, StatementPlace.of(statement))
            checkpoint.count_statement(inner, who, stream)
            for target in sorted(executed.joined):
                executed_locks.forget_structure(inner, *who[:2], target)
            for subject in sorted(executed.subjects):
                ddl_progress.delete_begun(inner, who, subject)
            operator_statements.finish_all(inner, who, statement)
            failpoints.hit("ddl.passing")

        subtask_record.record_statement(
            session, who, self._context.epoch, self._columns(result), changes.recorded_tables, also
        )
        return result

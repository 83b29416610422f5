"""Reads in the relay log what follows the statements at which shard tables are parked: further statements of these
tables, and whether rows were written in between.

Each statement is read once for all parked tables. A table's list ends at the first statement that is no plain ALTER
TABLE, CREATE INDEX or DROP INDEX of it, or about which an operator or a filter decides.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.core.mysql.connection import dialect_of
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.row_change import RowChange
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.operator_override import Ops
from shardmerge.worker.ddl.decide.routed_statements import RoutedScope
from shardmerge.worker.ddl.decide.statement_reader import override_for, read_statement, refusal
from shardmerge.worker.ddl.execute.source_session import SourceSessions
from shardmerge.worker.ddl.execute.structure_check import check_same_meaning, merged_statement
from shardmerge.worker.ddl.sql.dialect import Dialect
from shardmerge.worker.ddl.sql.rewrite import normal_form
from shardmerge.worker.ddl.sql.statement import names, parse_ddl
from shardmerge.worker.ddl.sql.target_statement import (
    Changing,
    nondeterministic_columns,
    replaced_dates,
    time_dependent_columns,
)
from shardmerge.worker.ddl.structure.schema_tracker import SchemaTracker
from shardmerge.worker.relay.model import BlockData, Statement
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.tables.target_table import find_fallback_collations
from shardmerge.worker.unit.run_context import RunContext

MOST = 32
"""So many statements of a table are considered."""

_MOST_FORMS = 20_000


@dataclass(slots=True)
class _Following:
    """The statements of one table after the one at which it is parked. ``has_ended``: further ones do not count."""

    parked: Parked
    name: TableName
    statements: list[Statement] = field(default_factory=list[Statement])
    has_ended: bool = False


class FollowingStatements:
    """For one run of a subtask, and one thread."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._forms: dict[Statement, str] = {}
        self._known: dict[int, _Following] = {}
        self._read_to: RelayOffset | None = None
        self._relay_id = ""

    def update(self, parked: Mapping[int, tuple[Parked, RelayOffset]], plans: Mapping[int, TablePlan]) -> None:
        """Read the statements up to the relay log's present end. ``parked``: the tables, with the offsets from which on
        their rows wait. Raises the coded errors of the relay log."""
        relay = self._context.relay
        if relay.relay_id != self._relay_id:
            self._known, self._read_to, self._relay_id = {}, None, relay.relay_id
        head = relay.head().offset
        kept: dict[int, _Following] = {}
        new: dict[int, _Following] = {}
        for number, (item, _) in parked.items():
            known = self._known.get(number)
            if known is not None and known.parked == item:
                kept[number] = known
            else:
                table = plans[number].table
                new[number] = _Following(item, (table.schema, table.name))
        offsets = {number: parked[number][1] for number in new}
        read_to = self._read_to if kept else None
        if new:
            self._read(min(offsets.values()), head if read_to is None else read_to, new, offsets)
        if read_to is not None:
            self._read(read_to, head, kept | new, offsets)
        self._known, self._read_to = kept | new, head

    def of(self, number: int) -> tuple[Statement, ...]:
        """The table's further statements."""
        known = self._known.get(number)
        return tuple(known.statements) if known is not None else ()

    def form_of(self, statement: Statement) -> str:
        """Equal for equal statements of different tables."""
        known = self._forms.get(statement)
        if known is None:
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            ddl = parse_ddl(statement.text, statement.schema, statement.sql_mode)
            form = normal_form(statement.text, statement.sql_mode or 0, ddl) if ddl is not None else statement.text
            known = self._forms[statement] = form
        return known

    def _read(
        self,
        begin: RelayOffset,
        end: RelayOffset,
        tables: Mapping[int, _Following],
        offsets: Mapping[int, RelayOffset],
    ) -> None:
        by_name = {each.name: (number, each) for number, each in tables.items()}
        concerns = RoutedScope(TableScope(self._context.rules, only=frozenset(by_name)), with_shadow_tables=True)
        if begin >= end:
            return
        for statement in self._context.relay.statements_from(begin):
            if statement.group_start >= end:
                return
            try:
                if not concerns(statement):
                    continue
                ddl = parse_ddl(statement.text, statement.schema, statement.sql_mode)
            except ShardmergeError:
                ddl = None
            if ddl is None or not names(ddl):
                concerned = list(by_name.values())
            else:
                named = {each.name for each in names(ddl)}
                named |= {(schema.lower(), table.lower()) for schema, table in named}
                own = {(schema, self._context.rules.online.own(table)) for schema, table in named}
                concerned = [by_name[name] for name in named | own if name in by_name]
            for number, each in concerned:
                if each.has_ended or (number in offsets and statement.group_start < offsets[number]):
                    continue
                is_plain = isinstance(ddl, Changing) and [one.name for one in names(ddl)] == [each.name]
                if not is_plain or len(each.statements) >= MOST:
                    each.has_ended = True
                else:
                    each.statements.append(statement)


@dataclass(frozen=True, slots=True)
class FollowingStatement:
    """A further statement of a parked table. ``item``: as if the table were parked at it."""

    item: Parked
    ddl: Changing
    begin: RelayOffset
    end: RelayOffset


class StatementConverter:
    """Converts the further statements of parked tables to the form in which parked statements are recorded. For one
    pass; ``sessions`` closes its session at the source."""

    def __init__(
        self, context: RunContext, ops: Ops, tracker: SchemaTracker, sessions: ExitStack, stop: StopSignal
    ) -> None:
        self._context, self._ops, self._tracker = context, ops, tracker
        self._sources, self._stop = SourceSessions(context, sessions, stop), stop

    def convert(self, statement: Statement, plan: TablePlan, creation: CreateStatement) -> FollowingStatement | None:
        """``plan``, ``creation``: of the table before the statement. None: it must be handled where it is. Raises
        retryable coded errors and ``pymysql.MySQLError``."""
        context = self._context
        if context.rules.events.rules or override_for(context, self._ops, statement) is not None:
            return None
        try:
            return self._convert(statement, plan, creation)
        except ShardmergeError as error:
            if error.spec.retryable:
                raise
            return None  # it is raised again where the statement is handled

    def _convert(self, statement: Statement, plan: TablePlan, creation: CreateStatement) -> FollowingStatement | None:
        context, session = self._context, self._tracker.session
        queried = context.relay.read_query_event(statement)
        if not queried.event.is_text:
            return None
        statement, ddl = read_statement(context, statement, queried, None, self._stop)
        if not isinstance(ddl, Changing):
            return None
        check_same_meaning(statement, ddl, plan, creation, partial(refusal, context, statement=statement))
        text = merged_statement(statement, ddl, plan.table, creation)
        if not text or nondeterministic_columns(statement, ddl):
            return None
        if plan.table.has_dates and replaced_dates(statement, ddl):
            return None
        settings = self._sources.find(statement, ddl, queried, (plan,), dialect_of(session))
        explicit = settings.explicit_timestamp
        if time_dependent_columns(statement, ddl, plan.table, explicit, is_mariadb=queried.is_mariadb):
            return None
        dialect = Dialect(
            queried.is_mariadb,
            dialect_of(session),
            lambda found: find_fallback_collations(session, found),
        )
        if dialect.lacking_charsets(text, statement.sql_mode or 0):
            return None
        item = Parked(
            plan.shard,
            dialect.for_target(text, statement.sql_mode or 0),
            statement.schema,
            statement.sql_mode or 0,
            queried.is_mariadb,
            settings,
            StatementPlace.of(statement),
            context.relay.position_at(statement.group_end),
            time.time(),
        )
        return FollowingStatement(item, ddl, statement.group_start, statement.group_end)


def rows_between(
    context: RunContext, plan: TablePlan, begin: RelayOffset, end: RelayOffset, stop: StopSignal
) -> Iterator[RowChange]:
    """The changes of ``plan``'s table between two group ends of the relay log. Raises the errors of the relay log and
    of the decoder."""
    if begin >= end:
        return
    relay, table = context.relay, (plan.table.schema, plan.table.name)
    decoder = BlockDecoder(lambda schema, name: plan if (schema, name) == table else None, source=plan.source)
    decoder.open(relay.opened(begin).format_description)
    for item in relay.subscribe(begin, end, None, stop):
        if isinstance(item, BlockData):
            yield from decoder.decode(item.events)

"""Parks released shard tables at their next statements, if they have no rows before them.

    released ── its next statement is an ALTER, no row of it is before that ── parked there: one transaction

A stream of their own would apply nothing before it parks them there. Several statements are often queued on all shard
tables of a merge: without this, each of them would need the start of a stream, and a barrier for each table.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import takewhile

from shardmerge.proto import config_pb2, failpoints
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.actions import Alter
from shardmerge.worker.ddl.decide.next_statements import WaitingTable, next_statements
from shardmerge.worker.ddl.decide.operator_override import Ops
from shardmerge.worker.ddl.decide.routed_statements import short_text
from shardmerge.worker.ddl.decide.statement_changes import StatementChanges
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import own_tracks
from shardmerge.worker.ddl.following import FollowingStatements, KnownStructures
from shardmerge.worker.ddl.locks.parked_queue import ParkedQueue
from shardmerge.worker.ddl.rows_before import LARGEST, Span, tables_without_rows
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.target.quarantine import held_store as quarantine
from shardmerge.worker.target.records import parked_tables, subtask_record
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import partitioning_for
from shardmerge.worker.unit.run_context import RunContext

log = get_logger()


def _ignore(waits_for: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ParkAgain:
    """For one run of a subtask, and one thread. ``relay_id``: of the relay log in which the offsets of ``queue``
    are."""

    context: RunContext
    ops: Ops
    queue: ParkedQueue
    relay_id: str
    known: KnownStructures = field(default_factory=KnownStructures)

    def park(
        self,
        released: Mapping[int, tuple[Parked, RelayOffset]],
        tables: tuple[Table, ...],
        plans: tuple[TablePlan, ...],
    ) -> frozenset[int]:
        """Park those of the ``released`` tables for which this is possible; returns their numbers. The others need a
        stream, which also reports what is wrong with a statement.

        ``tables``: the recorded structures; ``plans``: of the released tables. Raises FENCED, retryable coded errors,
        and those of the target.
        """
        config = self.context.config
        # With quarantine, a lane may hold a row, with the structure before, at any time.
        if config.shard_mode != config_pb2.SHARD_MODE_PESSIMISTIC or config.replicate.quarantine:
            return frozenset()
        whole = {
            plan.shard: WaitingTable((plan.table.schema, plan.table.name), released[plan.shard][1])
            for plan in plans
            if not released[plan.shard][0].resumes_copy and released[plan.shard][0].skips is None
        }
        if not whole:
            return frozenset()
        stop = StopSignal()
        try:
            found = self._reached(whole, stop)
        except ShardmergeError as error:
            if error.spec.retryable:
                raise
            return frozenset()
        if not found:
            return frozenset()
        rules = self.context.rules
        context = replace(self.context, tables=tables)
        names = frozenset(table.name for table in whole.values())
        before = StreamTables(
            tables, own_tracks(plans), partitioning_for(config, 1, plans), TableScope(rules, only=names)
        )
        changes = StatementChanges(before, self.context.numbers)
        context.at_target(lambda session: self._park(context, found, changes, session, stop))
        parked = changes.parked_records
        self.queue.park(parked, {number: found[number].group_end for number in parked})
        return frozenset(parked)

    def _reached(self, waiting: Mapping[int, WaitingTable], stop: StopSignal) -> dict[int, Statement]:
        """The next statements of the tables that have no rows before them."""
        relay = self.context.relay
        with relay.one_generation() as relay_id:
            if relay_id != self.relay_id:
                return {}
            first = min(table.begin for table in waiting.values())
            # Those further away would not be near enough to look for rows before them.
            near = takewhile(
                lambda statement: relay.bytes_between(first, statement.group_start) <= LARGEST,
                relay.statements_from(first),
            )
            found = next_statements(self.context.rules, waiting, near)
            spans = {
                number: Span(waiting[number].name, waiting[number].begin, statement.group_start)
                for number, statement in found.items()
            }
            without = tables_without_rows(relay, spans, stop)
            return {number: statement for number, statement in found.items() if number in without}

    def _park(
        self,
        context: RunContext,
        found: Mapping[int, Statement],
        changes: StatementChanges,
        session: Session,
        stop: StopSignal,
    ) -> None:
        """Park the tables at these statements, and record it."""
        who = context.who
        # Held rows have the structure before a statement.
        if quarantine.count_keys(session, who):
            return
        following = FollowingStatements(context, self.ops, {}, self.known, _ignore, "again")
        with ExitStack() as sessions:
            around = following.around(session, changes, sessions, stop)
            for number, statement in found.items():
                try:
                    altered = following.alter(statement, around)
                    if altered is not None and altered.shard.number == number:
                        altered.executor.park(
                            Alter(altered.shard), is_mariadb=altered.is_mariadb, members=around.members
                        )
                except ShardmergeError as error:
                    if error.spec.retryable:
                        raise
                    # It is raised again when the table's stream has reached the statement.
        parked = changes.parked_records
        if not parked:
            return

        def write(inner: Session) -> None:
            parked_tables.write(inner, who, parked)
            failpoints.hit("park_again.recording")

        subtask_record.record_statement(session, who, context.epoch, {}, {}, write)
        failpoints.hit("park_again.recorded")
        for number in parked:
            log.info(
                "a shard table is parked at its next statement",
                task=who.task,
                source=who.source,
                table=changes.before.plans[number].table.full_name,
                position=str(found[number].position),
                statement=short_text(found[number]),
            )

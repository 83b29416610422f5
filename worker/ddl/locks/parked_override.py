"""Applies an operator's overrides to the statements at which shard tables are parked.

``skip`` and ``replace`` release a parked table on its own: the operator's statements run at the target, and the table
resumes with the structure that it has at the source. The statement that the owner of an executing lock runs is replaced
for the whole lock; a skip replaces it only if the target fits without it. The statements of ``inject`` run at once, and
the table stays parked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shardmerge.proto import state_pb2
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.stored_override import StoredOverride
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.operator_override import OperatorOverride, override_at
from shardmerge.worker.ddl.decide.statement_changes import StatementChanges
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.execute.operator_run import run_operator_statements
from shardmerge.worker.ddl.execute.statement_context import StatementContext
from shardmerge.worker.ddl.locks.lock_protocol import form_of
from shardmerge.worker.ddl.structure.structure_after import reparse
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.target.records import operator_statements
from shardmerge.worker.target.records.executed_locks import LockRun
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import partitioning_for
from shardmerge.worker.unit.run_context import RunContext


@dataclass(frozen=True, slots=True)
class OverriddenStatement:
    """A statement at which a table is parked, and the operator's override of it."""

    parked: Parked
    override: OperatorOverride

    def finish(self, session: Session, context: RunContext) -> None:
        """Update the records of the operator's statements, inside the caller's transaction."""
        operator_statements.finish_all(session, context.who, reparse(self.parked)[0])


def overridden(ops: tuple[StoredOverride, ...], parked: Mapping[int, Parked]) -> dict[int, OverriddenStatement]:
    """The overridden statements at which tables are parked, by the table's number. Pure."""
    if not ops:
        return {}
    found: dict[int, OverriddenStatement] = {}
    for number, item in parked.items():
        if item.released:
            continue
        override = override_at(ops, item.place.position, item.resume_at, item.sql_mode)
        if override is not None:
            found[number] = OverriddenStatement(item, override)
    return found


def replaces_lock_run(
    one: OverriddenStatement, plan: TablePlan, locks: tuple[state_pb2.LockRecord, ...], source: str, run: LockRun | None
) -> bool:
    """Whether the override replaces the statement that ``source`` must run now for a lock. ``run``: the last run at the
    target of ``plan``. Pure."""
    if one.override.runs_original:
        return False
    return any(
        lock.stage == state_pb2.LockRecord.STAGE_EXECUTING
        and lock.owner == source
        and (lock.target_schema, lock.target_table) == plan.target.names
        and (run is None or run.generation != lock.generation)
        and form_of(one.parked) == lock.form
        for lock in locks
    )


def run_override(
    context: RunContext, session: Session, one: OverriddenStatement, stop: StopSignal, on_wait: Callable[[str], None]
) -> None:
    """Run the operator's statements at the target, each exactly once. Returns early, without a result, when ``stop`` is
    set. Raises what :func:`run_operator_statements` raises."""
    item = one.parked
    statement, ddl = reparse(item)
    no_tables = StreamTables((), {}, partitioning_for(context.config, 1, ()), TableScope(context.rules))
    statement_context = StatementContext(
        context,
        statement,
        ddl,
        item.session,
        session,
        StatementChanges(no_tables, context.numbers),
        stop,
        on_wait,
        frozenset(),
    )
    run_operator_statements(statement_context, one.override.texts)

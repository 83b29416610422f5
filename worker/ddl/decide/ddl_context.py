"""Reads the tables around a statement: the stream's own, and how many shard tables share each target."""

from __future__ import annotations

from collections.abc import Callable

from shardmerge.worker.core.mysql.connection import Session, rows
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.ddl.decide.actions import DdlContext, ShardTarget
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.unit.run_context import RunContext


def read_ddl_context(
    context: RunContext,
    tables: StreamTables,
    session: Session,
    stop: StopSignal,
    reserved: Callable[[], int | None] = lambda: None,
    *,
    waits: bool,
) -> DdlContext:
    """The current context. ``reserved``: ``reserved_number`` of the context. ``waits``: the stream is of a subtask with
    a shard-mode."""
    _, task, source = context.who
    plans = list(tables.plans.values())
    # Not needed with a shard-mode: each of its tables waits for all others.
    others = () if waits else read_target_members(session, context.who, of_task_alone=True).same_task
    shard_counts: dict[str, int] = {}
    for plan in (*plans, *others):
        shard_counts[plan.target_name] = shard_counts.get(plan.target_name, 0) + 1
    rules = context.rules

    def is_view(schema: str, table: str) -> bool:
        with context.at_source(stop) as at_source:
            return bool(
                rows(
                    at_source,
                    "SELECT 1 FROM information_schema.VIEWS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
                    (schema, table),
                )
            )

    return DdlContext(
        task,
        source,
        {(plan.table.schema, plan.table.name): ShardTarget(plan, shard_counts[plan.target_name]) for plan in plans},
        lambda schema, table: rules.route(schema, table) is not None,
        is_view,
        tables.scope,
        reserved,
    )

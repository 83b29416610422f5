"""The tables around a statement: a stream's own, and who shares their targets."""

from __future__ import annotations

from worker.connection import Session, rows
from worker.context import SubTaskContext
from worker.ddl.everyone import everyone
from worker.ddl.passing import TablesStanding
from worker.ddl.plan import Scene, Shard
from worker.unit import StopSignal


def scene_of(
    context: SubTaskContext, standing: TablesStanding, session: Session, stop: StopSignal, *, waits: bool
) -> Scene:
    """As of now. ``waits``: the stream is of a subtask with a shard-mode."""
    meta_schema, task, source = context.who
    plans = list(standing.plans.values())
    # Whoever has a shard-mode need not know: each of its tables waits for all others.
    others = () if waits else everyone(session, meta_schema, task, source).others
    together: dict[str, int] = {}
    for plan in (*plans, *others):
        together[plan.target_name] = together.get(plan.target_name, 0) + 1
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

    return Scene(
        task,
        source,
        {(plan.table.schema, plan.table.name): Shard(plan, together[plan.target_name]) for plan in plans},
        lambda schema, table: rules.route(schema, table) is not None,
        is_view,
    )

"""The session in which a statement of the binlog was given, found out."""

from __future__ import annotations

from collections.abc import Iterable

from proto import errors
from worker.context import SubTaskContext
from worker.ddl.routed import shown
from worker.ddl.session import StatementSession
from worker.ddl.statement import Ddl, names
from worker.ddl.zone import Moments, Varies, moments_of, offset_of
from worker.plan import TablePlan
from worker.relay.model import Statement
from worker.relay.queried import Queried
from worker.table import ValueKind
from worker.unit import StopSignal


def given_session(
    context: SubTaskContext,
    statement: Statement,
    ddl: Ddl | None,
    queried: Queried,
    plans: Iterable[TablePlan],
    stop: StopSignal,
) -> StatementSession:
    """``ddl``: None for one that does not run at the target; ``plans``: of the shard tables as they are before it.
    Raises ZONE_VARIES and the source's coded errors."""
    event = queried.event
    if event.variables.time_zone != "SYSTEM":
        return StatementSession.of(event, "")
    moments = moments_of(statement, ddl, _kinds(ddl, plans)) if ddl is not None else Moments()
    with context.at_source(stop) as session:
        zone = offset_of(session, event.second, moments)
    if isinstance(zone, Varies):
        _, task, source = context.who
        raise errors.ddl.ZONE_VARIES(
            source=source, task=task, position=statement.position, reason=zone.why, statement=shown(statement)
        )
    return StatementSession.of(event, zone)


def _kinds(ddl: Ddl, plans: Iterable[TablePlan]) -> dict[str, ValueKind]:
    """Of the columns of the tables that the statement names."""
    named = {(name.schema.lower(), name.table.lower()) for name in names(ddl)}
    return {
        column.name.lower(): column.kind
        for plan in plans
        if (plan.table.schema.lower(), plan.table.name.lower()) in named
        for column in plan.table.columns
    }

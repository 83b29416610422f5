"""Parks shard tables at statements of the relay log that the lanes have not reached yet.

    lanes wait at a statement ── its table is parked ── so are those at the statements that follow ── one transaction

The tables' rows are still applied up to the places where the tables are parked: the lanes know the places
(worker/rules/table_window.py). The lock agent regards a table as parked once all lanes have committed everything up to
there (I6).
"""

from __future__ import annotations

from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.ddl.decide.actions import Alter
from shardmerge.worker.ddl.decide.routed_statements import short_text
from shardmerge.worker.ddl.decide.statement_changes import StatementChanges
from shardmerge.worker.ddl.decide.track import Leaving, ParkedAt
from shardmerge.worker.ddl.following import Around, FollowingAlter, FollowingStatements, MayExecute
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.target.records.ddl_progress import StatementPlace

log = get_logger()


def park_ahead(
    following: FollowingStatements,
    first: Statement,
    session: Session,
    changes: StatementChanges,
    may_execute: MayExecute,
    stop: StopSignal,
    began: float,
) -> Statement:
    """Add to ``changes`` the tables that are parked at the statements after ``first``; returns the last of these
    statements, ``first`` if there are none. For ``shard-mode: pessimistic``. ``began``: see
    :meth:`FollowingStatements.execute`, which also documents what is raised."""
    _, task, source = following.context.who

    def park(found: FollowingAlter, around: Around) -> bool:
        statement, plan = found.statement, found.shard.plan
        found.executor.park(Alter(found.shard), is_mariadb=found.is_mariadb, members=around.members)
        parked = changes.tables.get(plan.shard)
        if not isinstance(parked, ParkedAt):
            return False
        changes.park_later(parked, Leaving(plan, statement.group_end, StatementPlace.of(statement)))
        log.info(
            "a shard table is parked at a following statement",
            task=task,
            source=source,
            table=plan.table.full_name,
            position=str(statement.position),
            statement=short_text(statement),
        )
        return True

    return following.execute(
        first, session, changes, may_execute, stop, lambda around: lambda found: park(found, around), began
    )

"""Whether a source may be read from another address while its tasks go on: proof at the server, and their records."""

from __future__ import annotations

from collections.abc import Iterable

import pymysql
from pymysql.constants import ER

from proto import config_pb2, errors, worker_pb2
from worker import meta
from worker.connection import Endpoint, Session
from worker.context import at_target, who_of
from worker.ddl import parked
from worker.meta import Phase
from worker.position import SourcePosition
from worker.relay.order import lowest_position
from worker.relay.relay import Relay
from worker.replicate import checkpoint as checkpoints
from worker.replicate.dealing import Dealing
from worker.snapshot.mark_gtids import known_by_file_alone
from worker.trouble import errno_of


def check_switch(
    relay: Relay, source: config_pb2.SourceConfig, subtasks: Iterable[config_pb2.SubTaskConfig]
) -> worker_pb2.CheckSwitchResponse:
    """``source``: as it is to be.

    Raises SWITCH_BUSY for a task that another server might hurt, what worker.relay.switch.prove raises, and coded
    errors of the target.
    """
    subtasks = tuple(subtasks)
    lowest: SourcePosition | None = None
    if not relay.relay_id:
        found = [place for one in subtasks for place in _places(one)]
        lowest = lowest_position(found) if len(found) > 1 else next(iter(found), None)
    proof = relay.prove_switch(Endpoint.from_proto(getattr(source, "from")), lowest)
    if not proof.same:
        for one in subtasks:
            doing = at_target(one, lambda session, one=one: busy_with(session, one))
            if doing:
                raise errors.relay.SWITCH_BUSY(source=source.source_id, task=one.task, doing=doing)
    return worker_pb2.CheckSwitchResponse(server=proof.server, same_server=proof.same, proof=proof.text)


def _places(subtask: config_pb2.SubTaskConfig) -> tuple[SourcePosition, ...]:
    """Where its lanes stand; none for one that has not come to that."""

    def read(session: Session) -> tuple[SourcePosition, ...]:
        try:
            return tuple(item.position for item in checkpoints.read_all(session, *who_of(subtask)))
        except pymysql.MySQLError as error:
            if errno_of(error) not in (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE):
                raise
            return ()

    return at_target(subtask, read)


def busy_with(session: Session, subtask: config_pb2.SubTaskConfig) -> str:
    """What the task is at that holds places or rows of the server before beside its lanes; "" for nothing.

    Raises ``pymysql.MySQLError``.
    """
    who = who_of(subtask)
    try:
        row = meta.read_row(session, *who)
        waiting = parked.read(session, *who)
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE):
            raise
        row, waiting = None, {}
    if row is None or row.phase is Phase.NEW:
        given = SourcePosition.from_proto(subtask.start)
        return f"has not begun, and is to begin at {given}, a place of the server before" if given.file else ""
    if row.phase is Phase.SNAPSHOT:
        return "copies its snapshot"
    if row.joining:
        return "has tables that join it"
    if waiting:
        return "has shard tables that wait before a sharding DDL"
    dealing = Dealing.from_json(row.dealing)
    shards = None if dealing is None else dealing.shards
    if row.phase is Phase.REPLICATE and known_by_file_alone(session, *who, shards):
        return "has changes to apply that lie before the end of its snapshot, by places of the server before alone"
    stop = subtask.stop_at.position.file if subtask.HasField("stop_at") else ""
    if stop and row.phase is not Phase.FINISHED:
        return f"is to end in {stop} (stop-at), a place of the server before"
    return ""

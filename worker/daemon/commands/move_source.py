"""Checks whether a source may be read from another address while its tasks continue: at the server and by records."""

from __future__ import annotations

from collections.abc import Iterable

import pymysql
from pymysql.constants import ER

from shardmerge.proto import config_pb2, errors, worker_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint, Session
from shardmerge.worker.core.mysql.server_errors import errno_of
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.daemon.mixed_rows import with_checked_way_out
from shardmerge.worker.relay.position_order import lowest_position
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.snapshot.watermark_gtids import needs_file_watermark
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records import parked_tables, subtask_record
from shardmerge.worker.target.records.partitioning import Partitioning
from shardmerge.worker.target.records.subtask_record import Phase
from shardmerge.worker.unit.run_context import at_target, who_of


def check_switch(
    relay: Relay, source: config_pb2.SourceConfig, subtasks: Iterable[config_pb2.SubTaskConfig]
) -> worker_pb2.CheckSwitchResponse:
    """``source``: the new configuration.

    Raises SWITCH_BUSY for a task that depends on the previous server, what
    shardmerge.worker.relay.fetch.server_change.prove raises, and coded errors of the target.
    """
    subtasks = tuple(subtasks)
    try:
        return _checked(relay, source, subtasks)
    except ShardmergeError as error:
        concerned = [one for one in subtasks if error.values.get("task") in (None, one.task)]
        raise with_checked_way_out(error, concerned) from error


def _checked(
    relay: Relay, source: config_pb2.SourceConfig, subtasks: tuple[config_pb2.SubTaskConfig, ...]
) -> worker_pb2.CheckSwitchResponse:
    lowest: SourcePosition | None = None
    if not relay.relay_id:
        found = [place for one in subtasks for place in _places(one)]
        lowest = lowest_position(found) if len(found) > 1 else next(iter(found), None)
    proof = relay.prove_switch(Endpoint.from_proto(getattr(source, "from")), lowest)
    if not proof.same:
        for one in subtasks:
            reason = at_target(one, lambda session, one=one: busy_with(session, one))
            if reason:
                raise errors.relay.SWITCH_BUSY(source=source.source_id, task=one.task, doing=reason)
    return worker_pb2.CheckSwitchResponse(server=proof.server, same_server=proof.same, proof=proof.text)


def _places(subtask: config_pb2.SubTaskConfig) -> tuple[SourcePosition, ...]:
    """The positions of its lanes; none for a subtask that has no lanes yet."""

    def read(session: Session) -> tuple[SourcePosition, ...]:
        try:
            return tuple(item.position for item in checkpoints.read_all(session, who_of(subtask)))
        except pymysql.MySQLError as error:
            if errno_of(error) not in (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE):
                raise
            return ()

    return at_target(subtask, read)


def busy_with(session: Session, subtask: config_pb2.SubTaskConfig) -> str:
    """What the task has in progress, besides its lanes, that depends on the previous server; "" for nothing.

    Raises ``pymysql.MySQLError``.
    """
    who = who_of(subtask)
    try:
        row = subtask_record.read_row(session, who)
        waiting = parked_tables.read(session, who)
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE):
            raise
        row, waiting = None, {}
    if row is None or row.phase is Phase.NEW:
        start = SourcePosition.from_proto(subtask.start)
        return f"has not begun, and begins at {start}, a position of the previous server" if start.file else ""
    if row.phase is Phase.SNAPSHOT:
        return "copies its snapshot"
    if row.joining:
        return "has tables that join it"
    if waiting:
        return "has shard tables that are parked at a sharding DDL"
    partitioning = Partitioning.from_json(row.partitioning)
    shards = None if partitioning is None else partitioning.shards
    if row.phase is Phase.REPLICATE and needs_file_watermark(session, who, shards):
        return "has changes before the end of its snapshot to apply, known only by positions of the previous server"
    stop = subtask.stop_at.position.file if subtask.HasField("stop_at") else ""
    if stop and row.phase is not Phase.FINISHED:
        return f"ends in {stop} (stop-at), a position of the previous server"
    return ""

"""Resolves a subtask's configured end once, for the record at the target (worker/target/records/bounds.py)."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf import json_format

from shardmerge.proto import config_pb2, errors, worker_pb2
from shardmerge.proto.config.position import shown
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.mysql import server_clock
from shardmerge.worker.core.mysql.connection import ServerInfo, Session, current_position, rows, text_of
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.replicate.bounds.stop_point import StopPoint
from shardmerge.worker.target.records.bounds import Bound, BoundKind
from shardmerge.worker.target.records.checkpoint import Checkpoint

_NOWHERE = SourcePosition("", 0)


def configured_stop_json(config: config_pb2.SubTaskConfig) -> str:
    """The configured end as JSON; "" for none."""
    return json_format.MessageToJson(config.stop_at, indent=None) if config.HasField("stop_at") else ""


def resolve_stop(
    config: config_pb2.SubTaskConfig, session: Session, info: ServerInfo, recorded: Bound | None
) -> StopPoint | None:
    """Where the subtask has to end; None: nowhere. The first resolution is ``recorded`` and stays valid, because a time
    zone may change, and a file position belongs to the server of that time.

    Raises TIME_UNCLEAR, STOP_WITHOUT_GTIDS and ``pymysql.MySQLError``.
    """
    text = configured_stop_json(config)
    if not text:
        return None
    if recorded is not None and recorded.requested == text:
        return StopPoint(recorded, shown(config.stop_at))
    place, moment = _NOWHERE, 0.0
    if config.stop_at.WhichOneof("at") == "time":
        moment = server_clock.parse_time(session, config.stop_at.time, config.source_id)
    else:
        wanted = config.stop_at.position
        if wanted.gtid_set:
            _check_gtids(session, info, config.source_id, wanted.gtid_set)
        place = SourcePosition(wanted.file, wanted.pos, wanted.gtid_set, info.identity if wanted.file else "")
    return StopPoint(Bound(BoundKind.STOP, text, place, moment), shown(config.stop_at))


def check_stop_is_ahead(config: config_pb2.SubTaskConfig, stop: StopPoint, session: Session, info: ServerInfo) -> None:
    """Check that a subtask that begins at the source's current end does not begin after its configured end.

    Raises STOP_BEHIND and ``pymysql.MySQLError``.
    """
    bound = stop.bound
    now = server_clock.now(session)
    here = current_position(session, info, gtid=bool(bound.position.gtid_set))
    if bound.moment:
        is_past = now >= bound.moment
    elif bound.position.file:
        is_past = here.reaches(bound.position) and here.file_order() != bound.position.file_order()
    else:
        have, wanted = GtidSet(here.gtid_set), GtidSet(bound.position.gtid_set)
        is_past = not have.lacks(wanted) and str(have) != str(wanted)
    if is_past:
        raise errors.replicate.STOP_BEHIND(
            task=config.task, source=config.source_id, stop=stop.shown, standing=f"it begins at {here}, now"
        )


def begins_at_source_end(config: config_pb2.SubTaskConfig) -> bool:
    """Whether the subtask begins at the end of the source's binlog."""
    has_start = config.start.file or config.start.gtid_set or config.start_at.WhichOneof("at") not in (None, "latest")
    return config.mode != config_pb2.TASK_MODE_INCREMENTAL or not has_start


def stop_reached(stop: StopPoint, found: Sequence[Checkpoint]) -> Bound:
    """The record of the end; ``found``: every lane's checkpoint there."""
    position = found[0].position
    return Bound(BoundKind.REACHED, stop.bound.requested, position, max(item.commit_time for item in found))


def reached_status(bound: Bound, config: config_pb2.SubTaskConfig) -> worker_pb2.SyncStatus:
    """The final status of a subtask that has ended at ``bound``."""
    return worker_pb2.SyncStatus(
        syncer_binlog=str(bound.position),
        syncer_binlog_gtid=bound.position.gtid_set,
        binlog_type="relay",
        stop_at=shown(config.stop_at),
    )


def _check_gtids(session: Session, info: ServerInfo, source: str, wanted: str) -> None:
    reason = ""
    if info.is_mariadb == (":" in wanted):
        reason = f"its GTIDs are of {info.flavor}'s form"
    elif not info.is_mariadb:
        [(mode,)] = rows(session, "SELECT @@GLOBAL.gtid_mode")
        if text_of(mode).upper() != "ON":
            reason = f"its gtid_mode is {text_of(mode)}"
    if reason:
        raise errors.replicate.STOP_WITHOUT_GTIDS(source=source, stop=wanted, reason=reason)

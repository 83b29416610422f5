"""A subtask's start and end as its run finds them: understood once, recorded at the target (worker/bounds.py)."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf import json_format

from proto import config_pb2, errors, worker_pb2
from proto.config.point import shown
from worker import source_time
from worker.bounds import Bound, Kind
from worker.connection import ServerInfo, Session, current_position, rows, text_of
from worker.position import SourcePosition
from worker.relay.gtid import GtidSet
from worker.replicate.checkpoint import Checkpoint
from worker.stop_at import Stop

_NOWHERE = SourcePosition("", 0)


def given(config: config_pb2.SubTaskConfig) -> str:
    """The configured end as JSON; "" for none."""
    return json_format.MessageToJson(config.stop_at, indent=None) if config.HasField("stop_at") else ""


def understood(
    config: config_pb2.SubTaskConfig, session: Session, info: ServerInfo, recorded: Bound | None
) -> Stop | None:
    """Where the subtask is to end; as it was understood at first, if that is ``recorded``: a time zone may change, and
    a place in a file belongs to the server that was there then.

    Raises TIME_UNCLEAR, STOP_WITHOUT_GTIDS and ``pymysql.MySQLError``.
    """
    text = given(config)
    if not text:
        return None
    if recorded is not None and recorded.given == text:
        return Stop(recorded, shown(config.stop_at))
    place, moment = _NOWHERE, 0.0
    if config.stop_at.WhichOneof("at") == "time":
        moment = source_time.moment(session, config.stop_at.time, config.source_id)
    else:
        wanted = config.stop_at.position
        if wanted.gtid_set:
            _check_gtids(session, info, config.source_id, wanted.gtid_set)
        place = SourcePosition(wanted.file, wanted.pos, wanted.gtid_set, info.identity if wanted.file else "")
    return Stop(Bound(Kind.STOP, text, place, moment), shown(config.stop_at))


def check_ahead(config: config_pb2.SubTaskConfig, stop: Stop, session: Session, info: ServerInfo) -> None:
    """For a subtask that begins at the source's end: that must not lie behind its end already.

    Raises STOP_BEHIND and ``pymysql.MySQLError``.
    """
    bound = stop.bound
    now = source_time.now(session)
    here = current_position(session, info, gtid=bool(bound.position.gtid_set))
    if bound.moment:
        behind = now >= bound.moment
    elif bound.position.file:
        behind = here.reaches(bound.position) and here.file_order() != bound.position.file_order()
    else:
        have, wanted = GtidSet(here.gtid_set), GtidSet(bound.position.gtid_set)
        behind = not have.lacks(wanted) and str(have) != str(wanted)
    if behind:
        raise errors.replicate.STOP_BEHIND(
            task=config.task, source=config.source_id, stop=stop.shown, standing=f"it begins at {here}, now"
        )


def begins_now(config: config_pb2.SubTaskConfig) -> bool:
    """Whether the subtask begins where the source's binlog ends."""
    told = config.start.file or config.start.gtid_set or config.start_at.WhichOneof("at") not in (None, "latest")
    return config.mode != config_pb2.TASK_MODE_INCREMENTAL or not told


def reached(stop: Stop, found: Sequence[Checkpoint]) -> Bound:
    """The record of the end; ``found``: every lane's checkpoint there."""
    position = found[0].position
    return Bound(Kind.REACHED, stop.bound.given, position, max(item.commit_time for item in found))


def reached_status(bound: Bound, config: config_pb2.SubTaskConfig) -> worker_pb2.SyncStatus:
    """The last word of a subtask that has ended there."""
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

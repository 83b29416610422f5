"""Records where a subtask's replication begins for certain, and where it has ended.

    subtask_bound   one row per subtask and bound; ``given``: what the user configured, as JSON of its message

``worker/target/records/subtask_record.py`` deletes them for start-task --remove-meta.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.target.records import subtask_rows


class BoundKind(enum.Enum):
    """SAFE_MODE_UNTIL: before this position the target may have a change already. STOP: where replication is to end, as
    first resolved. REACHED: where it has ended."""

    SAFE_MODE_UNTIL = "settled"
    STOP = "stop"
    REACHED = "reached"


@dataclass(frozen=True, slots=True)
class Bound:
    """``requested``: what the user configured, as JSON. ``moment``: Unix seconds, 0.0 when it is not a time."""

    kind: BoundKind
    requested: str
    position: SourcePosition
    moment: float


def read(session: Session, who: SubtaskKey) -> dict[BoundKind, Bound]:
    """Raises ``pymysql.MySQLError``."""
    columns = "`bound`, `given`, `source_file`, `source_pos`, `gtid_set`, `source_server`, `moment`"
    found: dict[BoundKind, Bound] = {}
    for kind, given, file, pos, gtids, server, moment in subtask_rows.select(session, who, "subtask_bound", columns):
        position = SourcePosition(str(file), int(pos), str(gtids), str(server))
        found[BoundKind(kind)] = Bound(BoundKind(kind), str(given), position, float(moment))
    return found


def write(session: Session, who: SubtaskKey, bound: Bound) -> None:
    """Inside the caller's transaction. Raises ``pymysql.MySQLError``."""
    at = bound.position
    row = (bound.kind.value, bound.requested, at.file, at.pos, at.gtid_set, at.server, bound.moment)
    subtask_rows.replace(session, who, "subtask_bound", [row])


def delete(session: Session, who: SubtaskKey, kind: BoundKind) -> None:
    """Inside the caller's transaction. Raises ``pymysql.MySQLError``."""
    subtask_rows.delete(session, who, "subtask_bound", "AND `bound` = %s", (kind.value,))

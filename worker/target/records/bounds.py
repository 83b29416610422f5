"""Records where a subtask's replication begins for certain, and where it has ended.

    subtask_bound   one row per subtask and bound; ``given``: what the user configured, as JSON of its message

``worker/target/records/subtask_record.py`` deletes them for start-task --remove-meta.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from shardmerge.worker.core.mysql.connection import Session, quote_name
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.subtask_key import SubtaskKey


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
    with session.cursor() as cursor:
        cursor.execute(
            "SELECT `bound`, `given`, `source_file`, `source_pos`, `gtid_set`, `source_server`, `moment` "
            f"FROM {quote_name(who.schema)}.`subtask_bound` WHERE `task` = %s AND `source` = %s",
            (who.task, who.source),
        )
        found = [
            Bound(
                BoundKind(kind), str(given), SourcePosition(str(file), int(pos), str(gtids), str(server)), float(moment)
            )
            for kind, given, file, pos, gtids, server, moment in cursor.fetchall()
        ]
    return {bound.kind: bound for bound in found}


def write(session: Session, who: SubtaskKey, bound: Bound) -> None:
    """Inside the caller's transaction. Raises ``pymysql.MySQLError``."""
    position = bound.position
    with session.cursor() as cursor:
        cursor.execute(
            f"REPLACE INTO {quote_name(who.schema)}.`subtask_bound` VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                who.task,
                who.source,
                bound.kind.value,
                bound.requested,
                position.file,
                position.pos,
                position.gtid_set,
                position.server,
                bound.moment,
            ),
        )


def delete(session: Session, who: SubtaskKey, kind: BoundKind) -> None:
    """Inside the caller's transaction. Raises ``pymysql.MySQLError``."""
    with session.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {quote_name(who.schema)}.`subtask_bound` "
            "WHERE `task` = %s AND `source` = %s AND `bound` = %s",
            (who.task, who.source, kind.value),
        )

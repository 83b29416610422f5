"""Where a subtask's replication begins for certain, and where it has ended: records at the target.

    subtask_bound   one row per subtask and bound; ``given``: what was asked for, as JSON of its message

``worker/meta.py`` deletes them for start-task --remove-meta.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from worker.connection import Session, quote_name
from worker.position import SourcePosition

TABLE = """CREATE TABLE IF NOT EXISTS {schema}.`subtask_bound` (
        `task` VARCHAR(191) NOT NULL,
        `source` VARCHAR(64) NOT NULL,
        `bound` VARCHAR(16) NOT NULL,
        `given` LONGTEXT NOT NULL,
        `source_file` VARCHAR(255) NOT NULL,
        `source_pos` BIGINT UNSIGNED NOT NULL,
        `gtid_set` LONGTEXT NOT NULL,
        `source_server` VARCHAR(64) NOT NULL,
        `moment` DOUBLE NOT NULL,
        PRIMARY KEY (`task`, `source`, `bound`)
    ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""


class Kind(enum.Enum):
    """SETTLED: before this place the target may hold a change already. STOP: where it is to end, as it was first
    understood. REACHED: where it has ended."""

    SETTLED = "settled"
    STOP = "stop"
    REACHED = "reached"


@dataclass(frozen=True, slots=True)
class Bound:
    """``moment``: Unix seconds, 0.0 when it is none."""

    kind: Kind
    given: str
    position: SourcePosition
    moment: float


def read(session: Session, schema: str, task: str, source: str) -> dict[Kind, Bound]:
    """Raises ``pymysql.MySQLError``."""
    with session.cursor() as cursor:
        cursor.execute(
            "SELECT `bound`, `given`, `source_file`, `source_pos`, `gtid_set`, `source_server`, `moment` "
            f"FROM {quote_name(schema)}.`subtask_bound` WHERE `task` = %s AND `source` = %s",
            (task, source),
        )
        found = [
            Bound(Kind(kind), str(given), SourcePosition(str(file), int(pos), str(gtids), str(server)), float(moment))
            for kind, given, file, pos, gtids, server, moment in cursor.fetchall()
        ]
    return {bound.kind: bound for bound in found}


def write(session: Session, schema: str, task: str, source: str, bound: Bound) -> None:
    """Inside the caller's transaction. Raises ``pymysql.MySQLError``."""
    position = bound.position
    with session.cursor() as cursor:
        cursor.execute(
            f"REPLACE INTO {quote_name(schema)}.`subtask_bound` VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                task,
                source,
                bound.kind.value,
                bound.given,
                position.file,
                position.pos,
                position.gtid_set,
                position.server,
                bound.moment,
            ),
        )


def forget(session: Session, schema: str, task: str, source: str, kind: Kind) -> None:
    """Inside the caller's transaction. Raises ``pymysql.MySQLError``."""
    with session.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {quote_name(schema)}.`subtask_bound` WHERE `task` = %s AND `source` = %s AND `bound` = %s",
            (task, source, kind.value),
        )

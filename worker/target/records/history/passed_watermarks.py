"""Records the tables whose high watermarks all of their lanes have cleared.

    snapshot_passed   one row per shard table; the worker that runs the table's lanes writes it once every lane has
                      committed up to the table's highest watermark or further

From then on the lanes apply every change and need no watermarks. Watermarks are positions in files of the server from
which the table was copied, and a worker that is bound to the source later may have no relay log from there. Without a
row, the watermarks are looked up. ``worker/target/records/subtask_record.py`` deletes the rows for
start-task --remove-meta.
"""

from __future__ import annotations

from collections.abc import Iterable

import pymysql
from pymysql.constants import ER

from shardmerge.worker.core.mysql.connection import Session, errno_of, quote_name
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.target.records import subtask_rows

NAME = "snapshot_passed"


def read(session: Session, who: SubtaskKey) -> frozenset[int]:
    """The numbers of these shard tables; empty when an earlier version did not create the table.

    Raises ``pymysql.MySQLError``.
    """
    try:
        return frozenset(int(shard) for (shard,) in subtask_rows.select(session, who, NAME, "`shard`"))
    except pymysql.MySQLError as error:
        if errno_of(error) != ER.NO_SUCH_TABLE:
            raise
        return frozenset()


def write(session: Session, who: SubtaskKey, shards: Iterable[int]) -> None:
    """Inside the caller's transaction, which checks the epoch. Raises ``pymysql.MySQLError``."""
    with session.cursor() as cursor:
        cursor.executemany(
            f"INSERT IGNORE INTO {quote_name(who.schema)}.`{NAME}` VALUES (%s, %s, %s)",
            [(who.task, who.source, shard) for shard in sorted(shards)],
        )

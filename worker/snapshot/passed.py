"""Which tables' high watermarks lie behind all of their lanes for good: a record at the target.

    snapshot_passed   one row per shard table; written by whoever runs the lanes that write the table's rows, once every
                      one of them has committed up to the table's highest mark or beyond

From then on every change counts, and nobody asks where the marks are: they are places in files of the server that was
read when the table was copied, and a worker that came to the source later may have no relay log from there. Without a
row it is not known, and the marks are looked for. ``worker/meta.py`` deletes the rows for start-task --remove-meta.
"""

from __future__ import annotations

from collections.abc import Iterable

import pymysql
from pymysql.constants import ER

from worker.connection import Session, errno_of, quote_name

NAME = "snapshot_passed"
TABLE = f"""CREATE TABLE IF NOT EXISTS {{schema}}.`{NAME}` (
        `task` VARCHAR(191) NOT NULL,
        `source` VARCHAR(64) NOT NULL,
        `shard` INT NOT NULL,
        PRIMARY KEY (`task`, `source`, `shard`)
    ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""


def read(session: Session, schema: str, task: str, source: str) -> frozenset[int]:
    """The numbers of those shard tables; none where an earlier version has left no such record.

    Raises ``pymysql.MySQLError``.
    """
    try:
        with session.cursor() as cursor:
            cursor.execute(
                f"SELECT `shard` FROM {quote_name(schema)}.`{NAME}` WHERE `task` = %s AND `source` = %s", (task, source)
            )
            return frozenset(int(row[0]) for row in cursor.fetchall())
    except pymysql.MySQLError as error:
        if errno_of(error) != ER.NO_SUCH_TABLE:
            raise
        return frozenset()


def write(session: Session, schema: str, task: str, source: str, shards: Iterable[int]) -> None:
    """Inside the caller's transaction, which keeps the epoch. Raises ``pymysql.MySQLError``."""
    with session.cursor() as cursor:
        cursor.executemany(
            f"INSERT IGNORE INTO {quote_name(schema)}.`{NAME}` VALUES (%s, %s, %s)",
            [(task, source, shard) for shard in sorted(shards)],
        )

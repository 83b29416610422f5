"""Reads, replaces and deletes the rows of one subtask in a table of the meta schema.

``more``: what follows the subtask's condition in the statement, with %s for ``values``. Every function raises
``pymysql.MySQLError``; what writes is inside the caller's transaction, if there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardmerge.worker.core.mysql.connection import Session, quote_name
from shardmerge.worker.core.subtask_key import SubtaskKey

_OF_SUBTASK = "WHERE `task` = %s AND `source` = %s"


def select(
    session: Session, who: SubtaskKey, table: str, columns: str, more: str = "", values: Sequence[object] = ()
) -> list[tuple[Any, ...]]:
    """``columns``: as after SELECT."""
    with session.cursor() as cursor:
        cursor.execute(
            f"SELECT {columns} FROM {quote_name(who.schema)}.`{table}` {_OF_SUBTASK} {more}",
            (who.task, who.source, *values),
        )
        return list(cursor.fetchall())


def replace(session: Session, who: SubtaskKey, table: str, rows: Sequence[Sequence[object]]) -> None:
    """``rows``: their columns after those of the subtask, in the order of the table."""
    if not rows:
        return
    marks = ", ".join(["%s"] * (2 + len(rows[0])))
    with session.cursor() as cursor:
        cursor.executemany(
            f"REPLACE INTO {quote_name(who.schema)}.`{table}` VALUES ({marks})",
            [(who.task, who.source, *row) for row in rows],
        )


def delete(session: Session, who: SubtaskKey, table: str, more: str = "", values: Sequence[object] = ()) -> None:
    with session.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {quote_name(who.schema)}.`{table}` {_OF_SUBTASK} {more}", (who.task, who.source, *values)
        )

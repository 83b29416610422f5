"""Records columns that a shard table dropped while its target keeps them for other shard tables (optimistic).

    dropped_column   one row per shard table and column

The table's older rows at the target still have the column's values: if the table added a column of that name again, it
would get these old values. A record is deleted when the target drops the column.
"""

from __future__ import annotations

from collections.abc import Mapping

from shardmerge.worker.core.mysql.connection import Session, quote_name

Member = tuple[str, int]
"""A shard table of the task: (source, number within the subtask)."""


def read(session: Session, schema: str, task: str) -> dict[Member, frozenset[str]]:
    """Dropped columns by shard table, with lower-case names; only shard tables of the task that have some."""
    found: dict[Member, set[str]] = {}
    with session.cursor() as cursor:
        cursor.execute(
            f"SELECT `source`, `number`, `column` FROM {quote_name(schema)}.`dropped_column` WHERE `task` = %s", (task,)
        )
        for source, number, column in cursor.fetchall():
            found.setdefault((str(source), int(number)), set()).add(str(column))
    return {member: frozenset(columns) for member, columns in found.items()}


def write(session: Session, schema: str, task: str, dropped: Mapping[Member, frozenset[str]]) -> None:
    """Replace the records of each of these tables, inside the caller's transaction."""
    with session.cursor() as cursor:
        for (source, number), columns in sorted(dropped.items()):
            cursor.execute(
                f"DELETE FROM {quote_name(schema)}.`dropped_column` "
                "WHERE `task` = %s AND `source` = %s AND `number` = %s",
                (task, source, number),
            )
            for column in sorted(columns):
                cursor.execute(
                    f"INSERT INTO {quote_name(schema)}.`dropped_column` VALUES (%s, %s, %s, %s)",
                    (task, source, number, column),
                )

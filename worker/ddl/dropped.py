"""Columns that a shard table dropped while its target keeps them for others (optimistic): the records at the target.

    dropped_column   one row per shard table and column

The table's older rows at the target still hold the column's values: a column of that name that comes back would find
them. A row goes when the target's column goes.
"""

from __future__ import annotations

from collections.abc import Mapping

from worker.connection import Session, quote_name

Member = tuple[str, int]
"""A shard table of the task: its source and its number there."""

TABLE = """CREATE TABLE IF NOT EXISTS {schema}.`dropped_column` (
        `task` VARCHAR(191) NOT NULL,
        `source` VARCHAR(64) NOT NULL,
        `number` INT NOT NULL,
        `column` VARCHAR(64) NOT NULL,
        PRIMARY KEY (`task`, `source`, `number`, `column`)
    ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""
NAME = "dropped_column"


def read(session: Session, schema: str, task: str) -> dict[Member, frozenset[str]]:
    """Lower-case names, of all shard tables of the task that have any."""
    found: dict[Member, set[str]] = {}
    with session.cursor() as cursor:
        cursor.execute(
            f"SELECT `source`, `number`, `column` FROM {quote_name(schema)}.`dropped_column` WHERE `task` = %s", (task,)
        )
        for source, number, column in cursor.fetchall():
            found.setdefault((str(source), int(number)), set()).add(str(column))
    return {member: frozenset(columns) for member, columns in found.items()}


def write(session: Session, schema: str, task: str, dropped: Mapping[Member, frozenset[str]]) -> None:
    """Inside the caller's transaction: these are all that each of the tables has dropped."""
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

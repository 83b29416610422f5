"""Shard tables whose recorded structure an operator has deleted: the records at the target.

    forgotten_structure   one row per shard table; gone in the transaction that records its structure anew

The old structure stays in its place until then, for those who read the records of all tables meanwhile.
"""

from __future__ import annotations

from worker.connection import Session, quote_name

TABLE = """CREATE TABLE IF NOT EXISTS {schema}.`forgotten_structure` (
        `task` VARCHAR(191) NOT NULL,
        `source` VARCHAR(64) NOT NULL,
        `number` INT NOT NULL,
        PRIMARY KEY (`task`, `source`, `number`)
    ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""
NAME = "forgotten_structure"


def read(session: Session, schema: str, task: str, source: str) -> frozenset[int]:
    """The shard tables' numbers."""
    with session.cursor() as cursor:
        cursor.execute(
            f"SELECT `number` FROM {quote_name(schema)}.`forgotten_structure` WHERE `task` = %s AND `source` = %s",
            (task, source),
        )
        return frozenset(int(number) for (number,) in cursor.fetchall())


def write(session: Session, schema: str, task: str, source: str, number: int) -> None:
    """Inside the caller's transaction."""
    with session.cursor() as cursor:
        cursor.execute(
            f"REPLACE INTO {quote_name(schema)}.`forgotten_structure` VALUES (%s, %s, %s)", (task, source, number)
        )


def remembered(session: Session, schema: str, task: str, source: str, number: int) -> None:
    """Inside the caller's transaction, which records the structure."""
    with session.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {quote_name(schema)}.`forgotten_structure` "
            "WHERE `task` = %s AND `source` = %s AND `number` = %s",
            (task, source, number),
        )

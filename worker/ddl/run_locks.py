"""Which lock's statement has run at a target table: the record at the target.

lock_run   one row per task and target table: the last lock whose statement has run there, and the structure of the
           shard tables behind it, which is what the target corresponds to from then on
"""

from __future__ import annotations

from dataclasses import dataclass

from worker.connection import Session, quote_name
from worker.plan import TargetTable

TABLE = """CREATE TABLE IF NOT EXISTS {schema}.`lock_run` (
        `task` VARCHAR(191) NOT NULL,
        `target_schema` VARCHAR(64) NOT NULL,
        `target_table` VARCHAR(64) NOT NULL,
        `generation` VARCHAR(64) NOT NULL,
        `structure` VARCHAR(64) NOT NULL,
        PRIMARY KEY (`task`, `target_schema`, `target_table`)
    ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

NAME = "lock_run"


@dataclass(frozen=True, slots=True)
class LockRun:
    """``structure``: digest of the shard tables' structure behind the statement."""

    generation: str
    structure: str


def read(session: Session, schema: str, task: str) -> dict[TargetTable, LockRun]:
    """By target table."""
    with session.cursor() as cursor:
        cursor.execute(
            f"SELECT `target_schema`, `target_table`, `generation`, `structure` FROM {quote_name(schema)}.`lock_run` "
            "WHERE `task` = %s",
            (task,),
        )
        return {
            TargetTable(str(one), str(two)): LockRun(str(generation), str(structure))
            for one, two, generation, structure in cursor.fetchall()
        }


def write(session: Session, schema: str, task: str, target: TargetTable, run: LockRun) -> None:
    """Inside the caller's transaction."""
    with session.cursor() as cursor:
        cursor.execute(
            f"REPLACE INTO {quote_name(schema)}.`lock_run` VALUES (%s, %s, %s, %s, %s)",
            (task, *target.names, run.generation, run.structure),
        )

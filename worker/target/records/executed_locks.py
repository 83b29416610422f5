"""Records the last sharding-DDL lock whose statement has run at a target table.

lock_run   one row per task and target table: the last lock whose statement has run there, and the structure of the
           shard tables after it, to which the target corresponds from then on
"""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.worker.core.mysql.connection import Session, quote_name
from shardmerge.worker.core.table_plan import TargetTable


@dataclass(frozen=True, slots=True)
class LockRun:
    """``structure``: digest of the shard tables' structure after the statement; "" when the target has changed since
    then."""

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


def pass_over(session: Session, schema: str, task: str, target: TargetTable, generation: str) -> bool:
    """Inside the caller's transaction: the lock ends, and no source runs its statement; what the target is then is not
    known. False: that is recorded already, or that it has run."""
    name = f"{quote_name(schema)}.`lock_run`"
    with session.cursor() as cursor:
        cursor.execute(
            f"SELECT `generation` FROM {name} WHERE `task` = %s AND `target_schema` = %s AND `target_table` = %s "
            "FOR UPDATE",
            (task, *target.names),
        )
        if generation in {str(found) for (found,) in cursor.fetchall()}:
            return False
    write(session, schema, task, target, LockRun(generation, ""))
    return True


def forget_structure(session: Session, schema: str, task: str, target: TargetTable) -> None:
    """The target's structure changes without a lock, inside the caller's transaction: it is no longer the one after the
    last lock."""
    with session.cursor() as cursor:
        cursor.execute(
            f"UPDATE {quote_name(schema)}.`lock_run` SET `structure` = '' "
            "WHERE `task` = %s AND `target_schema` = %s AND `target_table` = %s",
            (task, *target.names),
        )

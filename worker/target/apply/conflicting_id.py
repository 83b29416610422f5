"""Finds the merged id of the row that prevents an INSERT: it has the same value of another unique key."""

from __future__ import annotations

from dataclasses import dataclass

import pymysql
from pymysql.constants import ER

from shardmerge.worker.core.mysql.connection import Session, errno_of, quote_name, rows, send, text_of
from shardmerge.worker.core.table_plan import PartitionId, TablePlan

_SAVED = "before_the_search"


@dataclass(frozen=True, slots=True)
class ConflictingId:
    """``column``: of the target table. ``text``: the id, in decimal digits."""

    column: str
    text: str


def id_column(plan: TablePlan) -> str | None:
    """The target's column whose `partition id` range only this shard table has."""
    for item in plan.columns:
        if isinstance(item.mapping, PartitionId) and not item.mapping.is_shared:
            return item.target_name
    return None


def conflicting_id(session: Session, plan: TablePlan, insert: bytes) -> ConflictingId | None:
    """The id of a row with which ``insert`` conflicts, of whatever key: the server finds it. None if it is unknown.

    Inside the caller's transaction, in which nothing changes. Raises ``pymysql.MySQLError``, but not for a missing
    privilege.
    """
    column = id_column(plan)
    if column is None:
        return None
    name = quote_name(column).encode()
    send(session, f"SAVEPOINT {_SAVED}".encode())
    try:
        rows(session, "SELECT LAST_INSERT_ID(0)")
        send(session, insert + b" ON DUPLICATE KEY UPDATE " + name + b" = LAST_INSERT_ID(" + name + b")")
        found = text_of(rows(session, "SELECT LAST_INSERT_ID()")[0][0])
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR, ER.DUP_ENTRY):
            raise
        found = "0"
    send(session, f"ROLLBACK TO {_SAVED}".encode())
    return None if found == "0" else ConflictingId(column, found)

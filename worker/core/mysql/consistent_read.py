"""Reads several records of the target as of one point in time."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress

import pymysql

from shardmerge.worker.core.mysql.connection import Session, execute


@contextmanager
def consistent_read(session: Session) -> Generator[None]:
    """All reads of ``session`` in the block see the data as of the block's start. For reading only, outside of a
    transaction.

    A session of the target sees, in each statement, what is committed when that statement starts
    (worker/core/mysql/connection.py). One transaction may move an item from one record to another, such as a shard
    table that first is parked and then has joined. If it commits between two statements, neither of them sees the
    item. Raises ``pymysql.MySQLError``.
    """
    execute(session, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # of the next transaction alone
    execute(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    try:
        yield
    finally:
        with suppress(pymysql.MySQLError):  # the connection was lost, or the block's error has the cause
            execute(session, "COMMIT")

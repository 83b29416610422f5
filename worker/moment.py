"""Several records of the target as of one moment."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress

import pymysql

from worker.connection import Session, execute


@contextmanager
def one_moment(session: Session) -> Generator[None]:
    """In the block, all that ``session`` reads is as it was when the block began. For reading alone, in no transaction.

    A session of the target reads what is committed by each statement's own time (worker/connection.py). What goes from
    one record to another in one transaction, as a shard table does that waits, joins and has joined, is then in neither
    when it goes between two statements. Raises ``pymysql.MySQLError``.
    """
    execute(session, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # of the next transaction alone
    execute(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    try:
        yield
    finally:
        with suppress(pymysql.MySQLError):  # it was lost, or the block's error says why
            execute(session, "COMMIT")

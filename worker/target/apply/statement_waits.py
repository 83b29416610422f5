"""Finds out, for `query-status`, which lock of the target a running statement waits for, and which connection holds it.

For single statements that may wait long: DDL, deferred indexes, removed rows. Lanes have
worker/replicate/target_waits.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager

import pymysql

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import repeat
from shardmerge.worker.core.mysql.connection import Session, Side, connect, endpoint_of, rows
from shardmerge.worker.core.mysql.lock_waits import connection_number, wait_phrase
from shardmerge.worker.core.mysql.server_errors import errno_of
from shardmerge.worker.core.table_plan import TargetTable

log = get_logger()

_LOOK_SECONDS = 2.0
_ANSWER_SECONDS = 10.0


@contextmanager
def naming_waits(session: Session, tables: Sequence[TargetTable], show: Callable[[str], None]) -> Generator[None]:
    """While a statement of ``session`` in the block waits for a lock, call ``show`` with a phrase that names the lock,
    and with "" when it waits no longer. ``tables``: of the statement.

    Every two seconds a connection of its own looks: a shorter block opens none. ``show`` is called by another thread,
    never after the block.
    """
    over, turn = threading.Event(), threading.Lock()
    endpoint, number, names = endpoint_of(session), connection_number(session), [table.quoted for table in tables]

    def look() -> str:
        try:
            with closing(connect(endpoint, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)) as second:
                return wait_phrase(second, number, names)
        except ShardmergeError as error:
            log.debug("lock waits not read", error=str(error))
        except pymysql.MySQLError as error:
            log.debug("lock waits not read", errno=errno_of(error))
        return ""

    shown = ""

    def follow() -> None:
        nonlocal shown
        found = look()
        with turn:
            if found != shown and not over.is_set():
                show(found)
        shown = found

    threading.Thread(target=repeat, args=(follow, _LOOK_SECONDS, over), name="statement-waits", daemon=True).start()
    try:
        yield
    finally:
        with turn:
            over.set()


def user_lock_phrase(session: Session, name: str, tables: Sequence[TargetTable]) -> str:
    """One phrase for a wait for the server's lock ``name`` (GET_LOCK) of statements on ``tables``."""
    of_tables = ", ".join(table.quoted for table in tables)
    [(holder,)] = rows(session, "SELECT IS_USED_LOCK(%s)", (name,))
    held = "" if holder is None else f", which connection {holder} of the target holds"
    return f"the lock '{name}' of statements on {of_tables}{held}"

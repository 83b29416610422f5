"""Where a read of the source stands in its binlog."""

from __future__ import annotations

import time
from collections.abc import Callable

from worker.connection import ServerInfo, Session, current_position, rows, text_of
from worker.position import SourcePosition

_SETTLE_SECONDS = 1.0
_POLL_SECONDS = 0.005


def consistent_position(session: Session) -> SourcePosition | None:
    """The exact binlog position of this session's ``START TRANSACTION WITH CONSISTENT SNAPSHOT``.

    None where the server does not tell. MariaDB (and Percona Server) keep commits out while they open the
    snapshot and remember the position: MariaDB Knowledge Base, "Enhancements for START TRANSACTION WITH
    CONSISTENT SNAPSHOT". Raises ``pymysql.MySQLError``.
    """
    found = {
        text_of(name).lower(): text_of(value) for name, value in rows(session, "SHOW STATUS LIKE 'binlog_snapshot_%'")
    }
    file, position = found.get("binlog_snapshot_file", ""), found.get("binlog_snapshot_position", "")
    return SourcePosition(file, int(position)) if file and position else None


def open_consistent(session: Session) -> SourcePosition | None:
    """Start a consistent snapshot; its position (see :func:`consistent_position`)."""
    with session.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    return consistent_position(session)


def low_watermark(session: Session, info: ServerInfo) -> SourcePosition:
    """A position before which every transaction is visible to a SELECT that starts now.

    The end of the binlog is not such a position: a transaction is written to the binlog first and becomes
    visible when the engine commits it, which may take seconds (semi-synchronous replication waits for a replica
    in between). MariaDB's consistent snapshot tells the position that its read view has. MySQL
    does not: there the commits that were under way when the end of the binlog was read are waited for.

    Raises ``pymysql.MySQLError`` and errors.relay.NO_BINLOG.
    """
    position = open_consistent(session)
    session.rollback()
    if position is not None:
        return position
    position = current_position(session, info)
    _await_commits(session)
    return position


def high_watermark(session: Session, info: ServerInfo) -> SourcePosition:
    """A position at or after everything a finished SELECT has seen: the end of the binlog."""
    return current_position(session, info)


def _await_commits(session: Session) -> None:
    """Wait until every transaction that is in the binlog now has been committed by the engine.

    With GTIDs a transaction owns its GTID from before it is written until after the engine's commit
    (``gtid_owned``, MySQL 8.4 Reference Manual 19.1.6.5). Without them only time tells: a second, and no
    session that waits for a semi-synchronous replica.
    """
    [(mode, owned)] = rows(session, "SELECT @@GLOBAL.gtid_mode, @@GLOBAL.gtid_owned")
    if text_of(mode).upper() == "ON":
        pending = owned_gtids(text_of(owned))
        _poll(lambda: pending.isdisjoint(owned_gtids(_global(session, "gtid_owned"))))
        return
    end = time.monotonic() + _SETTLE_SECONDS
    _poll(lambda: time.monotonic() >= end and not _semi_sync_waiters(session))


def owned_gtids(text: str) -> frozenset[str]:
    """The GTIDs in ``gtid_owned``: ``uuid:number#thread[:number#thread…], uuid:…``."""
    found: set[str] = set()
    for part in text.replace("\n", "").split(","):
        uuid, _, numbers = part.strip().partition(":")
        for number in numbers.split(":"):
            if number:
                found.add(f"{uuid}:{number.partition('#')[0]}")
    return frozenset(found)


def _global(session: Session, variable: str) -> str:
    [(value,)] = rows(session, f"SELECT @@GLOBAL.{variable}")
    return text_of(value)


def _semi_sync_waiters(session: Session) -> int:
    found = rows(session, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_%_wait_sessions'")
    return sum(int(text_of(value)) for _, value in found)


def _poll(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(_POLL_SECONDS)

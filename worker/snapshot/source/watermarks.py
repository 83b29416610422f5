"""Determines the binlog positions between which a read of the source lies."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from shardmerge.proto import errors
from shardmerge.worker.core.mysql.connection import ServerInfo, Session, current_position, rows, text_of
from shardmerge.worker.core.position import SourcePosition

_COMMIT_SECONDS = 60.0
_POLL_SECONDS = 0.005
_QUICK_POLLS = 10
_EVENTS_AT_ONCE = 1000


def consistent_position(session: Session) -> SourcePosition | None:
    """The exact binlog position of this session's ``START TRANSACTION WITH CONSISTENT SNAPSHOT``.

    None if the server does not report it. MariaDB (and Percona Server) block commits while they open the
    snapshot and remember the position: MariaDB Knowledge Base, "Enhancements for START TRANSACTION WITH
    CONSISTENT SNAPSHOT". Raises ``pymysql.MySQLError``.
    """
    found = {
        text_of(name).lower(): text_of(value) for name, value in rows(session, "SHOW STATUS LIKE 'binlog_snapshot_%'")
    }
    file, position = found.get("binlog_snapshot_file", ""), found.get("binlog_snapshot_position", "")
    return SourcePosition(file, int(position)) if file and position else None


def open_consistent(session: Session) -> SourcePosition | None:
    """Start a consistent snapshot; returns its position (see :func:`consistent_position`)."""
    with session.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    return consistent_position(session)


def low_watermark(session: Session, info: ServerInfo, source: str) -> SourcePosition:
    """A position before which every transaction is visible to a SELECT that starts now.

    The end of the binlog is not such a position: a transaction is written to the binlog first and becomes
    visible when the engine commits it, which may take seconds (semi-synchronous replication waits for a replica
    in between). MariaDB reports the position of a consistent snapshot's read view. MySQL does not: there this function
    waits for the commits that were in progress when it read the end of the binlog.

    ``source``: its id, for messages. Raises ``pymysql.MySQLError``, errors.relay.NO_BINLOG and
    errors.snapshot.COMMITS_PENDING.
    """
    position = open_consistent(session)
    session.rollback()
    if position is not None:
        return replace(position, server=info.identity)
    position = end_of_binlog(session, info)
    _await_commits(session, info, position, source)
    return position


def high_watermark(session: Session, info: ServerInfo) -> SourcePosition:
    """A position at or after everything that a finished SELECT has seen: the end of the binlog."""
    return end_of_binlog(session, info)


def end_of_binlog(session: Session, info: ServerInfo) -> SourcePosition:
    """The end of the binlog as a file position, without the GTID set, which MySQL reads slightly earlier."""
    return replace(current_position(session, info), gtid_set="")


def _await_commits(session: Session, info: ServerInfo, position: SourcePosition, source: str) -> None:
    """Wait until every transaction that is in the binlog at ``position`` has been committed by the engine.

    A transaction with a GTID owns it from before it is written until after the engine's commit (``gtid_owned``,
    MySQL 8.4 Reference Manual 19.1.6.5). The server only counts transactions without one, see :class:`_Anonymous`.
    """
    pending = owned_gtids(_global(session, "gtid_owned"))
    if pending:
        _poll(lambda: pending.isdisjoint(owned_gtids(_global(session, "gtid_owned"))), position, source)
    if _global(session, "gtid_mode").upper() != "ON":
        _poll(_Anonymous(session, info, position).are_committed, position, source)


class _Anonymous:
    """Decides whether the transactions without GTID that the binlog holds at ``position`` are committed.

    The server counts those between the binlog and the end of the engine's commit
    (``Ongoing_anonymous_transaction_count``, MySQL 8.4 Reference Manual 19.1.4.1). One of these shows that all are
    committed:

    * none is in progress, at any later time;
    * the binlog continues in another file: a file ends when all of its transactions are committed (new_file_impl() in
      sql/binlog.cc);
    * at least as many were written after ``position`` as are in progress, and the engine commits in the binlog's order
      (binlog_order_commits): so those in progress are the last ones. On a busy server there is always one.
    """

    def __init__(self, session: Session, info: ServerInfo, position: SourcePosition) -> None:
        self._session = session
        self._info = info
        self._file = position.file
        self._counted_to = position.pos
        self._written_after = 0
        self._asked = 0

    def are_committed(self) -> bool:
        self._asked += 1
        if self._asked > _QUICK_POLLS:
            if current_position(self._session, self._info).file != self._file:
                return True
            # The written ones are counted before the ones in progress.
            self._count_written()
        under_way = self._under_way()
        return under_way == 0 or (self._written_after >= under_way and self._in_order())

    def _under_way(self) -> int:
        [(_, count)] = rows(self._session, "SHOW GLOBAL STATUS LIKE 'Ongoing\\_anonymous\\_transaction\\_count'")
        return int(text_of(count))

    def _in_order(self) -> bool:
        return _global(self._session, "binlog_order_commits").upper() in ("1", "ON")

    def _count_written(self) -> None:
        found = rows(
            self._session,
            f"SHOW BINLOG EVENTS IN %s FROM {self._counted_to} LIMIT {_EVENTS_AT_ONCE}",
            (self._file,),
        )
        if found:
            self._written_after += count_anonymous(found)
            self._counted_to = int(text_of(found[-1][4]))


def count_anonymous(events: Sequence[Sequence[object]]) -> int:
    """Transactions without GTID among rows of SHOW BINLOG EVENTS (Log_name, Pos, Event_type, …)."""
    return sum(text_of(event[2]) == "Anonymous_Gtid" for event in events)


def owned_gtids(text: str) -> frozenset[str]:
    """The GTIDs in ``gtid_owned``: ``uuid:[tag:]number#thread[:number#thread…], uuid:…``."""
    found: set[str] = set()
    for part in text.replace("\n", "").split(","):
        prefix, *tokens = part.strip().split(":")
        uuid = prefix
        for token in tokens:
            if token[:1].isdigit():
                found.add(f"{prefix}:{token.partition('#')[0]}")
            else:  # the tag of the numbers that follow, MySQL 8.3 and newer
                prefix = f"{uuid}:{token}"
    return frozenset(found)


def _global(session: Session, variable: str) -> str:
    [(value,)] = rows(session, f"SELECT @@GLOBAL.{variable}")
    return text_of(value)


def _poll(condition: Callable[[], bool], position: SourcePosition, source: str) -> None:
    deadline = time.monotonic() + _COMMIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise errors.snapshot.COMMITS_PENDING(source=source, position=position, seconds=int(_COMMIT_SECONDS))
        time.sleep(_POLL_SECONDS)

"""Determines the binlog positions between which a read of the source lies."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pymysql
from pymysql.constants import CR

from shardmerge.proto import errors
from shardmerge.worker.core.mysql.connection import ServerInfo, Session, current_position, execute, rows, text_of
from shardmerge.worker.core.position import SourcePosition

_COMMIT_SECONDS = 60.0
_POLL_SECONDS = 0.005
_QUICK_POLLS = 10
_EVENTS_AT_ONCE = 1000
_QUICK_OPENINGS = 3
_ROUNDS = 20
_ANSWERS = 21
_AGREEING = 17
_BETWEEN_ANSWERS_SECONDS = 0.004


def committed_position(session: Session, info: ServerInfo) -> SourcePosition | None:
    """A position before which every transaction is visible to a SELECT that starts after this call.

    None if the server does not report one: MySQL reports only the end of the binlog, which is not such a position (see
    :func:`low_watermark`). MariaDB reports where the last commit of its engines ends, or, in a session with a
    consistent snapshot, the snapshot's position: MariaDB Knowledge Base, "Enhancements for START TRANSACTION WITH
    CONSISTENT SNAPSHOT".

    It is not reliably the position of the session's own snapshot. The server writes file and position into variables
    that all sessions share, and reads them again after a moment (TC_LOG_BINLOG::set_status_variables() in sql/log.cc).
    Another session's SHOW STATUS in this moment replaces them: seen on 10.11 with 2 of 100 answers when two sessions
    query all the time. But each such position was committed before this call ended.

    Raises ``pymysql.MySQLError``.
    """
    if not info.is_mariadb:
        return None
    position = _reported(session)
    while position is not None:
        again = _reported(session)
        # File and position are not read at once either.
        if again is not None and again.file == position.file:
            return replace(again, server=info.identity)
        position = again
    return None


def _reported(session: Session) -> SourcePosition | None:
    found = {
        text_of(name).lower(): text_of(value) for name, value in rows(session, "SHOW STATUS LIKE 'binlog_snapshot_%'")
    }
    file, position = found.get("binlog_snapshot_file", ""), found.get("binlog_snapshot_position", "")
    return SourcePosition(file, int(position)) if file and position else None


class UnknownPosition(Exception):
    """The position of a consistent snapshot is not known: the table has changed while it was opened."""


def open_consistent(
    session: Session,
    info: ServerInfo,
    source: str,
    is_unchanged: Callable[[SourcePosition, SourcePosition], bool],
    *,
    always: bool,
) -> SourcePosition:
    """Start a consistent snapshot; returns a position at which the table is as the snapshot sees it.

    The snapshot is of a moment between ``low``, which was committed before, and ``end``, the end of the binlog
    afterwards. If both are equal, or the table does not change between them, its state is that of ``end``.
    ``is_unchanged``: whether it does not, for these two. ``always``: a position is needed also when the table changes
    all the time: the one that nearly all of many answers of the server contain (see :func:`committed_position`).

    The server must report positions. Raises UnknownPosition, errors.snapshot.POSITION_UNKNOWN,
    ``pymysql.MySQLError``, and what ``is_unchanged`` raises.
    """
    for attempt in range(_QUICK_OPENINGS + 1):
        low = committed_position(session, info)
        if low is None:  # it did before: a fail-over to another kind of server
            raise pymysql.OperationalError(CR.CR_SERVER_LOST, "the server no longer reports binlog_snapshot_*")
        execute(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        end = end_of_binlog(session, info)
        if low == end or (attempt == _QUICK_OPENINGS and is_unchanged(low, end)):
            return end
        if attempt == _QUICK_OPENINGS and always:
            return replace(_agreed_position(session, source), server=info.identity)
        session.rollback()
    raise UnknownPosition


def _agreed_position(session: Session, source: str) -> SourcePosition:
    """The position that nearly all answers contain; the others are of other sessions."""
    count = 0
    for _ in range(_ROUNDS):
        answers: Counter[SourcePosition | None] = Counter()
        for _ in range(_ANSWERS):
            answers[_reported(session)] += 1
            time.sleep(random.uniform(0.0, _BETWEEN_ANSWERS_SECONDS))  # noqa: S311 - not in step with another session
        [(position, count)] = answers.most_common(1)
        if position is not None and count >= _AGREEING:
            return position
    raise errors.snapshot.POSITION_UNKNOWN(source=source, answers=_ANSWERS, agreeing=count)


def low_watermark(session: Session, info: ServerInfo, source: str) -> SourcePosition:
    """A position before which every transaction is visible to a SELECT that starts now.

    The end of the binlog is not such a position: a transaction is written to the binlog first and becomes
    visible when the engine commits it, which may take seconds (semi-synchronous replication waits for a replica
    in between). MariaDB reports what its engines have committed. MySQL does not: there this function
    waits for the commits that were in progress when it read the end of the binlog.

    ``source``: its id, for messages. Raises ``pymysql.MySQLError``, errors.relay.NO_BINLOG and
    errors.snapshot.COMMITS_PENDING.
    """
    position = committed_position(session, info)
    if position is None:
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

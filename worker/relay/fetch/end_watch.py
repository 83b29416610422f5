"""Watches the end of the source's binlog: if it is before the relay's head, it is not the binlog that was read.

The dump does not show that. MariaDB's dump thread keeps a file open that RESET MASTER removed and sends heartbeats with
its old position as long as the new file of that name is shorter (seen on 10.11).
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import cast

import pymysql

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import LAST, LoopThread, Stop, repeat
from shardmerge.worker.core.mysql.cancellable_session import close_quietly
from shardmerge.worker.core.mysql.connection import (
    CONNECT_SECONDS,
    Endpoint,
    ErrorKind,
    ServerInfo,
    Session,
    Side,
    coded_errors,
    connect,
    current_position,
    errno_of,
    kind_of,
    server_info,
    to_coded,
)
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.log.relay_log import RelayLog

LOOK_SECONDS = 5.0
"""Interval between two checks of an idle source."""

_AFTER_FAILURE_SECONDS = 30.0


def binlog_end(session: Session, info: ServerInfo, source: str, endpoint: Endpoint) -> SourcePosition | None:
    """The current end of the binlog; None when the account lacks the privilege (BINLOG MONITOR, REPLICATION CLIENT).

    Raises NO_BINLOG and the errors of shardmerge.worker.core.mysql.server_errors.to_coded.
    """
    try:
        return current_position(session, info)
    except pymysql.MySQLError as error:
        if kind_of(errno_of(error)) is ErrorKind.PRIVILEGE:
            return None
        raise to_coded(error, endpoint, Side.SOURCE, source) from error


def ends_before(head: SourcePosition, end: SourcePosition | None) -> bool:
    """Whether the source's ``end``, read after events up to ``head`` were stored, is before ``head``: then its binlog
    is another one. False for positions of different servers, which cannot be compared."""
    return end is not None and end.same_server(head) and end.file_order() < head.file_order()


class EndWatch:
    """A thread that reads the end of an idle source's binlog, on a connection of its own.

    ``found``: called with the head and the end when the end is before the head. An error of this connection is
    ignored: the dump, which still runs, reports failures of the source.
    """

    def __init__(
        self, log: RelayLog, endpoint: Endpoint, found: Callable[[SourcePosition, SourcePosition], None]
    ) -> None:
        self._log = log
        self._endpoint = endpoint
        self._found = found
        self._logger = get_logger(source=log.source)
        self._head = log.head()
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._info: ServerInfo | None = None
        self._thread = LoopThread(f"relay-watch-{log.source}", self._run)
        self.start = self._thread.start

    def stop(self) -> None:
        """End the thread; returns when it has ended."""
        self._thread.end(0)
        with self._lock:
            if self._session is not None:
                made = cast("socket.socket | None", vars(self._session)["_sock"])
                if made is not None:
                    with contextlib.suppress(OSError):  # closed already
                        made.shutdown(socket.SHUT_RDWR)
        self._thread.end()

    def _run(self, stop: Stop) -> None:
        try:
            repeat(self._look, LOOK_SECONDS, stop)
        finally:
            self._close()

    def _look(self) -> float | None:
        before, self._head = self._head, self._log.head()
        if self._head is not before:
            return None  # the source sends events: not idle
        try:
            end = self._ask()
        except ShardmergeError as error:
            self._close()
            self._logger.debug("cannot read the end of the source's binlog", error=str(error))
            return _AFTER_FAILURE_SECONDS
        if end is None:
            self._logger.warning("account may not read the binlog's end: a RESET MASTER is noticed late")
            return LAST
        if self._log.segments() and ends_before(self._head.position, end):
            self._found(self._head.position, end)
        return None

    def _ask(self) -> SourcePosition | None:
        session, info = self._session, self._info
        if session is None or info is None:
            session = connect(self._endpoint, Side.SOURCE, name=self._log.source, read_timeout=CONNECT_SECONDS)
            with self._lock:
                self._session = session
            with coded_errors(self._endpoint, Side.SOURCE, self._log.source):
                self._info = info = server_info(session)
        return binlog_end(session, info, self._log.source, self._endpoint)

    def _close(self) -> None:
        with self._lock:
            session, self._session, self._info = self._session, None, None
        close_quietly(session)

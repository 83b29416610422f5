"""Where the source's binlog ends: before the relay's head means that it is not the binlog that was read.

The dump does not tell. MariaDB's dump thread holds a file that RESET MASTER removed and sends heartbeats with
its old position as long as the new file of that name is shorter (seen on 10.11).
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import cast

import pymysql

from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.connection import (
    CONNECT_SECONDS,
    Endpoint,
    ServerInfo,
    Session,
    Side,
    Trouble,
    coded,
    coding,
    connect,
    current_position,
    errno_of,
    server_info,
    trouble,
)
from worker.cutoff import let_go
from worker.position import SourcePosition
from worker.relay.log import RelayLog

LOOK_SECONDS = 5.0
"""Between two looks at an idle source."""

_AFTER_FAILURE_SECONDS = 30.0


def binlog_end(session: Session, info: ServerInfo, source: str, endpoint: Endpoint) -> SourcePosition | None:
    """Where the binlog ends now; None when the account may not ask (BINLOG MONITOR, REPLICATION CLIENT).

    Raises NO_BINLOG and what worker.connection.coded makes of a failure.
    """
    try:
        return current_position(session, info)
    except pymysql.MySQLError as error:
        if trouble(errno_of(error)) is Trouble.PRIVILEGE:
            return None
        raise coded(error, endpoint, Side.SOURCE, source) from error


def lies_behind(head: SourcePosition, end: SourcePosition | None) -> bool:
    """Whether the source's ``end``, asked after something up to ``head`` was stored, proves that its binlog is
    another one. Of another server it proves nothing."""
    return end is not None and end.same_server(head) and end.file_order() < head.file_order()


class EndWatch:
    """A thread that asks an idle source where its binlog ends, on a connection of its own.

    ``found``: called with the head and the end when that lies before it. A source that cannot be asked is no
    failure: the dump, which lives, tells of those.
    """

    def __init__(
        self, log: RelayLog, endpoint: Endpoint, found: Callable[[SourcePosition, SourcePosition], None]
    ) -> None:
        self._log = log
        self._endpoint = endpoint
        self._found = found
        self._logger = get_logger(source=log.source)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._info: ServerInfo | None = None
        self._thread = threading.Thread(target=self._run, name=f"relay-watch-{log.source}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; returns when it has ended."""
        self._stop.set()
        with self._lock:
            if self._session is not None:
                made = cast("socket.socket | None", vars(self._session)["_sock"])
                if made is not None:
                    with contextlib.suppress(OSError):  # gone already
                        made.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _run(self) -> None:
        pause = LOOK_SECONDS
        head = self._log.head()
        try:
            while not self._stop.wait(pause):
                pause = LOOK_SECONDS
                before, head = head, self._log.head()
                if head is not before:
                    continue  # it sends: not now
                try:
                    end = self._ask()
                except ShardmergeError as error:
                    self._close()
                    pause = _AFTER_FAILURE_SECONDS
                    self._logger.debug("source not asked for its binlog's end", error=str(error))
                    continue
                if end is None:
                    self._logger.warning("account may not ask for the binlog's end: a RESET MASTER is noticed late")
                    return
                if self._log.segments() and lies_behind(head.position, end):
                    self._found(head.position, end)
        finally:
            self._close()

    def _ask(self) -> SourcePosition | None:
        session, info = self._session, self._info
        if session is None or info is None:
            session = connect(self._endpoint, Side.SOURCE, name=self._log.source, read_timeout=CONNECT_SECONDS)
            with self._lock:
                self._session = session
            with coding(self._endpoint, Side.SOURCE, self._log.source):
                self._info = info = server_info(session)
        return binlog_end(session, info, self._log.source, self._endpoint)

    def _close(self) -> None:
        with self._lock:
            session, self._session, self._info = self._session, None, None
        let_go(session)

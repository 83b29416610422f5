"""Measures once a second how busy a source is while chunks of it are read, and throttles the dispenser."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql.cursors import DictCursor

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import LAST, repeat
from shardmerge.worker.core.mysql.cancellable_session import cancellable_session
from shardmerge.worker.core.mysql.connection import Endpoint, ServerInfo, Session, Side, rows, server_info
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.snapshot.dispenser import Dispenser
from shardmerge.worker.snapshot.limits.source_load import LoadLimits, SourceLoad, throttle_reason

log = get_logger()

_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 60.0


class LoadMonitor(threading.Thread):
    """The thread that throttles ``dispenser`` while the source exceeds a limit.

    A source that does not answer counts as busy. If the user lacks the privilege to read the load, the snapshot fails,
    because the configured limit could not be enforced.
    """

    def __init__(
        self, endpoint: Endpoint, source_id: str, limits: LoadLimits, dispenser: Dispenser, stop: StopSignal
    ) -> None:
        """``stop``: this thread's own, a child of the unit's."""
        super().__init__(name=f"load-monitor-{source_id}", daemon=True)
        self._endpoint, self._source_id = endpoint, source_id
        self._limits = limits
        self._dispenser = dispenser
        self._unwanted = stop

    def end(self) -> None:
        self._unwanted.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        repeat(self._follow, _LOOK_SECONDS, self._unwanted, first=0.0, on_error=self._failed)

    def _follow(self) -> None:
        with self._session() as session:
            info = server_info(session)

            def look() -> None:
                self._dispenser.throttle(throttle_reason(self._limits, read_load(session, info, self._limits)))

            repeat(look, _LOOK_SECONDS, self._unwanted, first=0.0)

    def _failed(self, error: ShardmergeError, _failures: int) -> float:
        if not error.spec.retryable:
            self._dispenser.fail(error)
            return LAST
        self._dispenser.throttle(f"the source's load could not be read: {error}")
        return _LOOK_SECONDS

    @contextmanager
    def _session(self) -> Generator[Session]:
        with cancellable_session(
            self._unwanted, self._endpoint, Side.SOURCE, name=self._source_id, read_timeout=_ANSWER_SECONDS
        ) as session:
            try:
                yield session
            except pymysql.MySQLError as error:
                if kind_of(errno_of(error)) is not ErrorKind.PRIVILEGE:
                    raise
                raise errors.snapshot.PRESSURE_UNSEEN(
                    source=self._source_id, user=self._endpoint.user, errno=errno_of(error)
                ) from error


def read_load(session: Session, info: ServerInfo, limits: LoadLimits) -> SourceLoad:
    """Measure what ``limits`` are compared with. Raises ``pymysql.MySQLError``."""
    running = 0
    if limits.threads_running:
        [(_, value)] = rows(session, "SHOW GLOBAL STATUS LIKE 'Threads_running'")
        running = int(value)
    lags: list[int | None] = []
    if limits.replica_lag:
        with session.cursor(DictCursor) as cursor:
            cursor.execute(_replica_statement(info))
            lags = [_lag(row) for row in cursor.fetchall()]
    return SourceLoad(running, tuple(lags))


def _replica_statement(info: ServerInfo) -> str:
    """The statement that shows every replication channel or connection.

    MySQL renamed it in 8.0.22 and dropped the old name in 8.4; MariaDB shows all of its connections by another
    statement (manuals, "SHOW REPLICA STATUS", "SHOW ALL REPLICAS STATUS").
    """
    if info.is_mariadb:
        return "SHOW ALL SLAVES STATUS"
    return "SHOW REPLICA STATUS" if info.version >= (8, 0, 22) else "SHOW SLAVE STATUS"


def _lag(row: dict[str, Any]) -> int | None:
    value = row.get("Seconds_Behind_Source", row.get("Seconds_Behind_Master"))
    return None if value is None else int(value)

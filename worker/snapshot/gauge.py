"""Asks a source once a second how busy it is, while chunks of it are read."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql.cursors import DictCursor

from proto import errors
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.connection import Endpoint, ServerInfo, Session, Side, rows, server_info
from worker.cutoff import session_until
from worker.snapshot.dispenser import Dispenser
from worker.snapshot.pressure import Bearable, Pressure, waits_for
from worker.trouble import Trouble, errno_of, trouble
from worker.unit import StopSignal

log = get_logger()

_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 60.0


class Gauge(threading.Thread):
    """Tells ``dispenser`` what holds chunks back. A source that gives no answer is taken to be busy; one that will not
    give it, for the user lacks a privilege, fails the snapshot: a limit that cannot be kept is none."""

    def __init__(
        self, endpoint: Endpoint, source_id: str, bearable: Bearable, dispenser: Dispenser, stop: StopSignal
    ) -> None:
        """``stop``: this thread's own, a child of the unit's."""
        super().__init__(name=f"gauge-{source_id}", daemon=True)
        self._endpoint, self._source_id = endpoint, source_id
        self._bearable = bearable
        self._dispenser = dispenser
        self._unwanted = stop

    def end(self) -> None:
        self._unwanted.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        while not self._unwanted.is_set:
            try:
                with self._session() as session:
                    info = server_info(session)
                    while not self._unwanted.wait(0):
                        self._dispenser.hold(waits_for(self._bearable, read_pressure(session, info, self._bearable)))
                        self._unwanted.wait(_LOOK_SECONDS)
            except ShardmergeError as error:
                if self._unwanted.is_set:
                    return
                if not error.spec.retryable:
                    self._dispenser.fail(error)
                    return
                self._dispenser.hold(f"how busy the source is could not be asked: {error}")
                self._unwanted.wait(_LOOK_SECONDS)

    @contextmanager
    def _session(self) -> Generator[Session]:
        with session_until(
            self._unwanted, self._endpoint, Side.SOURCE, name=self._source_id, read_timeout=_ANSWER_SECONDS
        ) as session:
            try:
                yield session
            except pymysql.MySQLError as error:
                if trouble(errno_of(error)) is not Trouble.PRIVILEGE:
                    raise
                raise errors.snapshot.PRESSURE_UNSEEN(
                    source=self._source_id, user=self._endpoint.user, errno=errno_of(error)
                ) from error


def read_pressure(session: Session, info: ServerInfo, bearable: Bearable) -> Pressure:
    """What ``bearable`` needs to know. Raises ``pymysql.MySQLError``."""
    running = 0
    if bearable.threads_running:
        [(_, value)] = rows(session, "SHOW GLOBAL STATUS LIKE 'Threads_running'")
        running = int(value)
    lags: list[int | None] = []
    if bearable.replica_lag:
        with session.cursor(DictCursor) as cursor:
            cursor.execute(_replica_statement(info))
            lags = [_lag(row) for row in cursor.fetchall()]
    return Pressure(running, tuple(lags))


def _replica_statement(info: ServerInfo) -> str:
    """Every channel or connection. MySQL renamed the statement in 8.0.22 and dropped the old name in 8.4; MariaDB shows
    all of its connections by another (manuals, "SHOW REPLICA STATUS", "SHOW ALL REPLICAS STATUS")."""
    if info.is_mariadb:
        return "SHOW ALL SLAVES STATUS"
    return "SHOW REPLICA STATUS" if info.version >= (8, 0, 22) else "SHOW SLAVE STATUS"


def _lag(row: dict[str, Any]) -> int | None:
    value = row.get("Seconds_Behind_Source", row.get("Seconds_Behind_Master"))
    return None if value is None else int(value)

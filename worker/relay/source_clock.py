"""The position and time at which the source's binlog ends, read once a second."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Protocol

import pymysql

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql import server_clock
from shardmerge.worker.core.mysql.connection import (
    Endpoint,
    ServerInfo,
    Session,
    Side,
    connect,
    current_position,
    server_info,
    to_coded,
)
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.binlog_retention import read_retention

log = get_logger()

_CLOCK_SECONDS = 1.0
_CLOCK_ANSWER_SECONDS = 10.0
_OLD_SECONDS = 15.0
_RETENTION_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """The end of a source's binlog. ``since``: Unix seconds by its own clock, read before the position: transactions
    after the position committed later than that."""

    position: SourcePosition
    since: float


NO_END = SourceEnd(SourcePosition("", 0), 0.0)


class SourceClock(Protocol):
    """The end of the source's binlog, read regularly by one thread for all subtasks."""

    def position(self) -> SourcePosition:
        """The last position that was read; ("", 0) before the first read."""
        ...

    def end(self) -> SourceEnd:
        """The last end that was read; NO_END before the first read."""
        ...

    def unknown(self) -> str:
        """Why the last end that was read may be out of date; "": it is not."""
        ...


class PollingClock:
    """Reads the end of the source's binlog once a second; see
    :class:`shardmerge.worker.relay.source_clock.SourceClock`."""

    def __init__(self, endpoint: Endpoint, source_id: str) -> None:
        self._endpoint = endpoint
        self._source_id = source_id
        self._end = NO_END
        self._read_at = time.monotonic()
        self._retention: float | None = None
        self._retention_read_at: float | None = None
        self._error: ShardmergeError | None = None
        self._stop = StopSignal()
        self._thread = threading.Thread(target=self._run, name="source-clock", daemon=True)
        self._thread.start()

    def position(self) -> SourcePosition:
        return self._end.position

    def end(self) -> SourceEnd:
        return self._end

    def retention(self) -> float | None:
        """Seconds after which the source deletes a binlog file, as last read; None: not known, or there is no limit."""
        return self._retention

    def unknown(self) -> str:
        error, silence = self._error, time.monotonic() - self._read_at
        if error is not None:
            return f"the end of the source's binlog cannot be read: {error}"
        if silence > _OLD_SECONDS:
            return f"the source has not answered for {silence:.0f} s"
        return "" if self._end.position.file else "the end of the source's binlog has not been read yet"

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(_CLOCK_ANSWER_SECONDS)

    def _run(self) -> None:
        session: Session | None = None
        info: ServerInfo | None = None
        while not self._stop.is_set:
            try:
                if session is None or info is None:
                    session = connect(
                        self._endpoint, Side.SOURCE, name=self._source_id, read_timeout=_CLOCK_ANSWER_SECONDS
                    )
                    info = server_info(session)
                since = server_clock.now(session)
                self._end = SourceEnd(current_position(session, info), since)
                self._read_at, self._error = time.monotonic(), None
                self._read_retention(session)
            except pymysql.MySQLError as error:
                self._failed(to_coded(error, self._endpoint, Side.SOURCE, self._source_id))
                session = None
            except ShardmergeError as error:
                self._failed(error)
                session = None
            self._stop.wait(_CLOCK_SECONDS if session is not None else 5 * _CLOCK_SECONDS)
        if session is not None:
            session.close()

    def _read_retention(self, session: Session) -> None:
        """Once a minute: an operator may change the setting."""
        now = time.monotonic()
        if self._retention_read_at is None or now - self._retention_read_at >= _RETENTION_SECONDS:
            self._retention_read_at = now
            self._retention = read_retention(session)

    def _failed(self, error: ShardmergeError) -> None:
        self._error = error
        log.warning("cannot read the source's binlog position", source=self._source_id, error=str(error))

"""The position and time at which the source's binlog ends, read once a second."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import pymysql

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import LoopThread, Stop, repeat
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
from shardmerge.worker.core.mysql.server_clock import ClockReading
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.binlog_retention import BinlogFile, BinlogLimits, read_files, read_limits
from shardmerge.worker.relay.clock_offset import ClockOffset

log = get_logger()

_CLOCK_SECONDS = 1.0
_CLOCK_ANSWER_SECONDS = 10.0
_OLD_SECONDS = 15.0
_LIMITS_SECONDS = 5.0
_FILES_SECONDS = 60.0
_CLOCK_OLD_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """The end of a source's binlog. ``since``: Unix seconds by its own clock, read before the position: transactions
    after the position committed later than that."""

    position: SourcePosition
    since: float


NO_END = SourceEnd(SourcePosition("", 0), 0.0)


@dataclass(frozen=True, slots=True)
class SourceReading:
    """What was last read from a source. ``age``: seconds since its end was read. ``limits``: None: not read yet.
    ``files``: of its binlog, ``files_age`` seconds ago, only for a source that limits their size. ``clock``: compared
    with the worker's, the most exact reading of the last minute; None: there is none."""

    end: SourceEnd = NO_END
    age: float = 0.0
    limits: BinlogLimits | None = None
    files: tuple[BinlogFile, ...] = ()
    clock: ClockReading | None = None
    files_age: float = 0.0

    @property
    def now(self) -> float:
        """The source's clock, in Unix seconds."""
        return self.end.since + self.age


class SourceClock(Protocol):
    """The end of the source's binlog, read regularly by one thread for all subtasks."""

    def position(self) -> SourcePosition:
        """The last position that was read; ("", 0) before the first read."""
        ...

    def end(self) -> SourceEnd:
        """The last end that was read; NO_END before the first read."""
        ...

    def age(self) -> float:
        """Seconds since the end was read."""
        ...

    def unknown(self) -> str:
        """Why the last end that was read may be out of date; "": it is not."""
        ...


class PollingClock:
    """Reads the end of the source's binlog once a second; see
    :class:`shardmerge.worker.relay.source_clock.SourceClock`."""

    def __init__(self, endpoint: Endpoint, source_id: str, offset: ClockOffset | None = None) -> None:
        """``offset``: gets the readings of the source's clock."""
        self._endpoint = endpoint
        self._source_id = source_id
        self._end = NO_END
        self._read_at = time.monotonic()
        self._limits: BinlogLimits | None = None
        self._limits_read_at: float | None = None
        self._files: tuple[BinlogFile, ...] = ()
        self._files_read_at: float | None = None
        self._offset = offset if offset is not None else ClockOffset()
        self._round_trip: float | None = None
        self._error: ShardmergeError | None = None
        self._session: tuple[Session, ServerInfo] | None = None
        self._thread = LoopThread("source-clock", self._run)
        self._thread.start()

    def position(self) -> SourcePosition:
        return self._end.position

    def end(self) -> SourceEnd:
        return self._end

    def age(self) -> float:
        return time.monotonic() - self._read_at

    def reading(self) -> SourceReading:
        """What was last read; a clock that has not been read for a minute has no reading."""
        now = time.monotonic()
        end, age, files_read_at = self._end, now - self._read_at, self._files_read_at
        clock = self._offset.reading if end.position.file and age < _CLOCK_OLD_SECONDS else None
        files_age = 0.0 if files_read_at is None else now - files_read_at
        return SourceReading(end, age, self._limits, self._files, clock, files_age)

    def round_trip(self) -> float | None:
        """Seconds that the source's last answer took; None: there is none that is not out of date."""
        return None if self.unknown() else self._round_trip

    def unknown(self) -> str:
        error, silence = self._error, time.monotonic() - self._read_at
        if error is not None:
            return f"the end of the source's binlog cannot be read: {error}"
        if silence > _OLD_SECONDS:
            return f"the source has not answered for {silence:.0f} s"
        return "" if self._end.position.file else "the end of the source's binlog has not been read yet"

    def stop(self) -> None:
        self._thread.end(_CLOCK_ANSWER_SECONDS)

    def _run(self, stop: Stop) -> None:
        repeat(self._read, _CLOCK_SECONDS, stop, first=0.0)
        if self._session is not None:
            self._session[0].close()

    def _read(self) -> float | None:
        try:
            if self._session is None:
                made = connect(self._endpoint, Side.SOURCE, name=self._source_id, read_timeout=_CLOCK_ANSWER_SECONDS)
                self._session = made, server_info(made)
            session, info = self._session
            before, asked_at = time.time(), time.monotonic()
            since = server_clock.now(session)
            read_at = time.monotonic()
            self._round_trip = read_at - asked_at
            clock = server_clock.compared(self._source_id, since, before, before + self._round_trip)
            self._end = SourceEnd(current_position(session, info), since)
            self._read_at, self._error = read_at, None
            self._offset.add(clock)
            self._read_limits(session)
        except pymysql.MySQLError as error:
            self._failed(to_coded(error, self._endpoint, Side.SOURCE, self._source_id))
        except ShardmergeError as error:
            self._failed(error)
        return None if self._session is not None else 5 * _CLOCK_SECONDS

    def _read_limits(self, session: Session) -> None:
        """Again and again: an operator may change them. The files are of interest only if their size is limited."""
        now = time.monotonic()
        if self._limits_read_at is None or now - self._limits_read_at >= _LIMITS_SECONDS:
            self._limits_read_at = now
            self._limits = read_limits(session)
        if self._limits is None or self._limits.size is None:
            self._files = ()
        elif self._files_read_at is None or now - self._files_read_at >= _FILES_SECONDS:
            self._files = read_files(session)
            self._files_read_at = now

    def _failed(self, error: ShardmergeError) -> None:
        self._error, self._session = error, None
        log.warning("cannot read the source's binlog position", source=self._source_id, error=str(error))

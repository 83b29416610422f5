"""Reads the clock of a server, and converts times that users configure to Unix seconds of the source's clock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from shardmerge.proto import errors
from shardmerge.worker.core.mysql.connection import Session, ask, execute, text_of

_SHIFTS = (1800, 3600, 7200)
"""Seconds by which daylight saving time changes move a clock."""


def now(session: Session) -> float:
    """The source's clock, in Unix seconds. Raises ``pymysql.MySQLError``."""
    [(seconds,)] = ask(session, "SELECT UNIX_TIMESTAMP(SYSDATE(6))")
    return float(seconds)


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A clock compared with this worker's: ahead by ``ahead`` seconds, plus or minus ``error``."""

    whose: str
    ahead: float
    error: float


def read_clock(session: Session, whose: str) -> ClockReading:
    """Compare a server's clock with this one. Raises ``pymysql.MySQLError``."""
    before = time.time()
    there = now(session)
    after = time.time()
    return compared(whose, there, before, after)


def compared(whose: str, there: float, before: float, after: float) -> ClockReading:
    """A clock that showed ``there`` at some time between ``before`` and ``after``. Pure. If this worker's clock was
    changed meanwhile, the error is as large as the change."""
    return ClockReading(whose, there - (before + after) / 2, abs(after - before) / 2)


def parse_time(session: Session, text: str, source: str) -> float:
    """Unix seconds of "2026-01-02 03:04:05" at the source: in its global time_zone unless an offset follows.

    The source computes it, because only it knows its zone's history. Raises TIME_UNCLEAR and ``pymysql.MySQLError``.
    """
    given = datetime.fromisoformat(text)
    if given.tzinfo is not None:
        return given.timestamp()
    local = given.isoformat(sep=" ")
    execute(session, "SET SESSION time_zone = @@GLOBAL.time_zone")
    try:
        [(seconds, zone, system)] = ask(
            session, "SELECT UNIX_TIMESTAMP(%s), @@GLOBAL.time_zone, @@GLOBAL.system_time_zone", (local,)
        )
        seconds = int(seconds or 0)
        others = [seconds + shift for by in _SHIFTS for shift in (by, -by)]
        # 0: beyond the server's range, MariaDB 10.11 from 2038 on (MariaDB Knowledge Base, "UNIX_TIMESTAMP").
        if not seconds or _shown(session, seconds) != local or any(_shown(session, one) == local for one in others):
            name = text_of(zone)
            raise errors.replicate.TIME_UNCLEAR(
                source=source, time=text, zone=text_of(system) if name == "SYSTEM" else name
            )
    finally:
        execute(session, "SET SESSION time_zone = '+00:00'")
    return float(seconds)


def _shown(session: Session, seconds: int) -> str:
    [(text,)] = ask(session, "SELECT CAST(FROM_UNIXTIME(%s) AS CHAR)", (seconds,))
    return text_of(text)

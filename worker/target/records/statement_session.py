"""The session settings under which a source's statement runs at the target: its meaning depends on them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pymysql

from shardmerge.worker.binlog.events import QueryEvent
from shardmerge.worker.core.mysql.connection import TARGET_MODES, Session, execute, quote_text

_MODES = {
    0: "REAL_AS_FLOAT",
    1: "PIPES_AS_CONCAT",
    2: "ANSI_QUOTES",
    3: "IGNORE_SPACE",
    5: "ONLY_FULL_GROUP_BY",
    6: "NO_UNSIGNED_SUBTRACTION",
    19: "NO_AUTO_VALUE_ON_ZERO",
    20: "NO_BACKSLASH_ESCAPES",
    21: "STRICT_TRANS_TABLES",
    22: "STRICT_ALL_TABLES",
    23: "NO_ZERO_IN_DATE",
    24: "NO_ZERO_DATE",
    25: "ALLOW_INVALID_DATES",
    26: "ERROR_FOR_DIVISION_BY_ZERO",
    29: "HIGH_NOT_PRECEDENCE",
    30: "NO_ENGINE_SUBSTITUTION",
    31: "PAD_CHAR_TO_FULL_LENGTH",
}
"""Bits of sql_mode that MySQL 8, MariaDB 10 and TiDB accept with the same meaning (MySQL sql/system_variables.h,
MariaDB sql/sql_class.h, TiDB pkg/parser/mysql/const.go). ANSI and TRADITIONAL only stand for others. MySQL 8 refuses
bit 28, NO_AUTO_CREATE_USER, which has no effect on tables."""

# Also those by which older records name the mode.
_SHARED_MODES = sum(1 << bit for bit in (*_MODES, 18, 27))

_SYSTEM = "SYSTEM"
_OWN = (("sql_mode", f"'{TARGET_MODES}'"), ("time_zone", "'+00:00'"))
"""The normal settings of a session at the target (worker/core/mysql/connection.py)."""


@dataclass(frozen=True, slots=True)
class StatementSession:
    """``moment``: Unix seconds, the value of NOW() at the source. ``time_zone``: as for SET SESSION, "" for UTC."""

    sql_mode: int
    moment: str
    time_zone: str
    explicit_timestamp: bool | None

    @staticmethod
    def of(event: QueryEvent, system_zone: str) -> StatementSession:
        """``system_zone``: the source's SYSTEM time zone for the statement, as an offset."""
        variables = event.variables
        zone = variables.time_zone
        return StatementSession(
            (variables.sql_mode or 0) & _SHARED_MODES,
            f"{event.second}.{variables.microseconds:06d}",
            system_zone if zone == _SYSTEM else zone,
            variables.explicit_timestamp,
        )

    @contextmanager
    def applied_to(self, session: Session) -> Generator[None]:
        """Within the block, ``session`` at the target has these settings, so the statement has its original meaning.
        Foreign keys stay unchecked, as for rows. Raises ``pymysql.MySQLError``."""
        try:
            self._apply(session)
            yield
        finally:
            with suppress(pymysql.MySQLError):  # the connection is lost: it is not used again
                own = ", ".join(f"{name} = {value}" for name, value in _OWN)
                execute(session, f"SET SESSION {own}, timestamp = DEFAULT")

    def _apply(self, session: Session) -> None:
        # By names: TiDB refuses the number.
        modes = ",".join(name for bit, name in _MODES.items() if self.sql_mode >> bit & 1)
        execute(session, f"SET SESSION sql_mode = '{modes}', timestamp = {self.moment}")
        if self.time_zone:
            execute(session, f"SET SESSION time_zone = {quote_text(self.time_zone)}")
        if self.explicit_timestamp is not None:
            [(now,)] = _explicit(session)
            # Set only where the value differs: setting it needs an extra privilege.
            if bool(int(now)) is not self.explicit_timestamp:
                execute(session, f"SET SESSION explicit_defaults_for_timestamp = {int(self.explicit_timestamp)}")


def _explicit(session: Session) -> list[tuple[int]]:
    with session.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.explicit_defaults_for_timestamp")
        return [(int(value),) for (value,) in cursor.fetchall()]


UNKNOWN_SESSION = StatementSession(0, "DEFAULT", "", None)
"""For a statement whose own session is not known."""

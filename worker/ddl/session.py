"""The session in which a source's statement runs at the target: what a statement means depends on it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pymysql

from worker.binlog.events import QueryEvent
from worker.connection import TARGET_MODES, Session, execute, quote_text

_SHARED_MODES = sum(1 << bit for bit in (0, 1, 2, 3, 5, 6, *range(18, 28), 29, 30, 31))
"""Bits of sql_mode that MySQL 8 and MariaDB 10 take and mean alike (MySQL sql/system_variables.h, MariaDB
sql/sql_class.h). Bit 28, NO_AUTO_CREATE_USER, is refused by MySQL 8; it says nothing about tables."""

_SYSTEM = "SYSTEM"
_OWN = (("sql_mode", f"'{TARGET_MODES}'"), ("time_zone", "'+00:00'"))
"""What a session of the target has otherwise (worker/connection.py)."""


@dataclass(frozen=True, slots=True)
class StatementSession:
    """``moment``: Unix seconds, what NOW() was at the source. ``time_zone``: as SET SESSION takes it, "" for UTC."""

    sql_mode: int
    moment: str
    time_zone: str
    explicit_timestamp: bool | None

    @staticmethod
    def of(event: QueryEvent, system_zone: str) -> StatementSession:
        """``system_zone``: what the source's SYSTEM time zone is for the statement, as an offset."""
        variables = event.variables
        zone = variables.time_zone
        return StatementSession(
            (variables.sql_mode or 0) & _SHARED_MODES,
            f"{event.second}.{variables.microseconds:06d}",
            system_zone if zone == _SYSTEM else zone,
            variables.explicit_timestamp,
        )

    @contextmanager
    def taken_on(self, session: Session) -> Generator[None]:
        """In the block ``session``, of the target, is one in which the statement means what it meant. Foreign keys stay
        unchecked, as for rows. Raises ``pymysql.MySQLError``."""
        try:
            self._take_on(session)
            yield
        finally:
            with suppress(pymysql.MySQLError):  # it was lost: nobody uses it again
                own = ", ".join(f"{name} = {value}" for name, value in _OWN)
                execute(session, f"SET SESSION {own}, timestamp = DEFAULT")

    def _take_on(self, session: Session) -> None:
        execute(session, f"SET SESSION sql_mode = {self.sql_mode}, timestamp = {self.moment}")
        if self.time_zone:
            execute(session, f"SET SESSION time_zone = {quote_text(self.time_zone)}")
        if self.explicit_timestamp is not None:
            [(now,)] = _explicit(session)
            # Where the target has it so already: to set it takes a privilege of its own.
            if bool(int(now)) is not self.explicit_timestamp:
                execute(session, f"SET SESSION explicit_defaults_for_timestamp = {int(self.explicit_timestamp)}")


def _explicit(session: Session) -> list[tuple[int]]:
    with session.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.explicit_defaults_for_timestamp")
        return [(int(value),) for (value,) in cursor.fetchall()]


PLAIN = StatementSession(0, "DEFAULT", "", None)
"""Of a statement whose own session is not known."""

"""The session settings under which a source's statement runs at the target: its meaning depends on them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pymysql

from shardmerge.proto import errors
from shardmerge.worker.binlog.query_text import QueryEvent
from shardmerge.worker.core.mysql.connection import (
    TARGET_MODES,
    Session,
    dialect_of,
    endpoint_of,
    errno_of,
    execute,
    quote_text,
    rows,
    text_of,
)
from shardmerge.worker.core.mysql.create_table import fallback_collations
from shardmerge.worker.core.mysql.target_dialect import TargetDialect

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

ORACLE, MAXDB, EMPTY_IS_NULL = 9, 12, 32
_MARIADB_MODES = {
    4: "IGNORE_BAD_TABLE_OPTIONS",
    8: "POSTGRESQL",
    ORACLE: "ORACLE",
    10: "MSSQL",
    11: "DB2",
    MAXDB: "MAXDB",
    EMPTY_IS_NULL: "EMPTY_STRING_IS_NULL",
    33: "SIMULTANEOUS_ASSIGNMENT",
}
"""Further bits of MariaDB. The names of the first five mean other bits, too, which a session with them has as well."""
_ROUNDS, _TRUNCATES = 34, 32
"""MariaDB's TIME_ROUND_FRACTIONAL and MySQL's TIME_TRUNCATE_FRACTIONAL: each changes what the other server does always.
"""
_WITHOUT_EFFECT = (7, 13, 14, 15, 16, 17, 28)
"""NO_DIR_IN_CREATE, NO_KEY_OPTIONS, NO_TABLE_OPTIONS, NO_FIELD_OPTIONS, MYSQL323, MYSQL40, NO_AUTO_CREATE_USER: merged
tables have none of what they omit."""

_SYSTEM = "SYSTEM"
_OWN = (("sql_mode", f"'{TARGET_MODES}'"), ("time_zone", "'+00:00'"))
"""The normal settings of a session at the target (worker/core/mysql/connection.py)."""

_UNKNOWN_ZONE = 1298
_NO_SUCH = (1115, 1253, 1273)  # unknown charset, collation of another charset, unknown collation
_ROUNDS_SINCE, _TRUNCATES_SINCE = (10, 4, 1), (8, 0, 1)
_COLLATION_OF_UTF8MB4 = (8, 0, 11)
_CHARSET_COLLATIONS = (11, 2, 1)
"""The first versions that have the settings."""


def known_modes(*, is_mariadb: bool) -> int:
    """The bits of sql_mode of a source whose meaning is known."""
    further = (*_MARIADB_MODES, _ROUNDS) if is_mariadb else (4, 8, ORACLE, 10, 11, MAXDB, _TRUNCATES)
    return _SHARED_MODES | sum(1 << bit for bit in (*further, *_WITHOUT_EFFECT))


@dataclass(frozen=True, slots=True)
class SourceNames:
    """Names for the ids in a statement's event, as the source knows them. ``connection``: of collation_connection;
    ``utf8mb4``: of default_collation_for_utf8mb4, "" at a MariaDB; ``charsets``: MariaDB's character_set_collations, as
    text, None at a MySQL."""

    connection: str = ""
    utf8mb4: str = ""
    charsets: str | None = None


@dataclass(frozen=True, slots=True)
class StatementSession:
    """``moment``: Unix seconds, the value of NOW() at the source. ``time_zone``: as for SET SESSION, "" for UTC.

    ``mariadb_modes``: names of MariaDB's further modes. ``rounds``: whether fractions of a second that a column cannot
    hold are rounded, or else cut off. ``collation``: collation_connection. ``increment``: auto_increment_increment and
    auto_increment_offset. ``time_names``: number of lc_time_names. ``checks_constraints``: check_constraint_checks.
    ``utf8mb4_collation``, ``charset_collations``: as in :class:`SourceNames`. None and "": as the target has it."""

    sql_mode: int
    moment: str
    time_zone: str
    explicit_timestamp: bool | None
    mariadb_modes: str = ""
    rounds: bool | None = None
    collation: str = ""
    increment: tuple[int, int] | None = None
    time_names: int | None = None
    checks_constraints: bool | None = None
    utf8mb4_collation: str = ""
    charset_collations: str | None = None

    @staticmethod
    def of(
        event: QueryEvent, system_zone: str, names: SourceNames | None = None, *, is_mariadb: bool = False
    ) -> StatementSession:
        """``system_zone``: the source's SYSTEM time zone for the statement, as an offset."""
        variables, names = event.variables, names or SourceNames()
        zone, mode = variables.time_zone, variables.sql_mode or 0
        # MySQL before 8 has MAXDB too, and calls other modes as MariaDB does without their effect.
        further = _MARIADB_MODES if is_mariadb else {MAXDB: _MARIADB_MODES[MAXDB]}
        return StatementSession(
            mode & _SHARED_MODES,
            f"{event.second}.{variables.microseconds:06d}",
            system_zone if zone == _SYSTEM else zone,
            variables.explicit_timestamp,
            ",".join(name for bit, name in further.items() if mode >> bit & 1),
            bool(mode >> _ROUNDS & 1) if is_mariadb else not mode >> _TRUNCATES & 1,
            names.connection,
            variables.increment,
            variables.time_names,
            variables.checks_constraints,
            names.utf8mb4,
            names.charsets,
        )

    @contextmanager
    def applied_to(self, session: Session) -> Generator[None]:
        """Within the block, ``session`` at the target has these settings, so the statement has its original meaning.
        Foreign keys stay unchecked, as for rows. Raises ``pymysql.MySQLError`` and TARGET_LACKS_ZONE."""
        before: dict[str, str] = {}
        try:
            self._apply(session, before)
            yield
        finally:
            with suppress(pymysql.MySQLError):  # the connection is lost: it is not used again
                # The mode first: it decides how literals are read.
                execute(session, f"SET SESSION {_assigned(dict(_OWN))}, timestamp = DEFAULT")
                if before:
                    execute(session, f"SET SESSION {_assigned(before)}")

    def _apply(self, session: Session, before: dict[str, str]) -> None:
        """``before``: gets the values of other variables than :data:`_OWN` that are changed, as SQL."""
        target = dialect_of(session)
        wanted = self._variables(target)
        if self.explicit_timestamp is None and not target.is_tidb:
            [(given,)] = rows(session, f"SELECT @@GLOBAL.{_EXPLICIT}")
            wanted[_EXPLICIT] = text_of(given)
        if wanted:
            [found] = rows(session, f"SELECT {', '.join(f'@@SESSION.{name}' for name in wanted)}")
            for (name, value), now in zip(wanted.items(), map(text_of, found), strict=True):
                # Set only where the value differs: setting some of them needs an extra privilege.
                if value != now:
                    before[name] = now if now.isdigit() else quote_text(now)
                    execute(session, f"SET SESSION {name} = {value if value.isdigit() else quote_text(value)}")
        if self.collation and target.has_charsets:
            [(now,)] = rows(session, "SELECT @@SESSION.collation_connection")
            if text_of(now) != self.collation:
                before["collation_connection"] = quote_text(text_of(now))
                _set_collation(session, self.collation)
        if self.time_zone:
            _set_zone(session, self.time_zone)
        # By names: TiDB refuses the number.
        modes = ",".join(self._modes(target))
        execute(session, f"SET SESSION sql_mode = '{modes}', timestamp = {self.moment}")

    def _modes(self, target: TargetDialect) -> list[str]:
        found = [name for bit, name in _MODES.items() if self.sql_mode >> bit & 1]
        if target.is_mariadb:
            found += filter(None, self.mariadb_modes.split(","))
            if self.rounds and target.version >= _ROUNDS_SINCE:
                found.append("TIME_ROUND_FRACTIONAL")
        elif self.rounds is False and not target.is_tidb and target.version >= _TRUNCATES_SINCE:
            found.append("TIME_TRUNCATE_FRACTIONAL")
        return found

    def _variables(self, target: TargetDialect) -> dict[str, str]:
        """The variables that the target has, each with the value that @@ shows."""
        found: dict[str, str] = {}
        if self.explicit_timestamp is not None:
            found[_EXPLICIT] = str(int(self.explicit_timestamp))
        if self.increment is not None:
            found["auto_increment_increment"], found["auto_increment_offset"] = map(str, self.increment)
        if self.checks_constraints is not None and target.is_mariadb:
            found["check_constraint_checks"] = str(int(self.checks_constraints))
        if self.charset_collations is not None and target.is_mariadb and target.version >= _CHARSET_COLLATIONS:
            found["character_set_collations"] = self.charset_collations
        is_mysql = not target.is_mariadb and not target.is_tidb
        if self.utf8mb4_collation and is_mysql and target.version >= _COLLATION_OF_UTF8MB4:
            found["default_collation_for_utf8mb4"] = self.utf8mb4_collation
        if self.time_names is not None and target.has_time_locale:
            found["lc_time_names"] = _ENGLISH if not self.time_names else str(self.time_names)
        return found


_EXPLICIT = "explicit_defaults_for_timestamp"
_ENGLISH = "en_US"
"""Number 0 of lc_time_names, as it is shown. Servers accept the numbers of the others too."""


def _set_zone(session: Session, zone: str) -> None:
    """Raises TARGET_LACKS_ZONE: a server knows named zones only where an administrator has loaded them."""
    try:
        execute(session, f"SET SESSION time_zone = {quote_text(zone)}")
    except pymysql.MySQLError as error:
        if errno_of(error) != _UNKNOWN_ZONE:
            raise
        endpoint = endpoint_of(session)
        raise errors.replicate.TARGET_LACKS_ZONE(host=endpoint.host, port=endpoint.port, zone=zone) from error


def _set_collation(session: Session, collation: str) -> None:
    """Set collation_connection; where the target lacks the collation: its fallback in new tables."""
    *others, last = (collation, *fallback_collations(collation))
    for each in others:
        try:
            execute(session, f"SET SESSION collation_connection = {quote_text(each)}")
        except pymysql.MySQLError as error:
            if errno_of(error) not in _NO_SUCH:
                raise
        else:
            return
    execute(session, f"SET SESSION collation_connection = {quote_text(last)}")


def _assigned(values: dict[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


UNKNOWN_SESSION = StatementSession(0, "DEFAULT", "", None)
"""For a statement whose own session is not known."""

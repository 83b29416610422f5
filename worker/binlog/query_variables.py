"""Parses the session of a statement from the status variables of its QUERY event.

Codes and sizes: MySQL's libs/mysql/binlog/event/statement_events.h (Query_event), MariaDB's sql/log_event.h
(Q_HRNOW, Q_XID, Q_GTID_FLAGS3, Q_CHARACTER_SET_COLLATIONS). They are in the order in which the server writes them;
parsing ends at the first unknown code, because its size is unknown too.

Not kept, because they change no structure and no value of a table: the catalog (2, 6), the tables of a multi-table
UPDATE (9), the size of the event before (10), the invoker (11), the schemas that the statement changes (12), the
transaction of the DDL (17), sql_require_primary_key (19: it only refuses), default_table_encryption (20) and the XID of
MariaDB's DDL log (129). worker/target/records/statement_session.py applies what is kept.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_U16 = struct.Struct("<H")
_U64 = struct.Struct("<Q")
_CHARSETS = struct.Struct("<HHH")
_PAIR = struct.Struct("<HH")

_FLAGS, _SQL_MODE, _INCREMENT, _CHARSET, _TIME_ZONE, _TIME_NAMES, _DATABASE = 0, 1, 3, 4, 5, 7, 8
_EXPLICIT_TIMESTAMP, _UTF8MB4, _CHARSET_COLLATIONS = 16, 18, 131
_MICROSECONDS = frozenset({13, 128})  # MySQL's and MariaDB's
_SIZES = {_FLAGS: 4, _SQL_MODE: 8, _INCREMENT: 4, _CHARSET: 6, _TIME_NAMES: 2, _DATABASE: 2, 9: 8, 10: 4, 13: 3} | {
    _EXPLICIT_TIMESTAMP: 1, 17: 8, _UTF8MB4: 2, 19: 1, 20: 1, 128: 3, 129: 8,
}  # fmt: skip
"""Bytes of the variables whose size is fixed."""
_TEXTS = frozenset({_TIME_ZONE, 6})  # one byte with the length, then as many bytes
_CATALOG = 2  # as a text, then a zero byte
_INVOKER, _UPDATED_SCHEMAS, _TOO_MANY_SCHEMAS = 11, 12, 254

# MariaDB since 10.8 may log an ALTER when it begins, and again when it has ended: the phase of the event.
_PHASE, _STARTED, _COMMITTED, _ROLLED_BACK = 130, 2, 4, 8
_EXPLICIT_FLAG = 1 << 24  # OPTION_EXPLICIT_DEF_TIMESTAMP, of the same versions
_NO_CHECK_CONSTRAINTS = 1 << 23  # OPTION_NO_CHECK_CONSTRAINT_CHECKS of MariaDB


@dataclass(frozen=True, slots=True)
class QueryVariables:
    """The status variables; None and "": the event lacks them. ``sql_mode``: the server's bits. ``collation``: id of
    the client's character set. ``time_zone``: as in the session, possibly "SYSTEM". ``explicit_timestamp``: the
    session's explicit_defaults_for_timestamp, as MySQL writes it; ``explicit_flag``: as MariaDB writes it since 10.8,
    False before. ``microseconds``: of the statement's time, after the second in its header. ``has_ended``: False if
    the event means that the statement begins, or that it has failed. ``connection``, ``server``: ids of
    collation_connection and collation_server. ``increment``: auto_increment_increment and auto_increment_offset.
    ``time_names``: number of lc_time_names. ``checks_constraints``: MariaDB's check_constraint_checks.
    ``utf8mb4_collation``: id of MySQL's default_collation_for_utf8mb4. ``charset_collations``: MariaDB's
    character_set_collations, as ids of a collation of the character set and of the collation that is its default.
    ``database``: id of collation_database, if the session has set it: servers omit it where it is the default of the
    current schema. ``unknown``: the code at which parsing ended; the variables after it are not known."""

    sql_mode: int | None = None
    collation: int | None = None
    time_zone: str = ""
    explicit_timestamp: bool | None = None
    microseconds: int = 0
    explicit_flag: bool = False
    has_ended: bool = True
    connection: int | None = None
    server: int | None = None
    increment: tuple[int, int] = (1, 1)
    time_names: int = 0
    checks_constraints: bool = True
    utf8mb4_collation: int | None = None
    charset_collations: tuple[tuple[int, int], ...] = ()
    database: int | None = None
    unknown: int | None = None


def query_variables(data: bytes) -> QueryVariables:
    """Read a QUERY event's status variables."""
    found: dict[int, bytes] = {}
    unknown: int | None = None
    at = 0
    while at < len(data):
        code = data[at]
        at += 1
        size = _size(code, data, at)
        if size is None or at + size > len(data):
            unknown = code
            break
        found[code] = data[at : at + size]
        at += size
    mode, charset, explicit = found.get(_SQL_MODE), found.get(_CHARSET), found.get(_EXPLICIT_TIMESTAMP)
    client, connection, server = _CHARSETS.unpack(charset) if charset else (None, None, None)
    microseconds = next((found[code] for code in _MICROSECONDS if code in found), b"")
    flags = int.from_bytes(found.get(_FLAGS, b""), "little")
    utf8mb4, increment, database = found.get(_UTF8MB4), found.get(_INCREMENT), found.get(_DATABASE)
    return QueryVariables(
        sql_mode=_U64.unpack(mode)[0] if mode else None,
        collation=client,
        time_zone=found.get(_TIME_ZONE, b"\0")[1:].decode("utf-8", "replace"),
        explicit_timestamp=bool(explicit[0]) if explicit else None,
        microseconds=int.from_bytes(microseconds, "little"),
        explicit_flag=bool(flags & _EXPLICIT_FLAG),
        has_ended=not found.get(_PHASE, b"\0")[0] & (_STARTED | _ROLLED_BACK),
        connection=connection,
        server=server,
        increment=_PAIR.unpack(increment) if increment else (1, 1),
        time_names=int.from_bytes(found.get(_TIME_NAMES, b""), "little"),
        checks_constraints=not flags & _NO_CHECK_CONSTRAINTS,
        utf8mb4_collation=_U16.unpack(utf8mb4)[0] if utf8mb4 else None,
        charset_collations=tuple(_PAIR.iter_unpack(found.get(_CHARSET_COLLATIONS, b"\0")[1:])),
        database=_U16.unpack(database)[0] if database else None,
        unknown=unknown,
    )


def _size(code: int, data: bytes, at: int) -> int | None:
    """The size in bytes of the variable at ``at``; None: unknown."""
    if code in _SIZES:
        return _SIZES[code]
    if at >= len(data):
        return None
    if code in _TEXTS:
        return 1 + data[at]
    if code == _CATALOG:
        return 2 + data[at]
    if code == _CHARSET_COLLATIONS:  # before the character sets, though its code is higher
        return 1 + _PAIR.size * data[at]
    if code == _PHASE:  # the GTID's flags; unless it begins, also the number of the GTID with which it began
        return 9 if data[at] & (_COMMITTED | _ROLLED_BACK) else 1
    if code == _INVOKER:  # user and host
        host = at + 1 + data[at]
        return None if host >= len(data) else host + 1 + data[host] - at
    if code == _UPDATED_SCHEMAS:
        end = at + 1
        for _ in range(0 if data[at] == _TOO_MANY_SCHEMAS else data[at]):
            end = data.find(b"\0", end) + 1
            if end == 0:
                return None
        return end - at
    return None

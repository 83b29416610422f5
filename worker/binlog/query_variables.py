"""Parses the session of a statement from the status variables of its QUERY event.

Codes and sizes: MySQL's libs/mysql/binlog/event/statement_events.h (Query_event), MariaDB's sql/log_event.h
(Q_HRNOW, Q_XID, Q_GTID_FLAGS3). They are in the order in which the server writes them; parsing ends at the first
unknown code, because its size is unknown too.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_U16 = struct.Struct("<H")
_U64 = struct.Struct("<Q")

_FLAGS, _SQL_MODE, _CHARSET, _TIME_ZONE, _EXPLICIT_TIMESTAMP = 0, 1, 4, 5, 16
_MICROSECONDS = frozenset({13, 128})  # MySQL's and MariaDB's
_SIZES = {_FLAGS: 4, _SQL_MODE: 8, 3: 4, _CHARSET: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, _EXPLICIT_TIMESTAMP: 1} | {
    17: 8, 18: 2, 19: 1, 20: 1, 128: 3, 129: 8,
}  # fmt: skip
"""Bytes of the variables whose size is fixed."""
_TEXTS = frozenset({_TIME_ZONE, 6})  # one byte with the length, then as many bytes
_INVOKER, _UPDATED_SCHEMAS, _TOO_MANY_SCHEMAS = 11, 12, 254

# MariaDB since 10.8 may log an ALTER when it begins, and again when it has ended: the phase of the event.
_PHASE, _STARTED, _COMMITTED, _ROLLED_BACK = 130, 2, 4, 8
_EXPLICIT_FLAG = 1 << 24  # OPTION_EXPLICIT_DEF_TIMESTAMP, of the same versions


@dataclass(frozen=True, slots=True)
class QueryVariables:
    """The status variables; None and "": the event lacks them. ``sql_mode``: the server's bits. ``collation``: id of
    the client's character set. ``time_zone``: as in the session, possibly "SYSTEM". ``explicit_timestamp``: the
    session's explicit_defaults_for_timestamp, as MySQL writes it; ``explicit_flag``: as MariaDB writes it since 10.8,
    False before. ``microseconds``: of the statement's time, after the second in its header. ``has_ended``: False if
    the event means that the statement begins, or that it has failed."""

    sql_mode: int | None = None
    collation: int | None = None
    time_zone: str = ""
    explicit_timestamp: bool | None = None
    microseconds: int = 0
    explicit_flag: bool = False
    has_ended: bool = True


def query_variables(data: bytes) -> QueryVariables:
    """Read a QUERY event's status variables."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        code = data[at]
        at += 1
        size = _size(code, data, at)
        if size is None or at + size > len(data):
            break
        found[code] = data[at : at + size]
        at += size
    mode, charset, explicit = found.get(_SQL_MODE), found.get(_CHARSET), found.get(_EXPLICIT_TIMESTAMP)
    microseconds = next((found[code] for code in _MICROSECONDS if code in found), b"")
    return QueryVariables(
        sql_mode=_U64.unpack(mode)[0] if mode else None,
        collation=_U16.unpack_from(charset)[0] if charset else None,
        time_zone=found.get(_TIME_ZONE, b"\0")[1:].decode("utf-8", "replace"),
        explicit_timestamp=bool(explicit[0]) if explicit else None,
        microseconds=int.from_bytes(microseconds, "little"),
        explicit_flag=bool(int.from_bytes(found.get(_FLAGS, b""), "little") & _EXPLICIT_FLAG),
        has_ended=not found.get(_PHASE, b"\0")[0] & (_STARTED | _ROLLED_BACK),
    )


def _size(code: int, data: bytes, at: int) -> int | None:
    """The size in bytes of the variable at ``at``; None: unknown."""
    if code in _SIZES:
        return _SIZES[code]
    if at >= len(data):
        return None
    if code in _TEXTS:
        return 1 + data[at]
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

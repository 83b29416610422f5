"""Distinguishes transaction control from other statements in QUERY events, without parsing the latter."""

from __future__ import annotations

import re
import struct

from shardmerge.worker.binlog.events import (
    CHECKSUM_SIZE,
    HEADER_SIZE,
    EventType,
    QueryEvent,
    malformed,
    parse_query,
)
from shardmerge.worker.core.inflation import inflate

QUERIES = frozenset({EventType.QUERY, EventType.QUERY_COMPRESSED, EventType.EXECUTE_LOAD_QUERY})

_LENGTHS = struct.Struct("<BHH")  # schema length, error code, length of the status variables
_BODY_FIXED = 13
_FIXED = HEADER_SIZE + _BODY_FIXED
_LOAD_EXTRA = 13  # EXECUTE_LOAD_QUERY: file id, two offsets, duplicate handling
_SIZE_AT = 9

_CONTROL = re.compile(rb"\s*(?:SAVEPOINT\b|ROLLBACK\s+(?:WORK\s+)?TO\b|RELEASE\s+SAVEPOINT\b|XA\s)", re.IGNORECASE)
_XA_START = re.compile(rb"\s*XA\s+(?:START|BEGIN)\b", re.IGNORECASE)
_XA_COMMIT = re.compile(rb"\s*XA\s+COMMIT\b", re.IGNORECASE)
_XA_ROLLBACK = re.compile(rb"\s*XA\s+ROLLBACK\b", re.IGNORECASE)
_ROLLBACK = re.compile(rb"\s*ROLLBACK\b", re.IGNORECASE)
_BOUNDS = (b"BEGIN", b"COMMIT", b"ROLLBACK")


def statement_of(event: bytes | memoryview, kind: int, checksum: bool, source: str) -> bytes | None:
    """The statement, in the client's charset; None when the event is too short to be a QUERY.

    Raises decode.MALFORMED_EVENT for the rarer kinds, which it parses.
    """
    if kind != EventType.QUERY:
        return parse(event, kind, checksum, source).statement
    if len(event) < _FIXED:
        return None
    schema_length, _, variables_length = _LENGTHS.unpack_from(event, HEADER_SIZE + 8)
    end = len(event) - (CHECKSUM_SIZE if checksum else 0)
    return bytes(event[_FIXED + variables_length + schema_length + 1 : end])


def statement_of_body(body: bytes, kind: int, source: str, position: int) -> bytes:
    """The statement of a QUERY from its body, without header and checksum. ``position``: of its end at the source.
    Raises decode.MALFORMED_EVENT and INFLATED_EVENT_TOO_LARGE."""
    if len(body) < _BODY_FIXED:
        raise malformed(source, position, "QUERY is too short")
    start = _BODY_FIXED + int.from_bytes(body[11:13], "little") + body[8] + 1
    if start > len(body):
        raise malformed(source, position, "QUERY: its variables and schema name exceed the event")
    statement = body[start:]
    if kind == EventType.QUERY_COMPRESSED:
        return inflate(statement, source, position)
    return statement


def parse(event: bytes | memoryview, kind: int, checksum: bool, source: str) -> QueryEvent:
    """The whole event. Raises decode.MALFORMED_EVENT."""
    return parse_query(_as_query(bytes(event), kind), checksum, source)


def _as_query(event: bytes, kind: int) -> bytes:
    """An EXECUTE_LOAD_QUERY is a QUERY with more in its fixed part: remove that."""
    if kind != EventType.EXECUTE_LOAD_QUERY:
        return event
    size = struct.pack("<I", len(event) - _LOAD_EXTRA)
    return event[:_SIZE_AT] + size + event[_SIZE_AT + 4 : _FIXED] + event[_FIXED + _LOAD_EXTRA :]


def begins(statement: bytes) -> bool:
    """Whether it opens a transaction."""
    return statement == b"BEGIN" or begins_xa(statement)


def begins_xa(statement: bytes) -> bool:
    return _XA_START.match(statement) is not None


def commits_xa(statement: bytes) -> bool:
    return _XA_COMMIT.match(statement) is not None


def rolls_back_xa(statement: bytes) -> bool:
    return _XA_ROLLBACK.match(statement) is not None


def rolls_back(statement: bytes) -> bool:
    """ROLLBACK, as a whole or to a savepoint."""
    return _ROLLBACK.match(statement) is not None


def ends(statement: bytes) -> bool:
    """Whether it ends the transaction that contains it."""
    return statement in (b"COMMIT", b"ROLLBACK") or commits_xa(statement) or rolls_back_xa(statement)


def is_control(statement: bytes) -> bool:
    """Whether it only controls a transaction: it changes no table and no privilege."""
    return statement in _BOUNDS or _CONTROL.match(statement) is not None

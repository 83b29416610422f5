"""Parses QUERY events, and distinguishes transaction control from other statements without parsing the latter."""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from dataclasses import dataclass

from shardmerge.worker.binlog.events import CHECKSUM_SIZE, HEADER_SIZE, EventType, body_end, malformed, parse_header
from shardmerge.worker.binlog.query_variables import QueryVariables, query_variables
from shardmerge.worker.binlog.rows.characters.character_set import NoCharacter, character_set
from shardmerge.worker.binlog.rows.charsets import charset_of_id, is_utf8
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


_QUERY_POST_HEADER = struct.Struct("<IIBHH")


_OF_SERVER = re.compile(
    rb"CREATE TABLE `(?:[^`]|``)*` \(\n  `(?:.*\n\) (?P<sure>START TRANSACTION))?",
    re.DOTALL,
)
"""How a server writes CREATE TABLE … SELECT, and CREATE TABLE … LIKE a temporary table."""


@dataclass(frozen=True, slots=True)
class QueryEvent:
    """A statement. ``statement``: its bytes in the client's character set; ``second``: Unix time of its begin."""

    schema: str
    statement: bytes
    variables: QueryVariables
    error_code: int
    second: int

    @property
    def sql_mode(self) -> int | None:
        """The server's bits; None when the event does not have them."""
        return self.variables.sql_mode

    @property
    def client_charset(self) -> str:
        """The client's character set; "" for one that is not known. Events without it are UTF-8."""
        number = self.variables.collation
        return charset_of_id(number) if number else "utf8mb4"

    @property
    def text(self) -> str:
        """The statement as text; what is not in the client's character set is replaced by U+FFFD."""
        found = self._decoded
        return self.statement.decode("utf-8", "replace") if found is None else found

    @property
    def is_text(self) -> bool:
        """Whether :attr:`text` is exactly the client's text."""
        return self._decoded is not None

    @property
    def _decoded(self) -> str | None:
        """The statement; None if it is not in the client's character set, or that is not known."""
        charset = self.client_charset
        if not is_utf8(charset) and not self.statement.isascii() and (found := _OF_SERVER.match(self.statement)):
            # The server writes UTF-8 whatever the client's character set is. A client may write a CREATE TABLE as the
            # server does: if its bytes are valid in both, it is not known who wrote them.
            with suppress(UnicodeDecodeError):
                text = self.statement.decode()
                return text if found["sure"] else None
        # Servers read names of a client with the character set binary as UTF-8.
        found = character_set("utf8mb4" if charset == "binary" or is_utf8(charset) else charset)
        if self.statement.isascii() and (found is None or found.extends_ascii):
            return self.statement.decode("ascii")
        if found is None:
            return None
        try:
            return found.decoded(self.statement)
        except NoCharacter:
            return None


def parse_query(event: bytes, checksum: bool, source: str = "") -> QueryEvent:
    """Parse QUERY, or MariaDB's QUERY_COMPRESSED."""
    header = parse_header(event, 0, source)
    end = body_end(event, header, checksum, 13, source)
    _, _, schema_length, error_code, variables_length = _QUERY_POST_HEADER.unpack_from(event, HEADER_SIZE)
    variables_at = HEADER_SIZE + 13
    schema_at = variables_at + variables_length
    statement_at = schema_at + schema_length + 1
    if statement_at > end:
        raise malformed(source, header.log_pos, "QUERY: its variables and schema name exceed the event")
    variables = query_variables(event[variables_at:schema_at])
    statement = event[statement_at:end]
    if header.type == EventType.QUERY_COMPRESSED:
        statement = inflate(statement, source, header.log_pos)
    schema = event[schema_at : statement_at - 1].decode("utf-8", "replace")
    return QueryEvent(schema, statement, variables, error_code, header.timestamp)


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

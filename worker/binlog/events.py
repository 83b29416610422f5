"""Parses the binlog events that a reader of the stream needs: header, format description, rotate.

Pure functions of an event's bytes. Every function takes the *whole* event, its 19-byte header included, and
``checksum``: whether its last four bytes are a CRC32 (see :attr:`FormatDescription.checksum`). Formats: MySQL
Internals Manual, "Binary Log"; MySQL's libs/mysql/binlog/event/*.h; MariaDB's sql/log_event.h and its knowledge
base, "Replication Protocol". Bytes that do not fit raise ``errors.decode.MALFORMED_EVENT``; nothing is guessed.
"""

from __future__ import annotations

import enum
import struct
import zlib
from dataclasses import dataclass
from typing import NamedTuple

from shardmerge.proto import errors

HEADER_SIZE = 19
CHECKSUM_SIZE = 4

FLAG_IN_USE = 0x1
"""In the format description of a file that the server still writes to."""
FLAG_ARTIFICIAL = 0x20
"""Made by the dump thread: not in the source's file."""

_NO_FOREIGN_KEY_CHECKS = 0x2
_LOGGED_CASCADES = 0x10
"""USE_SQL_FOREIGN_KEY_F of MySQL 9.6 and later: the server logs the rows that a foreign key changes as row events."""
_ROWS_FLAGS_AT = 19 + 6

HEADER = struct.Struct("<IBIIIH")
"""The fields of EventHeader."""
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

_LARGEST_POSITION = (1 << 62) - 1  # positions are signed numbers of 64 bits in compiled code, and are added to


class EventType(enum.IntEnum):
    """Type codes: MySQL's `Log_event_type`, and MariaDB's from 160 on."""

    UNKNOWN = 0
    START_V3 = 1
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD = 6
    SLAVE = 7
    CREATE_FILE = 8
    APPEND_BLOCK = 9
    EXEC_LOAD = 10
    DELETE_FILE = 11
    NEW_LOAD = 12
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    PRE_GA_WRITE_ROWS = 20
    PRE_GA_UPDATE_ROWS = 21
    PRE_GA_DELETE_ROWS = 22
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS_V2 = 30
    UPDATE_ROWS_V2 = 31
    DELETE_ROWS_V2 = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED = 169
    UPDATE_ROWS_COMPRESSED = 170
    DELETE_ROWS_COMPRESSED = 171


class EventHeader(NamedTuple):
    """The common header. A NamedTuple: made once per event of the stream.

    ``timestamp``: Unix seconds when the statement began at the source. ``size``: bytes of the whole event, header and
    checksum included. ``log_pos``: byte in the source's file right after the event, modulo 2³² (a file may grow beyond
    it in one large transaction); 0 in events that the dump thread made.
    """

    timestamp: int
    type: int
    server_id: int
    size: int
    log_pos: int
    flags: int

    @property
    def is_artificial(self) -> bool:
        """Whether it is not in the source's file: never store it nor count it in a position."""
        return self.log_pos == 0 or bool(self.flags & FLAG_ARTIFICIAL)


def malformed(source: str, position: int, reason: str) -> errors.ShardmergeError:
    """The coded error for bytes that are not an event of the format."""
    return errors.decode.MALFORMED_EVENT(source=source, position=position, reason=reason)


def event_name(code: int) -> str:
    """The name of an event type for messages, e.g. "TABLE_MAP" or "type 99"."""
    try:
        return EventType(code).name
    except ValueError:
        return f"type {code}"


def parse_header(buf: bytes | bytearray | memoryview, at: int = 0, source: str = "") -> EventHeader:
    """The header that starts at byte ``at``; ``buf`` must contain only the header. Its size is at least its own."""
    if len(buf) - at < HEADER_SIZE or at < 0:
        raise malformed(source, 0, f"{len(buf) - at} bytes are too few for an event header")
    header = EventHeader._make(HEADER.unpack_from(buf, at))
    if header.size < HEADER_SIZE:
        raise malformed(source, header.log_pos, f"event size {header.size} is smaller than its header")
    return header


def checksum_matches(event: bytes | memoryview) -> bool:
    """Whether the CRC32 in the last four bytes of ``event`` matches the bytes before it.

    The server computes a format description's checksum without its in-use flag, which it sets and clears later.
    """
    if len(event) < HEADER_SIZE + CHECKSUM_SIZE:
        return False
    body = event[:-CHECKSUM_SIZE]
    if event[4] == EventType.FORMAT_DESCRIPTION and event[17] & FLAG_IN_USE:
        copy = bytearray(body)
        copy[17] &= ~FLAG_IN_USE & 0xFF
        body = bytes(copy)
    return zlib.crc32(body) == _U32.unpack_from(event, len(event) - CHECKSUM_SIZE)[0]


def body_end(event: bytes, header: EventHeader, checksum: bool, least: int, source: str) -> int:
    """End of the event's body without its checksum; the body has at least ``least`` bytes."""
    if header.size != len(event):
        raise malformed(source, header.log_pos, f"event of {header.size} bytes came as {len(event)}")
    end = len(event) - (CHECKSUM_SIZE if checksum else 0)
    if end < HEADER_SIZE + least:
        raise malformed(source, header.log_pos, f"{event_name(header.type)} of {len(event)} bytes is too short")
    return end


@dataclass(frozen=True, slots=True)
class FormatDescription:
    """The first event of a binlog file, which describes the format of the events after it.

    ``checksum``: the events end with a CRC32 (algorithm 1; 0 is none). ``post_header_lengths[t]``: fixed part of
    events of type t, 0 for types the server does not know.
    """

    binlog_version: int
    server_version: str
    checksum: bool
    post_header_lengths: bytes
    is_mariadb: bool

    @staticmethod
    def parse(event: bytes, source: str = "") -> FormatDescription:
        """Parse a FORMAT_DESCRIPTION event of a file.

        Only binlog version 4 is known, and only servers that name their checksum algorithm in it (MySQL ≥ 5.6.1,
        MariaDB ≥ 5.3): before the last five bytes there is one post-header length per event type.
        """
        header = parse_header(event, 0, source)
        if header.type != EventType.FORMAT_DESCRIPTION:
            raise malformed(source, header.log_pos, f"{event_name(header.type)} is no format description")
        end = body_end(event, header, checksum=True, least=57 + 1, source=source)
        (binlog_version,) = _U16.unpack_from(event, HEADER_SIZE)
        if binlog_version != 4:
            raise malformed(source, header.log_pos, f"binlog version {binlog_version}, known is 4")
        if event[HEADER_SIZE + 56] != HEADER_SIZE:
            raise malformed(source, header.log_pos, f"event headers of {event[HEADER_SIZE + 56]} bytes")
        version = event[HEADER_SIZE + 2 : HEADER_SIZE + 52].split(b"\0", 1)[0].decode("ascii", "replace")
        algorithm = event[end - 1]
        if algorithm not in (0, 1):
            raise malformed(source, header.log_pos, f"checksum algorithm {algorithm}, known are 0 and 1 (CRC32)")
        lengths = b"\0" + event[HEADER_SIZE + 57 : end - 1]
        if len(lengths) > 256:
            raise malformed(source, header.log_pos, f"{len(lengths) - 1} event types, a type is one byte")
        if len(lengths) <= EventType.DELETE_ROWS_V1:
            raise malformed(source, header.log_pos, f"server {version} knows only {len(lengths) - 1} event types")
        is_mariadb = "mariadb" in version.lower() or len(lengths) > EventType.ANNOTATE_ROWS
        return FormatDescription(binlog_version, version, algorithm == 1, lengths, is_mariadb)

    def post_header_length(self, code: int) -> int:
        """Bytes of the fixed part of an event of type ``code``; 0 when the server does not know the type."""
        return self.post_header_lengths[code] if code < len(self.post_header_lengths) else 0


@dataclass(frozen=True, slots=True)
class RotateEvent:
    """The stream continues in ``file`` at byte ``position``."""

    file: str
    position: int


def parse_rotate(event: bytes, checksum: bool, source: str = "") -> RotateEvent:
    """Parse ROTATE, real or artificial."""
    header = parse_header(event, 0, source)
    end = body_end(event, header, checksum, 9, source)
    (position,) = _U64.unpack_from(event, HEADER_SIZE)
    if position > _LARGEST_POSITION:
        raise malformed(source, header.log_pos, f"ROTATE to byte {position}")
    try:
        return RotateEvent(event[HEADER_SIZE + 8 : end].decode("utf-8"), position)
    except UnicodeDecodeError:
        raise malformed(source, header.log_pos, "ROTATE: file name is not UTF-8") from None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The dump thread is at ``position`` of ``file`` and has nothing to send."""

    file: str
    position: int


def parse_heartbeat(event: bytes, checksum: bool, source: str = "") -> Heartbeat:
    """Parse HEARTBEAT, and HEARTBEAT_V2 (MySQL's libs/mysql/binlog/event/codecs/binary.cpp), whose position may be
    beyond 4 GiB."""
    header = parse_header(event, 0, source)
    end = body_end(event, header, checksum, 1, source)
    if header.type == EventType.HEARTBEAT:
        return Heartbeat(event[HEADER_SIZE:end].decode("utf-8", "replace"), header.log_pos)
    name, position = b"", 0
    at = HEADER_SIZE
    while at < end and event[at] != 0:
        kind, length = event[at], event[at + 1] if at + 1 < end else 0
        value = event[at + 2 : at + 2 + length]
        if length > 250 or len(value) != length or at + 2 + length > end:
            raise malformed(source, header.log_pos, "HEARTBEAT_V2: a field exceeds the event")
        if kind == 1:
            name = value
        elif kind == 2:
            # A length-encoded integer: one byte, or its size and the bytes.
            position = value[0] if length == 1 else int.from_bytes(value[1:], "little")
        at += 2 + length
    return Heartbeat(name.decode("utf-8", "replace"), position)


def causes_unlogged_cascades(events: bytes, at: int) -> bool:
    """Whether the source's storage engine follows foreign keys for the rows of the rows event at byte ``at``, without
    logging what it changes: not if the session had ``foreign_key_checks=0``, nor if the server logs these changes."""
    (flags,) = _U16.unpack_from(events, at + _ROWS_FLAGS_AT)
    if flags & _NO_FOREIGN_KEY_CHECKS:
        return False
    return not (flags & _LOGGED_CASCADES and EventType.WRITE_ROWS_V2 <= events[at + 4] <= EventType.PARTIAL_UPDATE_ROWS)

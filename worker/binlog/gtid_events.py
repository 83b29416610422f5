"""Parses and encodes GTIDs of the binlog: a group's GTID event, a file's GTID list, the set that requests a dump.

Takes whole events, as :mod:`shardmerge.worker.binlog.events`. Formats: MySQL's libs/mysql/binlog/event/control_events.h
(Gtid_event, with or without a tag) and sql/rpl_gtid_set.cc (sets; tagged ones since 8.3); MariaDB's sql/log_event.h
(Gtid_log_event, Gtid_list_log_event).

An event with a tag is one of MySQL's serialized messages, whose fields are identified by a number: MySQL's
libs/mysql/serialization/readme.md. A message is a version (1), its size after the version, the number of the last field
that a reader must know, then fields in ascending order: number and value. Every number is a variable-length integer:
the number of 1 bits at the low end of its first byte is the number of bytes that follow it.
"""

from __future__ import annotations

import re
import struct
import uuid
from dataclasses import dataclass

from shardmerge.worker.binlog.events import HEADER_SIZE, EventType, body_end, event_name, malformed, parse_header

_MESSAGE_VERSION = 1
_WHOLE_NUMBER = 9  # bytes of a number that needs more than 56 bits: 0xFF, then all eight


class BadMessage(Exception):
    """The bytes are not a valid message; the text is the reason."""


class MessageReader:
    """Reads the values of one message, one after the other; all methods raise :class:`BadMessage`.

    ``at``: the byte after the last value that was read; ``end``: the byte after the message.
    """

    __slots__ = ("_data", "at", "end", "last_needed")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self._data = data
        self.at, self.end = at, end
        if self.unsigned() != _MESSAGE_VERSION:
            raise BadMessage(f"message version, known is {_MESSAGE_VERSION}")
        size = self.unsigned()
        if at + size > end:
            raise BadMessage(f"a message of {size} bytes, but {end - at} are left")
        self.end = at + size
        self.last_needed = self.unsigned()

    def unsigned(self) -> int:
        """The next number."""
        if self.at >= self.end:
            raise BadMessage("a number beyond its end")
        first = self._data[self.at]
        size = 1
        while size < _WHOLE_NUMBER and first >> (size - 1) & 1:
            size += 1
        if self.at + size > self.end:
            raise BadMessage("a number beyond its end")
        rest = int.from_bytes(self._data[self.at + 1 : self.at + size], "little")
        self.at += size
        return rest if size == _WHOLE_NUMBER else first >> size | rest << (8 - size)

    def signed(self) -> int:
        """The next number, whose lowest bit is the sign."""
        value = self.unsigned()
        return ~(value >> 1) if value & 1 else value >> 1

    def octets(self, count: int) -> bytes:
        """An array of bytes: each of them is a number."""
        values = [self.unsigned() for _ in range(count)]
        if any(value > 0xFF for value in values):
            raise BadMessage("a byte above 255")
        return bytes(values)

    def string(self) -> bytes:
        """The next string: a length and as many bytes."""
        size = self.unsigned()
        if self.at + size > self.end:
            raise BadMessage("a string beyond its end")
        self.at += size
        return self._data[self.at - size : self.at]


_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_MARIADB_GTID = struct.Struct("<QIB")
_MARIADB_GTID_LIST_ENTRY = struct.Struct("<IIQ")
_FL_STANDALONE = 1
_UUID_BYTES = 16
_LONGEST_TAG = 32
_TAG = re.compile(rb"[a-z_][a-z0-9_]*")

# Fields of a tagged GTID event.
_FLAGS, _UUID, _NUMBER, _TAG_FIELD, _COMMITTED, _SEQUENCE, _TIME = range(7)
_LAST_KNOWN = 11
"""The later fields are not used here: original commit time, length, server versions, ticket."""


@dataclass(frozen=True, slots=True)
class GtidEvent:
    """The start of an event group.

    ``text``: "domain-server-sequence" (MariaDB), "uuid:number" or "uuid:tag:number" (MySQL), "" for an anonymous
    group. ``standalone``: the group is this event and the one statement after it; else it ends with its own COMMIT,
    XID or XA PREPARE. MySQL has no such flag: there the statement after it is BEGIN, XA START or the whole group.
    """

    text: str
    standalone: bool = False


def parse_gtid(event: bytes, checksum: bool, source: str = "") -> GtidEvent:
    """Parse GTID, GTID_TAGGED and ANONYMOUS_GTID (MySQL) and MARIADB_GTID."""
    header = parse_header(event, 0, source)
    if header.type == EventType.MARIADB_GTID:
        body_end(event, header, checksum, 13, source)
        number, domain, flags = _MARIADB_GTID.unpack_from(event, HEADER_SIZE)
        return GtidEvent(f"{domain}-{header.server_id}-{number}", bool(flags & _FL_STANDALONE))
    if header.type == EventType.GTID:
        body_end(event, header, checksum, 25, source)
        server = uuid.UUID(bytes=event[HEADER_SIZE + 1 : HEADER_SIZE + 17])
        (number,) = _U64.unpack_from(event, HEADER_SIZE + 17)
        return GtidEvent(f"{server}:{number}")
    if header.type == EventType.ANONYMOUS_GTID:
        return GtidEvent("")
    if header.type == EventType.GTID_TAGGED:
        return GtidEvent(parse_tagged(event, checksum, source)[0])
    raise malformed(source, header.log_pos, f"{event_name(header.type)} is not a GTID event")


def parse_tagged(event: bytes, checksum: bool, source: str = "") -> tuple[str, int]:
    """GTID and commit time (microseconds since 1970; 0 if absent) of a GTID_TAGGED event."""
    header = parse_header(event, 0, source)
    end = body_end(event, header, checksum, 3, source)
    try:
        return _tagged(MessageReader(event, HEADER_SIZE, end))
    except BadMessage as bad:
        raise malformed(source, header.log_pos, f"GTID_TAGGED: {bad}") from None


def _tagged(message: MessageReader) -> tuple[str, int]:
    server, number, tag, time = b"", 0, b"", 0
    if message.last_needed > _LAST_KNOWN:
        raise BadMessage(f"field {message.last_needed} must be known")
    while message.at < message.end:
        field = message.unsigned()
        if field == _UUID:
            server = message.octets(_UUID_BYTES)
        elif field == _NUMBER:
            number = message.signed()
        elif field == _TAG_FIELD:
            tag = message.string()
        elif field in (_FLAGS, _COMMITTED, _SEQUENCE):
            message.unsigned()
        else:
            if field == _TIME:
                time = message.unsigned()
            break
    if not server or number <= 0:
        raise BadMessage("it lacks the server or the number")
    return f"{uuid.UUID(bytes=server)}:{_tag_text(tag)}{number}", time


def _tag_text(tag: bytes) -> str:
    """The tag as written in a GTID, followed by a colon; "" for no tag."""
    if not tag:
        return ""
    if len(tag) > _LONGEST_TAG or not _TAG.fullmatch(tag):
        raise BadMessage(f"an invalid tag of {len(tag)} bytes")
    return tag.decode() + ":"


def parse_gtid_list(event: bytes, checksum: bool, source: str = "") -> str:
    """The GTID set before a binlog file.

    From MARIADB_GTID_LIST ("0-1-5,1-2-9") or PREVIOUS_GTIDS ("uuid:1-5:8,uuid:tag:1-3,…").
    """
    header = parse_header(event, 0, source)
    if header.type == EventType.MARIADB_GTID_LIST:
        end = body_end(event, header, checksum, 4, source)
        count = _U32.unpack_from(event, HEADER_SIZE)[0] & 0x0FFFFFFF
        if HEADER_SIZE + 4 + count * 16 > end:
            raise malformed(source, header.log_pos, f"GTID_LIST of {count} entries exceeds the event")
        entries = (_MARIADB_GTID_LIST_ENTRY.unpack_from(event, HEADER_SIZE + 4 + 16 * index) for index in range(count))
        return ",".join(f"{domain}-{server}-{number}" for domain, server, number in entries)
    if header.type != EventType.PREVIOUS_GTIDS:
        raise malformed(source, header.log_pos, f"{event_name(header.type)} is not a GTID list")
    end = body_end(event, header, checksum, 8, source)
    try:
        return _read_set(event, HEADER_SIZE, end)
    except BadMessage as bad:
        raise malformed(source, header.log_pos, f"PREVIOUS_GTIDS: {bad}") from None


def _read_set(data: bytes, at: int, end: int) -> str:
    """The encoded set: with tags the count of its parts is between two bytes of 1, and each part has a tag."""
    (head,) = _U64.unpack_from(data, at)
    form = head >> 56
    if form > 1:
        raise BadMessage(f"a set of form {form}, known are 0 and 1")
    parts = head >> 8 & ((1 << 48) - 1) if form else head
    at += 8
    found: list[str] = []
    for _ in range(parts):
        if at + _UUID_BYTES > end:
            raise BadMessage("it exceeds the event")
        text = str(uuid.UUID(bytes=data[at : at + _UUID_BYTES]))
        at += _UUID_BYTES
        if form:
            size = data[at] >> 1 if at < end else 0
            if at >= end or data[at] & 1 or at + 1 + size > end:
                raise BadMessage("a tag exceeds the event")
            text += ":" + _tag_text(data[at + 1 : at + 1 + size])
            text = text.removesuffix(":")
            at += 1 + size
        if at + 8 > end:
            raise BadMessage("it exceeds the event")
        (intervals,) = _U64.unpack_from(data, at)
        at += 8
        if at + intervals * 16 > end:
            raise BadMessage("it exceeds the event")
        for _ in range(intervals):
            first, following = struct.unpack_from("<QQ", data, at)
            text += f":{first}" if first == following - 1 else f":{first}-{following - 1}"
            at += 16
        found.append(text)
    return ",".join(found)


@dataclass(frozen=True, slots=True)
class SetPart:
    """One server's (and tag's) part of a MySQL GTID set; ``intervals``: first and last numbers."""

    server: uuid.UUID
    tag: str
    intervals: tuple[tuple[int, int], ...]


def encode_set(parts: tuple[SetPart, ...]) -> bytes:
    """A MySQL GTID set as COM_BINLOG_DUMP_GTID takes it: without a tag, in the format that every version knows."""
    tagged = any(part.tag for part in parts)
    made = bytearray(_U64.pack(1 << 56 | len(parts) << 8 | 1 if tagged else len(parts)))
    for part in parts:
        made += part.server.bytes
        if tagged:
            made += bytes([len(part.tag) << 1]) + part.tag.encode()
        made += _U64.pack(len(part.intervals))
        for first, last in part.intervals:
            made += struct.pack("<QQ", first, last + 1)
    return bytes(made)

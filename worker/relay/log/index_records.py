"""Encodes and decodes the records of the index and statements files.

A record is ``<u32 length of payload><u32 CRC32 of payload><payload>``, little-endian. Both files are derived from
the segment's events: if they are truncated or damaged, the segment is read again.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.relay.log.prepared_groups import PreparedGroup, pack_groups, unpack_groups
from shardmerge.worker.relay.model import Statement

_FRAME = struct.Struct("<II")
_ENTRY = struct.Struct("<BQQQdQ")
_SEALED_TRAILER = struct.Struct("<I")
_STATEMENT = struct.Struct("<QQQqQ")
_LENGTH = struct.Struct("<I")


class EntryKind(enum.IntEnum):
    """The kind of boundary at an entry's byte. All but PIECE are group ends."""

    BEGIN = 1  # of the segment: its first event
    GROUP_END = 2
    PIECE = 3  # an event boundary inside a group that is larger than a block
    SEALED = 4  # end of the segment; written once everything before it is on disk
    PAYLOADS = 5  # from here on groups of the segment may be compressed
    PREPARED = 6  # the group that begins here is prepared, and ends at the next entry
    COMMITTED = 7  # the group that begins here is an XA COMMIT, and ends at the next entry
    FORGOTTEN = 8  # an XA ROLLBACK ended here


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A byte of a segment at which a block may end.

    ``position``, ``commit_time``: of the last group end at or before ``byte``. PIECE: ``group_start``
    is its group's first byte and ``first_event`` the number of the group's events before ``byte``;
    else they are ``byte`` and 0. SEALED: ``first_event`` is the length of the statements file. ``prepared``: BEGIN: the
    groups that wait for their end there; PREPARED, COMMITTED, FORGOTTEN: the group (COMMITTED: none when it is not in
    the relay log). ``state``: BEGIN, SEALED: see worker/relay/log/binlog_state.py; "" of earlier versions.
    """

    kind: EntryKind
    byte: int
    group_start: int
    first_event: int
    position: SourcePosition
    commit_time: float
    prepared: tuple[PreparedGroup, ...] = ()
    state: str = ""


class _Strings:
    """Reads length-prefixed byte strings out of a payload, one after the other."""

    def __init__(self, payload: bytes, at: int) -> None:
        self._payload = payload
        self._at = at

    def next(self) -> bytes:
        """The next string; b"" when there is none: records of earlier versions have fewer."""
        if self._at >= len(self._payload):
            return b""
        start = self._at + _LENGTH.size
        self._at = start + _LENGTH.unpack_from(self._payload, self._at)[0]
        return self._payload[start : self._at]


def _strings(*values: str, more: bytes = b"") -> bytes:
    encoded = [value.encode("utf-8", "surrogatepass") for value in values]
    return b"".join(_LENGTH.pack(len(value)) + value for value in (*encoded, more))


def frame(payload: bytes) -> bytes:
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def payloads(data: bytes) -> Iterator[bytes]:
    """The complete, undamaged records from the start of ``data``; ends silently at the first other one."""
    at = 0
    while at + _FRAME.size <= len(data):
        length, crc = _FRAME.unpack_from(data, at)
        payload = data[at + _FRAME.size : at + _FRAME.size + length]
        if len(payload) != length or length == 0 or zlib.crc32(payload) != crc:
            return
        yield payload
        at += _FRAME.size + length


def pack_entry(entry: IndexEntry) -> bytes:
    """One record. SEALED is followed by its own length, so that it can be read from the file's end."""
    body = _ENTRY.pack(
        entry.kind, entry.byte, entry.group_start, entry.first_event, entry.commit_time, entry.position.pos
    )
    position = entry.position
    strings = _strings(position.file, position.gtid_set, position.server, more=pack_groups(entry.prepared))
    record = frame(body + strings + (_strings(entry.state) if entry.state else b""))
    if entry.kind is EntryKind.SEALED:
        return record + _SEALED_TRAILER.pack(len(record))
    return record


def unpack_entry(payload: bytes) -> IndexEntry:
    kind, byte, group_start, first_event, commit_time, pos = _ENTRY.unpack_from(payload)
    strings = _Strings(payload, _ENTRY.size)
    file, gtid_set, server = (strings.next().decode() for _ in range(3))
    position = SourcePosition(file, pos, gtid_set, server)
    prepared = unpack_groups(strings.next())
    state = strings.next().decode()
    return IndexEntry(EntryKind(kind), byte, group_start, first_event, position, commit_time, prepared, state)


def sealed_entry(data: bytes) -> IndexEntry | None:
    """The SEALED entry at the end of an index file (or of its last bytes); None when there is none."""
    if len(data) < _SEALED_TRAILER.size:
        return None
    (length,) = _SEALED_TRAILER.unpack_from(data, len(data) - _SEALED_TRAILER.size)
    start = len(data) - _SEALED_TRAILER.size - length
    if start < 0 or length == 0:
        return None
    for payload in payloads(data[start : start + length]):
        if len(payload) >= _ENTRY.size and payload[0] == EntryKind.SEALED:
            return unpack_entry(payload)
    return None


def pack_statement(statement: Statement) -> bytes:
    mode = -1 if statement.sql_mode is None else statement.sql_mode
    position = statement.position
    body = _STATEMENT.pack(
        statement.group_start.byte, statement.offset.byte, statement.group_end.byte, mode, position.pos
    )
    return frame(body + _strings(position.file, position.gtid_set, statement.schema, statement.text, position.server))


def unpack_statement(payload: bytes, segment: int) -> Statement:
    group_start, offset, group_end, mode, pos = _STATEMENT.unpack_from(payload)
    strings = _Strings(payload, _STATEMENT.size)
    file, gtid_set, schema, text, server = (strings.next().decode("utf-8", "surrogatepass") for _ in range(5))
    return Statement(
        RelayOffset(segment, group_start),
        RelayOffset(segment, offset),
        RelayOffset(segment, group_end),
        SourcePosition(file, pos, gtid_set, server),
        schema,
        text,
        None if mode < 0 else mode,
    )

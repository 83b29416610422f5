"""Reads TRANSACTION_PAYLOAD: a whole transaction compressed into one event (MySQL, binlog_transaction_compression).

Format: MySQL's libs/mysql/binlog/event/codecs/binary.cpp (Transaction_payload): fields of type, length and value, each
a length-encoded integer, a 0, then the data: with zstd the consecutive events from BEGIN to XID, none of them
with a checksum. Their ``log_pos`` is not a position of the file. The decompressed data is never larger than the size
in the event, and it is processed in pieces: a function reads the compressed data, events are returned one by one, each
no larger than the limit of worker/core/inflation.py.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from shardmerge.proto import errors
from shardmerge.worker.binlog import query_text
from shardmerge.worker.binlog.events import CHECKSUM_SIZE, HEADER, HEADER_SIZE, EventType, event_name, malformed
from shardmerge.worker.core.inflation import AT_ONCE, check_size, joined

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

LONGEST_HEAD = 64
"""Largest size of the head at the start of the event's body."""

_PAYLOAD_SIZE, _COMPRESSION, _PLAIN_SIZE = 1, 2, 3
_ZSTD, _NONE = 0, 255
_READ_BYTES = 1 << 16
_CRC = struct.Struct("<I")
_NEVER_INSIDE = frozenset(
    {
        EventType.FORMAT_DESCRIPTION,
        EventType.ROTATE,
        EventType.STOP,
        EventType.GTID,
        EventType.GTID_TAGGED,
        EventType.ANONYMOUS_GTID,
        EventType.PREVIOUS_GTIDS,
        EventType.TRANSACTION_PAYLOAD,
        EventType.INCIDENT,
    }
)

Read = Callable[[int, int], bytes]
"""``read(at, size)``: at most ``size`` bytes of the event from its byte ``at`` on, at least one if there are any."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A TRANSACTION_PAYLOAD event whose head was read.

    ``data``: first byte of the data in the event, and the byte after it. ``plain_size``: bytes of the events in it.
    ``log_pos``: of the event itself. ``checksum``: whether this binlog's events end with a CRC32.
    """

    read: Read
    data: tuple[int, int]
    compressed: bool
    plain_size: int
    log_pos: int
    checksum: bool
    source: str

    def events(self) -> Iterator[bytes]:
        """The events in it, each in the format of the file: with its checksum, if other events have one.

        ``log_pos`` is that of the payload: the inner events have no positions. Raises decode.MALFORMED_EVENT and
        INFLATED_EVENT_TOO_LARGE.
        """
        stream = self._stream()
        left = self.plain_size
        while left:
            head = self._exactly(stream, HEADER_SIZE, left)
            timestamp, kind, server, size, _, flags = HEADER.unpack(head)
            if size < HEADER_SIZE or size > left:
                raise self._bad(f"an event of {size} bytes, but {left} are left")
            if kind in _NEVER_INSIDE:
                raise self._bad(f"{event_name(kind)} inside of it")
            stored = size + (CHECKSUM_SIZE if self.checksum else 0)
            begin = HEADER.pack(timestamp, kind, server, stored, self.log_pos, flags)
            if size <= AT_ONCE:
                made = begin + self._exactly(stream, size - HEADER_SIZE, left)
                yield made + _CRC.pack(zlib.crc32(made)) if self.checksum else made
            else:
                check_size(size, self.source, self.log_pos)
                yield joined(begin, self._large_body(stream, begin, size - HEADER_SIZE))
            left -= size
        if self._some(stream, 1):
            raise self._bad(f"more than the {self.plain_size} bytes that its head states")

    def _large_body(self, stream: _Stream, begin: bytes, size: int) -> Iterator[bytes]:
        """The body of an event, in pieces, and its checksum."""
        crc = zlib.crc32(begin)
        for at in range(0, size, AT_ONCE):
            piece = self._exactly(stream, min(AT_ONCE, size - at), size)
            crc = zlib.crc32(piece, crc)
            yield piece
        if self.checksum:
            yield _CRC.pack(crc)

    def first_event(self) -> bytes:
        """The first of :meth:`events`; it decompresses little more than that."""
        for event in self.events():
            return event
        raise self._bad("it is empty")

    def _bad(self, reason: str) -> Exception:
        return malformed(self.source, self.log_pos, f"TRANSACTION_PAYLOAD: {reason}")

    def _exactly(self, stream: _Stream, size: int, left: int) -> bytes:
        if size > left:
            raise self._bad(f"{left} bytes are too few for an event")
        data = self._some(stream, size)
        while len(data) < size:
            more = self._some(stream, size - len(data))
            if not more:
                raise self._bad(f"less than the {self.plain_size} bytes that its head states")
            data += more
        return data

    def _some(self, stream: _Stream, size: int) -> bytes:
        try:
            return stream.read(size) if size else b""
        except OSError as error:
            raise self._bad(f"cannot be decompressed: {error}") from None

    def _stream(self) -> _Stream:
        source = _Data(self.read, *self.data)
        if not self.compressed:
            return io.BufferedReader(source, _READ_BYTES)
        if self.plain_size > AT_ONCE:  # a stream costs three times as much to start
            return pa.input_stream(pa.PythonFile(source, mode="r"), compression="zstd", buffer_size=_READ_BYTES)
        data = io.BufferedReader(source, _READ_BYTES).read()
        try:
            return io.BytesIO(pa.Codec("zstd").decompress(data, self.plain_size, asbytes=True))
        except OSError as error:
            raise self._bad(f"cannot be decompressed: {error}") from None


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Data(io.RawIOBase):
    """The data part of the event as a file."""

    def __init__(self, read: Read, at: int, end: int) -> None:
        self._read, self._at, self._end = read, at, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        data = self._read(self._at, min(len(view), self._end - self._at)) if self._at < self._end else b""
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def parse_payload(read: Read, size: int, checksum: bool, log_pos: int, source: str = "") -> Payload:
    """Read the head of a TRANSACTION_PAYLOAD event of ``size`` bytes. Raises decode.MALFORMED_EVENT."""
    end = size - (CHECKSUM_SIZE if checksum else 0)
    head = read(HEADER_SIZE, LONGEST_HEAD)
    fields: dict[int, int] = {}
    at = 0
    while True:
        kind, at = _integer(head, at, source, log_pos)
        if kind == 0:
            break
        length, at = _integer(head, at, source, log_pos)
        value, value_end = _integer(head, at, source, log_pos)
        at += length
        if value_end != at and kind in (_PAYLOAD_SIZE, _COMPRESSION, _PLAIN_SIZE):
            raise malformed(source, log_pos, f"TRANSACTION_PAYLOAD: field {kind} of {length} bytes")
        fields[kind] = value
    data = HEADER_SIZE + at
    compression = fields.get(_COMPRESSION, -1)
    if compression not in (_ZSTD, _NONE):
        raise malformed(source, log_pos, f"TRANSACTION_PAYLOAD: compression {compression}, known are 0 (zstd) and 255")
    stored = fields.get(_PAYLOAD_SIZE, -1)
    if stored != end - data:
        raise malformed(source, log_pos, f"TRANSACTION_PAYLOAD: data of {stored} bytes, but the event has {end - data}")
    plain = fields.get(_PLAIN_SIZE, stored if compression == _NONE else -1)
    if plain < HEADER_SIZE:
        raise malformed(source, log_pos, f"TRANSACTION_PAYLOAD: {plain} plain bytes")
    return Payload(read, (data, end), compression == _ZSTD, plain, log_pos, checksum, source)


def only_control(event: bytes, payload: Payload) -> None:
    """Refuse a QUERY in a payload that is a statement: readers do not look for statements there. Servers compress only
    transactions of rows. Raises UNSUPPORTED_EVENT."""
    statement = query_text.statement_of(event, event[4], payload.checksum, payload.source)
    if statement is None or not query_text.is_control(statement):
        raise errors.decode.UNSUPPORTED_EVENT(
            source=payload.source,
            event="TRANSACTION_PAYLOAD",
            position=payload.log_pos,
            reason=f"it contains a statement: {(statement or b'')[:100].decode('utf-8', 'replace')}",
            way_out="Set binlog_format=ROW, or binlog_transaction_compression=OFF, at the source.",
        )


def _integer(data: bytes, at: int, source: str, log_pos: int) -> tuple[int, int]:
    """A length-encoded integer of the client protocol, and the byte after it."""
    if at < len(data):
        first = data[at]
        if first < 251:
            return first, at + 1
        size = {252: 2, 253: 3, 254: 8}.get(first, 0)
        if size and at + 1 + size <= len(data):
            return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size
    raise malformed(source, log_pos, "TRANSACTION_PAYLOAD: its head exceeds it")

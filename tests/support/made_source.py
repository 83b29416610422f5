"""Simulates a source in memory: binlog files with event groups, and the bytes that its dump thread sends."""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import dataclass, field

from shardmerge.worker.binlog.events import FLAG_ARTIFICIAL, EventType
from shardmerge.worker.binlog.gtid_events import encode_set, parse_gtid, parse_gtid_list
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.position import SourcePosition

_HEADER = struct.Struct("<IBIIIH")
TIME = 1_700_000_000
SERVER = bytes(range(16))


def event(
    code: int,
    body: bytes,
    log_pos: int,
    *,
    checksum: bool = True,
    flags: int = 0,
    time: int = TIME,
    server: int = 1,
) -> bytes:
    """Return one event; ``log_pos`` is the value in the header."""
    size = 19 + len(body) + (4 if checksum else 0)
    made = _HEADER.pack(time, code, server, size, log_pos & 0xFFFFFFFF, flags) + body
    return made + struct.pack("<I", zlib.crc32(made)) if checksum else made


def description(log_pos: int, *, mariadb: bool = True, checksum: bool = True) -> bytes:
    """Return a format description event; it always has a checksum of its own."""
    version = (b"10.11.6-MariaDB" if mariadb else b"8.0.36").ljust(50, b"\0")
    lengths = bytes(171 if mariadb else 42)
    body = struct.pack("<H", 4) + version + struct.pack("<IB", 0, 19) + lengths + bytes([checksum])
    return event(EventType.FORMAT_DESCRIPTION, body, log_pos)


def query_body(statement: bytes, schema: bytes = b"d", sql_mode: int | None = None) -> bytes:
    variables = b"" if sql_mode is None else b"\x01" + struct.pack("<Q", sql_mode)
    head = struct.pack("<IIBHH", 7, 0, len(schema), 0, len(variables))
    return head + variables + schema + b"\0" + statement


@dataclass(slots=True)
class File:
    """A binlog file. ``ends``: the source byte after each of its events, the FDE first."""

    name: str
    events: list[bytes] = field(default_factory=list[bytes])
    ends: list[int] = field(default_factory=list[int])

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 4


class MadeSource:
    """A source that writes groups, rotates and crashes; :meth:`dump` sends its binlog from a position.

    ``writer``: id of the server that writes the next groups; ``written``: the last number of each. (MySQL: always 1.)
    """

    def __init__(self, *, mariadb: bool = True, checksum: bool = True) -> None:
        self.mariadb = mariadb
        self.checksum = checksum
        self.files: list[File] = []
        self.sequence = 0
        self.writer = 1
        self.written: dict[int, int] = {}
        self.executed = GtidSet("")
        self._next_file()

    def _next_file(self) -> None:
        self.files.append(File(f"mysql-bin.{len(self.files) + 1:06d}"))
        size = len(description(0, mariadb=self.mariadb, checksum=self.checksum))
        self._store(description(4 + size, mariadb=self.mariadb, checksum=self.checksum))
        if self.mariadb:
            known = [struct.pack("<IIQ", 0, *last) for last in sorted(self.written.items(), key=lambda one: one[1])]
            self.add(EventType.MARIADB_GTID_LIST, struct.pack("<I", len(known)) + b"".join(known))
        else:
            self.add(EventType.PREVIOUS_GTIDS, encode_set(self.executed.parts()))

    def _store(self, made: bytes) -> bytes:
        self.files[-1].events.append(made)
        self.files[-1].ends.append(self.files[-1].end + len(made))
        return made

    def add(self, code: int, body: bytes = b"", *, time: int = TIME) -> bytes:
        """Write one event to the last file."""
        size = 19 + len(body) + (4 if self.checksum else 0)
        end = self.files[-1].end + size
        return self._store(event(code, body, end, checksum=self.checksum, time=time, server=self.writer))

    @property
    def position(self) -> SourcePosition:
        return SourcePosition(self.files[-1].name, self.files[-1].end)

    def gtid(self, *, standalone: bool = False) -> bytes:
        self.sequence += 1
        if self.mariadb:
            self.written[self.writer] = self.sequence
            self.executed.add(f"0-{self.writer}-{self.sequence}")
            body = struct.pack("<QIB6x", self.sequence, 0, standalone)
            return self.add(EventType.MARIADB_GTID, body, time=TIME + self.sequence)
        self.executed.add(f"{uuid.UUID(bytes=SERVER)}:{self.sequence}")
        body = bytes([1]) + SERVER + struct.pack("<Q", self.sequence) + bytes(17)
        return self.add(EventType.GTID, body, time=TIME + self.sequence)

    def query(self, statement: bytes, schema: bytes = b"d", sql_mode: int | None = None) -> bytes:
        return self.add(EventType.QUERY, query_body(statement, schema, sql_mode))

    def _begin(self) -> None:
        self.gtid()
        if not self.mariadb:
            self.query(b"BEGIN")

    def transaction(self, *sizes: int) -> None:
        """Write a group of rows events with bodies of these sizes."""
        self._begin()
        for size in sizes:
            self.add(EventType.WRITE_ROWS_V1, bytes(size))
        self.add(EventType.XID, bytes(8), time=TIME + self.sequence)

    def statement(self, text: bytes) -> None:
        """Write a group of one statement."""
        self.gtid(standalone=True)
        self.query(text)

    def rotate(self) -> None:
        """Begin the next file, which the end of this one announces."""
        name = f"mysql-bin.{len(self.files) + 1:06d}"
        self.add(EventType.ROTATE, struct.pack("<Q", 4) + name.encode())
        self._next_file()

    def crash(self, *, inside_group: bool) -> None:
        """Begin the next file, unannounced; this one may end inside a group, which was never committed."""
        if inside_group:
            before, written = str(self.executed), dict(self.written)
            self._begin()
            self.add(EventType.WRITE_ROWS_V1, bytes(30))
            self.sequence -= 1
            self.executed, self.written = GtidSet(before), written
        self._next_file()

    def dump(self, position: SourcePosition) -> list[bytes]:
        """Return all events that the dump thread sends from ``position``, an event's start."""
        number = next(at for at, file in enumerate(self.files) if file.name == position.file)
        sent: list[bytes] = []
        pos = position.pos
        for file in self.files[number:]:
            sent.append(self._rotate(file.name, pos))
            if pos == 4:
                sent += file.events
            else:
                sent.append(description(0, mariadb=self.mariadb, checksum=self.checksum))
                start = file.ends.index(pos) + 1
                sent += file.events[start:]
            pos = 4
        return sent

    def dump_by_gtid(self, known: str) -> list[bytes]:
        """Return all events that the dump thread sends to a client with the GTID set ``known``: each file from its
        start, except known groups."""
        has = GtidSet(known)
        number = max(
            at
            for at, file in enumerate(self.files)
            if not has.lacks(GtidSet(parse_gtid_list(file.events[1], self.checksum)))
        )
        sent: list[bytes] = []
        for file in self.files[number:]:
            sent.append(self._rotate(file.name, 4))
            skipping, passed = False, 4
            for made, end in zip(file.events, file.ends, strict=True):
                if made[4] in (EventType.XID, EventType.WRITE_ROWS_V1, EventType.QUERY, EventType.TABLE_MAP):
                    sent += [] if skipping else [made]
                    passed = end
                    continue
                if skipping:
                    sent.append(self._passed(file.name, passed))
                skipping = made[4] in _GROUP_STARTS and not has.lacks(GtidSet(parse_gtid(made, self.checksum).text))
                sent += [] if skipping else [made]
                passed = end
            if skipping:
                sent.append(self._passed(file.name, passed))
        return sent

    def _passed(self, name: str, pos: int) -> bytes:
        """Return the event that reports: events up to this position were left out."""
        if self.mariadb:
            return event(
                EventType.MARIADB_GTID_LIST, bytes(4), pos, checksum=self.checksum, flags=FLAG_ARTIFICIAL, time=0
            )
        return event(EventType.HEARTBEAT, name.encode(), pos, checksum=self.checksum, time=0)

    def _rotate(self, name: str, pos: int) -> bytes:
        body = struct.pack("<Q", pos) + name.encode()
        return event(EventType.ROTATE, body, 0, checksum=self.checksum, flags=FLAG_ARTIFICIAL)

    def heartbeat(self) -> bytes:
        """Return the event that reports: the source is alive, and its binlog ends at this position."""
        return event(EventType.HEARTBEAT, self.files[-1].name.encode(), self.files[-1].end, checksum=self.checksum)

    def committed(self) -> bytes:
        """Return every byte that must be served, except format descriptions: the log repeats those."""
        kept: list[bytes] = []
        for file in self.files:
            whole = file.events
            if file is not self.files[-1] and whole[-1][4] == EventType.WRITE_ROWS_V1:
                last = max(at for at, made in enumerate(whole) if made[4] in _GROUP_STARTS)
                whole = whole[:last]
            kept += [made for made in whole if made[4] != EventType.FORMAT_DESCRIPTION]
        return b"".join(kept)


_GROUP_STARTS = (EventType.MARIADB_GTID, EventType.GTID)

"""One segment of the relay log: its description, its index on disk, and reading it event by event."""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.files.durable_file import private_descriptor
from shardmerge.worker.binlog.events import (
    HEADER_SIZE,
    EventHeader,
    EventType,
    FormatDescription,
    checksum_matches,
    parse_header,
)
from shardmerge.worker.binlog.xa_events import Xid
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.relay.log.files import FIRST_BYTE, MAGIC, index_path, relay_path, statements_path, write_at
from shardmerge.worker.relay.log.group_walker import SPACING, GroupWalker
from shardmerge.worker.relay.log.index_records import (
    EntryKind,
    IndexEntry,
    pack_entry,
    pack_statement,
    payloads,
    sealed_entry,
    unpack_entry,
    unpack_statement,
)
from shardmerge.worker.relay.log.prepared_groups import PreparedGroup
from shardmerge.worker.relay.log.xa_tracker import XaTracker
from shardmerge.worker.relay.model import Head, Statement

_LARGEST_RECORD = 1 << 20
"""A GTID set may be long; the first and last record of an index are searched in so many bytes."""
_WINDOW_BYTES = 1 << 16


@dataclass(slots=True)
class SegmentIndex:
    """Entries (ascending; BEGIN first, no SEALED) and statements (ascending) of one segment."""

    entries: list[IndexEntry]
    statements: list[Statement] = field(default_factory=list[Statement])
    _payloads_at: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._note_payloads(self.entries)

    def extend(self, entries: list[IndexEntry], statements: list[Statement]) -> None:
        """Append later entries and statements."""
        self.entries += entries
        self.statements += statements
        self._note_payloads(entries)

    def _note_payloads(self, entries: list[IndexEntry]) -> None:
        if self._payloads_at is None:
            self._payloads_at = next((entry.byte for entry in entries if entry.kind is EntryKind.PAYLOADS), None)

    def may_hold_payloads(self, end: int) -> bool:
        """Whether a group before ``end`` may be compressed."""
        return self._payloads_at is not None and self._payloads_at < end

    def special(self, byte: int) -> IndexEntry | None:
        """The PREPARED or COMMITTED entry at ``byte``, if such a group begins there."""
        at = bisect_right(self.entries, byte, key=lambda entry: entry.byte) - 1
        while at >= 0 and self.entries[at].byte == byte:
            if self.entries[at].kind in (EntryKind.PREPARED, EntryKind.COMMITTED):
                return self.entries[at]
            at -= 1
        return None

    def prepared(self) -> dict[Xid, PreparedGroup]:
        """The groups that wait for their XA COMMIT or ROLLBACK after all entries."""
        waiting: dict[Xid, PreparedGroup] = {}
        for entry in self.entries:
            for group in entry.prepared:
                if entry.kind in (EntryKind.BEGIN, EntryKind.PREPARED):
                    waiting[group.xid] = group
                else:
                    waiting.pop(group.xid, None)
        return waiting

    def ends(self) -> list[IndexEntry]:
        """The entries that are group ends."""
        return [entry for entry in self.entries if entry.kind is not EntryKind.PIECE]

    def before(self, byte: int) -> IndexEntry:
        """The last entry at or before ``byte`` that is a group end."""
        at = bisect_right(self.entries, byte, key=lambda entry: entry.byte) - 1
        while self.entries[at].kind is EntryKind.PIECE:
            at -= 1
        return self.entries[at]

    def after(self, byte: int) -> IndexEntry | None:
        """The first entry after ``byte``, of any kind."""
        at = bisect_right(self.entries, byte, key=lambda entry: entry.byte)
        return self.entries[at] if at < len(self.entries) else None

    def around(self, position: SourcePosition) -> tuple[IndexEntry, IndexEntry | None]:
        """The last group end in the index at or before a source position, and the next one after it."""
        ends = self.ends()
        at = bisect_right(ends, position.file_order(), key=lambda entry: entry.position.file_order())
        return ends[max(at - 1, 0)], ends[at] if at < len(ends) else None


@dataclass(slots=True)
class Segment:
    """``end``: None for the segment that is being written; ``index``: None when it is only on disk."""

    number: int
    begin: IndexEntry
    end: IndexEntry | None = None
    index: SegmentIndex | None = None


def begin_entry(
    position: SourcePosition, commit_time: float, prepared: tuple[PreparedGroup, ...] = (), state: str = ""
) -> IndexEntry:
    return IndexEntry(EntryKind.BEGIN, FIRST_BYTE, FIRST_BYTE, 0, position, commit_time, prepared, state)


def end_entry(head: Head, statements_bytes: int, state: str) -> IndexEntry:
    """The SEALED entry of a segment that ends at ``head``."""
    byte = head.offset.byte
    return IndexEntry(EntryKind.SEALED, byte, byte, statements_bytes, head.position, head.commit_time, state=state)


def head_at(segment: int, entry: IndexEntry) -> Head:
    """The Head at an entry that is a group end."""
    return Head(RelayOffset(segment, entry.byte), entry.position, entry.commit_time)


def read_begin(directory: Path, number: int) -> IndexEntry | None:
    """The BEGIN entry; None when the index is missing or its start is damaged."""
    try:
        with index_path(directory, number).open("rb") as file:
            start = file.read(_LARGEST_RECORD)
    except FileNotFoundError:
        return None
    for payload in payloads(start):
        entry = unpack_entry(payload)
        return entry if entry.kind is EntryKind.BEGIN else None
    return None


def read_sealed(directory: Path, number: int) -> IndexEntry | None:
    """The SEALED entry, if the segment has one and the sizes of its files match it."""
    try:
        with index_path(directory, number).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LARGEST_RECORD))
            end = sealed_entry(file.read())
        if end is None or relay_path(directory, number).stat().st_size != end.byte:
            return None
        if statements_path(directory, number).stat().st_size != end.first_event:
            return None
    except FileNotFoundError:
        return None
    return end


def read_index(directory: Path, number: int) -> SegmentIndex | None:
    """The whole index of a sealed segment; None when any record of it is damaged."""
    data = index_path(directory, number).read_bytes()
    texts = statements_path(directory, number).read_bytes()
    entries = [unpack_entry(payload) for payload in payloads(data)]
    if not entries or entries[-1].kind is not EntryKind.SEALED or entries[0].kind is not EntryKind.BEGIN:
        return None
    statements = [unpack_statement(payload, number) for payload in payloads(texts)]
    if sum(len(pack_statement(statement)) for statement in statements) != len(texts):
        return None
    return SegmentIndex(entries[:-1], statements)


def write_index(directory: Path, number: int, index: SegmentIndex, end: IndexEntry | None) -> None:
    """Rewrite both files."""
    entries = [*index.entries, end] if end else index.entries
    for path, data in (
        (index_path(directory, number), b"".join(map(pack_entry, entries))),
        (statements_path(directory, number), b"".join(map(pack_statement, index.statements))),
    ):
        fd = private_descriptor(path, os.O_WRONLY | os.O_TRUNC)
        try:
            write_at(fd, data, 0)
            os.fsync(fd)
        finally:
            os.close(fd)


def read_description(directory: Path, number: int) -> bytes:
    """The format description event that the segment begins with. Raises OSError, ShardmergeError."""
    with relay_path(directory, number).open("rb") as file:
        file.seek(FIRST_BYTE)
        start = file.read(HEADER_SIZE)
        return start + file.read(parse_header(start).size - HEADER_SIZE)


def parsed_description(directory: Path, number: int, source: str) -> FormatDescription:
    """Raises OSError, ShardmergeError."""
    return FormatDescription.parse(read_description(directory, number), source)


@dataclass(slots=True)
class SegmentEvents:
    """The events of a part of a segment's file, read on demand."""

    file: int
    end: int
    _at: int = 0
    _window: bytes = b""

    def read(self, at: int, size: int) -> bytes:
        """``size`` bytes from ``at`` on, fewer at the end of the part."""
        size = min(size, self.end - at)
        if not self._at <= at or at + size > self._at + len(self._window):
            if size > _WINDOW_BYTES:
                return os.pread(self.file, size, at)
            self._at, self._window = at, os.pread(self.file, min(_WINDOW_BYTES, self.end - at), at)
        return self._window[at - self._at : at - self._at + size]

    def each(self, at: int) -> Iterator[tuple[int, EventHeader]]:
        while at < self.end:
            header = parse_header(self.read(at, HEADER_SIZE))
            yield at, header
            at += header.size


def events(data: memoryview, at: int) -> Iterator[tuple[EventHeader, memoryview]]:
    """The whole events in ``data`` from byte ``at``; ends at the first that is not whole."""
    while len(data) - at >= HEADER_SIZE:
        header = parse_header(data, at)
        event = data[at : at + header.size]
        if len(event) < header.size:
            return
        yield header, event
        at += header.size


@dataclass(frozen=True, slots=True)
class SegmentContents:
    """A segment's contents up to its last whole group: ``head`` is that group's end, ``state`` the binlog state."""

    head: Head
    index: SegmentIndex
    state: str


def scan(
    directory: Path, source: str, number: int, begin: IndexEntry, spacing: int = SPACING
) -> SegmentContents | None:
    """Read a segment event by event, up to the last whole group before incomplete or damaged bytes.

    None when even its format description is incomplete.
    """
    path = relay_path(directory, number)
    if not path.exists() or path.stat().st_size <= FIRST_BYTE:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        data = memoryview(mapped)
        try:
            walker = _walk(data, source, number, begin, spacing)
        finally:
            data.release()
    if walker is None:
        return None
    entries, statements = walker.drain()
    return SegmentContents(walker.end, SegmentIndex([begin, *entries], statements), walker.binlog_state)


def _walk(data: memoryview, source: str, number: int, begin: IndexEntry, spacing: int) -> GroupWalker | None:
    xa = XaTracker({group.xid: group for group in begin.prepared}, lost=None)
    walker = GroupWalker(source, head_at(number, begin), checksum=False, spacing=spacing, xa=xa, state=begin.state)
    if bytes(data[:FIRST_BYTE]) != MAGIC:
        return None
    try:
        for header, event in events(data, FIRST_BYTE):
            if walker.byte == FIRST_BYTE:
                if header.type != EventType.FORMAT_DESCRIPTION:
                    return None
                description = FormatDescription.parse(bytes(event), source)
                if description.checksum and not checksum_matches(event):
                    return None
            elif walker.checksum and not checksum_matches(event):
                break
            walker.step(event, header.type, header.size, header.log_pos, header.timestamp)
    except ShardmergeError:
        # Bytes that are not an event: the tail is incomplete here. It is removed and fetched again, and if the source
        # really sends such an event, the fetcher stops with its error.
        pass
    return walker if walker.end.offset.byte > FIRST_BYTE else None


def group_end(
    directory: Path, source: str, number: int, index: SegmentIndex, byte: int, known: Head | None = None
) -> Head | None:
    """The Head at group end ``byte`` of a segment; None if no group ends there. ``known``: a group end of the relay
    log, which may be close before it."""
    entry = index.before(byte)
    begin = head_at(number, entry)
    if entry.byte == byte:
        return begin
    if known is not None and begin.offset < known.offset <= RelayOffset(number, byte):
        begin = known
    if begin.offset.byte == byte:
        return begin
    for end, _ in group_ends(directory, source, begin, byte):
        if end.offset.byte == byte:
            return end
    return None


def group_ends(directory: Path, source: str, begin: Head, until: int) -> Iterator[tuple[Head, int]]:
    """Each group end between group end ``begin`` and byte ``until`` of its segment, with the source byte where its
    group began."""
    number = begin.offset.segment
    checksum = parsed_description(directory, number, source).checksum
    with relay_path(directory, number).open("rb") as file:
        data = memoryview(os.pread(file.fileno(), until - begin.offset.byte, begin.offset.byte))
    walker = GroupWalker(source, begin, checksum)
    for header, event in events(data, 0):
        walker.step(event, header.type, header.size, header.log_pos, header.timestamp)
        if walker.at_group_end:
            yield walker.end, walker.start_pos

"""The relay log of one source: its segments, its published head, and waits for new events.

One thread appends (worker/relay/fetch/appender.py); any number of threads read. Everything that readers use
changes under one condition variable, which is notified at each change.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.files.durable_file import private_folder, tighten
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.relay.log import generation as generations
from shardmerge.worker.relay.log.files import (
    FIRST_BYTE,
    disk_error,
    relay_path,
    remove_segment,
    removed,
    segment_numbers,
)
from shardmerge.worker.relay.log.generation import NOWHERE, Generation, RelayLogPart
from shardmerge.worker.relay.log.group_walker import SPACING
from shardmerge.worker.relay.log.index_records import EntryKind, IndexEntry
from shardmerge.worker.relay.log.recovery import recover
from shardmerge.worker.relay.log.segment import Segment, SegmentIndex, head_at, read_index, scan
from shardmerge.worker.relay.model import Head, Statement

SEGMENT_BYTES = 128 << 20
_INDEXES_IN_MEMORY = 16

NOTHING = Head(RelayOffset(0, 0), SourcePosition("", 0), 0.0)
"""Both ends of a relay log that has not begun."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of the next block. After a PIECE, ``group_start`` and ``first_event`` describe the rest of the group.

    ``special``: the block is one group, prepared or an XA COMMIT. ``payloads``: it may have compressed groups.
    """

    end: int
    ends_group: bool
    group_start: int
    first_event: int
    position: SourcePosition
    commit_time: float
    special: IndexEntry | None = None
    payloads: bool = False


@dataclass(frozen=True, slots=True)
class Next:
    """What follows an offset: a cut in its segment, the start of the next segment, or nothing (it is the head)."""

    cut: Cut | None = None
    segment: int | None = None


class RelayLog:
    """Opens the directory at once (and recovers it). Raises coded errors of the disk or of damage.

    ``segment_bytes``: of new generations; ``spacing``: bytes between index entries.
    """

    def __init__(
        self, directory: Path, source: str, segment_bytes: int = SEGMENT_BYTES, spacing: int = SPACING
    ) -> None:
        self.directory = directory
        self.source = source
        self.changed = threading.Condition()
        self._wakes = 0
        self.spacing = spacing
        self._new_segment_bytes = segment_bytes
        self._log = get_logger(source=source)
        self._segments: list[Segment] = []
        self._head = NOTHING
        self._state = ""
        self._generation: Generation | None = None
        self._reopened = False
        self._readers: dict[int, int] = {}
        self._next_reader = 0
        self._last_number = 0  # of a log that was removed
        self._newest_file: tuple[int, tuple[int, int]] | None = None
        try:
            self._open()
        except OSError as error:
            raise disk_error(error, source, directory / "relay.json") from error

    def _open(self) -> None:
        private_folder(self.directory)
        tighten(self.directory)
        self._generation = generations.load(self.directory, self.source)
        if self._generation is None:
            return
        found = recover(self.directory, self.source, self._generation, self.spacing)
        self._segments, self._head, self._state = found.segments, found.head, found.state
        self._reopened = bool(found.segments)
        if found.cut:
            self._log.info("relay log: incomplete tail removed", bytes=found.cut, position=str(found.head.position))

    @property
    def generation(self) -> Generation | None:
        return self._generation

    def head(self) -> Head:
        """The published end: always a group end."""
        return self._head

    def binlog_state(self) -> str:
        """The binlog state (worker/relay/log/binlog_state.py) at the head, over all servers."""
        return self._state

    def first(self) -> Head:
        """The oldest group end kept."""
        with self.changed:
            return self._first()

    def _first(self) -> Head:
        if self._generation is None:
            return NOTHING
        if self._segments:
            return head_at(self._segments[0].number, self._segments[0].begin)
        return self._head

    def bytes_on_disk(self) -> int:
        """Bytes of published events on disk."""
        with self.changed:
            return sum(self._end_byte(segment) for segment in self._segments)

    def bytes_between(self, start: RelayOffset, end: RelayOffset) -> int:
        """Bytes of the segments' files from ``start`` to ``end``, 0 when ``end`` is not after ``start``."""
        with self.changed:
            total = 0
            for segment in self._segments:
                if start.segment <= segment.number <= end.segment:
                    first = start.byte if segment.number == start.segment else 0
                    last = end.byte if segment.number == end.segment else self._end_byte(segment)
                    total += max(0, last - first)
            return total

    def is_reachable(self, offset: RelayOffset) -> bool:
        """Whether ``offset`` is not beyond the head, and not beyond the end of its segment if the segment is kept."""
        with self.changed:
            head = self._head.offset
            if offset.segment >= head.segment or not self._segments:
                return offset <= head
            at = offset.segment - self._segments[0].number
            end = self._segments[at].end if 0 <= at < len(self._segments) else None
            return end is None or offset.byte <= end.byte

    def segments(self) -> list[Segment]:
        """All segments, ascending; the list is the caller's, the segments are not."""
        with self.changed:
            return list(self._segments)

    def begin(self, position: SourcePosition) -> None:
        """Begin a new generation at ``position``; the old one is deleted. No thread may be appending.

        Segment numbers continue, so that no offset of the old generation is valid in the new one.
        """
        old = self._generation
        last = self._head.offset.segment
        numbers = [*segment_numbers(self.directory), last, self._last_number, old.first if old else 0]
        first = max(numbers) + 1
        part = RelayLogPart("", first, position if position.file else NOWHERE)
        new = Generation(uuid.uuid4().hex, first, position, self._new_segment_bytes, (part,))
        try:
            generations.store(self.directory, new)
        except OSError as error:
            raise disk_error(error, self.source, self.directory / generations.FILE_NAME) from error
        with self.changed:
            self._generation = new
            self._segments = []
            self._head = Head(RelayOffset(new.first, FIRST_BYTE), position, 0.0)
            self._state = ""
            self.changed.notify_all()
        for number in numbers:
            if number < new.first:
                remove_segment(self.directory, number)
        self._log.info("relay log begins", relay_id=new.relay_id, position=str(position))

    # A log that another program has removed.

    def lost(self) -> ShardmergeError | None:
        """RELAY_REMOVED when its files in the directory are no longer those that this process reads and writes: a file
        that is open can be written after its removal, and nothing of that is found again."""
        with self.changed:
            generation, newest = self._generation, self._segments[-1] if self._segments else None
        if generation is None:
            return None
        path = self.directory / generations.FILE_NAME
        if path.exists():
            if newest is None:
                return None
            path = relay_path(self.directory, newest.number)
            try:
                found = path.stat()
            except OSError:
                pass
            else:
                file = found.st_dev, found.st_ino
                if self._newest_file is None or self._newest_file[0] != newest.number:
                    self._newest_file = newest.number, file
                if self._newest_file == (newest.number, file):
                    return None
        with self.changed:
            same = generation is self._generation and self._segments[-1:] == ([newest] if newest else [])
        return removed(self.source, path) if same else None

    def forget(self) -> bool:
        """Become a log that has not begun, after :meth:`lost`. False: files of its segments are left, whose events may
        be nowhere else. Later segments get other numbers, so that no offset of the old log is valid. Raises OSError.
        """
        private_folder(self.directory)
        if segment_numbers(self.directory):
            return False
        with self.changed:
            self._last_number = max(self._last_number, self._head.offset.segment)
            self._generation, self._segments, self._head, self._state = None, [], NOTHING, ""
            self._newest_file = None
            self.changed.notify_all()
        return True

    # The server that it is written from. All raise OSError.

    def connected(self, server: str, floor: SourcePosition, settling: str | None) -> None:
        """Record that the empty log is written from ``server``; see Generation.connected."""
        self._store(self.require().connected(server, floor, settling))

    def switched(self, server: str, floor: SourcePosition, settling: str) -> None:
        """Record that from the next segment on the log is written from ``server``, which continues after ``settling``.

        It gets a new relay id: a machine failure may have lost the end of the old server's part, of which offsets are
        recorded elsewhere. With another id those are located again by their source positions.
        """
        part = RelayLogPart(server, self._segments[-1].number + 1, floor)
        self._store(self.require().switched(uuid.uuid4().hex, part, settling))
        self._reopened = False

    def set_executed(self, gtid_set: str) -> None:
        """Record the transactions that the current server had when it was first read; see RelayLogPart."""
        generation = self.require()
        known = generation.with_executed(gtid_set)
        if known is not generation:
            self._store(known)

    def renamed(self) -> bool:
        """Give the log a new relay id if a lost tail may return at other offsets; returns whether it did."""
        reopened, self._reopened = self._reopened, False
        if reopened:
            self._store(replace(self.require(), relay_id=uuid.uuid4().hex))
        return reopened

    def end_settling(self) -> None:
        """Record that from here on positions in the source's files suffice to continue."""
        self._store(replace(self.require(), settling=None))

    def mark_lost(self, xid: str) -> None:
        """Record that the PREPARE of this XA transaction is in none of the source's files."""
        generation = self.require()
        self._store(replace(generation, lost_xids=(*generation.lost_xids, xid)))

    def _store(self, generation: Generation) -> None:
        generations.store(self.directory, generation)
        with self.changed:
            self._generation = generation
            self.changed.notify_all()

    # The appender's side.

    def publish(self, head: Head, state: str, entries: list[IndexEntry], statements: list[Statement]) -> None:
        """Publish everything up to ``head``, a group end, where the binlog state is ``state``."""
        with self.changed:
            if entries or statements:
                self.index_of(self._segments[-1]).extend(entries, statements)
            self._head, self._state = head, state
            self.changed.notify_all()

    def seal(self, end: IndexEntry) -> None:
        """End the last segment before there is a next one."""
        with self.changed:
            self._segments[-1].end = end
            self.changed.notify_all()

    def add_segment(self, segment: Segment, end_of_last: IndexEntry | None, head: Head) -> None:
        """Add a new segment for appending, with its contents up to ``head``.

        ``end_of_last``: the SEALED entry of the previous segment; None when there is none or it has it already.
        """
        with self.changed:
            if self._segments and end_of_last is not None:
                self._segments[-1].end = end_of_last
            self._segments.append(segment)
            for old in self._segments[:-_INDEXES_IN_MEMORY]:
                old.index = None
            self._head = head
            self.changed.notify_all()

    # The readers' side.

    def require(self, relay_id: str | None = None) -> Generation:
        """The generation; raises RELAY_NOT_BEGUN, or RELAY_RESTARTED when its id is not ``relay_id``."""
        found = self._generation
        if found is None:
            raise errors.relay.RELAY_NOT_BEGUN(source=self.source)
        if relay_id is not None and found.relay_id != relay_id:
            raise errors.relay.RELAY_RESTARTED(source=self.source, relay_id=relay_id)
        return found

    def segment(self, relay_id: str, number: int) -> Segment:
        """A segment by number. Raises RELAY_RESTARTED, OFFSET_PURGED when it was removed, OFFSET_NOT_GROUP_END when it
        never existed."""
        with self.changed:
            self.require(relay_id)
            return self._segment(number)

    def _segment(self, number: int) -> Segment:
        if self._segments:
            at = number - self._segments[0].number
            if 0 <= at < len(self._segments):
                return self._segments[at]
        offset = RelayOffset(number, FIRST_BYTE)
        first = self._first().offset
        if number < first.segment:
            raise errors.relay.OFFSET_PURGED(source=self.source, offset=offset, first=first)
        raise errors.relay.OFFSET_NOT_GROUP_END(source=self.source, offset=offset, relay_id=self.require().relay_id)

    def _end_byte(self, segment: Segment) -> int:
        if segment.end is not None:
            return segment.end.byte
        return self._head.offset.byte if self._head.offset.segment == segment.number else 0

    def end_byte(self, segment: Segment) -> int:
        """The published end of a segment."""
        with self.changed:
            return self._end_byte(segment)

    def index_of(self, segment: Segment) -> SegmentIndex:
        """The segment's index, from disk if necessary. That of the last segment grows: use it under ``changed``.

        Raises RELAY_DAMAGED, and FileNotFoundError when the segment was removed meanwhile.
        """
        index = segment.index
        if index is not None:
            return index
        found = read_index(self.directory, segment.number)
        if found is not None:
            return found
        scanned = scan(self.directory, self.source, segment.number, segment.begin)
        if (error := self.lost()) is not None:
            raise error
        if scanned is None or segment.end is None or scanned.head.offset.byte != segment.end.byte:
            raise errors.relay.RELAY_DAMAGED(
                source=self.source,
                path=self.directory / f"{segment.number:010d}.relay",
                reason="its contents differ from those when it was closed",
                directory=self.directory,
            )
        return scanned.index

    def next_after(self, relay_id: str, segment: Segment, index: SegmentIndex, byte: int) -> Next:
        """What follows group end or piece end ``byte`` of ``segment``."""
        with self.changed:
            self.require(relay_id)
            end = segment.end
            bound = self._end_byte(segment)
            if byte < bound:
                entry = index.after(byte)
                if entry is not None and entry.byte <= bound:
                    piece = entry.kind is EntryKind.PIECE
                    cut = Cut(
                        entry.byte,
                        not piece,
                        entry.group_start,
                        entry.first_event,
                        entry.position,
                        entry.commit_time,
                        index.special(byte),
                        index.may_hold_payloads(entry.byte),
                    )
                    return Next(cut)
                last = head_at(segment.number, end) if end is not None else self._head
                payloads = index.may_hold_payloads(bound)
                return Next(Cut(bound, True, bound, 0, last.position, last.commit_time, payloads=payloads))
            if byte > bound:
                raise errors.relay.OFFSET_NOT_GROUP_END(
                    source=self.source, offset=RelayOffset(segment.number, byte), relay_id=relay_id
                )
            # A sealed segment without a successor has the head.
            return Next(segment=segment.number + 1 if segment is not self._segments[-1] else None)

    @property
    def wakes(self) -> int:
        """The number of calls of :meth:`wake`."""
        return self._wakes

    def wake(self) -> None:
        """End the waits of all readers: what they wait for may have changed elsewhere."""
        with self.changed:
            self._wakes += 1
            self.changed.notify_all()

    def wait_beyond(self, head: Head, seconds: float, wakes: int | None = None) -> bool:
        """Wait until the head is no longer ``head``, or until :attr:`wakes` is no longer ``wakes``; False after
        ``seconds``."""
        with self.changed:
            return self.changed.wait_for(
                lambda: self._head is not head or (wakes is not None and self._wakes != wakes), seconds
            )

    # Retention.

    def enter_reader(self, segment: int) -> int:
        """Keep ``segment`` and later ones; the result is for :meth:`move_reader` and :meth:`leave_reader`."""
        with self.changed:
            self._next_reader += 1
            self._readers[self._next_reader] = segment
            return self._next_reader

    def move_reader(self, reader: int, segment: int) -> None:
        with self.changed:
            self._readers[reader] = segment

    def leave_reader(self, reader: int) -> None:
        with self.changed:
            self._readers.pop(reader, None)

    def lowest_read(self) -> int | None:
        """The lowest segment that a reader may need; None without readers."""
        with self.changed:
            return min((self._floor(number) for number in self._readers.values()), default=None)

    def floor(self, number: int) -> int:
        """The lowest segment that a reader of segment ``number`` may need: it has prepared groups that end there."""
        with self.changed:
            return self._floor(number)

    def _floor(self, number: int) -> int:
        at = number - self._segments[0].number if self._segments else -1
        if not 0 <= at < len(self._segments):
            return number
        return min([number, *(group.segment for group in self._segments[at].begin.prepared)])

    def drop_before(self, number: int) -> list[int]:
        """Remove the segments below ``number``, never one that is being read nor the last; returns their numbers.

        Raises OSError.
        """
        with self.changed:
            if self._generation is None or len(self._segments) < 2:
                return []
            numbers = (number, self._segments[-1].number, *self._readers.values())
            number = min(self._floor(number) for number in numbers)
            gone = [segment.number for segment in self._segments if segment.number < number]
            if not gone:
                return []
            kept = self._segments[len(gone) :]
            # First record that they are not needed, then remove the files.
            generation = self._generation.from_segment(kept[0].number, kept[0].begin.position)
            generations.store(self.directory, generation)
            self._generation, self._segments = generation, kept
        for old in gone:
            remove_segment(self.directory, old)
        return gone

"""Stores the events that the source sends: the writing side of the relay log.

Bytes of an unfinished group are on disk but never served. After any failure, :meth:`Appender.connect` truncates
the log to the published head and returns where to fetch from again.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import UTC, datetime

from shardmerge.proto import errors
from shardmerge.proto.failpoints import hit
from shardmerge.proto.log import get_logger
from shardmerge.worker.binlog.event_kinds import GTID_LISTS, GTIDS, HEARTBEATS, WRAP
from shardmerge.worker.binlog.events import HEADER, EventType, checksum_matches, parse_heartbeat, parse_rotate
from shardmerge.worker.binlog.gtid_events import parse_gtid, parse_gtid_list
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.fetch.dump_start import LARGEST_DUMP_POSITION, FromFile, FromGtids, Start
from shardmerge.worker.relay.fetch.event_feed import EventFeed
from shardmerge.worker.relay.fetch.fetch_counts import FetchCounts
from shardmerge.worker.relay.log.files import (
    FIRST_BYTE,
    OpenSegment,
    disk_error,
    relay_path,
    remove_segment,
    segment_numbers,
    write_at,
)
from shardmerge.worker.relay.log.group_walker import GroupWalker
from shardmerge.worker.relay.log.index_records import IndexEntry, pack_entry, pack_statement
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.log.segment import Segment, SegmentIndex, begin_entry, end_entry, read_description
from shardmerge.worker.relay.log.xa_tracker import XaTracker


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class Appender:
    """Used by one thread: ``connect``, then ``feed`` and ``flush`` until something fails, then again.

    ``source_end``: the end of the source's binlog when it was last read, for messages.
    Raises coded errors: of the disk (DISK_FULL, DISK_FAILED, RELAY_REMOVED), of the events (EVENT_CHECKSUM,
    EVENT_OVERLAP, GROUP_BROKEN, decode.MALFORMED_EVENT), SOURCE_LOG_RESET when the source's binlog is no longer the one
    that is stored.
    """

    def __init__(self, log: RelayLog, counts: FetchCounts | None = None) -> None:
        self._log = log
        self._counts = counts if counts is not None else FetchCounts()
        self._source = log.source
        self._directory = log.directory
        self._logger = get_logger(source=log.source)
        self._open: OpenSegment | None = None
        self._pending: list[memoryview | bytes] = []
        self._description = b""
        self._feed = EventFeed(log.source, lambda: self.position)
        self._skipped_to: int | None = None
        self._seed: GtidSet | None = None
        self._asked: SourcePosition | None = None
        self._server = ""
        self._by_gtid = self._awaits_place = False
        self.source_end: SourcePosition | None = None
        self._segment_bytes = 0
        self._walker = GroupWalker(
            log.source, log.head(), checksum=False, spacing=log.spacing, live=True, xa=XaTracker({})
        )

    @property
    def position(self) -> SourcePosition:
        """The source position after the last event."""
        return SourcePosition(self._walker.file, self._walker.pos)

    def connect(self, start: Start, server: str, gtid_set: str | None = None) -> Start:
        """Drop unpublished data; returns where the source's dump must begin so that :meth:`feed` can continue.

        ``server``: the server that sends from now on. ``gtid_set``: the GTID set of the head, if it was read.
        """
        self._segment_bytes = self._log.require().segment_bytes
        self._server = server
        self._by_gtid = self._awaits_place = isinstance(start, FromGtids)
        self._skipped_to = self._seed = self._asked = None
        if (lost := self._log.lost()) is not None:
            raise lost
        try:
            self._cut()
        except OSError as error:
            raise self._disk_error(error) from error
        if isinstance(start, FromGtids):
            return start
        self._walker.server = server
        asked = start.position
        if gtid_set is not None:
            self._walker.set_gtids(gtid_set)
        elif start.seed and asked.pos > FIRST_BYTE:
            # Only the file itself shows which GTIDs are before a position in it.
            self._seed = GtidSet("")
        if asked.pos > LARGEST_DUMP_POSITION or self._seed is not None:
            # Read the file from its start and skip known events. (The dump command has 32 bits for a position.)
            self._skipped_to = FIRST_BYTE
            asked = replace(asked, pos=FIRST_BYTE)
        self._asked = asked
        return FromFile(asked, seed=False)

    def set_received_at(self, at: float) -> None:
        """Set the Unix time, of the source's clock, at which the next events were received; 0.0: unknown."""
        self._walker.received = at

    def feed(self, event: memoryview) -> None:
        """Append one event of the source. ``event`` must stay valid until :meth:`flush`."""
        walker = self._walker
        before = walker.pos if self._skipped_to is None else self._skipped_to
        event, kind, size, log_pos, timestamp, is_special = self._feed.check(event, before)
        if is_special:
            if kind == EventType.FORMAT_DESCRIPTION:
                self._format_description(bytes(event))
            else:
                self._made_up(event, kind, log_pos)
            return
        if self._skipped_to is not None and self._is_known(log_pos):
            if self._seed is not None:
                self._collect_seed(self._seed, bytes(event), kind)
            return
        if self._seed is not None:
            self._apply_seed(self._seed)
        if walker.at_group_end and walker.byte >= self._segment_bytes:
            self._roll()
        walker.step(event, kind, size, log_pos, timestamp)
        self._pending.append(event)
        if self._by_gtid and kind in GTID_LISTS:
            self._check_settling(bytes(event))

    def take(self, packets: bytearray, start: int, end: int) -> int:
        """Append the ordinary events at the front of the received bytes; returns where :meth:`feed` must continue.

        The caller may reuse ``packets`` after :meth:`flush`; the appended events are moved within it.
        """
        while self._description and self._skipped_to is None and self._seed is None:
            passed = self._walker.scan(packets, start, end, self._segment_bytes)
            if passed is None:
                break
            self._pending.append(memoryview(packets)[passed.first : passed.last])
            start = passed.upto
            if not passed.entry_due:
                break
        return start

    def flush(self) -> None:
        """Write the appended events and publish their whole groups."""
        try:
            self._write()
        except OSError as error:
            raise self._disk_error(error) from error
        entries, statements = self._walker.drain()
        head = self._walker.end
        if head == self._log.head():
            return
        try:
            self._write_index(b"".join(map(pack_entry, entries)), b"".join(map(pack_statement, statements)))
        except OSError as error:
            raise self._disk_error(error) from error
        hit("relay.before_publish")
        self._log.publish(head, self._walker.binlog_state, entries, statements)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _disk_error(self, error: OSError) -> errors.ShardmergeError:
        return disk_error(error, self._source, relay_path(self._directory, self._log.head().offset.segment))

    def _is_known(self, log_pos: int) -> bool:
        """While a file is read from its start: whether this event is stored already."""
        before = self._skipped_to or 0
        pos = before - before % WRAP + log_pos
        pos += WRAP if pos < before else 0
        known = pos <= self._walker.pos
        self._skipped_to = pos if known else None
        return known

    def _collect_seed(self, seed: GtidSet, event: bytes, kind: int) -> None:
        """Collect the GTIDs of events that are stored already; after the last of them the set is known."""
        if kind in GTID_LISTS:
            seed.add_all(parse_gtid_list(event, self._walker.checksum, self._source))
        elif kind in GTIDS:
            seed.add(parse_gtid(event, self._walker.checksum, self._source).text)
        if self._skipped_to == self._walker.pos:
            self._apply_seed(seed)

    def _apply_seed(self, seed: GtidSet) -> None:
        self._seed = None
        if seed.is_known:
            self._walker.set_gtids(str(seed))
        if not self._log.segments():
            self._roll()

    def _check_settling(self, event: bytes) -> None:
        """If this file begins after all transactions that were known, positions in files suffice from here on."""
        settling = self._log.require().settling
        before = GtidSet(parse_gtid_list(event, self._walker.checksum, self._source))
        if settling is not None and not before.lacks(GtidSet(settling)):
            try:
                self._log.end_settling()
            except OSError as error:
                raise self._disk_error(error) from error

    def _format_description(self, event: bytes) -> None:
        """The source continues with another file, or began to send inside one."""
        last = self._last_segment()
        here = SourcePosition(self._walker.file, self._walker.pos, server=self._walker.server)
        same_file = (
            last is not None
            and last.number >= self._log.require().parts[-1].segment
            and last.begin.position.same_server(here)
            and last.begin.position.file == here.file
        )
        if last is not None and same_file:
            self._check_file(event, last.number)
        self._asked = None
        self._description = event
        self._walker.checksum = self._feed.has_checksum
        closed = last is None or last.end is not None
        if (not same_file or closed) and self._seed is None:  # a segment begins with the known GTID set of its start
            self._roll()

    def _check_file(self, description: bytes, segment: int) -> None:
        """Compare the creation times of the file: a file of the same name with another time was made after a RESET
        MASTER."""
        try:
            known = read_description(self._directory, segment)
        except OSError as error:
            raise self._disk_error(error) from error
        made, again = (HEADER.unpack_from(one)[0] for one in (known, description))
        if made != again:
            file = self._walker.file
            raise self._reset(
                self.source_end or self.position, f"its {file} was made at {_utc(again)}, the one read at {_utc(made)}"
            )

    def _last_segment(self) -> Segment | None:
        segments = self._log.segments()
        return segments[-1] if segments else None

    def _made_up(self, event: memoryview, kind: int, log_pos: int) -> None:
        """An event that the dump thread made and that is in no file."""
        if kind == EventType.ROTATE:
            # Whether it has a checksum depends on the server's version and on earlier events.
            target = parse_rotate(bytes(event), checksum_matches(event), self._source)
            self._rotate(SourcePosition(target.file, target.position))
        elif not self._walker.at_group_end or self._awaits_place:
            return
        elif kind in HEARTBEATS:
            # Whether it has a checksum depends on the server's version.
            heartbeat = parse_heartbeat(bytes(event), checksum_matches(event), self._source)
            if heartbeat.file == self._walker.file:
                self._skip_to(heartbeat.position)
        elif self._by_gtid:
            self._skip_to(log_pos)

    def _skip_to(self, pos: int) -> None:
        """The source has skipped events that it does not send."""
        if pos > self._walker.pos:
            self._walker.move(self._walker.file, pos)

    def _rotate(self, target: SourcePosition) -> None:
        """The dump thread announces its position: first the requested one, later the start of the next file."""
        asked, self._asked = self._asked, None
        if self._awaits_place:
            self._arrive(target)
        elif asked is not None:
            if (target.file, target.pos) != (asked.file, asked.pos):
                raise self._reset(target, f"the request was for {asked}")
        elif target.file != self._walker.file:
            self._next_file(target)
        elif target.pos != self._walker.pos:
            raise self._reset(target, "it moved to another position of the same file")

    def _arrive(self, target: SourcePosition) -> None:
        """After a request by GTID, the source begins at the first unknown transaction in its files, or before it."""
        self._awaits_place = False
        walker, head = self._walker, self._log.head().position
        same = head.same_server(replace(target, server=self._server))
        walker.server = self._server
        if not same or not self._log.segments():
            self._close_segment()
            walker.move(target.file, target.pos)
            self.flush()
        elif target.file == head.file:
            self._skipped_to = target.pos
        elif target.file_order() < head.file_order():
            raise self._reset(target, "the transactions after the relay log's GTIDs begin before that")
        else:
            self._next_file(target)

    def _reset(self, found: SourcePosition, reason: str) -> errors.ShardmergeError:
        return errors.relay.SOURCE_LOG_RESET(
            source=self._source, position=self._log.head().position, found=found, reason=reason
        )

    def _next_file(self, target: SourcePosition) -> None:
        """The source continued with its next file without a ROTATE event: it was killed and restarted."""
        if target.file_order() <= self.position.file_order():
            raise self._reset(target, "its next file is before its current one")
        if self._skipped_to is not None and self._skipped_to < self._walker.pos and not self._by_gtid:
            raise self._reset(target, f"{self._walker.file} ended at byte {self._skipped_to}")
        self._skipped_to = None
        self.flush()
        if not self._walker.at_group_end:
            # The file ends inside a transaction, which therefore was never committed.
            self._logger.warning("source's binlog ends inside a transaction", position=str(self.position))
            try:
                self._cut()
            except OSError as error:
                raise self._disk_error(error) from error
        self._walker.move(target.file, target.pos)
        self.flush()

    def _cut(self) -> None:
        """Go back to the published head: files, and the state of the walk."""
        self._pending.clear()
        head = self._log.head()
        last = self._last_segment()
        if self._open is not None and (last is None or self._open.number != last.number or last.end is not None):
            self.close()
        for number in segment_numbers(self._directory):
            if last is None or number > last.number:
                remove_segment(self._directory, number)
        last_entry = None
        if last is not None and last.end is None:
            self._open = opened = self._open or OpenSegment.reopen(self._directory, last.number)
            opened.cut(head.offset.byte)
            last_entry = self._log.index_of(last).entries[-1].byte
        self._walker = GroupWalker(
            self._source,
            head,
            self._feed.has_checksum,
            self._log.spacing,
            last_entry,
            live=True,
            by_gtid=self._by_gtid,
            xa=XaTracker(
                self._log.index_of(last).prepared() if last is not None else {},
                frozenset(self._log.require().lost_xids),
            ),
            state=self._log.binlog_state(),
        )

    def _write(self) -> None:
        if not self._pending:
            return
        opened = self._opened()
        data = b"".join(self._pending)
        began = time.perf_counter()
        write_at(opened.events, data, opened.written)
        self._counts.wrote(len(data), time.perf_counter() - began)
        opened.written += len(data)
        self._pending.clear()

    def _opened(self) -> OpenSegment:
        if self._open is None:
            raise self._feed.garbled("an event for a segment that is closed")
        return self._open

    def _write_index(self, entries: bytes, statements: bytes) -> None:
        if entries:
            opened = self._opened()
            write_at(opened.index, entries, opened.index_bytes)
            opened.index_bytes += len(entries)
        if statements:
            opened = self._opened()
            write_at(opened.statements, statements, opened.statements_bytes)
            opened.statements_bytes += len(statements)

    def _roll(self) -> None:
        """At a group end: seal the segment and begin the next one with the format description."""
        self.flush()
        head = self._log.head()
        last = self._last_segment()
        number = self._log.require().first if last is None else last.number + 1
        begin = begin_entry(head.position, head.commit_time, self._walker.waiting(), self._log.binlog_state())
        try:
            end = self._seal()
            opened = OpenSegment.create(self._directory, number, pack_entry(begin), self._description)
            self.close()
            self._open = opened
        except OSError as error:
            raise self._disk_error(error) from error
        timestamp, kind, _, size, log_pos, _ = HEADER.unpack_from(self._description)
        self._walker.enter(number, FIRST_BYTE)
        self._walker.step(self._description, kind, size, log_pos, timestamp)
        hit("relay.before_publish")
        self._log.add_segment(Segment(number, begin, None, SegmentIndex([begin])), end, self._walker.end)

    def _close_segment(self) -> None:
        """The next events are from another server: end the segment at the last event of the old server."""
        try:
            end = self._seal()
        except OSError as error:
            raise self._disk_error(error) from error
        self.close()
        if end is not None:
            self._log.seal(end)

    def _seal(self) -> IndexEntry | None:
        """Sync the whole current segment to disk, then record that in its index."""
        opened, head = self._open, self._log.head()
        if opened is None:
            return None
        os.fsync(opened.events)
        os.fsync(opened.statements)
        end = end_entry(head, opened.statements_bytes, self._log.binlog_state())
        write_at(opened.index, pack_entry(end), opened.index_bytes)
        os.fsync(opened.index)
        return end

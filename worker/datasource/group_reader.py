"""Reads the event groups of a source's binlog from a position on: as blocks of whole events for the decoder, and the
statements in them.

Each reader opens a dump connection of its own. The dump connection, the rules of event groups, and the scan of ordinary
events are those of the relay (worker/relay).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.event_kinds import HEARTBEATS
from shardmerge.worker.binlog.events import EventType, checksum_matches, parse_heartbeat, parse_rotate
from shardmerge.worker.binlog.transaction_payload import only_control, parse_payload
from shardmerge.worker.core.mysql.endpoint import Endpoint
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.relay.fetch.dump_connection import Dump
from shardmerge.worker.relay.fetch.dump_start import LARGEST_DUMP_POSITION, FromFile
from shardmerge.worker.relay.fetch.event_feed import EventFeed
from shardmerge.worker.relay.fetch.server_id import random_server_id
from shardmerge.worker.relay.log.group_walker import GroupWalker
from shardmerge.worker.relay.log.walk_state import NO_LIMIT
from shardmerge.worker.relay.log.xa_tracker import XaTracker
from shardmerge.worker.relay.model import Head, Statement

BLOCK_BYTES = 4 << 20
"""A block of whole groups is at least so large, if there are more events."""

_LARGEST_BLOCK = 64 << 20
"""A larger group is split into blocks: an earlier one ends inside it."""

_BETWEEN_ENDS = 1 << 20


@dataclass(frozen=True, slots=True)
class Described:
    """The format description of the events that follow."""

    event: bytes


@dataclass(frozen=True, slots=True)
class EventBlock:
    """Events of one file. ``begin``: where the first of them begins. ``end``: the end of the last group in it; None if
    the last group continues in the next block."""

    events: bytes
    begin: SourcePosition
    end: SourcePosition | None


@dataclass(frozen=True, slots=True)
class Stated:
    """A statement that is not transaction control. ``end``: of its group. Rows of earlier groups may come later."""

    statement: Statement
    end: SourcePosition


Item = Described | EventBlock | Stated


class GroupReader:
    """The groups after ``start``, an end of a group. ``made``: Unix time at which its file was made, 0 for unknown.
    ``keeps``: return blocks. ``waits``: at the end of the binlog wait for more. ``live``, ``xa``: see GroupWalker.
    ``ends``: some ends of groups, each with the bytes that were read up to it.

    Raises the errors of the dump, of the walker and of the decoder for events that cannot be read, STREAM_OTHER_SERVER,
    STREAM_LOG_GONE, and DUMP_ENDED at the end of the binlog.
    """

    def __init__(
        self,
        source: str,
        endpoint: Endpoint,
        start: SourcePosition,
        made: int,
        *,
        keeps: bool = True,
        waits: bool = False,
        live: bool = False,
        xa: XaTracker | None = None,
    ) -> None:
        self._source, self._endpoint = source, endpoint
        self._start, self.made = start, made
        self._keeps, self._waits = keeps, waits
        self._live, self._xa = live, xa
        self._walker = GroupWalker(source, Head(RelayOffset(0, 0), start, 0.0), checksum=False, live=live, xa=xa)
        self._feed = EventFeed(source, self._here)
        self._is_first_file = True
        self._described = 0
        self._block = bytearray()
        self._block_begin = start
        self.ends: list[tuple[int, SourcePosition]] = []

    @property
    def end(self) -> SourcePosition:
        """The end of the last group."""
        return self._walker.end.position

    @property
    def read_bytes(self) -> int:
        """Of the groups that have ended, without the format descriptions."""
        return self._walker.end.offset.byte - self._described

    def gtid_set(self) -> str:
        """Of the groups from the start on, with that of the first file before it; "" if it is unknown."""
        return str(self._walker.gtid_set)

    def items(self, most_bytes: int = NO_LIMIT, end: SourcePosition | None = None) -> Iterator[Item]:
        """What the groups have up to a group's end that is at ``end``, or after ``most_bytes``."""
        dump = Dump.connect(self._source, self._endpoint)
        try:
            self._begin(dump)
            while True:
                yield from self._received(dump, most_bytes, end)
                if self._is_done(most_bytes, end):
                    break
                dump.receive()
        except ShardmergeError as error:
            if error.spec is errors.relay.SOURCE_LOG_GONE:
                raise gone(self._source, self._start, error.message) from error
            raise
        finally:
            dump.close()
        yield from self._flush()

    def _is_done(self, most_bytes: int, end: SourcePosition | None) -> bool:
        if not self._walker.at_group_end:
            return False
        return self.read_bytes >= most_bytes or (end is not None and self.end.file_order() >= end.file_order())

    def _begin(self, dump: Dump) -> None:
        """Request the events after the start."""
        start = self._start
        if start.server and dump.info.identity != start.server:
            raise other_server(self._source, start, dump.info.identity)
        if start.pos > LARGEST_DUMP_POSITION:
            reason = f"a dump cannot begin at byte {start.pos} of a file: the command has 32 bits for it"
            raise gone(self._source, start, reason)
        dump.begin(FromFile(start, seed=False), random_server_id(), str(uuid.uuid4()), wait=self._waits)

    def _received(self, dump: Dump, most_bytes: int, end: SourcePosition | None) -> Iterator[Item]:
        """Process the received packets."""
        while not self._is_done(most_bytes, end):
            while self._feed.description is not None:
                buffer, begin, stop = dump.received()
                limit_pos = end.pos if end is not None and end.file == self._walker.file else NO_LIMIT
                passed = self._walker.scan(buffer, begin, stop, most_bytes + self._described, limit_pos)
                if passed is None:
                    break
                if self._keeps:
                    self._block += memoryview(buffer)[passed.first : passed.last]
                dump.skip(passed.upto)
                self._note_end()
                yield from self._flush_full()
            if self._is_done(most_bytes, end):
                return
            event = dump.event()
            if event is None:
                return
            yield from self._step(event)

    def _step(self, event: memoryview) -> Iterator[Item]:
        """Process one event that the scan has left."""
        event, kind, size, log_pos, timestamp, is_special = self._feed.check(event, self._walker.pos)
        if is_special:
            if kind == EventType.FORMAT_DESCRIPTION:
                yield from self._describe(bytes(event), timestamp, log_pos)
            else:
                yield from self._made_up(bytes(event), kind)
            return
        if kind == EventType.ROTATE:
            yield from self._flush()
            self._walker.step(event, kind, size, log_pos, timestamp)
            self._enter_file()
            return
        self._walker.step(event, kind, size, log_pos, timestamp)
        if self._keeps:
            yield from self._keep(event, kind, log_pos)
        self._note_end()
        for statement in self._walker.drain()[1]:
            yield Stated(statement, self.end)
        yield from self._flush_full()

    def _enter_file(self) -> None:
        """The walk is at the start of the next file."""
        self._is_first_file, self.made = False, 0
        self._block_begin = self._here()

    def _keep(self, event: memoryview, kind: int, log_pos: int) -> Iterator[Item]:
        if kind != EventType.TRANSACTION_PAYLOAD:
            self._block += event
            return
        payload = parse_payload(
            lambda at, size: bytes(event[at : at + size]), len(event), self._feed.has_checksum, log_pos, self._source
        )
        for inner in payload.events():
            if inner[4] == EventType.QUERY:
                only_control(inner, payload)
            if len(self._block) >= _LARGEST_BLOCK:
                yield from self._flush(ends_group=False)
            self._block += inner

    def _note_end(self) -> None:
        if self.read_bytes - (self.ends[-1][0] if self.ends else 0) >= _BETWEEN_ENDS:
            self.ends.append((self.read_bytes, self.end))

    def _describe(self, event: bytes, timestamp: int, log_pos: int) -> Iterator[Item]:
        yield from self._flush()
        if self._is_first_file and self.made and timestamp != self.made:
            raise gone(self._source, self._start, f"the source has another file {self._walker.file} than then")
        if not self._walker.at_group_end:
            raise self._feed.garbled("the binlog file ends inside a transaction")
        self.made = timestamp
        self._walker.checksum = self._feed.has_checksum
        self._walker.step(event, EventType.FORMAT_DESCRIPTION, len(event), log_pos, timestamp)
        self._described += len(event)
        self._block_begin = self._here()
        yield Described(event)

    def _made_up(self, event: bytes, kind: int) -> Iterator[Item]:
        """An event that the dump thread made and that is in no file."""
        walker = self._walker
        if kind == EventType.ROTATE:
            target = parse_rotate(event, checksum_matches(event), self._source)
            if target.file != walker.file:
                if self._feed.description is None:
                    raise gone(self._source, self._start, f"the source sends file {target.file} in its place")
                if not walker.at_group_end:
                    self._cut()
                yield from self._flush()
                self._walker.move(target.file, target.position)
                self._enter_file()
        elif kind in HEARTBEATS and walker.at_group_end:
            beat = parse_heartbeat(event, checksum_matches(event), self._source)
            if beat.file == walker.file and beat.position > walker.pos:
                walker.move(walker.file, beat.position)

    def _cut(self) -> None:
        """The file ends inside a transaction, which therefore was never committed: go back to the last group's end."""
        walker = self._walker
        rest = len(self._block) - (walker.byte - walker.end.offset.byte)
        if self._keeps and rest < 0:
            raise self._feed.garbled(f"file {walker.file} ends inside a transaction, of which a part was read")
        del self._block[rest:]
        self._walker = GroupWalker(self._source, walker.end, walker.checksum, live=self._live, xa=self._xa)

    def _flush_full(self) -> Iterator[Item]:
        size = len(self._block)
        if size >= (BLOCK_BYTES if self._walker.at_group_end else _LARGEST_BLOCK):
            yield from self._flush()

    def _flush(self, *, ends_group: bool = True) -> Iterator[Item]:
        """``ends_group``: False where the walk has reached the end of a compressed group, but the block has not."""
        events, self._block = bytes(self._block), bytearray()
        begin, self._block_begin = self._block_begin, self._here()
        if events:
            yield EventBlock(events, begin, self.end if ends_group and self._walker.at_group_end else None)

    def _here(self) -> SourcePosition:
        return SourcePosition(self._walker.file, self._walker.pos, server=self._start.server)


def file_made(source: str, endpoint: Endpoint, position: SourcePosition) -> int:
    """The Unix time at which the binlog file of ``position`` was made. Raises the errors of GroupReader."""
    reader = GroupReader(source, endpoint, position, 0, keeps=False)
    for item in reader.items():
        if isinstance(item, Described):
            break
    return reader.made


def gone(source: str, position: SourcePosition, reason: str) -> ShardmergeError:
    return errors.read.STREAM_LOG_GONE(source=source, position=position, reason=reason)


def why_gone(error: ShardmergeError) -> str | None:
    """Why the events after a position cannot be read any more; None: for another reason."""
    if error.spec is errors.read.STREAM_OTHER_SERVER:
        return "another server answers at the source's address"
    return error.values["reason"] if error.spec is errors.read.STREAM_LOG_GONE else None


def other_server(source: str, position: SourcePosition, found: str) -> ShardmergeError:
    return errors.read.STREAM_OTHER_SERVER(source=source, position=position, known=position.server, found=found)

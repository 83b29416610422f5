"""Makes the blocks of groups that are not served byte for byte as the source wrote them.

Compressed transactions (TRANSACTION_PAYLOAD) are served as the events in them; a prepared XA transaction is not served
at its own position but in place of its XA COMMIT. The ``places`` of such a block contain the relay bytes to which
its events belong: what matters is on which side of a group end they are. A large group is split into pieces here, too,
counted in served events; the pieces are the same each time.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog import query_text
from shardmerge.worker.binlog.event_kinds import GTIDS
from shardmerge.worker.binlog.events import CHECKSUM_SIZE, EventHeader, EventType, FormatDescription
from shardmerge.worker.binlog.transaction_payload import Payload, only_control, parse_payload
from shardmerge.worker.binlog.xa_events import xid_of
from shardmerge.worker.core.inflation import check_size
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.relay.log.files import relay_path
from shardmerge.worker.relay.log.group_walker import SPACING, GroupWalker
from shardmerge.worker.relay.log.prepared_groups import PreparedGroup
from shardmerge.worker.relay.log.relay_log import Cut
from shardmerge.worker.relay.log.segment import SegmentEvents, parsed_description
from shardmerge.worker.relay.model import BlockData, GroupStart, Head

LARGEST_BLOCK = 1 << 30
"""Only a group that rolled back to a savepoint, and so is not split into pieces, can reach this size."""

_SIZE = struct.Struct("<I")
_SIZE_AT = 9
_ROWS = range(EventType.TABLE_MAP, EventType.PARTIAL_UPDATE_ROWS + 1)


@dataclass(slots=True)
class _Builder:
    """Collects events into blocks: of whole groups, or a piece of one.

    ``start``: of the current block. ``carried``: events of its first group that were in earlier blocks.
    ``group``, ``group_at``: the start of the last group in the relay log, and in ``events``. ``counted``: its
    events so far.
    """

    start: Head
    events: bytearray = field(default_factory=bytearray)
    places: list[GroupStart] = field(default_factory=list[GroupStart])
    carried: int = 0
    group: Head | None = None
    group_at: int = 0
    counted: int = 0

    def begin_group(self, at: Head) -> None:
        self.group, self.group_at, self.counted = at, len(self.events), 0
        self.places.append(GroupStart(len(self.events), at.offset.byte))

    @property
    def is_full(self) -> bool:
        """Between groups: whether the block must end. A group that was split ends its block."""
        return self.carried > 0 or len(self.events) >= SPACING

    def add(self, event: bytes) -> None:
        self.events += event
        self.counted += 1

    def cut(self) -> Iterator[BlockData]:
        """Inside a group: the blocks of the collected events, first of earlier groups, then of this group."""
        group = self.group or self.start
        part = bytes(self.events[self.group_at :])
        if self.group_at:
            del self.events[self.group_at :], self.places[-1]
            yield self.whole(group)
        if part:
            yield self._block(group, part, (GroupStart(0, group.offset.byte),), ends_group=False)
        self.carried = self.counted
        self.events, self.places, self.group_at = bytearray(), [GroupStart(0, group.offset.byte)], 0

    def whole(self, end: Head) -> BlockData:
        """The block of all collected events; it ends with a group."""
        made = self._block(end, bytes(self.events), tuple(self.places), ends_group=True)
        self.start, self.events, self.places = end, bytearray(), []
        self.carried = self.group_at = 0
        return made

    def _block(self, end: Head, events: bytes, places: tuple[GroupStart, ...], *, ends_group: bool) -> BlockData:
        return BlockData(
            start=self.start.offset,
            end=end.offset,
            events=events,
            ends_group=ends_group,
            group_start=self.start.offset,
            first_event=self.carried,
            end_position=end.position,
            commit_time=end.commit_time,
            places=places,
        )


def payload_blocks(source: str, directory: Path, file: int, begin: Head, cut: Cut) -> Iterator[BlockData]:
    """The blocks from group end ``begin`` to ``cut``, of a part in which groups may be compressed.

    Raises decode.MALFORMED_EVENT, UNSUPPORTED_EVENT, INFLATED_EVENT_TOO_LARGE, and relay.GROUP_TOO_LARGE.
    """
    checksum = parsed_description(directory, begin.offset.segment, source).checksum
    walker = GroupWalker(source, begin, checksum)
    builder = _Builder(begin)
    stretch = SegmentEvents(file, cut.end)
    for at, header in stretch.each(begin.offset.byte):
        if walker.at_group_end:
            if builder.is_full:
                yield builder.whole(walker.end)
            builder.begin_group(walker.end)
        event = b""
        if header.type == EventType.TRANSACTION_PAYLOAD:
            yield from _inner(source, _payload(stretch, at, header, checksum, source), builder)
        else:
            event = stretch.read(at, header.size)
            builder.add(event)
        walker.step(event, header.type, header.size, header.log_pos, header.timestamp)
    yield builder.whole(Head(RelayOffset(begin.offset.segment, cut.end), cut.position, cut.commit_time))


def placeholder_block(file: int, begin: Head, cut: Cut) -> BlockData:
    """The block in place of a prepared group: its GTID alone."""
    builder = _Builder(begin)
    builder.begin_group(begin)
    stretch = SegmentEvents(file, cut.end)
    for at, header in stretch.each(begin.offset.byte):
        if header.type in GTIDS:
            builder.add(stretch.read(at, header.size))
        break
    return builder.whole(Head(RelayOffset(begin.offset.segment, cut.end), cut.position, cut.commit_time))


def committed_blocks(
    source: str, directory: Path, file: int, begin: Head, cut: Cut, group: PreparedGroup
) -> Iterator[BlockData]:
    """The blocks in place of an XA COMMIT: its GTID, the prepared events, the statement itself.

    Raises what :func:`payload_blocks` raises, and OSError when the prepared group's segment cannot be read.
    """
    builder = _Builder(begin)
    builder.begin_group(begin)
    own = SegmentEvents(file, cut.end)
    description = parsed_description(directory, begin.offset.segment, source)
    taken = False
    for at, header in own.each(begin.offset.byte):
        if not taken and header.type not in GTIDS:
            yield from _prepared(source, directory, description, group, builder, begin)
            taken = True
        builder.add(own.read(at, header.size))
    yield builder.whole(Head(RelayOffset(begin.offset.segment, cut.end), cut.position, cut.commit_time))


def commit_name(source: str, directory: Path, file: int, begin: Head, cut: Cut) -> str:
    """The name of the transaction in the statement of an XA COMMIT."""
    checksum = parsed_description(directory, begin.offset.segment, source).checksum
    own = SegmentEvents(file, cut.end)
    for at, header in own.each(begin.offset.byte):
        if header.type in query_text.QUERIES:
            statement = query_text.statement_of(own.read(at, header.size), header.type, checksum, source) or b""
            return str(xid_of(statement) or statement.decode("utf-8", "replace"))
    return "without a name"


def _prepared(
    source: str,
    directory: Path,
    now: FormatDescription,
    group: PreparedGroup,
    builder: _Builder,
    begin: Head,
) -> Iterator[BlockData]:
    """The events of a prepared group without its GTID and its end, as events of the binlog that ``now`` describes."""
    then = parsed_description(directory, group.segment, source)
    if any(then.post_header_length(kind) != now.post_header_length(kind) for kind in _ROWS):
        raise errors.decode.UNSUPPORTED_EVENT(
            source=source,
            event=f"XA COMMIT {group.xid}",
            position=begin.position,
            reason="its prepared events were written by a server with another event format",
            way_out="Finish such transactions before a server is upgraded.",
        )
    if group.whole and group.end - group.start > LARGEST_BLOCK:
        raise _too_large(source, begin, group.end - group.start)
    file = os.open(relay_path(directory, group.segment), os.O_RDONLY)
    try:
        stretch = SegmentEvents(file, group.end)
        for at, header in stretch.each(group.start):
            if header.type in GTIDS or header.type == EventType.XA_PREPARE:
                continue
            if header.type == EventType.TRANSACTION_PAYLOAD:
                payload = _payload(stretch, at, header, then.checksum, source)
                yield from _inner(source, payload, builder, then, now, whole=group.whole)
                continue
            event = _restamped(stretch.read(at, header.size), then.checksum, now.checksum)
            if not group.whole and len(builder.events) + len(event) > SPACING:
                yield from builder.cut()
            builder.add(event)
    finally:
        os.close(file)


def _inner(
    source: str,
    payload: Payload,
    builder: _Builder,
    then: FormatDescription | None = None,
    now: FormatDescription | None = None,
    *,
    whole: bool = False,
) -> Iterator[BlockData]:
    """Add the events in a payload to the builder; yields pieces of it when it becomes too large."""
    whole = whole or (payload.plain_size > SPACING and _goes_back(payload))
    if whole:
        check_size(payload.plain_size, source, payload.log_pos)
        if payload.plain_size > LARGEST_BLOCK:
            raise _too_large(source, builder.group or builder.start, payload.plain_size)
    for event in payload.events():
        if event[4] == EventType.XA_PREPARE:
            continue
        if event[4] == EventType.QUERY:
            only_control(event, payload)
        made = event if then is None or now is None else _restamped(event, then.checksum, now.checksum)
        if not whole and len(builder.events) + len(made) > SPACING:
            yield from builder.cut()
        builder.add(made)


def _payload(events: SegmentEvents, at: int, header: EventHeader, checksum: bool, source: str) -> Payload:
    return parse_payload(
        lambda offset, size: events.read(at + offset, min(size, header.size - offset)),
        header.size,
        checksum,
        header.log_pos,
        source,
    )


def _goes_back(payload: Payload) -> bool:
    """Whether it contains a ROLLBACK, whole or to a savepoint."""
    for event in payload.events():
        if event[4] == EventType.QUERY:
            statement = query_text.statement_of(event, event[4], payload.checksum, payload.source)
            if statement is not None and query_text.rolls_back(statement):
                return True
    return False


def _too_large(source: str, at: Head, size: int) -> ShardmergeError:
    return errors.relay.GROUP_TOO_LARGE(source=source, position=at.position, size=size, limit=LARGEST_BLOCK)


def _restamped(event: bytes, had: bool, has: bool) -> bytes:
    """An event with a checksum (``had``) or without, converted to one with a checksum (``has``) or without."""
    if had == has:
        return event
    body = event[:-CHECKSUM_SIZE] if had else event
    size = _SIZE.pack(len(body) + (CHECKSUM_SIZE if has else 0))
    made = body[:_SIZE_AT] + size + body[_SIZE_AT + 4 :]
    return made + _SIZE.pack(zlib.crc32(made)) if has else made

"""Checks that a source still has the events that were read last.

A server that has lost its latest transactions (a crash without sync, a restored backup or machine) goes on with the
same identity, and uses positions and GTIDs again. Only the events themselves show that they are others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.commit_time import exact_time
from shardmerge.worker.binlog.event_kinds import GTIDS
from shardmerge.worker.binlog.events import CHECKSUM_SIZE, HEADER_SIZE, EventType, checksum_matches, parse_rotate
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.fetch.dump_connection import Dump
from shardmerge.worker.relay.fetch.dump_start import LARGEST_DUMP_POSITION, FromFile
from shardmerge.worker.relay.fetch.event_feed import EventFeed
from shardmerge.worker.relay.fetch.file_times import present_events
from shardmerge.worker.relay.log.files import FIRST_BYTE, relay_path
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.log.segment import Segment, events, parsed_description

_TAIL_BYTES = 64 * 1024
_LARGEST_TAIL = 1 << 20  # of a larger transaction, its first events are compared
_TIME_TYPE_SERVER = 9  # bytes of the header
_CLOCK_SECONDS = 2.0  # a recorded commit time is that of the header's second, or of the receipt within it
NOT_THERE = (errors.relay.SOURCE_LOG_GONE, errors.relay.BAD_PACKET, errors.relay.EVENT_CHECKSUM)


@dataclass(frozen=True, slots=True)
class StoredTail:
    """The last events of one file that were stored: ``events`` by the byte of the file at which they end, each without
    what the server may change when it sends it again (flags, checksum). They begin at ``start``."""

    start: SourcePosition
    events: dict[int, bytes]


def check_tail(log: RelayLog, endpoint: Endpoint, end: SourcePosition | None) -> None:
    """Check that the source at ``endpoint``, the server that was read last, has the last stored events. ``end``: of its
    binlog, for the message. Ends no other dump. Raises SOURCE_LOG_RESET, SOURCE_LOG_GONE, and what a dump raises."""
    reason = lost_event(log, endpoint)
    if reason:
        head = log.head().position
        raise errors.relay.SOURCE_LOG_RESET(source=log.source, position=head, found=end or head, reason=reason)


def lost_event(log: RelayLog, endpoint: Endpoint) -> str:
    """Which of the last stored events the server at ``endpoint`` does not have, for people; "": it has all, or none can
    be compared. Ends no other dump. Raises SOURCE_LOG_GONE, and what a dump raises."""
    tail = stored_tail(log)
    if tail is None:
        return ""
    with closing(Dump.connect(log.source, endpoint)) as dump:
        try:
            return _missing(tail, dump, log.source)
        except ShardmergeError as error:
            # Its file may be purged once a later one was read.
            if error.spec is errors.relay.SOURCE_LOG_GONE and tail.start.file != log.head().position.file:
                return ""
            raise


def check_read(source: str, endpoint: Endpoint, position: SourcePosition, commit_time: float) -> None:
    """Check that ``position``, up to which was read without a relay log that could be compared, is in the file that was
    read. ``commit_time``: of the last transaction before it, Unix seconds of the source's clock. A file that was begun
    after that has no transaction before the position, or the one with that time.

    Says nothing of another server, or of a file that is not there. Ends no other dump. Raises SOURCE_LOG_RESET, and
    what a dump raises.
    """
    if not (position.file and position.server and commit_time) or position.pos > LARGEST_DUMP_POSITION:
        return
    try:
        with closing(Dump.connect(source, endpoint)) as dump:
            if dump.info.identity != position.server:
                return
            found = _other_commit(source, dump, position, commit_time)
    except ShardmergeError as error:
        if error.spec is errors.relay.SOURCE_LOG_GONE:
            return  # what the source lacks is reported where the relay log begins
        raise
    if found is not None:
        last, read = (datetime.fromtimestamp(each, UTC) for each in (found, commit_time))
        reason = f"its {position.file} has a transaction of {last} before that place, the one read is of {read}"
        raise errors.relay.SOURCE_LOG_RESET(source=source, position=position, found=position, reason=reason)
    with closing(Dump.connect(source, endpoint)) as dump:
        try:
            # What the source cannot send it refuses before the format description.
            next(_ordinary(position, dump, EventFeed(source, lambda: position)), None)
        except ShardmergeError as error:
            if error.spec not in NOT_THERE:
                raise
            reason = f"no event of its {position.file} begins there ({error.message})"
            raise errors.relay.SOURCE_LOG_RESET(
                source=source, position=position, found=position, reason=reason
            ) from error


def _other_commit(source: str, dump: Dump, position: SourcePosition, commit_time: float) -> float | None:
    """The time of the last transaction before ``position`` in a file that was begun after ``commit_time``, if it is
    another one."""
    start = replace(position, pos=FIRST_BYTE)
    feed = EventFeed(source, lambda: position)
    last = exact = 0.0
    for log_pos, kind, timestamp, event in _ordinary(start, dump, feed, begun_until=commit_time + _CLOCK_SECONDS):
        if log_pos > position.pos:
            break
        if kind in GTIDS:
            exact = exact_time(bytes(event))
            last = exact or timestamp
        elif last and not exact:
            last = float(timestamp)
    return last if last and abs(last - commit_time) > _CLOCK_SECONDS else None


def stored_tail(log: RelayLog) -> StoredTail | None:
    """None: nothing is stored of the server that is read now, or no dump can begin there. Raises OSError and
    RELAY_DAMAGED."""
    with log.changed:  # the fetcher may append meanwhile
        generation, head, segments = log.require(), log.head(), log.segments()
    for segment in reversed(segments):
        if segment.number < generation.parts[-1].segment:
            break
        end = head.offset.byte if segment.end is None else segment.end.byte
        found = _tail_of(log, segment, end, head.position if segment.end is None else segment.end.position)
        if found is not None:
            return found
    return None


def _tail_of(log: RelayLog, segment: Segment, end: int, last: SourcePosition) -> StoredTail | None:
    with log.changed:
        entry = log.index_of(segment).before(max(end - _TAIL_BYTES, segment.begin.byte))
    if max(entry.position.pos, last.pos) > LARGEST_DUMP_POSITION:
        return None  # no dump can begin there, and an event contains the lower half of its position
    with relay_path(log.directory, segment.number).open("rb") as file:
        file.seek(entry.byte)
        data = memoryview(file.read(min(end - entry.byte, _LARGEST_TAIL)))
    checksum = parsed_description(log.directory, segment.number, log.source).checksum
    start, found = 0, dict[int, bytes]()
    for header, event in events(data, 0):
        # Events that the dump thread made have no position.
        if header.log_pos and header.type != EventType.FORMAT_DESCRIPTION:
            start = start or header.log_pos - header.size
            found[header.log_pos] = _identity(event, checksum=checksum)
    return StoredTail(SourcePosition(segment.begin.position.file, start), found) if found and start > 0 else None


def _identity(event: memoryview, *, checksum: bool) -> bytes:
    return bytes(event[:_TIME_TYPE_SERVER]) + bytes(event[HEADER_SIZE : len(event) - CHECKSUM_SIZE * checksum])


def _missing(tail: StoredTail, dump: Dump, source: str) -> str:
    """Which of the stored events the source does not have; "": it has all of them."""
    expected = dict(tail.events)
    feed = EventFeed(source, lambda: tail.start)
    for log_pos, _, _, event in _ordinary(tail.start, dump, feed):
        wanted = expected.pop(log_pos, None)
        if wanted is not None and wanted != _identity(event, checksum=feed.has_checksum):
            return f"the event that ends at byte {log_pos} of its {tail.start.file} is another one"
        if not expected:
            return ""
    return f"its {tail.start.file} lacks the event that was read up to byte {min(expected)}"


def _ordinary(
    start: SourcePosition, dump: Dump, feed: EventFeed, begun_until: float | None = None
) -> Iterator[tuple[int, int, int, memoryview]]:
    """The events that the source has from ``start`` on in that file: (byte at which it ends, type, time stamp, event).
    ``begun_until``: none, if the file was begun until then."""
    at = start.pos
    for header, sent in present_events(dump, FromFile(start, seed=False)):
        event, kind, _, log_pos, timestamp, is_special = feed.check(sent, at)
        if not is_special:
            at = log_pos
            yield log_pos, kind, timestamp, event
            continue
        is_early = begun_until is not None and kind == EventType.FORMAT_DESCRIPTION and header.timestamp <= begun_until
        if is_early or (kind == EventType.ROTATE and _names_other(bytes(event), start.file)):
            return


def _names_other(rotate: bytes, file: str) -> bool:
    return parse_rotate(rotate, checksum_matches(memoryview(rotate)), "").file != file

"""Translates positions of the source to offsets of the relay log, and back.

A position in a file is valid only for the server of that file, and only from the floor of that server's part
of the log on (worker/relay/log/generation.py). Any other is found by its GTID set: the offset that has exactly this
set.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.log.files import FIRST_BYTE
from shardmerge.worker.relay.log.generation import RelayLogPart
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.log.segment import Segment, group_end, group_ends, head_at
from shardmerge.worker.relay.model import Head

STOP_CHECK_SECONDS = 0.2
"""How often a wait for the relay looks at its stop signal: data wakes it at once, a stop cannot."""


def end_at(log: RelayLog, relay_id: str, segment: Segment, byte: int, known: Head | None = None) -> Head:
    """The Head at a group end. ``known``: see :func:`group_end`. Raises OFFSET_NOT_GROUP_END when no group ends
    there."""
    if byte == FIRST_BYTE:
        return head_at(segment.number, segment.begin)
    bound = log.end_byte(segment)
    found = None
    if FIRST_BYTE < byte <= bound:
        found = group_end(log.directory, log.source, segment.number, log.index_of(segment), byte, known)
    if found is None:
        raise errors.relay.OFFSET_NOT_GROUP_END(
            source=log.source, offset=RelayOffset(segment.number, byte), relay_id=relay_id
        )
    return found


def next_group_end(log: RelayLog, relay_id: str, offset: RelayOffset, head: Head) -> RelayOffset:
    """The first group end after ``offset`` in the index; ``head``, which is after it, if the index has none.

    The index has the end of every group that is larger than a block. Raises RELAY_RESTARTED, OFFSET_PURGED,
    OFFSET_NOT_GROUP_END.
    """
    reader = log.enter_reader(offset.segment)
    try:
        segment = log.segment(relay_id, offset.segment)
        index = log.index_of(segment)
        with log.changed:
            bound = log.end_byte(segment)
            later = [entry.byte for entry in index.ends() if entry.byte > offset.byte]
    finally:
        log.leave_reader(reader)
    if later and later[0] <= bound:
        return RelayOffset(segment.number, later[0])
    return RelayOffset(segment.number, bound) if bound > offset.byte else head.offset


def next_server(log: RelayLog, offset: RelayOffset) -> str:
    """The server from whose binlog the events after ``offset`` came, or will come; "" when unknown."""
    generation = log.generation
    if generation is None:
        return ""
    number, byte = offset.segment, offset.byte
    for segment in log.segments():
        if segment.number == number and segment.end is not None and byte >= segment.end.byte:
            number, byte = number + 1, FIRST_BYTE
    return generation.part_of(number).server


def reaches_back(log: RelayLog, position: SourcePosition) -> bool:
    """Whether the log begins at or before ``position``, as far as the two can be compared."""
    by_file = any(
        stretch.floor.file and position.reaches(stretch.floor)
        for stretch in _server_parts(log)
        if _is_of(position, stretch)
    )
    first = first_gtid_set(log)
    return by_file or (first is not None and _contains(position, GtidSet(first)))


def first_gtid_set(log: RelayLog) -> str | None:
    """The GTID set at the log's begin; None when unknown."""
    first = log.first().position
    segments = log.segments()
    if first.gtid_set or not segments:
        return first.gtid_set or None
    # If the log begins with a file, the file's GTID list has the set; it is an event of the log.
    index = log.index_of(segments[0])
    with log.changed:
        following = index.after(FIRST_BYTE)
        until = min(following.byte, log.end_byte(segments[0])) if following else log.end_byte(segments[0])
    for end, _ in group_ends(log.directory, log.source, head_at(segments[0].number, segments[0].begin), until):
        if end.commit_time:
            break
        if end.position.gtid_set:
            return end.position.gtid_set
    return None


def locate(
    log: RelayLog,
    position: SourcePosition,
    deadline_seconds: float,
    stop: StopSignal,
    failure: Callable[[], ShardmergeError | None],
    *,
    first_if_before: bool = False,
    inside: bool = False,
    down: bool = False,
    ends: GroupEnds | None = None,
) -> RelayOffset:
    """The group end at ``position``, once the relay has reached it; ``down``: inside a group, the start of that group.

    A position between two groups (the source skips events there) counts as the end of the first. ``failure``: returns
    the error that stopped the relay, if any. ``first_if_before``: a position that is known to be older than the relay
    log is its first offset, not an error. ``inside``: the caller means a position inside the group that begins there,
    counted in events: another server may have split that group differently, so it must be the same server's position.
    ``ends``: for many ascending positions.

    Raises POSITION_BEFORE_RELAY, POSITION_INSIDE_GROUP, POSITION_ELSEWHERE (retryable), GTID_PLACE_MISSING,
    PIECE_OF_ANOTHER_SERVER, LOCATE_TIMEOUT (retryable), WAIT_INTERRUPTED, and the error of ``failure``.
    """
    relay_id = log.require().relay_id
    where = _Locator(log, relay_id, position, deadline_seconds, stop, failure, first_if_before, down, ends)
    try:
        found = where.by_file()
    except _NotFoundByFile as reason:
        if inside:
            raise errors.relay.PIECE_OF_ANOTHER_SERVER(
                source=log.source, position=position, server=position.server or "another", now=log.require().server
            ) from None
        if not position.gtid_set:
            raise reason.error from None
        found = where.by_gtid()
    return found


@dataclass(frozen=True, slots=True)
class _ServerPart:
    """The kept part of the log that came from one server. ``segments``: ascending; ``first``, ``last``: of the log."""

    server: str
    floor: SourcePosition
    segments: tuple[Segment, ...]
    first: bool
    last: bool


def _as_of(server: str, position: SourcePosition) -> SourcePosition:
    """A position without a server is one of ``server``."""
    return position if position.server else replace(position, server=server)


def _is_of(position: SourcePosition, stretch: _ServerPart) -> bool:
    """Whether the part came from the position's server; a position without a server is one of the current server."""
    return stretch.last if not position.server else stretch.server in ("", position.server)


def _server_parts(log: RelayLog) -> list[_ServerPart]:
    generation = log.require()
    segments = log.segments()
    found: list[_ServerPart] = []
    for number, part in enumerate(generation.parts):
        following = generation.parts[number + 1].segment if number + 1 < len(generation.parts) else None
        kept = tuple(
            segment
            for segment in segments
            if part.segment <= segment.number and (following is None or segment.number < following)
        )
        found.append(_ServerPart(part.server, _floor(part, kept), kept, number == 0, following is None))
    return found


def _floor(part: RelayLogPart, segments: tuple[Segment, ...]) -> SourcePosition:
    """The part's floor, or where its oldest segment begins when older ones were purged."""
    if not part.floor.file or not segments or segments[0].number == part.segment:
        return part.floor
    begin = segments[0].begin.position
    return begin if begin.reaches(part.floor) else part.floor


class _NotFoundByFile(Exception):
    """The position cannot be found by file; ``error``: the error to raise if it is not found otherwise."""

    def __init__(self, error: ShardmergeError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class _Locator:
    """One search for a position."""

    log: RelayLog
    relay_id: str
    position: SourcePosition
    deadline_seconds: float
    stop: StopSignal
    failure: Callable[[], ShardmergeError | None]
    first_if_before: bool
    down: bool
    ends: GroupEnds | None

    def by_file(self) -> RelayOffset:
        position = self.position
        if not position.file:
            raise _NotFoundByFile(self._elsewhere())
        if not self.log.require().parts[-1].floor.file:
            # The log begins by a GTID set: its floor is known only after the connection to the current source.
            self._wait(lambda _: bool(self.log.require().server), position)
        stretches = [stretch for stretch in _server_parts(self.log) if _is_of(position, stretch)]
        for stretch in reversed(stretches):
            if stretch.floor.file and position.reaches(stretch.floor):
                return self._in(stretch)
        first = self.log.first()
        if stretches and stretches[-1].last and self._was_given_out(stretches[-1]):
            return self._in(stretches[-1])
        if stretches and stretches[0].first and stretches[0].floor.file:
            # Below the floor does not mean before the begin, which may be a position in another server's files.
            if self.first_if_before and _as_of(stretches[0].server, first.position).reaches(position):
                return first.offset
            if self.first_if_before or position.gtid_set:
                raise _NotFoundByFile(self._elsewhere())
            raise errors.relay.POSITION_BEFORE_RELAY(source=self.log.source, position=position, first=first.position)
        raise _NotFoundByFile(self._elsewhere())

    def _was_given_out(self, stretch: _ServerPart) -> bool:
        """Whether it is exactly the position of a group end below the floor: file, byte and GTID set are the same."""
        position = self.position
        if not position.gtid_set or not stretch.segments:
            return False
        segment = _holding(stretch.segments, position)
        if segment is None:
            return False
        return any(
            end.position.file_order() == position.file_order() and end.position.gtid_set == position.gtid_set
            for end, _ in _ends_around(self.log, segment, position)
        )

    def _in(self, stretch: _ServerPart) -> RelayOffset:
        position, log = self.position, self.log
        if stretch.last:
            head = self._wait(lambda head: self._passed(head) or not self._may_still_come(), position)
            if not self._passed(head):
                raise _NotFoundByFile(self._elsewhere())
            if head.position.reaches(position) and head.position.file_order() == position.file_order():
                return head.offset
            [*_, stretch] = _server_parts(log)
        elif stretch.segments and not _end_of(log, stretch).reaches(position):
            # After the last position that was read from that server before the relay changed to the next one.
            raise _NotFoundByFile(self._elsewhere())
        segment = _holding(stretch.segments, position)
        if segment is None:
            first = log.first()
            if self.first_if_before:
                if stretch.first:
                    return first.offset
                raise _NotFoundByFile(self._elsewhere())
            raise errors.relay.POSITION_BEFORE_RELAY(source=log.source, position=position, first=first.position)
        reader = log.enter_reader(segment.number)
        try:
            log.segment(self.relay_id, segment.number)
            return _search(log, segment, position, self.ends, down=self.down)
        finally:
            log.leave_reader(reader)

    def _passed(self, head: Head) -> bool:
        # Before the first event was stored nothing can be read from there.
        return head.offset.byte > FIRST_BYTE and head.position.reaches(self.position)

    def _may_still_come(self) -> bool:
        """Whether the log is, or may be, written from the position's server; that of a new log is not known yet."""
        return not self.position.server or self.log.require().server in ("", self.position.server)

    def _elsewhere(self) -> ShardmergeError:
        generation = self.log.require()
        return errors.relay.POSITION_ELSEWHERE(
            source=self.log.source,
            position=self.position,
            server=self.position.server or "an unknown server",
            servers=", ".join(part.server or "none yet" for part in generation.parts),
        )

    def by_gtid(self) -> RelayOffset:
        """The last group end with exactly this set: the group that begins there is the first transaction beyond it."""
        wanted = GtidSet(self.position.gtid_set)
        first = self.log.first()
        begins = first_gtid_set(self.log)
        if begins is not None and not _contains(self.position, GtidSet(begins)):
            if self.first_if_before:
                if GtidSet(begins).lacks(wanted):  # neither before the begin nor after it
                    raise self._no_such_set(replace(first.position, gtid_set=begins), self.log.head().position)
                return first.offset
            raise errors.relay.POSITION_BEFORE_RELAY(source=self.log.source, position=self.position, first=begins)

        def passed(head: Head) -> bool:
            known = GtidSet(head.position.gtid_set, known=bool(head.position.gtid_set))
            return head.offset.byte > FIRST_BYTE and known.is_known and not known.lacks(wanted)

        head = self._wait(passed, self.position.gtid_set)
        if head.position.gtid_set == str(wanted):
            return head.offset
        segments = self.log.segments()
        # The sets only grow: the last segment that begins with no more than what is wanted.
        at = bisect_right(segments, False, key=lambda segment: not _within(segment.begin.position, wanted)) - 1
        if at < 0:
            raise self._no_such_set(first.position, head.position)
        reader = self.log.enter_reader(segments[at].number)
        try:
            self.log.segment(self.relay_id, segments[at].number)
            found = _last_within(self.log, segments[at], wanted)
        finally:
            self.log.leave_reader(reader)
        if found.position.gtid_set != str(wanted):
            raise self._no_such_set(found.position, head.position)
        return found.offset

    def _no_such_set(self, before: SourcePosition, after: SourcePosition) -> ShardmergeError:
        return errors.relay.GTID_PLACE_MISSING(
            source=self.log.source, wanted=self.position.gtid_set, before=before.gtid_set, behind=after.gtid_set
        )

    def _wait(self, ready: Callable[[Head], bool], what: object) -> Head:
        return wait_for(self.log, self.relay_id, ready, what, self.deadline_seconds, self.stop, self.failure)


def wait_for(
    log: RelayLog,
    relay_id: str,
    ready: Callable[[Head], bool],
    what: object,
    deadline_seconds: float,
    stop: StopSignal,
    failure: Callable[[], ShardmergeError | None],
) -> Head:
    """Wait until ``ready`` is true for the head, and return it; ``what``: the goal of the wait, for messages.

    Raises LOCATE_TIMEOUT, WAIT_INTERRUPTED, RELAY_RESTARTED, and the error of ``failure``.
    """
    deadline = time.monotonic() + deadline_seconds
    while True:
        head = log.head()
        log.require(relay_id)
        if ready(head):
            return head
        if stop.is_set:
            raise errors.relay.WAIT_INTERRUPTED(source=log.source, position=what)
        stopped_by = failure()
        if stopped_by is not None:
            raise stopped_by
        left = deadline - time.monotonic()
        if left <= 0:
            raise errors.relay.LOCATE_TIMEOUT(
                source=log.source, position=what, head=head.position, seconds=f"{deadline_seconds:.0f}"
            )
        log.wait_beyond(head, min(left, STOP_CHECK_SECONDS))


def _holding(segments: tuple[Segment, ...], position: SourcePosition) -> Segment | None:
    """The last segment that begins at or before a position; all are of one server."""
    at = bisect_right(segments, position.file_order(), key=lambda segment: segment.begin.position.file_order())
    return segments[at - 1] if at else None


def _end_of(log: RelayLog, stretch: _ServerPart) -> SourcePosition:
    last = stretch.segments[-1]
    return last.end.position if last.end is not None else log.head().position


def _ends_around(log: RelayLog, segment: Segment, position: SourcePosition) -> Iterator[tuple[Head, int]]:
    """The group ends of ``segment`` near a position in a file, beginning with the index entry before it."""
    index = log.index_of(segment)
    with log.changed:
        bound = log.end_byte(segment)
        entry, following = index.around(position)
    until = min(following.byte, bound) if following is not None else bound
    yield head_at(segment.number, entry), entry.position.pos
    yield from group_ends(log.directory, log.source, head_at(segment.number, entry), until)


class GroupEnds:
    """A cache of the group ends between two index entries: ascending positions of one log need one walk per entry."""

    def __init__(self) -> None:
        self._place: tuple[int, int] | None = None
        self._found: list[tuple[Head, int]] = []

    def around(self, log: RelayLog, segment: Segment, position: SourcePosition) -> Iterator[tuple[Head, int]]:
        """The group ends before and after a position, as :func:`_ends_around` yields them."""
        index = log.index_of(segment)
        with log.changed:
            entry, _ = index.around(position)
        place = (segment.number, entry.byte)
        if place != self._place or _order(self._found[-1]) <= position.file_order():  # the log may have grown
            self._place, self._found = place, list(_ends_around(log, segment, position))
        following = bisect_right(self._found, position.file_order(), key=_order)
        yield from self._found[max(following - 1, 0) :]


def _order(end: tuple[Head, int]) -> tuple[int, int]:
    return end[0].position.file_order()


def _search(
    log: RelayLog, segment: Segment, position: SourcePosition, ends: GroupEnds | None, *, down: bool
) -> RelayOffset:
    found: Head | None = None
    around = ends.around if ends is not None else _ends_around
    for end, start_pos in around(log, segment, position):
        if found is None or end.position.file_order() <= position.file_order():
            found = end
            continue
        if (position.file, position.pos) <= (found.position.file, start_pos):
            break
        if end.position.file != found.position.file and _ends_file(segment, found, end, position):
            return end.offset
        if down:
            return found.offset
        raise errors.relay.POSITION_INSIDE_GROUP(
            source=log.source,
            position=position,
            start=SourcePosition(found.position.file, start_pos),
            end=end.position,
        )
    if found is None:  # an iterator without its first element
        raise errors.relay.POSITION_BEFORE_RELAY(source=log.source, position=position, first=log.first().position)
    return found.offset


def _ends_file(segment: Segment, before: Head, end: Head, position: SourcePosition) -> bool:
    """Whether ``position`` is the end of the file that the ROTATE event between the two heads closes."""
    size = end.offset.byte - before.offset.byte
    return segment.number == end.offset.segment and position.pos == before.position.pos + size


def _within(position: SourcePosition, wanted: GtidSet) -> bool:
    """Whether ``wanted`` contains everything before ``position``; True if its GTID set is unknown."""
    return not position.gtid_set or not wanted.lacks(GtidSet(position.gtid_set))


def _last_within(log: RelayLog, segment: Segment, wanted: GtidSet) -> Head:
    """The last group end of a segment whose GTID set is within ``wanted``; the segment's begin is within it."""
    index = log.index_of(segment)
    with log.changed:
        bound = log.end_byte(segment)
        ends = index.ends()
    at = bisect_right(ends, False, key=lambda entry: not _within(entry.position, wanted)) - 1
    entry = ends[max(at, 0)]
    until = min(ends[at + 1].byte, bound) if at + 1 < len(ends) else bound
    found = head_at(segment.number, entry)
    for end, _ in group_ends(log.directory, log.source, head_at(segment.number, entry), until):
        if not _within(end.position, wanted):
            break
        found = end
    return found


def first_end_containing(log: RelayLog, relay_id: str, wanted: GtidSet) -> RelayOffset | None:
    """The first group end whose GTID set contains all of ``wanted``; None while there is none.

    The log's begin, if that contains it already. Raises RELAY_RESTARTED, OFFSET_PURGED, RELAY_DAMAGED.
    """
    head = log.head()
    if not _contains(head.position, wanted):
        return None
    segments = log.segments()
    # The sets only grow: the last segment that begins without it.
    at = _first_containing([segment.begin.position for segment in segments], wanted) - 1
    if at < 0:
        return log.first().offset
    segment = segments[at]
    reader = log.enter_reader(segment.number)
    try:
        log.segment(relay_id, segment.number)
        index = log.index_of(segment)
        with log.changed:
            bound = log.end_byte(segment)
            ends = [entry for entry in index.ends() if entry.byte <= bound]
        following = _first_containing([entry.position for entry in ends], wanted)
        begin = head_at(segment.number, ends[max(following - 1, 0)])
        until = ends[following].byte if following < len(ends) else bound
        for end, _ in group_ends(log.directory, log.source, begin, until):
            if _contains(end.position, wanted):
                return end.offset
    finally:
        log.leave_reader(reader)
    return head_at(segments[at + 1].number, segments[at + 1].begin).offset if at + 1 < len(segments) else head.offset


def _contains(position: SourcePosition, wanted: GtidSet) -> bool:
    """Whether everything of ``wanted`` is before ``position``, as far as is known."""
    return bool(position.gtid_set) and not GtidSet(position.gtid_set).lacks(wanted)


def _first_containing(positions: Sequence[SourcePosition], wanted: GtidSet) -> int:
    return bisect_left(positions, True, key=lambda position: _contains(position, wanted))

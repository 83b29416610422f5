"""From places at the source to places in the relay log, and back.

A place in a file means something only for the server whose file it is, and only from the floor of that server's part
of the log on (worker/relay/generation.py). Anything else is found by its GTID set: the place that holds exactly it.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from proto import errors
from proto.errors import ShardmergeError
from worker.position import RelayOffset, SourcePosition
from worker.relay.files import FIRST_BYTE
from worker.relay.generation import Part
from worker.relay.gtid import GtidSet
from worker.relay.log import RelayLog
from worker.relay.model import Head
from worker.relay.records import EntryKind
from worker.relay.segment import Segment, group_end, group_ends, head_at
from worker.unit import StopSignal

STOP_CHECK_SECONDS = 0.2
"""How often a wait for the relay looks at its stop signal: data wakes it at once, a stop cannot."""


def end_at(log: RelayLog, relay_id: str, segment: Segment, byte: int) -> Head:
    """What is known at a group end. Raises OFFSET_NOT_GROUP_END when none is there."""
    if byte == FIRST_BYTE:
        return head_at(segment.number, segment.begin)
    bound = log.end_byte(segment)
    found = None
    if FIRST_BYTE < byte <= bound:
        found = group_end(log.directory, log.source, segment.number, log.index_of(segment), byte)
    if found is None:
        raise errors.relay.OFFSET_NOT_GROUP_END(
            source=log.source, offset=RelayOffset(segment.number, byte), relay_id=relay_id
        )
    return found


def group_end_behind(log: RelayLog, relay_id: str, offset: RelayOffset, head: Head) -> RelayOffset:
    """The first group end behind ``offset`` that the index knows; ``head``, which is behind it, if it knows none.

    The index knows the end of every group that is larger than a block. Raises RELAY_RESTARTED, OFFSET_PURGED,
    OFFSET_NOT_GROUP_END.
    """
    reader = log.enter_reader(offset.segment)
    try:
        segment = log.segment(relay_id, offset.segment)
        index = log.index_of(segment)
        with log.changed:
            bound = log.end_byte(segment)
            behind = [
                entry.byte for entry in index.entries if entry.kind is not EntryKind.PIECE and entry.byte > offset.byte
            ]
    finally:
        log.leave_reader(reader)
    if behind and behind[0] <= bound:
        return RelayOffset(segment.number, behind[0])
    return RelayOffset(segment.number, bound) if bound > offset.byte else head.offset


def server_behind(log: RelayLog, offset: RelayOffset) -> str:
    """From whose binlog what follows ``offset`` came, or will come; "" when it is not known."""
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
        for stretch in _stretches(log)
        if _is_of(position, stretch)
    )
    return by_file or _holds(position, first_gtid_set(log))


def _holds(position: SourcePosition, first: str | None) -> bool:
    """Whether the GTID set of ``position`` holds ``first``; both must be known."""
    if not position.gtid_set or first is None:
        return False
    return not GtidSet(position.gtid_set).lacks(GtidSet(first))


def first_gtid_set(log: RelayLog) -> str | None:
    """The set that the log begins behind; None when it is not known."""
    first = log.first().position
    segments = log.segments()
    if first.gtid_set or not segments:
        return first.gtid_set or None
    # Where a file begins its own list says it, which is an event of the log.
    index = log.index_of(segments[0])
    with log.changed:
        following = index.after(FIRST_BYTE)
        until = min(following.byte, log.end_byte(segments[0])) if following else log.end_byte(segments[0])
    for end, _ in group_ends(log.directory, log.source, segments[0].number, segments[0].begin, until):
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
    ends: Ends | None = None,
) -> RelayOffset:
    """The group end at ``position``, once the relay has passed it; ``down``: inside a group, where that begins.

    A position between two groups (the source skips events there) counts as the end of the first. ``failure``: what
    stops the relay, if anything does. ``first_if_before``: a position that is known to be older than the relay log
    is its first offset, not an error. ``inside``: the caller means a place inside the group that begins there, counted
    in events: another server may have cut that group otherwise, so only the very place will do. ``ends``: for many
    ascending positions.

    Raises POSITION_BEFORE_RELAY, POSITION_INSIDE_GROUP, POSITION_ELSEWHERE (retryable), GTID_PLACE_MISSING,
    PIECE_OF_ANOTHER_SERVER, LOCATE_TIMEOUT (retryable), WAIT_INTERRUPTED, and what ``failure`` tells.
    """
    relay_id = log.require().relay_id
    where = _Where(log, relay_id, position, deadline_seconds, stop, failure, first_if_before, down, ends)
    try:
        found = where.by_file()
    except _NotByFile as reason:
        if inside:
            raise errors.relay.PIECE_OF_ANOTHER_SERVER(
                source=log.source, position=position, server=position.server or "another", now=log.require().server
            ) from None
        if not position.gtid_set:
            raise reason.error from None
        found = where.by_gtid()
    return found


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The kept part of the log that came from one server. ``segments``: ascending; ``first``, ``last``: of the log."""

    server: str
    floor: SourcePosition
    segments: tuple[Segment, ...]
    first: bool
    last: bool


def _as_of(server: str, position: SourcePosition) -> SourcePosition:
    """A place of no told server is one of the stretch that begins there."""
    return position if position.server else replace(position, server=server)


def _is_of(position: SourcePosition, stretch: _Stretch) -> bool:
    """Whether the stretch came from the server of a place; a place of no told server is one of the server at hand."""
    return stretch.last if not position.server else stretch.server in ("", position.server)


def _stretches(log: RelayLog) -> list[_Stretch]:
    generation = log.require()
    segments = log.segments()
    found: list[_Stretch] = []
    for number, part in enumerate(generation.parts):
        following = generation.parts[number + 1].segment if number + 1 < len(generation.parts) else None
        kept = tuple(
            segment
            for segment in segments
            if part.segment <= segment.number and (following is None or segment.number < following)
        )
        found.append(_Stretch(part.server, _floor(part, kept), kept, number == 0, following is None))
    return found


def _floor(part: Part, segments: tuple[Segment, ...]) -> SourcePosition:
    """The part's floor, or where its oldest segment begins when older ones were purged."""
    if not part.floor.file or not segments or segments[0].number == part.segment:
        return part.floor
    begin = segments[0].begin.position
    return begin if begin.reaches(part.floor) else part.floor


class _NotByFile(Exception):
    """The file does not tell the place; what to say if nothing else does."""

    def __init__(self, error: ShardmergeError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class _Where:
    """One question for a place."""

    log: RelayLog
    relay_id: str
    position: SourcePosition
    deadline_seconds: float
    stop: StopSignal
    failure: Callable[[], ShardmergeError | None]
    first_if_before: bool
    down: bool
    ends: Ends | None

    def by_file(self) -> RelayOffset:
        position = self.position
        if not position.file:
            raise _NotByFile(self._elsewhere())
        if not self.log.require().parts[-1].floor.file:
            # It begins by a GTID set: only the source at hand says from which place on that is all there is.
            self._wait(lambda _: bool(self.log.require().server), position)
        stretches = [stretch for stretch in _stretches(self.log) if _is_of(position, stretch)]
        for stretch in reversed(stretches):
            if stretch.floor.file and position.reaches(stretch.floor):
                return self._in(stretch)
        first = self.log.first()
        if stretches and stretches[-1].last and self._was_given_out(stretches[-1]):
            return self._in(stretches[-1])
        if stretches and stretches[0].first and stretches[0].floor.file:
            # Below the floor is not yet before the beginning, which may be a place of another server's files.
            if self.first_if_before and _as_of(stretches[0].server, first.position).reaches(position):
                return first.offset
            if self.first_if_before or position.gtid_set:
                raise _NotByFile(self._elsewhere())
            raise errors.relay.POSITION_BEFORE_RELAY(source=self.log.source, position=position, first=first.position)
        raise _NotByFile(self._elsewhere())

    def _was_given_out(self, stretch: _Stretch) -> bool:
        """Whether it is the very place of a group end below the floor: file, byte and GTID set are the same."""
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

    def _in(self, stretch: _Stretch) -> RelayOffset:
        position, log = self.position, self.log
        if stretch.last:
            head = self._wait(lambda head: self._passed(head) or not self._may_still_come(), position)
            if not self._passed(head):
                raise _NotByFile(self._elsewhere())
            if head.position.reaches(position) and head.position.file_order() == position.file_order():
                return head.offset
            [*_, stretch] = _stretches(log)
        elif stretch.segments and not _end_of(log, stretch).reaches(position):
            # Beyond what was read of that server before the relay went to the next.
            raise _NotByFile(self._elsewhere())
        segment = _holding(stretch.segments, position)
        if segment is None:
            first = log.first()
            if self.first_if_before:
                if stretch.first:
                    return first.offset
                raise _NotByFile(self._elsewhere())
            raise errors.relay.POSITION_BEFORE_RELAY(source=log.source, position=position, first=first.position)
        reader = log.enter_reader(segment.number)
        try:
            log.segment(self.relay_id, segment.number)
            return _search(log, segment, position, self.ends, down=self.down)
        finally:
            log.leave_reader(reader)

    def _passed(self, head: Head) -> bool:
        # Before the first event came there is nothing that could be read from there.
        return head.offset.byte > FIRST_BYTE and head.position.reaches(self.position)

    def _may_still_come(self) -> bool:
        """Whether the log is, or will be, written from the place's server; a log that was just begun does not know."""
        return not self.position.server or self.log.require().server in ("", self.position.server)

    def _elsewhere(self) -> ShardmergeError:
        generation = self.log.require()
        return errors.relay.POSITION_ELSEWHERE(
            source=self.log.source,
            position=self.position,
            server=self.position.server or "no told server",
            servers=", ".join(part.server or "none yet" for part in generation.parts),
        )

    def by_gtid(self) -> RelayOffset:
        """The last group end that holds exactly the set: what begins there is the first transaction beyond it."""
        wanted = GtidSet(self.position.gtid_set)
        first = self.log.first()
        begins = first_gtid_set(self.log)
        if begins is not None and not _holds(self.position, begins):
            if self.first_if_before:
                if GtidSet(begins).lacks(wanted):  # neither before the beginning nor behind it
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

    def _no_such_set(self, before: SourcePosition, behind: SourcePosition) -> ShardmergeError:
        return errors.relay.GTID_PLACE_MISSING(
            source=self.log.source, wanted=self.position.gtid_set, before=before.gtid_set, behind=behind.gtid_set
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
    """The head as soon as ``ready`` holds for it; ``what`` is waited for, for messages.

    Raises LOCATE_TIMEOUT, WAIT_INTERRUPTED, RELAY_RESTARTED, and what ``failure`` tells.
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
    """The last segment that begins at or before a place; all are of one server."""
    at = bisect_right(segments, position.file_order(), key=lambda segment: segment.begin.position.file_order())
    return segments[at - 1] if at else None


def _end_of(log: RelayLog, stretch: _Stretch) -> SourcePosition:
    last = stretch.segments[-1]
    return last.end.position if last.end is not None else log.head().position


def _ends_around(log: RelayLog, segment: Segment, position: SourcePosition) -> Iterator[tuple[Head, int]]:
    """The group ends of ``segment`` near a place in a file, the entry before it first."""
    index = log.index_of(segment)
    with log.changed:
        bound = log.end_byte(segment)
        entry, following = index.around(position)
    until = min(following.byte, bound) if following is not None else bound
    yield head_at(segment.number, entry), entry.position.pos
    yield from group_ends(log.directory, log.source, segment.number, entry, until)


class Ends:
    """The group ends of the stretch that was walked last: ascending positions of one log take one walk per stretch."""

    def __init__(self) -> None:
        self._place: tuple[int, int] | None = None
        self._found: list[tuple[Head, int]] = []

    def around(self, log: RelayLog, segment: Segment, position: SourcePosition) -> Iterator[tuple[Head, int]]:
        """Those before and behind a position, as :func:`_ends_around` tells them."""
        index = log.index_of(segment)
        with log.changed:
            entry, _ = index.around(position)
        place = (segment.number, entry.byte)
        if place != self._place or _order(self._found[-1]) <= position.file_order():  # the log's last stretch grows
            self._place, self._found = place, list(_ends_around(log, segment, position))
        behind = bisect_right(self._found, position.file_order(), key=_order)
        yield from self._found[max(behind - 1, 0) :]


def _order(end: tuple[Head, int]) -> tuple[int, int]:
    return end[0].position.file_order()


def _search(log: RelayLog, segment: Segment, position: SourcePosition, ends: Ends | None, *, down: bool) -> RelayOffset:
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
    """Whether everything behind which ``position`` lies is wanted; what is not known is taken for it."""
    return not position.gtid_set or not wanted.lacks(GtidSet(position.gtid_set))


def _last_within(log: RelayLog, segment: Segment, wanted: GtidSet) -> Head:
    """The last group end of a segment, which begins within ``wanted``, that lies within it."""
    index = log.index_of(segment)
    with log.changed:
        bound = log.end_byte(segment)
        ends = [entry for entry in index.entries if entry.kind is not EntryKind.PIECE]
    at = bisect_right(ends, False, key=lambda entry: not _within(entry.position, wanted)) - 1
    entry = ends[max(at, 0)]
    until = min(ends[at + 1].byte, bound) if at + 1 < len(ends) else bound
    found = head_at(segment.number, entry)
    for end, _ in group_ends(log.directory, log.source, segment.number, entry, until):
        if not _within(end.position, wanted):
            break
        found = end
    return found

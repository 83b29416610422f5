"""From places at the source to places in the relay log, and back."""

from __future__ import annotations

import time
from collections.abc import Callable

from proto import errors
from proto.errors import ShardmergeError
from worker.position import RelayOffset, SourcePosition
from worker.relay.files import FIRST_BYTE
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


def locate(
    log: RelayLog,
    position: SourcePosition,
    deadline_seconds: float,
    stop: StopSignal,
    failure: Callable[[], ShardmergeError | None],
    *,
    first_if_before: bool = False,
) -> RelayOffset:
    """The group end at ``position``, once the relay has passed it.

    A position between two groups (the source skips events there) counts as the end of the first. ``failure``: what
    stops the relay, if anything does. ``first_if_before``: a position older than the relay log
    is its first offset, not an error.

    Raises POSITION_BEFORE_RELAY, POSITION_INSIDE_GROUP, LOCATE_TIMEOUT (retryable), WAIT_INTERRUPTED, and what
    ``failure`` tells.
    """
    relay_id = log.require().relay_id
    if position.file_order() < log.first().position.file_order() and not first_if_before:
        raise errors.relay.POSITION_BEFORE_RELAY(source=log.source, position=position, first=log.first().position)

    def passed(head: Head) -> bool:
        # Before the first event came there is nothing that could be read from there.
        return head.offset.byte > FIRST_BYTE and position.file_order() <= head.position.file_order()

    head = wait_for(log, relay_id, passed, position, deadline_seconds, stop, failure)
    if position.file_order() == head.position.file_order():
        return head.offset
    segment = log.segment_holding(position)
    if segment is None:
        first = log.first()
        if first_if_before:
            return first.offset
        raise errors.relay.POSITION_BEFORE_RELAY(source=log.source, position=position, first=first.position)
    reader = log.enter_reader(segment.number)
    try:
        log.segment(relay_id, segment.number)
        return _search(log, segment, position)
    finally:
        log.leave_reader(reader)


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


def _search(log: RelayLog, segment: Segment, position: SourcePosition) -> RelayOffset:
    index = log.index_of(segment)
    with log.changed:
        bound = log.end_byte(segment)
        entry, following = index.around(position)
    if entry.position.file_order() == position.file_order():
        return RelayOffset(segment.number, entry.byte)
    until = min(following.byte, bound) if following is not None else bound
    found = head_at(segment.number, entry)
    for end, start_pos in group_ends(log.directory, log.source, segment.number, entry, until):
        if end.position.file_order() <= position.file_order():
            found = end
            continue
        if (position.file, position.pos) <= (found.position.file, start_pos):
            break
        if end.position.file != found.position.file and _ends_file(log, segment, found, end, position):
            return end.offset
        raise errors.relay.POSITION_INSIDE_GROUP(
            source=log.source,
            position=position,
            start=SourcePosition(found.position.file, start_pos),
            end=end.position,
        )
    return found.offset


def _ends_file(log: RelayLog, segment: Segment, before: Head, end: Head, position: SourcePosition) -> bool:
    """Whether ``position`` is the end of the file that the ROTATE event between the two heads closes."""
    size = end.offset.byte - before.offset.byte
    return segment.number == end.offset.segment and position.pos == before.position.pos + size

"""Finds the offset from which on a relay log contains all of a GTID set."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.relay.log.index_records import EntryKind
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.log.segment import Segment, group_ends, head_at


def holds(position: SourcePosition, wanted: GtidSet) -> bool:
    """Whether everything of ``wanted`` is before ``position``, as far as is known."""
    return bool(position.gtid_set) and not GtidSet(position.gtid_set).lacks(wanted)


def first_end_containing(log: RelayLog, relay_id: str, wanted: GtidSet) -> RelayOffset | None:
    """The first group end whose GTID set contains all of ``wanted``; None while there is none.

    The log's begin, if that contains it already. Raises RELAY_RESTARTED, OFFSET_PURGED, RELAY_DAMAGED.
    """
    head = log.head()
    if not holds(head.position, wanted):
        return None
    segments = log.segments()
    # The sets only grow: the last segment that begins without it.
    at = _first([segment.begin.position for segment in segments], wanted) - 1
    if at < 0:
        return log.first().offset
    segment = segments[at]
    reader = log.enter_reader(segment.number)
    try:
        log.segment(relay_id, segment.number)
        found = _first_in(log, segment, wanted)
    finally:
        log.leave_reader(reader)
    if found is not None:
        return found
    following = segments[at + 1 : at + 2]
    return RelayOffset(following[0].number, following[0].begin.byte) if following else head.offset


def _first(positions: Sequence[SourcePosition], wanted: GtidSet) -> int:
    return bisect_left(positions, True, key=lambda position: holds(position, wanted))


def _first_in(log: RelayLog, segment: Segment, wanted: GtidSet) -> RelayOffset | None:
    index = log.index_of(segment)
    with log.changed:
        bound = log.end_byte(segment)
        ends = [entry for entry in index.entries if entry.kind is not EntryKind.PIECE and entry.byte <= bound]
    at = _first([entry.position for entry in ends], wanted)
    entry = ends[max(at - 1, 0)]
    until = ends[at].byte if at < len(ends) else bound
    for end, _ in group_ends(log.directory, log.source, head_at(segment.number, entry), until):
        if holds(end.position, wanted):
            return end.offset
    return None

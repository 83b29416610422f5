"""Reads the statements of the relay log from an offset on, without its other events."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.model import Statement


def statements_from(log: RelayLog, offset: RelayOffset) -> Iterator[Statement]:
    """The statements of groups that begin at group end ``offset`` or after it, up to the present head.

    Raises OFFSET_PURGED, OFFSET_NOT_GROUP_END, RELAY_DAMAGED, RELAY_RESTARTED.
    """
    relay_id = log.require().relay_id
    head = log.head().offset
    reader = log.enter_reader(offset.segment)
    try:
        for number in range(offset.segment, head.segment + 1):
            log.move_reader(reader, number)
            index = log.index_of(log.segment(relay_id, number))
            with log.changed:
                found = tuple(index.statements[bisect_left(index.statements, offset, key=_start) :])
            for statement in found:
                if statement.group_end > head:
                    return
                yield statement
    finally:
        log.leave_reader(reader)


def _start(statement: Statement) -> RelayOffset:
    return statement.group_start

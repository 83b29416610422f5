"""Finds the commit time of the first transaction after an offset of the relay log, from which the lag is computed."""

from __future__ import annotations

import os

from shardmerge.worker.binlog.commit_time import exact_time
from shardmerge.worker.binlog.events import HEADER_SIZE, EventType, parse_header
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.relay.log.files import FIRST_BYTE, relay_path
from shardmerge.worker.relay.log.relay_log import RelayLog

_READ_BYTES = 4096
_MOST_EVENTS = 1000
_NO_TRANSACTION = frozenset(
    {
        EventType.FORMAT_DESCRIPTION,
        EventType.ROTATE,
        EventType.STOP,
        EventType.HEARTBEAT,
        EventType.HEARTBEAT_V2,
        EventType.PREVIOUS_GTIDS,
        EventType.MARIADB_GTID_LIST,
        EventType.BINLOG_CHECKPOINT,
    }
)


def first_commit_after(log: RelayLog, offset: RelayOffset) -> float | None:
    """Unix seconds of the commit of the first transaction that begins at or after group end ``offset``.

    Without an exact time its whole second, rounded down. None when no such transaction is published, or when
    the offset was purged. Raises MALFORMED_EVENT if no event begins at the offset (it belongs to another relay log).
    """
    head = log.head().offset
    at = offset
    for segment in log.segments():
        if segment.number < at.segment:
            continue
        if segment.number > at.segment:
            at = RelayOffset(segment.number, FIRST_BYTE)
        end = segment.end.byte if segment.end is not None else head.byte if head.segment == at.segment else 0
        found = _first_in(os.fspath(relay_path(log.directory, at.segment)), at.byte, end)
        if found is not None:
            return found
    return None


def _first_in(path: str, at: int, end: int) -> float | None:
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        for _ in range(_MOST_EVENTS):
            if at + HEADER_SIZE > end:
                return None
            event = os.pread(file, _READ_BYTES, at)
            if len(event) < HEADER_SIZE:
                return None
            header = parse_header(event)
            if header.type not in _NO_TRANSACTION:
                exact = 0.0
                if header.type in (EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED):
                    exact = exact_time(event[: header.size])
                return exact or float(header.timestamp)
            at += header.size
        return None
    finally:
        os.close(file)

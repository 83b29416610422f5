"""Finds commits in a relay log by the groups' first events alone: the first at or after a time, or after an offset.

MySQL 8.0.1 and newer write the commit's time into each GTID event. Otherwise only the event's header has a time: the
start of the statement that committed (COMMIT itself, or the one statement of an autocommitted group), in whole seconds
(MariaDB's sql/log_event.h, Log_event::when). The commit may be later, by the duration of that statement, and on a
replica by its lag. An exception is MariaDB's DDL: its event has the duration of the statement until
the event was made, by the server's clock (Query_log_event::exec_time): all earlier groups committed before that. The
time at which the relay received an event is not used: clocks differ.
"""

from __future__ import annotations

import os
from itertools import islice

from shardmerge.worker.binlog.commit_time import logged_time
from shardmerge.worker.binlog.event_kinds import GTIDS
from shardmerge.worker.binlog.events import HEADER_SIZE, EventType
from shardmerge.worker.binlog.little_endian import event_size
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.relay.log.files import FIRST_BYTE, relay_path
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.log.segment import SegmentEvents

_READ_BYTES = 1 << 20
_LARGEST_GTID = 4096
_EXEC_TIME_AT = HEADER_SIZE + 4  # after the thread's number
_STATEMENT_AT = HEADER_SIZE + 13
_FLAGS_AT = HEADER_SIZE + 12  # of a MariaDB GTID event, after sequence number and domain
_DDL = 1 | 32  # FL_STANDALONE, FL_DDL
_CERTAIN_SECONDS = 2.0
"""The times are whole seconds, and an event is written shortly after it was made."""
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


class CommitWalk:
    """Walks through relay log ``relay_id`` once, from group end ``at`` on. One thread at a time.

    ``certain_before``: Unix seconds; among the scanned groups, :attr:`certain` is the last group end before
    which everything is known to have committed earlier than that, None if there is none.
    """

    def __init__(self, log: RelayLog, relay_id: str, at: RelayOffset, certain_before: float = 0.0) -> None:
        self.certain: RelayOffset | None = None
        self._certain_before = certain_before
        self._after_ddl = False
        self._log = log
        self._relay_id = relay_id
        self._segment = at.segment
        self._byte = at.byte

    @property
    def scanned(self) -> RelayOffset:
        """The offset up to which the log was scanned."""
        return RelayOffset(self._segment, self._byte)

    def first(self, moment: float, end: RelayOffset) -> RelayOffset | None:
        """The start of the first group that committed at or after ``moment`` (Unix seconds by the source's clock), if
        it is before published group end ``end``; groups that were scanned before are not scanned again.

        Raises RELAY_RESTARTED, OFFSET_PURGED, FileNotFoundError.
        """
        while self._segment < end.segment or (self._segment == end.segment and end.byte > FIRST_BYTE):
            segment = self._log.segment(self._relay_id, self._segment)
            bound = end.byte if self._segment == end.segment else self._log.end_byte(segment)
            if self._byte < bound:
                found = self._look(moment, bound)
                if found is not None:
                    return found
            if self._segment == end.segment:
                break
            self._segment, self._byte = self._segment + 1, FIRST_BYTE
        return None

    def _look(self, moment: float, bound: int) -> RelayOffset | None:
        file = os.open(relay_path(self._log.directory, self._segment), os.O_RDONLY)
        try:
            data, start = b"", self._byte
            while self._byte < bound:
                at = self._byte - start
                if at + min(_LARGEST_GTID, bound - self._byte) > len(data):
                    start = self._byte
                    data, at = os.pread(file, min(_READ_BYTES, bound - start), start), 0
                size = event_size(data, at)
                if len(data) - at < HEADER_SIZE or size < HEADER_SIZE:
                    raise EOFError(f"relay log segment {self._segment}, byte {self._byte}: no event")
                if data[at + 4] in GTIDS and logged_time(data[at : at + size]) >= moment:
                    return self.scanned
                if self._certain_before:
                    self._note_ddl(data[at : at + min(size, _STATEMENT_AT)], size)
                self._byte += size
        finally:
            os.close(file)
        return None

    def _note_ddl(self, event: bytes, size: int) -> None:
        if self._after_ddl and event[4] in (EventType.QUERY, EventType.QUERY_COMPRESSED):
            took = int.from_bytes(event[_EXEC_TIME_AT : _EXEC_TIME_AT + 4], "little")
            ended = (int.from_bytes(event[:4], "little") + took) & 0xFFFFFFFF  # also of a session with another clock
            if ended + _CERTAIN_SECONDS < self._certain_before:
                self.certain = RelayOffset(self._segment, self._byte + size)
        ddl = event[4] == EventType.MARIADB_GTID and event[_FLAGS_AT] & _DDL == _DDL
        self._after_ddl = ddl


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
        found = _first_commit_in(os.fspath(relay_path(log.directory, at.segment)), at.byte, end)
        if found is not None:
            return found
    return None


def _first_commit_in(path: str, at: int, end: int) -> float | None:
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        events = SegmentEvents(file, end)
        for here, header in islice(events.each(at), _MOST_EVENTS):
            if header.type not in _NO_TRANSACTION:
                return logged_time(events.read(here, min(header.size, _LARGEST_GTID)))
        return None
    finally:
        os.close(file)

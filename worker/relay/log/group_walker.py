"""Determines where event groups begin and end by a walk over the events of one source. Pure.

The fetcher walks the events that the source sends, recovery walks the events on disk, and locating a position
walks the events between two index entries. All find the same ends because all use this code.

Rules of a group (MySQL Internals, "Binary Log"; MariaDB sql/log_event.h, Gtid_log_event):

* MariaDB: GTID with FL_STANDALONE, then anything, up to and with the next statement; without it, up to XID,
  COMMIT, ROLLBACK or XA PREPARE. There is no BEGIN.
* MySQL: GTID or ANONYMOUS_GTID, then BEGIN … XID/COMMIT/ROLLBACK, or XA START … XA PREPARE, or one statement (DDL,
  XA COMMIT), or one TRANSACTION_PAYLOAD.
* An event between groups (rotate, stop, format description, GTID lists, checkpoints) is a group by itself.

A group that was rolled back (as a whole or to a savepoint) or only prepared is never split into pieces: a reader
that has applied the first one would have to undo it. worker/relay/log/xa_tracker.py determines which prepared group an
XA COMMIT ends.
"""

from __future__ import annotations

from shardmerge.proto import errors
from shardmerge.worker.binlog import query_text
from shardmerge.worker.binlog.commit_time import estimated_time, exact_time
from shardmerge.worker.binlog.event_kinds import (
    BEFORE_STATEMENT,
    BREAKS_GROUP,
    GTID_LISTS,
    GTIDS,
    LARGEST_GAP,
    ONLY_IN_GROUP,
    ROWS,
    WRAP,
)
from shardmerge.worker.binlog.events import HEADER_SIZE, EventType, FormatDescription, event_name, parse_rotate
from shardmerge.worker.binlog.gtid_events import parse_gtid, parse_gtid_list
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.binlog.query_text import QUERIES
from shardmerge.worker.binlog.transaction_payload import parse_payload
from shardmerge.worker.binlog.xa_events import parse_xa_prepare
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.relay.log.binlog_state import BinlogState
from shardmerge.worker.relay.log.fast_scan import scan
from shardmerge.worker.relay.log.index_records import EntryKind, IndexEntry
from shardmerge.worker.relay.log.prepared_groups import PreparedGroup
from shardmerge.worker.relay.log.walk_state import NO_LIMIT, GroupHead, ScanLimits, ScanResult, WalkPhase, WalkState
from shardmerge.worker.relay.log.xa_tracker import GroupMark, PrepareUnknown, XaTracker, xa_statement
from shardmerge.worker.relay.model import Head, Statement

SPACING = 256 * 1024
"""Bytes between index entries, and the size of a block."""

_FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_UNMARKED = GroupMark(EntryKind.GROUP_END)


class GroupWalker:
    """Gets every event from a group end on; it knows the last group end and collects the records of an index.

    ``entries`` and ``statements``: of groups that have ended; :meth:`drain` takes them.
    ``byte``, ``pos``: after the last event, in the relay log and at the source. ``start_pos``: source byte at which
    the current (or last) group began. ``checksum``: whether events end with a CRC32.
    ``received``: Unix time, of the source's clock, at which the events were received, 0.0 when it is not known or they
    are read again from disk.
    ``last_entry``: byte of the index's last entry, when the walk continues an index. ``live``: the events come
    from the source now, so the walk checks that they can follow the known ones: the next file has a higher number, and
    the first GTID of a connection and of a file, and a file's list of GTIDs, are not older. (After a GTID of the same
    file and connection any other is accepted: restoring a backup at the source writes old ones again.) ``by_gtid``: the
    source skips known transactions: its lists of GTIDs only add, and on MySQL no GTID may occur twice.
    ``xa``: the XA transactions where the walk begins; None: the walk is for group ends only. With it
    :class:`~shardmerge.worker.relay.log.xa_tracker.PrepareUnknown` is raised for an XA COMMIT whose PREPARE it lacks.
    ``state``: the binlog state at the group end where the walk begins.
    Raises errors.relay.GROUP_BROKEN and EVENT_OVERLAP, errors.decode.MALFORMED_EVENT for an unreadable event, and
    errors.relay.SOURCE_LOG_RESET for events that cannot follow.
    """

    def __init__(
        self,
        source: str,
        at: Head,
        checksum: bool,
        spacing: int = SPACING,
        last_entry: int | None = None,
        *,
        live: bool = False,
        by_gtid: bool = False,
        xa: XaTracker | None = None,
        state: str = "",
    ) -> None:
        self._source = source
        self._spacing = spacing
        self.checksum = checksum
        self.segment = at.offset.segment
        self.byte = at.offset.byte
        self.file = at.position.file
        self.pos = at.position.pos
        self.server = at.position.server
        self.start_pos = self.pos
        self._phase = WalkPhase.BETWEEN
        self._gtids = GtidSet(at.position.gtid_set, known=bool(at.position.gtid_set))
        self._binlog_state = BinlogState(state)
        self._live = self._unsure = live
        self._by_gtid = by_gtid
        self._xa = xa
        self._undone = False  # rolled back, as a whole or in part
        self._payload_at: int | None = None  # in this segment, the first group that is compressed
        self._is_payload = False
        self._gtid = self._last_gtid = ""
        self._anonymous = False
        self._commit_time = at.commit_time
        self._exact_time = 0.0
        self.received = 0.0
        self._end_byte = self.byte
        self._end_file = self.file
        self._end_pos = self.pos
        self._last_entry = self.byte if last_entry is None else last_entry
        self._group_start = self.byte
        self._last_mark = self.byte
        self._events = 0
        self._marks: list[IndexEntry] = []
        self._waiting: list[tuple[int, str, str, int | None]] = []
        self.entries: list[IndexEntry] = []
        self.statements: list[Statement] = []

    @property
    def at_group_end(self) -> bool:
        return self._phase is WalkPhase.BETWEEN

    @property
    def end(self) -> Head:
        """The last group end."""
        return Head(RelayOffset(self.segment, self._end_byte), self._end_position(), self._commit_time)

    def _end_position(self) -> SourcePosition:
        return SourcePosition(self._end_file, self._end_pos, str(self._gtids), self.server)

    @property
    def gtid_set(self) -> GtidSet:
        """The GTID set at the last group end."""
        return self._gtids

    @property
    def binlog_state(self) -> str:
        """The binlog state (worker/relay/log/binlog_state.py) at the last group end."""
        return str(self._binlog_state)

    def waiting(self) -> tuple[PreparedGroup, ...]:
        """The prepared groups that have not ended."""
        return () if self._xa is None else self._xa.waiting()

    def set_gtids(self, gtid_set: str) -> None:
        """Between groups: set the GTID set at the last group end."""
        self._gtids = GtidSet(gtid_set)

    def drain(self) -> tuple[list[IndexEntry], list[Statement]]:
        """Take the entries and statements of the groups that have ended since the last call."""
        taken = self.entries, self.statements
        self.entries, self.statements = [], []
        return taken

    def move(self, file: str, pos: int) -> None:
        """Between groups: the source's stream continues at another position (next file, or skipped events)."""
        self.file = self._end_file = file
        self.pos = self._end_pos = pos

    def enter(self, segment: int, byte: int) -> None:
        """Between groups: the next event is the first of a new segment, at ``byte``."""
        self.segment = segment
        self._payload_at = None
        self.byte = self._end_byte = self._last_entry = byte

    def step(self, event: memoryview | bytes, kind: int, size: int, log_pos: int, timestamp: int) -> None:
        """Process one event, which starts at :attr:`byte`; the other values are from its header."""
        pos = self._end_pos_of(kind, size, log_pos)
        between = self._phase is WalkPhase.BETWEEN
        if between:
            self._group_start = self._last_mark = self.byte
            self._events = 0
            self.start_pos = pos - size
        self.byte += size
        self.pos = pos
        self._events += 1
        if kind in ROWS and self._phase is WalkPhase.OPEN:
            ended = False
        elif between:
            ended = self._begin_group(event, kind)
        else:
            ended = self._continue_group(event, kind)
        if ended:
            self._finish(timestamp, alone=between and kind not in QUERIES)
        elif self.byte - self._last_mark >= self._spacing:
            self._mark()

    def scan(
        self, packets: bytearray, start: int, end: int, limit: int, limit_pos: int = NO_LIMIT
    ) -> ScanResult | None:
        """Process ordinary events of the receive buffer, as :meth:`step` would: see worker/relay/log/fast_scan.py.

        No group begins at or after ``limit``, nor at or after byte ``limit_pos`` of the source's file. Ends where
        :meth:`step` must continue, or with ``entry_due``.
        """
        gap = self._gtids.gap_after(self._gtid or self._last_gtid) if self._by_gtid else None
        limits = ScanLimits(
            self.checksum, self._spacing, self._last_entry, limit, not self._unsure, self._by_gtid, gap, limit_pos
        )
        result = scan(packets, start, end, self._walk_state(), limits)
        if result is not None:
            self._apply_scan(result)
        return result

    def _walk_state(self) -> WalkState:
        head = None
        if self._phase in (WalkPhase.OPEN, WalkPhase.HEADED):
            in_xa = self._xa is not None and self._xa.has_role
            special = self._undone or in_xa or self._is_payload or self._marks or self._waiting
            head = None if special else GroupHead(self._gtid, self._anonymous, self._exact_time)
        return WalkState(
            self._phase, self.byte, self.pos, self.start_pos, self._group_start, self._last_mark, self._events, head
        )

    def _apply_scan(self, result: ScanResult) -> None:
        walk, ended = result.state, result.ended
        self._phase, self.byte, self.pos, self.start_pos = walk.phase, walk.byte, walk.pos, walk.start_pos
        self._group_start, self._last_mark, self._events = walk.group_start, walk.last_mark, walk.events
        if ended is not None:
            for gtid in result.gtids:
                self._count(gtid)
            if result.anonymous:
                self._gtids.forget()
            self._commit_time = estimated_time(ended.exact_time, ended.timestamp, self.received)
            self._end_byte, self._end_file, self._end_pos = ended.byte, self.file, ended.pos
            self._gtid, self._anonymous, self._exact_time = "", False, 0.0
        if walk.head is not None:
            self._gtid, self._anonymous = walk.head.gtid, walk.head.anonymous
            self._exact_time = walk.head.exact_time
        if result.entry_due:
            self.entries.append(self._entry(EntryKind.GROUP_END, self.byte, self.byte, 0))
            self._last_entry = self.byte

    def _count(self, gtid: str) -> None:
        """Add the GTID of a group that has ended."""
        self._gtids.add(gtid)
        self._binlog_state.add(gtid)
        self._last_gtid = gtid

    def _end_pos_of(self, kind: int, size: int, log_pos: int) -> int:
        """The source byte after the event: ``log_pos`` is 32 bits wide, files may be larger."""
        if kind == _FORMAT_DESCRIPTION:
            # In a stream that begins inside a file log_pos is 0; in a segment that begins there it may be the end of
            # the file's own format description.
            return max(self.pos, log_pos) if self.pos < HEADER_SIZE else self.pos
        pos = self.pos - self.pos % WRAP + log_pos
        if pos < self.pos:
            pos += WRAP
        gap = pos - size - self.pos
        if gap < 0 or (gap > LARGEST_GAP and not self._by_gtid):
            raise errors.relay.EVENT_OVERLAP(source=self._source, pos=log_pos, position=self._here())
        return pos

    def _here(self) -> SourcePosition:
        return SourcePosition(self.file, self.pos)

    def _reset(self, found: SourcePosition, reason: str) -> errors.ShardmergeError:
        return errors.relay.SOURCE_LOG_RESET(
            source=self._source, position=self._end_position(), found=found, reason=reason
        )

    def _broken(self, kind: int, reason: str) -> errors.ShardmergeError:
        return errors.relay.GROUP_BROKEN(
            source=self._source, type=event_name(kind), position=self._here(), reason=reason
        )

    def _begin_group(self, event: memoryview | bytes, kind: int) -> bool:
        """Process the first event of a group; returns whether it is the whole group."""
        if kind in GTIDS:
            self._gtid_event(bytes(event), kind)
            return False
        if kind in QUERIES:
            statement = self._statement(event, kind)
            if query_text.begins(statement):
                self._phase = WalkPhase.OPEN
                return False
            self._note_statement(event, kind, statement)
            self._xa_ends(statement)
            return True
        if kind in BEFORE_STATEMENT:
            self._phase = WalkPhase.HEADED
            return False
        if kind in ONLY_IN_GROUP:
            raise self._broken(kind, "it is outside of any transaction")
        if kind in GTID_LISTS:
            self._known_set(bytes(event))
        elif kind == EventType.ROTATE:
            target = parse_rotate(bytes(event), self.checksum, self._source)
            found = SourcePosition(target.file, target.position)
            if self._live and found.file_order() <= self._here().file_order():
                raise self._reset(found, "its next file is before its current one")
            self.file, self.pos = target.file, target.position
            self._unsure = self._live
        elif kind == EventType.FORMAT_DESCRIPTION:
            self._unsure = self._live
            self.checksum = FormatDescription.parse(bytes(event), self._source).checksum
        return True

    def _continue_group(self, event: memoryview | bytes, kind: int) -> bool:
        """Process a further event of a group; returns whether it is the last one."""
        if kind in QUERIES:
            return self._query(event, kind)
        if kind == EventType.XID:
            return True
        if kind == EventType.XA_PREPARE:
            self._xa_prepare(bytes(event))
            return True
        if kind == EventType.TRANSACTION_PAYLOAD and self._phase is not WalkPhase.OPEN:
            self._payload(event)
            return True
        if kind == EventType.INCIDENT:
            return self._phase is not WalkPhase.OPEN
        if kind in BREAKS_GROUP:
            raise self._broken(kind, "the transaction before it has no end")
        if kind in ROWS:
            raise self._broken(kind, "rows precede the transaction's BEGIN")
        return False

    def _query(self, event: memoryview | bytes, kind: int) -> bool:
        statement = self._statement(event, kind)
        if self._phase is WalkPhase.HEADED and query_text.begins(statement):
            self._phase = WalkPhase.OPEN
            return False
        self._note_statement(event, kind, statement)
        if query_text.rolls_back(statement):
            self._undone = True
        self._xa_ends(statement)
        return self._phase is not WalkPhase.OPEN or query_text.ends(statement)

    def _xa_prepare(self, event: bytes) -> None:
        found = parse_xa_prepare(event, self.checksum, self._source)
        if self._xa is not None and not found.one_phase:
            self._xa.prepare(found.xid)

    def _xa_ends(self, text: bytes) -> None:
        """Handle an XA COMMIT or ROLLBACK, which ends a group that was prepared before."""
        statement = xa_statement(text)
        if statement is None or self._xa is None:
            return
        if self._xa.lacks(statement):
            raise PrepareUnknown(statement, self._end_position())
        self._xa.end_other(statement)

    def _payload(self, event: memoryview | bytes) -> None:
        """Handle a compressed transaction, which is a whole group. Its events matter only for an XA transaction."""
        self._is_payload = True
        if self._xa is None:
            return
        payload = parse_payload(
            lambda at, size: bytes(event[at : at + size]),
            len(event),
            self.checksum,
            self.pos & 0xFFFFFFFF,
            self._source,
        )
        first = payload.first_event()
        if first[4] != EventType.QUERY or not query_text.begins_xa(self._statement(first, first[4])):
            return
        for inner in payload.events():
            if inner[4] == EventType.XA_PREPARE:
                self._xa_prepare(inner)
            elif inner[4] == EventType.QUERY and query_text.rolls_back(self._statement(inner, inner[4])):
                self._undone = True

    def _gtid_event(self, event: bytes, kind: int) -> None:
        gtid = parse_gtid(event, self.checksum, self._source)
        if self._unsure or (self._by_gtid and kind != EventType.MARIADB_GTID):
            self._unsure = False
            known = self._gtids.conflict_with(gtid.text)
            if known:
                raise self._reset(SourcePosition(self.file, self.start_pos), f"GTID {gtid.text} comes after {known}")
        self._gtid, self._anonymous = gtid.text, kind == EventType.ANONYMOUS_GTID
        if kind == EventType.MARIADB_GTID:
            self._phase = WalkPhase.STANDALONE if gtid.standalone else WalkPhase.OPEN
            return
        self._phase = WalkPhase.HEADED
        self._exact_time = exact_time(event)

    def _known_set(self, event: bytes) -> None:
        found = parse_gtid_list(event, self.checksum, self._source)
        known = self._gtids.newer_than_list(found) if self._live and not self._by_gtid else ""
        if known:
            raise self._reset(SourcePosition(self.file, self.start_pos), f"it begins after {found}, but had {known}")
        self._binlog_state.add_all(found)
        if self._gtids.is_known:
            self._gtids.learn(found)  # after a request by GTID, the source begins with a file before the known ones
        else:
            self._gtids = GtidSet(found)

    def _statement(self, event: memoryview | bytes, kind: int) -> bytes:
        found = query_text.statement_of(event, kind, self.checksum, self._source)
        if found is None:
            raise self._broken(kind, f"a QUERY event of {len(event)} bytes")
        return found

    def _note_statement(self, event: memoryview | bytes, kind: int, statement: bytes) -> None:
        """Remember a statement that is not only transaction control."""
        if query_text.is_control(statement):
            return
        query = query_text.parse(event, kind, self.checksum, self._source)
        self._waiting.append((self.byte - len(event), query.schema, query.text, query.sql_mode))

    def _mark(self) -> None:
        """Mark a group that is larger than a block: blocks must be able to begin at its start and here."""
        if not self._marks and self._group_start > self._last_entry:
            self._marks.append(self._entry(EntryKind.GROUP_END, self._group_start, self._group_start, 0))
        self._marks.append(self._entry(EntryKind.PIECE, self.byte, self._group_start, self._events))
        self._last_mark = self.byte

    def _entry(
        self,
        kind: EntryKind,
        byte: int,
        group_start: int,
        first_event: int,
        prepared: tuple[PreparedGroup, ...] = (),
    ) -> IndexEntry:
        return IndexEntry(kind, byte, group_start, first_event, self._end_position(), self._commit_time, prepared)

    def _finish(self, timestamp: int, *, alone: bool) -> None:
        """End the group of the last event."""
        mark = self._special()
        for byte, schema, text, sql_mode in self._waiting:
            self.statements.append(
                Statement(
                    RelayOffset(self.segment, self._group_start),
                    RelayOffset(self.segment, byte),
                    RelayOffset(self.segment, self.byte),
                    self._end_position(),
                    schema,
                    text,
                    sql_mode,
                )
            )
        self._waiting.clear()
        if self._anonymous:
            self._gtids.forget()  # without a GTID: until the next file's list the set lacks it
        elif self._gtid:
            self._count(self._gtid)
        if not alone:
            self._commit_time = estimated_time(self._exact_time, timestamp, self.received)
        self._gtid, self._anonymous, self._exact_time = "", False, 0.0
        if self._undone or (mark is not None and mark.kind is EntryKind.PREPARED):
            self._marks = [entry for entry in self._marks if entry.kind is not EntryKind.PIECE]
        self._undone = self._is_payload = False
        self._phase = WalkPhase.BETWEEN
        self._end_byte, self._end_file, self._end_pos = self.byte, self.file, self.pos
        if mark is not None or self._marks or self.byte - self._last_entry >= self._spacing:
            end = mark if mark is not None and mark.kind is EntryKind.FORGOTTEN else _UNMARKED
            self.entries += self._marks
            self.entries.append(self._entry(end.kind, self.byte, self.byte, 0, end.prepared))
            self._marks.clear()
            self._last_entry = self.byte

    def _special(self) -> GroupMark | None:
        """Before the end of the group: mark its start if it is not served unchanged."""
        if self._xa is None:
            return None
        mark = self._xa.end_group(self.segment, self._group_start, self.byte, self._undone)
        if mark is None and self._is_payload and self._payload_at is None:
            mark, self._payload_at = GroupMark(EntryKind.PAYLOADS), self._group_start
        if mark is not None and mark.kind is not EntryKind.FORGOTTEN:
            self._marks = [entry for entry in self._marks if entry.byte != self._group_start]
            self._marks.insert(0, self._entry(mark.kind, self._group_start, self._group_start, 0, mark.prepared))
        return mark

"""Where event groups begin and end: a walk over the events of one source, pure.

The relay's reader walks what the source sends, recovery walks what is on disk, and locating a position
walks the stretch between two index entries. All see the same ends because all are this code.

Rules of a group (MySQL Internals, "Binary Log"; MariaDB sql/log_event.h, Gtid_log_event):

* MariaDB: GTID with FL_STANDALONE, then anything, up to and with the next statement; without it, up to XID,
  COMMIT, ROLLBACK or XA PREPARE. There is no BEGIN.
* MySQL: GTID or ANONYMOUS_GTID, then BEGIN … XID/COMMIT/ROLLBACK, or XA START … XA PREPARE, or one statement (DDL,
  XA COMMIT), or one TRANSACTION_PAYLOAD.
* What stands between groups (rotate, stop, format description, GTID lists, checkpoints) is a group by itself.

A group that was rolled back (as a whole or to a savepoint) or only prepared is never cut into pieces: whoever
applied the first would have to take it back. Which prepared group an XA COMMIT ends is told here, too
(worker/relay/prepared.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from proto import errors
from worker.binlog.events import HEADER_SIZE, EventType, FormatDescription, event_name, parse_rotate
from worker.binlog.gtids import parse_gtid, parse_gtid_list
from worker.binlog.payload import parse_payload
from worker.binlog.xa import Xid, parse_xa_prepare, xid_of
from worker.position import RelayOffset, SourcePosition
from worker.relay import querytext
from worker.relay.binlog_state import BinlogState
from worker.relay.commit_time import estimated_time, exact_time
from worker.relay.gtid import GtidSet
from worker.relay.kinds import (
    BEFORE_STATEMENT,
    BREAKS_GROUP,
    GTID_LISTS,
    GTIDS,
    LARGEST_GAP,
    ONLY_IN_GROUP,
    ROWS,
    WRAP,
)
from worker.relay.model import Head, Statement
from worker.relay.prepared import PreparedGroup
from worker.relay.querytext import QUERIES
from worker.relay.records import Entry, EntryKind
from worker.relay.scan import scan
from worker.relay.stretch import Bounds, GroupHead, In, Passed, Stand

SPACING = 256 * 1024
"""Bytes between index entries, and the size of a block."""


def may_wrap(pos: int, size: int) -> bool:
    """Whether an event of ``size`` bytes behind source byte ``pos`` may end where ``log_pos`` begins again with 0."""
    return -pos % WRAP - size in range(LARGEST_GAP)


@dataclass(frozen=True, slots=True)
class _Xa:
    """What the group at hand is to an XA transaction; ``xid`` None when its name cannot be read."""

    kind: EntryKind
    xid: Xid | None


@dataclass(frozen=True, slots=True)
class _End:
    """The entry at the group's end."""

    kind: EntryKind
    prepared: tuple[PreparedGroup, ...]


class PrepareUnknown(Exception):
    """An XA COMMIT whose PREPARE the relay log does not hold came from the source; nothing of it was taken yet."""

    def __init__(self, xid: Xid | None, statement: bytes, position: SourcePosition) -> None:
        super().__init__(f"{statement.decode('utf-8', 'replace')} behind {position}")
        self.name = str(xid) if xid is not None else statement.decode("utf-8", "replace")
        self.position = position


class GroupWalker:
    """Feed it every event from a group end on; it knows the last group end and collects what an index holds.

    ``entries`` and ``statements`` hold what is certain (its group has ended); :meth:`drain` takes them.
    ``byte``, ``pos``: behind the last event, at the relay and at the source. ``start_pos``: source byte at which
    the current (or last) group began. ``checksum``: whether events end with a CRC32.
    ``received``: Unix time at which what is walked came from the source, 0.0 when it is read again from disk.
    ``last_entry``: byte of the index's last entry, when the walk goes on with an index. ``live``: the events come
    from the source now, so it is checked that they can follow what is known: the next file has a higher number, and
    the first GTID of a connection and of a file, and a file's list of GTIDs, do not go back. (Behind a GTID of the same
    file and connection any other is believed: restoring a backup at the source writes old ones again.) ``by_gtid``: the
    source leaves out what is known: its lists of GTIDs only add, and on MySQL no GTID may come twice.
    ``prepared``: the XA transactions that wait for their end; None: the walk is for group ends only. ``lost``: names of
    those whose PREPARE is nowhere; for any other, live, :class:`PrepareUnknown` is raised. ``state``: the binlog state
    at the group end where the walk begins.
    Raises errors.relay.GROUP_BROKEN and EVENT_OVERLAP, errors.decode.MALFORMED_EVENT for an unreadable event, and
    errors.relay.SOURCE_LOG_RESET for what cannot follow.
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
        prepared: dict[Xid, PreparedGroup] | None = None,
        lost: frozenset[str] = frozenset(),
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
        self._state = In.BETWEEN
        self._gtids = GtidSet(at.position.gtid_set, known=bool(at.position.gtid_set))
        self._binlog_state = BinlogState(state)
        self._live = self._unsure = live
        self._by_gtid = by_gtid
        self._prepared = prepared
        self._lost = lost
        self._undone = False  # rolled back, as a whole or in part
        self._ended_by: _Xa | None = None
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
        self._marks: list[Entry] = []
        self._waiting: list[tuple[int, str, str, int | None]] = []
        self.entries: list[Entry] = []
        self.statements: list[Statement] = []

    @property
    def at_group_end(self) -> bool:
        return self._state is In.BETWEEN

    @property
    def end(self) -> Head:
        """The last group end."""
        return Head(RelayOffset(self.segment, self._end_byte), self._end_position(), self._commit_time)

    def _end_position(self) -> SourcePosition:
        return SourcePosition(self._end_file, self._end_pos, str(self._gtids), self.server)

    @property
    def gtid_set(self) -> GtidSet:
        """What the last group end holds."""
        return self._gtids

    @property
    def binlog_state(self) -> str:
        """See worker/relay/binlog_state.py; at the last group end."""
        return str(self._binlog_state)

    def waiting(self) -> tuple[PreparedGroup, ...]:
        """The prepared groups that have not ended."""
        return tuple((self._prepared or {}).values())

    def know(self, gtid_set: str) -> None:
        """Between groups: this is what the last group end holds."""
        self._gtids = GtidSet(gtid_set)

    def drain(self) -> tuple[list[Entry], list[Statement]]:
        """Take the entries and statements of the groups that have ended since the last call."""
        taken = self.entries, self.statements
        self.entries, self.statements = [], []
        return taken

    def move(self, file: str, pos: int) -> None:
        """Between groups: the source's stream goes on at another place (next file, or skipped events)."""
        self.file = self._end_file = file
        self.pos = self._end_pos = pos

    def enter(self, segment: int, byte: int) -> None:
        """Between groups: the next event is the first of a new segment, at ``byte``."""
        self.segment = segment
        self._payload_at = None
        self.byte = self._end_byte = self._last_entry = byte

    def step(self, event: memoryview | bytes, kind: int, size: int, log_pos: int, timestamp: int) -> None:
        """Go past one event, which starts at :attr:`byte`; the other values are from its header."""
        pos = self._behind(kind, size, log_pos)
        between = self._state is In.BETWEEN
        if between:
            self._group_start = self._last_mark = self.byte
            self._events = 0
            self.start_pos = pos - size
        self.byte += size
        self.pos = pos
        self._events += 1
        if kind in ROWS and self._state is In.OPEN:
            ended = False
        elif between:
            ended = self._begins(event, kind)
        else:
            ended = self._goes_on(event, kind)
        if ended:
            self._finish(timestamp, alone=between and kind not in QUERIES)
        elif self.byte - self._last_mark >= self._spacing:
            self._mark()

    def stride(self, packets: bytearray, start: int, end: int, limit: int) -> Passed | None:
        """Go past the ordinary events in what was received, as :meth:`step` would: see worker/relay/scan.py.

        No group begins at ``limit`` or behind it. Ends where :meth:`step` has to go on, or with ``entry_due``.
        """
        free = self._gtids.free_behind(self._gtid or self._last_gtid) if self._by_gtid else None
        bounds = Bounds(self.checksum, self._spacing, self._last_entry, limit, not self._unsure, self._by_gtid, free)
        passed = scan(packets, start, end, self._stand(), bounds)
        if passed is not None:
            self._go_past(passed)
        return passed

    def _stand(self) -> Stand:
        head = None
        if self._state in (In.OPEN, In.HEADED):
            special = self._undone or self._ended_by is not None or self._is_payload or self._marks or self._waiting
            head = None if special else GroupHead(self._gtid, self._anonymous, self._exact_time)
        return Stand(
            self._state, self.byte, self.pos, self.start_pos, self._group_start, self._last_mark, self._events, head
        )

    def _go_past(self, passed: Passed) -> None:
        stand, ended = passed.stand, passed.ended
        self._state, self.byte, self.pos, self.start_pos = stand.state, stand.byte, stand.pos, stand.start_pos
        self._group_start, self._last_mark, self._events = stand.group_start, stand.last_mark, stand.events
        if ended is not None:
            for gtid in passed.gtids:
                self._count(gtid)
            if passed.anonymous:
                self._gtids.forget()
            self._commit_time = estimated_time(ended.exact_time, ended.timestamp, self.received)
            self._end_byte, self._end_file, self._end_pos = ended.byte, self.file, ended.pos
            self._gtid, self._anonymous, self._exact_time = "", False, 0.0
        if stand.head is not None:
            self._gtid, self._anonymous = stand.head.gtid, stand.head.anonymous
            self._exact_time = stand.head.exact_time
        if passed.entry_due:
            self.entries.append(self._entry(EntryKind.GROUP_END, self.byte, self.byte, 0))
            self._last_entry = self.byte

    def _count(self, gtid: str) -> None:
        """Its group has ended."""
        self._gtids.add(gtid)
        self._binlog_state.add(gtid)
        self._last_gtid = gtid

    def _behind(self, kind: int, size: int, log_pos: int) -> int:
        """The source byte behind the event: ``log_pos`` is 32 bits wide, files may be larger."""
        if kind == EventType.FORMAT_DESCRIPTION:
            # That of a stream begun inside a file says 0; that of a segment begun there may say the file's start.
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

    def _begins(self, event: memoryview | bytes, kind: int) -> bool:
        """The first event of a group; whether it is the whole group."""
        if kind in GTIDS:
            self._gtid_event(bytes(event), kind)
            return False
        if kind in QUERIES:
            statement = self._statement(event, kind)
            if querytext.begins(statement):
                self._state = In.OPEN
                return False
            self._note(event, kind, statement)
            self._xa_ends(statement)
            return True
        if kind in BEFORE_STATEMENT:
            self._state = In.HEADED
            return False
        if kind in ONLY_IN_GROUP:
            raise self._broken(kind, "it stands outside of any transaction")
        if kind in GTID_LISTS:
            self._known_set(bytes(event))
        elif kind == EventType.ROTATE:
            target = parse_rotate(bytes(event), self.checksum, self._source)
            found = SourcePosition(target.file, target.position)
            if self._live and found.file_order() <= self._here().file_order():
                raise self._reset(found, "its next file lies before the one it was at")
            self.file, self.pos = target.file, target.position
            self._unsure = self._live
        elif kind == EventType.FORMAT_DESCRIPTION:
            self._unsure = self._live
            self.checksum = FormatDescription.parse(bytes(event), self._source).checksum
        return True

    def _goes_on(self, event: memoryview | bytes, kind: int) -> bool:
        """A further event of a group; whether it is its last."""
        if kind in QUERIES:
            return self._query(event, kind)
        if kind == EventType.XID:
            return True
        if kind == EventType.XA_PREPARE:
            self._xa_prepare(bytes(event))
            return True
        if kind == EventType.TRANSACTION_PAYLOAD and self._state is not In.OPEN:
            self._payload(event)
            return True
        if kind == EventType.INCIDENT:
            return self._state is not In.OPEN
        if kind in BREAKS_GROUP:
            raise self._broken(kind, "the transaction before it has no end")
        if kind in ROWS:
            raise self._broken(kind, "rows stand before the transaction's BEGIN")
        return False

    def _query(self, event: memoryview | bytes, kind: int) -> bool:
        statement = self._statement(event, kind)
        if self._state is In.HEADED and querytext.begins(statement):
            self._state = In.OPEN
            return False
        self._note(event, kind, statement)
        if querytext.rolls_back(statement):
            self._undone = True
        self._xa_ends(statement)
        return self._state is not In.OPEN or querytext.ends(statement)

    def _xa_prepare(self, event: bytes) -> None:
        found = parse_xa_prepare(event, self.checksum, self._source)
        if not found.one_phase:
            self._ended_by = _Xa(EntryKind.PREPARED, found.xid)

    def _xa_ends(self, statement: bytes) -> None:
        """An XA COMMIT or ROLLBACK ends a group that was prepared before."""
        if querytext.rolls_back_xa(statement):
            self._ended_by = _Xa(EntryKind.FORGOTTEN, xid_of(statement))
        elif querytext.commits_xa(statement):
            xid = xid_of(statement)
            if self._live and (self._prepared is None or xid not in self._prepared):
                unknown = PrepareUnknown(xid, statement, self._end_position())
                if unknown.name not in self._lost:
                    raise unknown
            self._ended_by = _Xa(EntryKind.COMMITTED, xid)

    def _payload(self, event: memoryview | bytes) -> None:
        """A compressed transaction is the whole of its group. Only of an XA transaction more must be known."""
        self._is_payload = True
        if self._prepared is None:
            return
        payload = parse_payload(
            lambda at, size: bytes(event[at : at + size]),
            len(event),
            self.checksum,
            self.pos & 0xFFFFFFFF,
            self._source,
        )
        first = payload.first_event()
        if first[4] != EventType.QUERY or not querytext.begins_xa(self._statement(first, first[4])):
            return
        for inner in payload.events():
            if inner[4] == EventType.XA_PREPARE:
                self._xa_prepare(inner)
            elif inner[4] == EventType.QUERY and querytext.rolls_back(self._statement(inner, inner[4])):
                self._undone = True

    def _gtid_event(self, event: bytes, kind: int) -> None:
        gtid = parse_gtid(event, self.checksum, self._source)
        if self._unsure or (self._by_gtid and kind != EventType.MARIADB_GTID):
            self._unsure = False
            known = self._gtids.not_beyond(gtid.text)
            if known:
                raise self._reset(SourcePosition(self.file, self.start_pos), f"GTID {gtid.text} comes after {known}")
        self._gtid, self._anonymous = gtid.text, kind == EventType.ANONYMOUS_GTID
        if kind == EventType.MARIADB_GTID:
            self._state = In.STANDALONE if gtid.standalone else In.OPEN
            return
        self._state = In.HEADED
        self._exact_time = exact_time(event)

    def _known_set(self, event: bytes) -> None:
        found = parse_gtid_list(event, self.checksum, self._source)
        known = self._gtids.beyond(found) if self._live and not self._by_gtid else ""
        if known:
            raise self._reset(SourcePosition(self.file, self.start_pos), f"it begins behind {found}, {known} was there")
        self._binlog_state.add_all(found)
        if self._gtids.is_known:
            self._gtids.learn(found)  # asked by GTID, a source begins with a file that lies before what is known
        else:
            self._gtids = GtidSet(found)

    def _statement(self, event: memoryview | bytes, kind: int) -> bytes:
        found = querytext.statement_of(event, kind, self.checksum, self._source)
        if found is None:
            raise self._broken(kind, f"a QUERY event of {len(event)} bytes")
        return found

    def _note(self, event: memoryview | bytes, kind: int, statement: bytes) -> None:
        """Remember a statement that is not mere transaction control."""
        if querytext.is_control(statement):
            return
        query = querytext.parse(event, kind, self.checksum, self._source)
        self._waiting.append((self.byte - len(event), query.schema, query.text, query.sql_mode))

    def _mark(self) -> None:
        """A group grows larger than a block: blocks must be able to begin at its start and here."""
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
    ) -> Entry:
        return Entry(kind, byte, group_start, first_event, self._end_position(), self._commit_time, prepared)

    def _finish(self, timestamp: int, *, alone: bool) -> None:
        """The event just passed ends its group."""
        begin, end = self._special()
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
        if self._undone or begin is EntryKind.PREPARED:
            self._marks = [mark for mark in self._marks if mark.kind is not EntryKind.PIECE]
        self._undone = self._is_payload = False
        self._state = In.BETWEEN
        self._end_byte, self._end_file, self._end_pos = self.byte, self.file, self.pos
        if begin is not None or self._marks or self.byte - self._last_entry >= self._spacing:
            self.entries += self._marks
            self.entries.append(self._entry(end.kind, self.byte, self.byte, 0, end.prepared))
            self._marks.clear()
            self._last_entry = self.byte

    def _special(self) -> tuple[EntryKind | None, _End]:
        """Before the group counts: note a group that is not given out as it stands; the entry that its end needs."""
        ended_by, self._ended_by = self._ended_by, None
        end = _End(EntryKind.GROUP_END, ())
        kind: EntryKind | None = None
        group: tuple[PreparedGroup, ...] = ()
        if self._prepared is None:
            return kind, end
        if ended_by is not None:
            kind = ended_by.kind
            if kind is EntryKind.PREPARED and ended_by.xid is not None:
                found = PreparedGroup(ended_by.xid, self.segment, self._group_start, self.byte, self._undone)
                self._prepared[found.xid] = found
                group = (found,)
            else:
                gone = self._prepared.pop(ended_by.xid, None) if ended_by.xid is not None else None
                group = () if gone is None else (gone,)
                if kind is EntryKind.FORGOTTEN:
                    return (kind, _End(kind, group)) if group else (None, end)
        elif self._is_payload and self._payload_at is None:
            kind, self._payload_at = EntryKind.PAYLOADS, self._group_start
        if kind is not None:
            self._marks = [mark for mark in self._marks if mark.byte != self._group_start]
            self._marks.insert(0, self._entry(kind, self._group_start, self._group_start, 0, group))
        return kind, end

# cython: language_level=3, cdivision=True
"""Decodes raw binlog events to row changes.

Compiled by Cython; plain Python where it is not compiled. Formats: MySQL Internals Manual, "Rows Event" (v1 and v2);
MariaDB's compressed row events (sql/log_event.cc). Every read is bounds-checked; bytes that do not fit the format
or the table raise a coded error, and nothing of the block is returned.
"""

from __future__ import annotations

from collections.abc import Callable

import cython

from shardmerge.proto import errors
from shardmerge.worker.binlog import decoder_tables as tables
from shardmerge.worker.binlog import events as ev
from shardmerge.worker.binlog.crc32 import Crc32
from shardmerge.worker.binlog.query_text import statement_of_body
from shardmerge.worker.binlog.rows.image_reader import ImageReader
from shardmerge.worker.binlog.rows.image_scanner import BadImage, MissingColumn
from shardmerge.worker.binlog.rows.row_filter import compile_filters
from shardmerge.worker.binlog.rows.table_map import TableMap, make_reader, parse_names
from shardmerge.worker.binlog.rows.uncomputed.image_rows import UncomputedReader
from shardmerge.worker.binlog.xa_events import is_two_phase
from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.lane_hash import ONLY_LANE, Bucket
from shardmerge.worker.core.row_change import RowChange
from shardmerge.worker.core.table_plan import TablePlan

if not cython.compiled:
    from shardmerge.worker.binlog.little_endian import event_end, event_size, u32

_NEAR = cython.declare(cython.int, 63)  # mask of table ids
_MOST_CACHED = 4096  # table maps of one source, before unused ones are removed from the cache

_CRC = cython.declare(Crc32, Crc32())

# Kinds of events, by how the decoder treats them.
_NOTHING = cython.declare(cython.int, 1)
_TABLE_MAP = cython.declare(cython.int, 2)
_ROWS = cython.declare(cython.int, 3)
_QUERY = cython.declare(cython.int, 4)
_BOUND = cython.declare(cython.int, 5)  # of a group
_XA_PREPARE = cython.declare(cython.int, 7)
_FORMAT = cython.declare(cython.int, 8)

_TABLE_MAP_CODE = cython.declare(cython.int, 19)
_FORMAT_CODE = cython.declare(cython.int, 15)
_QUERY_CODE = cython.declare(cython.int, 2)
_QUERY_COMPRESSED_CODE = cython.declare(cython.int, 165)
_PARTIAL_CODE = cython.declare(cython.int, 39)
_TREATMENTS = cython.declare(bytes, tables.TREATMENTS)
_KINDS = cython.declare(bytes, tables.KINDS)
_WITH_EXTRA = cython.declare(bytes, tables.WITH_EXTRA)

Resolve = Callable[[str, str], TablePlan | None]
"""Returns the plan of a source table (schema, table); None: its rows are skipped. May raise ShardmergeError."""


@cython.final
@cython.cclass
class _SeenTable:
    """A table map that was decoded: its bytes, and the reader of its rows (None: they are skipped).

    ``stamp``: number of the statement whose rows events may use it. ``place``: of its marks (see
    :meth:`BlockDecoder.split_by_lane`). ``uncomputed``: the reader that already writes rows
    for the target; None: there is none.
    """

    def __init__(
        self,
        body: bytes,
        head: TableMap,
        reader: ImageReader | None,
        transactional: bool,
        uncomputed: UncomputedReader | None = None,
    ) -> None:
        self.body = body
        self.head = head
        self.reader = reader
        self.uncomputed = uncomputed
        self.transactional = transactional
        self.stamp = 0
        self.number = 0
        self.place = 0


@cython.final
@cython.cclass
class _GroupRows:
    """The rows of the current group, until its end decides whether they count: COMMIT, ROLLBACK or XA PREPARE.

    ``source`` names the source in errors. ``rows``: the list to which the block's rows are added; None: they are added
    to a batch, which cannot remove them again.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        # A table whose rows the group changed.
        self._changed: _SeenTable | None = None
        # Whether an earlier block returned rows of the group.
        self._released = False
        # Whether each table that changed can roll back.
        self._can_roll_back = True
        # Index of the group's first row in the block's list.
        self._first_row = 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def begin_block(self) -> cython.int:
        """A block begins: the rows that an unfinished group has so far were returned with an earlier block."""
        self._released = self._changed is not None
        self._first_row = 0
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def begin(self, rows: list[RowChange] | None) -> cython.int:
        """A group begins: the rows up to the present end of ``rows`` belong to finished groups."""
        self._changed = None
        self._released = False
        self._can_roll_back = True
        self._first_row = 0 if rows is None else len(rows)
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def drop(self) -> cython.int:
        """Forget an unfinished group: no event continues it."""
        self._changed = None
        self._released = False
        self._can_roll_back = True
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def note(self, table: _SeenTable) -> cython.int:
        """The group changes rows of ``table``."""
        self._changed = table
        if not table.transactional:
            self._can_roll_back = False
        return 0

    def roll_back(self, statement: bytes, partly: bool, position: int, rows: list[RowChange] | None) -> None:
        """Remove the rows of the group. ``partly``: ROLLBACK TO a savepoint.

        A server logs a rolled-back group when something in it could not be undone (a temporary table, MariaDB 10.11).
        If an earlier block returned rows of it, or a part of them remains, or a table cannot roll back, the right rows
        cannot be determined: an error.
        """
        changed = self._changed
        if changed is not None and (partly or self._released or not self._can_roll_back or rows is None):
            raise errors.decode.ROLLED_BACK_ROWS(
                source=self._source,
                position=position,
                schema=changed.head.schema,
                table=changed.head.table,
                statement=statement.decode("utf-8", "replace"),
            )
        if not partly and rows is not None:
            del rows[self._first_row :]

    def prepare(self, position: int) -> None:
        """The group ends with an XA PREPARE of two phases: it must not have rows, which may still be rolled back."""
        changed = self._changed
        if changed is not None:
            raise errors.decode.PREPARED_ROWS(
                source=self._source, position=position, schema=changed.head.schema, table=changed.head.table
            )


@cython.final
@cython.cclass
class BlockDecoder:
    """Decodes the event blocks of one source in relay order; one thread at a time.

    ``resolve`` is called once per table map that is new since the last format description: a server gives a table
    another id whenever its structure changes. ``source_keys``: return the key columns before mapping too. ``source``
    names the source in errors. ``bucket``: the lane whose rows :meth:`pick` keeps. ``filters``: apply the rules: leave
    out the rows that event filters skip, raise ROWS_FILTERED at rows they stop before, and leave out the rows of
    expression filters that need no server. Without it every change is returned. After an error the decoder must not
    be used any more, except for ``event_end``, the end of the last row event that it looked at.
    """

    def __init__(
        self,
        resolve: Resolve,
        source_keys: bool = False,
        source: str = "",
        bucket: Bucket = ONLY_LANE,
        filters: bool = False,
    ) -> None:
        self._filters = filters
        self._lenient = False
        self._resolve = resolve
        self._source_keys = source_keys
        self._source = source
        self._bucket = bucket
        self._format: ev.FormatDescription | None = None
        self._id_bytes = b""
        self._checked = False
        self._known: dict[int, _SeenTable] = {}
        self._near: list[_SeenTable | None] = [None] * (int(_NEAR) + 1)
        # Table maps with this stamp belong to the current statement.
        self._stamp = 1
        self._group = _GroupRows(source)
        # Of the current rows event.
        self._columns_at = 0
        self._ends_statement = False
        self.event_end = 0
        # Ends of row events that an operator skips, and those of them that cannot be read: end, plan, error.
        self.skipped_ends: frozenset[int] = frozenset()
        self.unread: list[tuple[int, TablePlan, errors.ShardmergeError]] = []

    def open(self, format_description: bytes) -> None:
        """Start with (or continue after) this FORMAT_DESCRIPTION event: a new file, so new table ids.

        No group continues after it: the state of an unfinished group is dropped.
        """
        known = ev.FormatDescription.parse(format_description, self._source)
        self._format = known
        self._checked = known.checksum
        lengths = known.post_header_lengths
        self._id_bytes = bytes(tables.ID_BYTES.get(length, 0) for length in lengths) + bytes(256 - len(lengths))
        self._known = {}
        self._near = [None] * (int(_NEAR) + 1)
        self._stamp += 1
        self._group.drop()

    def forget(self) -> None:
        """Call ``resolve`` again for every table: its answers change from here on. Call it between two statements."""
        self._known = {}
        self._near = [None] * (int(_NEAR) + 1)

    def forget_tables(self, names: frozenset[tuple[str, str]]) -> None:
        """Like :meth:`forget`, for these tables (schema, name) alone."""
        self._known = {
            number: item for number, item in self._known.items() if (item.head.schema, item.head.table) not in names
        }
        self._near = [None] * (int(_NEAR) + 1)

    def decode(self, events: bytes, skip_events: int = 0) -> list[RowChange]:
        """The row changes of whole events, in order.

        A group may consist of several blocks: its table maps are kept until it ends. Rows events among the first
        ``skip_events`` events are skipped, their table maps are not. Raises the errors of proto/errors/decode.py,
        ID_OVERFLOW of a mapping, and what ``resolve`` raises.
        """
        rows: list[RowChange] = []
        self._verify(events)
        self._walk(events, skip_events, rows, None)
        return rows

    def decode_skipping(
        self, events: bytes, skip_events: int, skipped_ends: frozenset[int]
    ) -> tuple[list[RowChange], list[tuple[int, TablePlan, errors.ShardmergeError]]]:
        """Like :meth:`decode`, but the rows of events that end at one of ``skipped_ends`` need not be readable: for
        unreadable ones it returns the event's end, the table's plan and the error."""
        self.skipped_ends, self.unread = skipped_ends, []
        try:
            return self.decode(events, skip_events), self.unread
        finally:
            self.skipped_ends = frozenset()

    def pick(self, events: bytes, skip_events: int, file: str, batch: Batch) -> int:
        """Like :meth:`decode`, but add the lane's share to ``batch``, and changes for the row stage to its ``staged``:
        those that are rows for the target already if they are the lane's, all others; returns the number of events.

        ``file``: the source's file of the events. Raises what the batch raises too.
        """
        count: int = self._verify(events)
        batch.file = file
        if count < 0:
            # The rows of a group that was rolled back are removed from the list again; a batch cannot do that.
            rows: list[RowChange] = []
            self._walk(events, skip_events, rows, None)
            for change in rows:
                if change.plan.staged:
                    batch.staged.append(change)
                    continue
                batch.add(change, event_end(events, change.byte))
            return -count
        self._walk(events, skip_events, None, batch)
        return count

    def split_by_lane(self, events: bytes, lanes: int) -> list[bytes] | None:
        """For each lane the events with which :meth:`pick` finds the same changes; None: each lane needs all of them.

        ``events``: of whole groups; ``lanes``: of the decoder's bucket, at least 2. A rows event is kept for all lanes
        to which one of its rows belongs, with its table map and the bounds of its group. Events with which lanes do
        nothing are left out. Raises what :meth:`pick` raises, without the errors of rows that the lanes read later.
        """
        count: cython.Py_ssize_t = self._verify(events)
        if count < 0:
            return None
        width: cython.Py_ssize_t = lanes
        # One byte for each lane and event; those of the bounds of groups and of table maps follow from rows events.
        marks = bytearray(count * width)
        if not self._mark(events, width, marks):
            return None
        data: cython.p_uchar = events
        wanted: cython.p_uchar = marks
        total: cython.Py_ssize_t = len(events)
        found: list[bytes] = []
        lane: cython.Py_ssize_t
        at: cython.Py_ssize_t
        place: cython.Py_ssize_t
        start: cython.Py_ssize_t
        for lane in range(width):
            part: list[bytes] = []
            at = 0
            start = -1
            place = lane
            while at < total:
                if wanted[place]:
                    if start < 0:
                        start = at
                elif start >= 0:
                    part.append(events[start:at])
                    start = -1
                place += width
                at += event_size(data, at)
            if start >= 0:
                part.append(events[start:total])
            found.append(part[0] if len(part) == 1 else b"".join(part))
        return found

    @cython.cfunc
    def _mark(self, events: bytes, lanes: cython.Py_ssize_t, marks: bytearray) -> cython.bint:
        """Mark which lane needs which verified event; False: each lane needs all of them."""
        data: cython.p_uchar = events
        wanted: cython.p_uchar = marks
        treatments: cython.p_uchar = _TREATMENTS
        total: cython.Py_ssize_t = len(events)
        at: cython.Py_ssize_t = 0
        place: cython.Py_ssize_t = 0
        # The marks of the last bound of a group; the lanes that have rows of the group which it began.
        bound: cython.Py_ssize_t = -1
        of_group = bytearray(lanes)
        group: cython.p_uchar = of_group
        end: cython.Py_ssize_t
        i: cython.Py_ssize_t
        code: cython.int
        treatment: cython.int
        seen: _SeenTable | None
        self._group_begins(None)  # table maps of earlier blocks have no marks here
        while at < total:
            code = data[at + 4]
            end = at + event_size(data, at) - (4 if self._checked else 0)
            treatment = treatments[code]
            if treatment == _ROWS:
                self._mark_rows(events, at, end, code, place, lanes, marks)
                for i in range(lanes):
                    if wanted[place + i]:
                        group[i] = 1
                        if bound >= 0:
                            wanted[bound + i] = 1
            elif treatment == _TABLE_MAP:
                self._table_map(events, at, end)
                seen = self._find(self._table_id(events, at, end, _TABLE_MAP_CODE))
                if seen is not None:
                    seen.place = place
            elif treatment == _BOUND or (code == _QUERY_CODE and _is_begin(data, at, end)):
                for i in range(lanes):
                    wanted[place + i] = group[i]
                    group[i] = 0
                bound = place
                self._group_begins(None)
            elif treatment == _FORMAT or treatment == _QUERY:
                self._control(events, at, end, code, treatment, None)
                for i in range(lanes):
                    wanted[place + i] = 1
            elif treatment != _NOTHING:
                return False
            place += lanes
            at += event_size(data, at)
        return True

    @cython.cfunc
    def _mark_rows(
        self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, code: cython.int, place: cython.Py_ssize_t,
        lanes: cython.Py_ssize_t, marks: bytearray,
    ) -> cython.int:  # fmt: skip
        """Mark the lanes that need a rows event, for its table map too."""
        data: cython.p_uchar = events
        wanted: cython.p_uchar = marks
        kinds: cython.p_uchar = _KINDS
        seen: _SeenTable | None = self._rows_head(events, at, end, code)
        reader: ImageReader | None = None if seen is None else seen.reader
        first: cython.Py_ssize_t = self._columns_at
        images: bytes = events
        i: cython.Py_ssize_t
        if seen is None or (reader is not None and (reader.staged or reader.stop_kinds >> kinds[code] & 1)):
            # The lanes decide: where the row stage or an event filter that stops looks at the rows.
            for i in range(lanes):
                wanted[place + i] = 1
        elif reader is not None and not reader.skipped_kinds >> kinds[code] & 1:
            if code >= 166:
                images = tables.uncompressed_rows(events, first, end, code, event_end(data, at), self._source)
                first = 0
                end = len(images)
            reader.partial = code == _PARTIAL_CODE
            reader.mark(images, first, end, kinds[code], marks, place)
        if seen is not None:
            for i in range(lanes):
                if wanted[place + i]:
                    wanted[seen.place + i] = 1
        if self._ends_statement:
            self._stamp += 1
        return 0

    @cython.cfunc
    def _verify(self, events: bytes) -> cython.Py_ssize_t:
        """Check sizes and checksums of all events; returns their number, negative when one may be a ROLLBACK."""
        if self._format is None:
            raise ev.malformed(self._source, 0, "events came before a format description")
        data: cython.p_uchar = events
        total: cython.Py_ssize_t = len(events)
        at: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        statement: cython.Py_ssize_t
        count: cython.Py_ssize_t = 0
        crc: Crc32 = _CRC
        checked: cython.bint = self._checked
        may_roll_back: cython.bint = False
        while at < total:
            if total - at < 19:
                raise ev.malformed(self._source, 0, f"{total - at} bytes are too few for an event header")
            code: cython.int = data[at + 4]
            size: cython.Py_ssize_t = event_size(data, at)
            if size < 19 + (4 if checked else 0) or size > total - at:
                raise ev.malformed(
                    self._source, event_end(data, at), f"event size {size} where {total - at} bytes are left"
                )
            end = at + size
            if code == _FORMAT_CODE:
                checked = ev.FormatDescription.parse(events[at:end], self._source).checksum
            elif checked:
                end -= 4
                if crc.of_part(events, data, at, end) != u32(data, end):
                    raise errors.decode.BAD_CHECKSUM(source=self._source, position=event_end(data, at))
            if code == _QUERY_CODE and end - at >= 32:
                statement = at + 32 + (data[at + 30] | data[at + 31] << 8) + data[at + 27] + 1
                # "R", or white space: then _query looks at the word after it.
                if statement < end and (data[statement] | 0x20 == 0x72 or data[statement] <= 0x20):
                    may_roll_back = True
            elif code == _QUERY_COMPRESSED_CODE:
                may_roll_back = True
            at += size
            count += 1
        return -count if may_roll_back else count

    @cython.cfunc
    def _walk(
        self, events: bytes, skip: cython.Py_ssize_t, rows: list[RowChange] | None, batch: Batch | None
    ) -> cython.int:
        """Decode verified events: rows are added to one of ``rows`` and ``batch``."""
        data: cython.p_uchar = events
        treatments: cython.p_uchar = _TREATMENTS
        total: cython.Py_ssize_t = len(events)
        at: cython.Py_ssize_t = 0
        ordinal: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        code: cython.int
        treatment: cython.int
        self._group.begin_block()
        while at < total:
            code = data[at + 4]
            end = at + event_size(data, at) - (4 if self._checked else 0)
            treatment = treatments[code]
            if treatment == _ROWS:
                self._rows(events, at, end, code, ordinal, rows, batch, ordinal < skip)
            elif treatment == _TABLE_MAP:
                self._table_map(events, at, end)
            elif treatment == _BOUND or (code == _QUERY_CODE and _is_begin(data, at, end)):
                self._group_begins(rows)
            elif treatment != _NOTHING:
                self._control(events, at, end, code, treatment, rows)
            at += event_size(data, at)
            ordinal += 1
        return 0

    @cython.cfunc
    def _group_begins(self, rows: list[RowChange] | None) -> cython.int:
        """A group begins: the rows up to the present end of ``rows`` belong to finished groups."""
        self._stamp += 1
        self._group.begin(rows)
        return 0

    @cython.cfunc
    def _control(
        self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, code: cython.int, treatment: cython.int,
        rows: list[RowChange] | None,
    ) -> cython.int:  # fmt: skip
        """Process an event of a rarer kind: statements, XA PREPARE, format descriptions; refuse unsupported kinds."""
        data: cython.p_uchar = events
        if treatment == _QUERY:
            self._query(events, at, end, code, rows)
            return 0
        if treatment == _FORMAT:
            self.open(events[at : at + event_size(data, at)])
            return 0
        if treatment == _XA_PREPARE:
            if is_two_phase(events[at + 19 : end], self._source, event_end(data, at)):
                self._group.prepare(event_end(data, at))
            self._group_begins(rows)
            return 0
        if not data[at + 17] & 0x80:  # LOG_EVENT_IGNORABLE_F
            raise tables.unsupported_event(self._source, code, event_end(data, at), "this type is not supported")
        return 0

    @cython.cfunc
    def _table_map(self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        table_id: cython.ulonglong = self._table_id(events, at, end, _TABLE_MAP_CODE)
        known: _SeenTable | None = self._find(table_id)
        if known is None or not _same(events, at + 19, end, known.body):
            known = self._new_table_map(events[at + 19 : end], events, at)
            if len(self._known) >= _MOST_CACHED:
                self._known = {number: item for number, item in self._known.items() if item.stamp == self._stamp}
                self._near = [None] * (int(_NEAR) + 1)
            self._known[table_id] = known
            known.number = table_id
            self._near[table_id & _NEAR] = known
        known.stamp = self._stamp
        return 0

    def _new_table_map(self, body: bytes, events: bytes, at: int) -> _SeenTable:
        position = event_end(events, at)
        head = parse_names(body, self._id_bytes[ev.EventType.TABLE_MAP], self._source, position)
        plan = self._resolve(head.schema, head.table)
        if plan is None:
            return _SeenTable(body, head, None, True)
        if self._format is None:
            raise ev.malformed(self._source, position, "events came before a format description")
        filters = compile_filters(plan) if self._filters else None
        reader: ImageReader = make_reader(
            head, body, plan, self._source_keys, self._format, self._source, position, self._bucket, filters
        )
        uncomputed: UncomputedReader | None = None
        if plan.completed_by is not None:
            uncomputed = UncomputedReader(plan, plan.completed_by, reader.codecs, self._bucket)
        return _SeenTable(body, head, reader, plan.table.engine.lower() in tables.TRANSACTIONAL, uncomputed)

    @cython.cfunc
    def _table_id(
        self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, code: cython.int
    ) -> cython.ulonglong:
        data: cython.p_uchar = events
        sizes: cython.p_uchar = self._id_bytes
        size: cython.int = sizes[code]
        value: cython.ulonglong = 0
        i: cython.int
        if size == 0:
            raise ev.malformed(
                self._source, event_end(data, at), f"{ev.event_name(code)} is not an event type of this server"
            )
        if at + 19 + size + 2 > end:
            raise ev.malformed(self._source, event_end(data, at), f"{ev.event_name(code)} is too short")
        for i in range(size - 1, -1, -1):
            value = (value << 8) | data[at + 19 + i]
        return value

    @cython.cfunc
    def _find(self, table_id: cython.ulonglong) -> _SeenTable | None:
        """The last table map with this id; the most common case makes no Python number."""
        near: _SeenTable | None = self._near[table_id & _NEAR]
        if near is not None and near.number == table_id:
            return near
        known: _SeenTable | None = self._known.get(table_id)
        if known is not None:
            self._near[table_id & _NEAR] = known
        return known

    @cython.cfunc
    def _rows_head(
        self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, code: cython.int
    ) -> _SeenTable | None:
        """A rows event's table map; None for an event that only ends a statement.

        Sets ``_columns_at``, the byte of its column count, and ``_ends_statement``.
        """
        data: cython.p_uchar = events
        extras: cython.p_uchar = _WITH_EXTRA
        sizes: cython.p_uchar = self._id_bytes
        table_id: cython.ulonglong = self._table_id(events, at, end, code)
        here: cython.Py_ssize_t = at + 19 + sizes[code]
        extra: cython.Py_ssize_t
        self._ends_statement = data[here] & 1
        here += 2
        if extras[code]:
            if here + 2 > end:
                raise ev.malformed(self._source, event_end(data, at), f"{ev.event_name(code)} is too short")
            extra = data[here] | data[here + 1] << 8
            if extra < 2 or here + extra > end:
                raise ev.malformed(
                    self._source, event_end(data, at), f"{ev.event_name(code)} with extra data of {extra} bytes"
                )
            here += extra
        self._columns_at = here
        seen: _SeenTable | None = self._find(table_id)
        if seen is None or seen.stamp != self._stamp:
            # The dummy event that only ends a statement has an id that no table has, and no rows.
            if int(table_id) in (0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFF) and self._ends_statement:
                return None
            raise ev.malformed(
                self._source, event_end(data, at), f"{ev.event_name(code)} of table id {table_id} without its map"
            )
        return seen

    @cython.cfunc
    def _rows(
        self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, code: cython.int,
        ordinal: cython.Py_ssize_t, rows: list[RowChange] | None, batch: Batch | None, skipped: cython.bint,
    ) -> cython.int:  # fmt: skip
        data: cython.p_uchar = events
        kinds: cython.p_uchar = _KINDS
        seen: _SeenTable | None = self._rows_head(events, at, end, code)
        reader: ImageReader | None
        uncomputed: UncomputedReader | None
        first: cython.Py_ssize_t = self._columns_at
        images: bytes = events
        if seen is not None and seen.reader is not None:
            reader = seen.reader
            if self._filters and (reader.skipped_kinds | reader.stop_kinds) >> kinds[code] & 1:
                if reader.skipped_kinds >> kinds[code] & 1:
                    if self._ends_statement:
                        self._stamp += 1
                    return 0
                if not skipped and event_end(data, at) not in self.skipped_ends and not self._lenient:
                    self.event_end = event_end(data, at)
                    raise tables.rows_filtered(self._source, seen.head, code, event_end(data, at))
            self._group.note(seen)
            self.event_end = event_end(data, at)
            if not skipped and self.skipped_ends and rows is not None and event_end(data, at) in self.skipped_ends:
                self._try_rows(events, at, end, code, ordinal, rows, reader)
            elif not skipped:
                try:
                    if code >= 166:
                        images = tables.uncompressed_rows(events, first, end, code, event_end(data, at), self._source)
                        first = 0
                        end = len(images)
                    reader.partial = code == _PARTIAL_CODE
                    uncomputed = seen.uncomputed
                    if batch is not None and uncomputed is not None:
                        uncomputed.partial = reader.partial
                        uncomputed.pick(images, first, end, kinds[code], event_end(data, at), batch)
                    elif batch is not None and reader.staged:
                        reader.read(images, first, end, kinds[code], at, ordinal, batch.staged)
                    elif batch is not None:
                        reader.pick(images, first, end, kinds[code], event_end(data, at), batch)
                    elif rows is not None:
                        reader.read(images, first, end, kinds[code], at, ordinal, rows)
                except BadImage as bad:
                    head: TableMap = seen.head
                    raise ev.malformed(
                        self._source,
                        event_end(data, at),
                        f"{ev.event_name(code)} of {head.schema}.{head.table}: {bad}",
                    ) from None
                except MissingColumn as missing:
                    raise errors.decode.MISSING_COLUMN(
                        source=self._source,
                        schema=seen.head.schema,
                        table=seen.head.table,
                        position=event_end(data, at),
                        column=missing,
                    ) from None
        if self._ends_statement:
            self._stamp += 1
        return 0

    def _try_rows(
        self, events: bytes, at: int, end: int, code: int, ordinal: int, rows: list[RowChange], reader: ImageReader
    ) -> None:
        """The rows of an event that an operator skips: all of them, or the error that makes them unreadable."""
        skipped_ends, self.skipped_ends = self.skipped_ends, frozenset()
        self._lenient = True
        before = len(rows)
        position = event_end(events, at)
        try:
            self._rows(events, at, end, code, ordinal, rows, None, False)
        except errors.ShardmergeError as error:
            del rows[before:]
            self.unread.append((position, reader.plan, error))
        finally:
            self.skipped_ends = skipped_ends
            self._lenient = False

    def _query(self, events: bytes, at: int, end: int, code: int, rows: list[RowChange] | None) -> None:
        """Handle BEGIN, COMMIT and ROLLBACK; the decoder ignores other statements."""
        position: int = event_end(events, at)
        statement: bytes = statement_of_body(events[at + 19 : end], code, self._source, position)
        words: list[bytes] = statement[:64].upper().split()
        if not words:
            return
        first: bytes = words[0]
        if first == b"BEGIN" or first == b"COMMIT":
            self._group_begins(rows)
        elif first == b"ROLLBACK":
            partly = b"TO" in words
            self._group.roll_back(statement[:64], partly, position, rows)
            if not partly:
                self._group_begins(rows)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_begin(data: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    """Whether a QUERY is the plain BEGIN of most groups of a MySQL server."""
    if end - at < 19 + 13 + 1 + 5:
        return False
    start: cython.Py_ssize_t = at + 32 + (data[at + 30] | data[at + 31] << 8) + data[at + 27] + 1
    return (
        end - start == 5
        and data[start] == 66
        and data[start + 1] == 69
        and data[start + 2] == 71
        and data[start + 3] == 73
        and data[start + 4] == 78
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _same(events: bytes, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, other: bytes) -> cython.bint:
    """Whether a part of ``events`` equals ``other``."""
    data: cython.p_uchar = events
    wanted: cython.p_uchar = other
    at: cython.Py_ssize_t
    difference: cython.uchar = 0
    if stop - start != len(other):
        return False
    if not cython.compiled:
        return events[start:stop] == other
    # Without a branch inside, compilers vectorize the loop.
    for at in range(stop - start):
        difference |= data[start + at] ^ wanted[at]
    return difference == 0

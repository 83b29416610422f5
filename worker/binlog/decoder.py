# cython: language_level=3, cdivision=True
"""Raw binlog events in, row changes out.

Compiled by Cython, and plain Python where it is not. Formats: MySQL Internals Manual, "Rows Event" (v1 and v2);
MariaDB's compressed row events (sql/log_event.cc). Every read is bounds-checked; bytes that do not fit the format
or the table raise a coded error, and nothing of the block is returned.
"""

from __future__ import annotations

from collections.abc import Callable

import cython

from proto import errors
from worker.binlog import events as ev
from worker.binlog.crc import Crc32
from worker.binlog.images import ImageReader
from worker.binlog.imagescan import BadImage, MissingColumn
from worker.binlog.tablemap import TableMap, make_reader, parse_names
from worker.plan import TablePlan
from worker.replicate.batch import Batch
from worker.replicate.placement import ONLY_LANE, Bucket
from worker.rows import ChangeKind, RowChange
from worker.rowstage.drops import row_drops

if not cython.compiled:
    from worker.binlog.little import event_end, event_size, u32

_NEAR = cython.declare(cython.int, 63)  # mask of table ids
_MOST_CACHED = 4096  # table maps; tables of one source, before the cache is begun anew
_MOST_UNCOMPRESSED = 1 << 30
_TRANSACTIONAL = frozenset({"innodb", "rocksdb", "tokudb", "ndbcluster"})
_ID_BYTES = {6: 4, 8: 6, 10: 6}
"""Bytes of the table id in table maps and rows events, by their post-header length: old servers wrote 4."""

_CRC = cython.declare(Crc32, Crc32())

# Kinds of events, as the decoder treats their types.
_NOTHING = cython.declare(cython.int, 1)
_TABLE_MAP = cython.declare(cython.int, 2)
_ROWS = cython.declare(cython.int, 3)
_QUERY = cython.declare(cython.int, 4)
_BOUND = cython.declare(cython.int, 5)  # of a group
_XA_PREPARE = cython.declare(cython.int, 7)
_FORMAT = cython.declare(cython.int, 8)

_T = ev.EventType
_TREATMENT: dict[int, int] = {
    **dict.fromkeys(
        (_T.STOP, _T.ROTATE, _T.INTVAR, _T.SLAVE, _T.RAND, _T.USER_VAR, _T.HEARTBEAT, _T.HEARTBEAT_V2, _T.IGNORABLE,
         _T.ROWS_QUERY, _T.PREVIOUS_GTIDS, _T.TRANSACTION_CONTEXT, _T.VIEW_CHANGE, _T.ANNOTATE_ROWS,
         _T.BINLOG_CHECKPOINT, _T.MARIADB_GTID_LIST), 1),
    _T.TABLE_MAP: 2,
    **dict.fromkeys(
        (_T.WRITE_ROWS_V1, _T.UPDATE_ROWS_V1, _T.DELETE_ROWS_V1, _T.WRITE_ROWS_V2, _T.UPDATE_ROWS_V2,
         _T.DELETE_ROWS_V2, _T.WRITE_ROWS_COMPRESSED_V1, _T.UPDATE_ROWS_COMPRESSED_V1, _T.DELETE_ROWS_COMPRESSED_V1,
         _T.WRITE_ROWS_COMPRESSED, _T.UPDATE_ROWS_COMPRESSED, _T.DELETE_ROWS_COMPRESSED, _T.PARTIAL_UPDATE_ROWS), 3),
    _T.QUERY: 4,
    _T.QUERY_COMPRESSED: 4,
    **dict.fromkeys((_T.GTID, _T.ANONYMOUS_GTID, _T.GTID_TAGGED, _T.MARIADB_GTID, _T.XID), 5),
    _T.XA_PREPARE: 7,
    _T.FORMAT_DESCRIPTION: 8,
}  # fmt: skip
_TABLE_MAP_CODE = cython.declare(cython.int, 19)
_FORMAT_CODE = cython.declare(cython.int, 15)
_QUERY_CODE = cython.declare(cython.int, 2)
_QUERY_COMPRESSED_CODE = cython.declare(cython.int, 165)
_PARTIAL_CODE = cython.declare(cython.int, 39)
_TREATMENTS = cython.declare(bytes, bytes([_TREATMENT.get(code, 0) for code in range(256)]))

_KINDS = cython.declare(bytes, bytes([
    int(ChangeKind.INSERT) if code in (_T.WRITE_ROWS_V1, _T.WRITE_ROWS_V2, _T.WRITE_ROWS_COMPRESSED_V1,
                                       _T.WRITE_ROWS_COMPRESSED)
    else int(ChangeKind.UPDATE) if code in (_T.UPDATE_ROWS_V1, _T.UPDATE_ROWS_V2, _T.UPDATE_ROWS_COMPRESSED_V1,
                                            _T.UPDATE_ROWS_COMPRESSED, _T.PARTIAL_UPDATE_ROWS)
    else int(ChangeKind.DELETE)
    for code in range(256)
]))  # fmt: skip
"""ChangeKind of rows events by their type."""
_WITH_EXTRA = cython.declare(bytes, bytes([
    code in (_T.WRITE_ROWS_V2, _T.UPDATE_ROWS_V2, _T.DELETE_ROWS_V2, _T.WRITE_ROWS_COMPRESSED,
             _T.UPDATE_ROWS_COMPRESSED, _T.DELETE_ROWS_COMPRESSED, _T.PARTIAL_UPDATE_ROWS)
    for code in range(256)
]))  # fmt: skip

_WAYS_OUT: dict[int, str] = {
    _T.TRANSACTION_PAYLOAD: "Set binlog_transaction_compression=OFF at the source and start the task again with a new "
    "snapshot.",
    _T.START_ENCRYPTION: "Fetch the binlog from the server: its dump is not encrypted. Delete the relay directory and "
    "resume-task.",
    _T.INCIDENT: "The source says that its binlog lacks changes here: start the task again with a new snapshot.",
    _T.EXECUTE_LOAD_QUERY: "Set binlog_format=ROW at the source (LOAD DATA was logged as a statement) and start the "
    "task again with a new snapshot.",
}

Resolve = Callable[[str, str], TablePlan | None]
"""The plan of a source table (schema, table); None: its rows are skipped. May raise ShardmergeError."""


@cython.final
@cython.cclass
class _Mapped:
    """A table map that was seen: the bytes it came in, the reader of its rows (None: they are skipped).

    ``stamp``: it counts for rows events of the statement of this number.
    """

    def __init__(self, body: bytes, head: TableMap, reader: ImageReader | None, transactional: bool) -> None:
        self.body = body
        self.head = head
        self.reader = reader
        self.transactional = transactional
        self.stamp = 0
        self.number = 0


@cython.final
@cython.cclass
class BlockDecoder:
    """Decodes the event blocks of one source in relay order; one thread at a time.

    ``resolve`` is asked once per table map that is new since the last format description: a server gives a table
    another id whenever its structure changes. ``source_keys``: give the key columns before mapping too. ``source``
    names the source in errors. ``bucket``: whose rows :meth:`pick` keeps. ``filters``: rules count: what event filters
    pass over is left out, and ROWS_FILTERED raised at what they stop before; so is what expression filters pass over,
    where that takes no server. Without it every change is given. After an error the decoder is of no further use but
    for ``event_end``, where the row event looked at last ends.
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
        self._trying = False
        self._resolve = resolve
        self._source_keys = source_keys
        self._source = source
        self._bucket = bucket
        self._format: ev.FormatDescription | None = None
        self._id_bytes = b""
        self._checked = False
        self._known: dict[int, _Mapped] = {}
        self._near: list[_Mapped | None] = [None] * (int(_NEAR) + 1)
        # Table maps with this stamp are those of the statement at hand.
        self._stamp = 1
        # Of the group at hand: a table whose rows it changed; whether rows were given away with an earlier block;
        # whether each table that changed can roll back; where its rows begin in the block's list.
        self._changed: _Mapped | None = None
        self._given = False
        self._undone = True
        self._first_row = 0
        # Of the rows event at hand.
        self._here = 0
        self._ends_statement = False
        self.event_end = 0
        # Ends of row events that are to be passed over, and those of them that cannot be read: end, plan, error.
        self.passed_over: frozenset[int] = frozenset()
        self.unread: list[tuple[int, TablePlan, errors.ShardmergeError]] = []

    def open(self, format_description: bytes) -> None:
        """Begin with (or go on behind) this FORMAT_DESCRIPTION event: a new file, so new table ids.

        No group reaches beyond it: what was seen of an unfinished one is forgotten.
        """
        known = ev.FormatDescription.parse(format_description, self._source)
        self._format = known
        self._checked = known.checksum
        lengths = known.post_header_lengths
        self._id_bytes = bytes(_ID_BYTES.get(length, 0) for length in lengths) + bytes(256 - len(lengths))
        self._known = {}
        self._near = [None] * (int(_NEAR) + 1)
        self._stamp += 1
        self._changed = None
        self._given = False
        self._undone = True

    def forget(self) -> None:
        """Ask ``resolve`` anew about every table: its answers are others from here on. Between two statements."""
        self._known = {}
        self._near = [None] * (int(_NEAR) + 1)

    def decode(self, events: bytes, skip_events: int = 0) -> list[RowChange]:
        """The row changes of whole events, in order.

        A group may come in several blocks: its table maps are kept until it ends. Rows events among the first
        ``skip_events`` events are passed over, their table maps are not. Raises the errors of proto/errors/decode.py,
        ID_OVERFLOW of a mapping, and what ``resolve`` raises.
        """
        rows: list[RowChange] = []
        self._verify(events)
        self._walk(events, skip_events, rows, None)
        return rows

    def decode_around(
        self, events: bytes, skip_events: int, passed_over: frozenset[int]
    ) -> tuple[list[RowChange], list[tuple[int, TablePlan, errors.ShardmergeError]]]:
        """As :meth:`decode`, where the rows of events that end at ``passed_over`` need not be readable: those that are
        not come as their event's end, the table's plan and the reason."""
        self.passed_over, self.unread = passed_over, []
        try:
            return self.decode(events, skip_events), self.unread
        finally:
            self.passed_over = frozenset()

    def pick(self, events: bytes, skip_events: int, file: str, batch: Batch) -> int:
        """As :meth:`decode`, giving ``batch`` only the lane's share, and all changes for the row stage apart; the
        number of events.

        ``file``: the source's file they are of. Raises what the batch raises too.
        """
        count: int = self._verify(events)
        batch.file = file
        if count < 0:
            # A group that was rolled back is taken out of the list again; a batch cannot forget.
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

    @cython.cfunc
    def _verify(self, events: bytes) -> cython.Py_ssize_t:
        """Check sizes and checksums of all events; their number, negative when one may be a ROLLBACK."""
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
                # "R", or white space that the decoder proper will look behind.
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
        """Through verified events: rows go to one of ``rows`` and ``batch``."""
        data: cython.p_uchar = events
        treatments: cython.p_uchar = _TREATMENTS
        total: cython.Py_ssize_t = len(events)
        at: cython.Py_ssize_t = 0
        ordinal: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        code: cython.int
        treatment: cython.int
        self._given = self._changed is not None
        self._first_row = 0
        while at < total:
            code = data[at + 4]
            end = at + event_size(data, at) - (4 if self._checked else 0)
            treatment = treatments[code]
            if treatment == _ROWS:
                self._rows(events, at, end, code, ordinal, rows, batch, ordinal < skip)
            elif treatment == _TABLE_MAP:
                self._table_map(events, at, end)
            elif treatment == _BOUND:
                self._group_begins(rows)
            elif treatment == _QUERY and code == _QUERY_CODE and _is_begin(data, at, end):
                self._group_begins(rows)
            elif treatment == _QUERY:
                self._query(events, at, end, code, rows)
            elif treatment == _FORMAT:
                self.open(events[at : at + event_size(data, at)])
            elif treatment == _XA_PREPARE:
                self._xa_prepare(events, at, end, rows)
            elif treatment != _NOTHING and not (data[at + 17] & 0x80):
                # 0x80 is LOG_EVENT_IGNORABLE_F.
                raise self._unsupported(code, event_end(data, at), "this type is not supported")
            at += event_size(data, at)
            ordinal += 1
        return 0

    @cython.cfunc
    def _group_begins(self, rows: list[RowChange] | None) -> cython.int:
        """What was before ``rows`` ends here belongs to finished groups."""
        self._stamp += 1
        self._changed = None
        self._given = False
        self._undone = True
        self._first_row = 0 if rows is None else len(rows)
        return 0

    def _unsupported(self, code: int, position: int, reason: str) -> errors.ShardmergeError:
        way_out = _WAYS_OUT.get(
            code, "Use a server version and settings this version knows (binlog_format=ROW), or leave this out of the "
            "binlog, and start the task again with a new snapshot."
        )  # fmt: skip
        return errors.decode.UNSUPPORTED_EVENT(
            source=self._source, event=ev.event_name(code), position=position, reason=reason, way_out=way_out
        )

    @cython.cfunc
    def _table_map(self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        table_id: cython.ulonglong = self._table_id(events, at, end, _TABLE_MAP_CODE)
        known: _Mapped | None = self._find(table_id)
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

    def _new_table_map(self, body: bytes, events: bytes, at: int) -> _Mapped:
        position = event_end(events, at)
        head = parse_names(body, self._id_bytes[ev.EventType.TABLE_MAP], self._source, position)
        plan = self._resolve(head.schema, head.table)
        if plan is None:
            return _Mapped(body, head, None, True)
        if self._format is None:
            raise ev.malformed(self._source, position, "events came before a format description")
        drops = row_drops(plan) if self._filters else None
        reader = make_reader(
            head, body, plan, self._source_keys, self._format, self._source, position, self._bucket, drops
        )
        return _Mapped(body, head, reader, plan.table.engine.lower() in _TRANSACTIONAL)

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
                self._source, event_end(data, at), f"{ev.event_name(code)} is none of this server's event types"
            )
        if at + 19 + size + 2 > end:
            raise ev.malformed(self._source, event_end(data, at), f"{ev.event_name(code)} is too short")
        for i in range(size - 1, -1, -1):
            value = (value << 8) | data[at + 19 + i]
        return value

    @cython.cfunc
    def _find(self, table_id: cython.ulonglong) -> _Mapped | None:
        """The table map of this id seen last; the commonest answer takes no Python number."""
        near: _Mapped | None = self._near[table_id & _NEAR]
        if near is not None and near.number == table_id:
            return near
        known: _Mapped | None = self._known.get(table_id)
        if known is not None:
            self._near[table_id & _NEAR] = known
        return known

    @cython.cfunc
    def _rows_head(
        self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, code: cython.int
    ) -> _Mapped | None:
        """A rows event's table map; None for an event that only ends a statement.

        Sets ``_here``, the byte where its column count stands, and ``_ends_statement``.
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
        self._here = here
        mapped: _Mapped | None = self._find(table_id)
        if mapped is None or mapped.stamp != self._stamp:
            # The dummy event that only ends a statement has an id no table has, and no rows.
            if int(table_id) in (0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFF) and self._ends_statement:
                return None
            raise ev.malformed(
                self._source, event_end(data, at), f"{ev.event_name(code)} of table id {table_id} without its map"
            )
        return mapped

    @cython.cfunc
    def _rows(
        self,
        events: bytes,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        code: cython.int,
        ordinal: cython.Py_ssize_t,
        rows: list[RowChange] | None,
        batch: Batch | None,
        skipped: cython.bint,
    ) -> cython.int:
        data: cython.p_uchar = events
        kinds: cython.p_uchar = _KINDS
        mapped: _Mapped | None = self._rows_head(events, at, end, code)
        reader: ImageReader | None
        first: cython.Py_ssize_t = self._here
        images: bytes = events
        if mapped is not None and mapped.reader is not None:
            reader = mapped.reader
            if self._filters and (reader.passed_over | reader.stops) >> kinds[code] & 1:
                if reader.passed_over >> kinds[code] & 1:
                    if self._ends_statement:
                        self._stamp += 1
                    return 0
                if not skipped and event_end(data, at) not in self.passed_over and not self._trying:
                    self.event_end = event_end(data, at)
                    raise self._stopped(mapped, code, event_end(data, at))
            self._changed = mapped
            self.event_end = event_end(data, at)
            if not mapped.transactional:
                self._undone = False
            if not skipped and self.passed_over and rows is not None and event_end(data, at) in self.passed_over:
                self._try_rows(events, at, end, code, ordinal, rows, reader)
            elif not skipped:
                try:
                    if code >= 166:
                        images = self._uncompressed(events, first, end, code, event_end(data, at))
                        first = 0
                        end = len(images)
                    reader.partial = code == _PARTIAL_CODE
                    if batch is not None and reader.staged:
                        reader.read(images, first, end, kinds[code], at, ordinal, batch.staged)
                    elif batch is not None:
                        reader.pick(images, first, end, kinds[code], event_end(data, at), batch)
                    elif rows is not None:
                        reader.read(images, first, end, kinds[code], at, ordinal, rows)
                except BadImage as bad:
                    head: TableMap = mapped.head
                    raise ev.malformed(
                        self._source,
                        event_end(data, at),
                        f"{ev.event_name(code)} of {head.schema}.{head.table}: {bad}",
                    ) from None
                except MissingColumn as missing:
                    raise errors.decode.MISSING_COLUMN(
                        source=self._source,
                        schema=mapped.head.schema,
                        table=mapped.head.table,
                        position=event_end(data, at),
                        column=missing,
                    ) from None
        if self._ends_statement:
            self._stamp += 1
        return 0

    def _try_rows(
        self, events: bytes, at: int, end: int, code: int, ordinal: int, rows: list[RowChange], reader: ImageReader
    ) -> None:
        """The rows of an event that is to be passed over: all of them, or why they cannot be read."""
        passed_over, self.passed_over = self.passed_over, frozenset()
        self._trying = True
        before = len(rows)
        position = event_end(events, at)
        try:
            self._rows(events, at, end, code, ordinal, rows, None, False)
        except errors.ShardmergeError as error:
            del rows[before:]
            self.unread.append((position, reader.plan, error))
        finally:
            self.passed_over = passed_over
            self._trying = False

    def _stopped(self, mapped: _Mapped, code: int, position: int) -> errors.ShardmergeError:
        """An event filter says Error."""
        return errors.replicate.ROWS_FILTERED(
            source=self._source,
            schema=mapped.head.schema,
            table=mapped.head.table,
            event=ChangeKind(_KINDS[code]).name.lower(),
            position=position,
        )

    def _uncompressed(self, events: bytes, at: int, end: int, code: int, position: int) -> bytes:
        """Column count and bitmaps as they are, and the images behind them uncompressed."""
        part = events[at:end]
        if not part:
            raise BadImage("a rows event without columns")
        count, head = (part[0], 1) if part[0] < 251 else (int.from_bytes(part[1:3], "little"), 3)
        head += (count + 7) // 8 * (2 if _KINDS[code] == ChangeKind.UPDATE else 1)
        return part[:head] + ev.uncompress(part[head:], _MOST_UNCOMPRESSED, self._source, position)

    def _query(self, events: bytes, at: int, end: int, code: int, rows: list[RowChange] | None) -> None:
        """BEGIN, COMMIT and ROLLBACK; what other statements do is no matter of the decoder."""
        body: bytes = events[at + 19 : end]
        position: int = event_end(events, at)
        if len(body) < 13:
            raise ev.malformed(self._source, position, "QUERY is too short")
        start: int = 13 + int.from_bytes(body[11:13], "little") + body[8] + 1
        if start > len(body):
            raise ev.malformed(self._source, position, "QUERY: its variables and schema name exceed the event")
        statement: bytes = body[start:]
        if code == ev.EventType.QUERY_COMPRESSED:
            statement = ev.uncompress(statement, _MOST_UNCOMPRESSED, self._source, position)
        words: list[bytes] = statement[:64].upper().split()
        if not words:
            return
        first: bytes = words[0]
        if first == b"BEGIN" or first == b"COMMIT":
            self._group_begins(rows)
        elif first == b"ROLLBACK":
            self._rolled_back(statement[:64], b"TO" in words, position, rows)

    def _rolled_back(self, statement: bytes, partly: bool, position: int, rows: list[RowChange] | None) -> None:
        """Take back the rows of the group.

        A server logs a rolled-back group when something in it could not be undone (a temporary table, MariaDB 10.11).
        Where its rows were given away with an earlier block, or part of them stays, or a table cannot roll back,
        that cannot be told right: an error.
        """
        changed = self._changed
        if changed is not None and (partly or self._given or not self._undone or rows is None):
            raise errors.decode.ROLLED_BACK_ROWS(
                source=self._source,
                position=position,
                schema=changed.head.schema,
                table=changed.head.table,
                statement=statement.decode("utf-8", "replace"),
            )
        if not partly:
            if rows is not None:
                del rows[self._first_row :]
            self._group_begins(rows)

    def _xa_prepare(self, events: bytes, at: int, end: int, rows: list[RowChange] | None) -> None:
        position: int = event_end(events, at)
        if end - at < 19 + 1:
            raise ev.malformed(self._source, position, "XA_PREPARE is too short")
        one_phase: bool = events[at + 19] != 0
        if self._changed is not None and not one_phase:
            raise errors.decode.PREPARED_ROWS(
                source=self._source, position=position, schema=self._changed.head.schema, table=self._changed.head.table
            )
        self._group_begins(rows)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_begin(data: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    """Whether a QUERY is just BEGIN, as in most groups of a MySQL server."""
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
    # No branch inside: compilers make vector instructions of it.
    for at in range(stop - start):
        difference |= data[start + at] ^ wanted[at]
    return difference == 0

# cython: language_level=3, cdivision=True
"""Raw binlog events in, row changes out.

Compiled by Cython, and plain Python where it is not. Formats: MySQL Internals Manual, "Rows Event" (v1 and v2);
MariaDB's compressed row events (sql/log_event.cc). Every read is bounds-checked; bytes that do not fit the format
or the table raise a coded error, and nothing of the block is returned.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import cython

from proto import errors
from worker.binlog import events as ev
from worker.binlog.tablemap import TableMap, make_reader, parse_names
from worker.binlog.values import BadImage, ImageReader, MissingColumn
from worker.plan import TablePlan
from worker.rows import ChangeKind, RowChange

_MOST_CACHED = 4096  # table maps; tables of one source, before the cache is begun anew
_MOST_UNCOMPRESSED = 1 << 30
_TRANSACTIONAL = frozenset({"innodb", "rocksdb", "tokudb", "ndbcluster"})
_ID_BYTES = {6: 4, 8: 6, 10: 6}
"""Bytes of the table id in table maps and rows events, by their post-header length: old servers wrote 4."""
_INSERT, _UPDATE, _DELETE = ChangeKind.INSERT, ChangeKind.UPDATE, ChangeKind.DELETE

# Kinds of events, as the decoder treats their types.
_NOTHING = cython.declare(cython.int, 1)
_TABLE_MAP = cython.declare(cython.int, 2)
_ROWS = cython.declare(cython.int, 3)
_QUERY = cython.declare(cython.int, 4)
_BOUND = cython.declare(cython.int, 5)  # of a group
_XA_PREPARE = cython.declare(cython.int, 7)
_FORMAT = cython.declare(cython.int, 8)
_PARTIAL = cython.declare(cython.int, 9)

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
         _T.WRITE_ROWS_COMPRESSED, _T.UPDATE_ROWS_COMPRESSED, _T.DELETE_ROWS_COMPRESSED), 3),
    _T.QUERY: 4,
    _T.QUERY_COMPRESSED: 4,
    **dict.fromkeys((_T.GTID, _T.ANONYMOUS_GTID, _T.GTID_TAGGED, _T.MARIADB_GTID, _T.XID), 5),
    _T.XA_PREPARE: 7,
    _T.FORMAT_DESCRIPTION: 8,
    _T.PARTIAL_UPDATE_ROWS: 9,
}  # fmt: skip
_TREATMENTS = bytes(_TREATMENT.get(code, 0) for code in range(256))

_KINDS: dict[int, ChangeKind] = {
    **dict.fromkeys(
        (_T.WRITE_ROWS_V1, _T.WRITE_ROWS_V2, _T.WRITE_ROWS_COMPRESSED_V1, _T.WRITE_ROWS_COMPRESSED), _INSERT),
    **dict.fromkeys(
        (_T.UPDATE_ROWS_V1, _T.UPDATE_ROWS_V2, _T.UPDATE_ROWS_COMPRESSED_V1, _T.UPDATE_ROWS_COMPRESSED), _UPDATE),
    **dict.fromkeys(
        (_T.DELETE_ROWS_V1, _T.DELETE_ROWS_V2, _T.DELETE_ROWS_COMPRESSED_V1, _T.DELETE_ROWS_COMPRESSED), _DELETE),
}  # fmt: skip
_WITH_EXTRA = bytes(
    code in (_T.WRITE_ROWS_V2, _T.UPDATE_ROWS_V2, _T.DELETE_ROWS_V2, _T.WRITE_ROWS_COMPRESSED,
             _T.UPDATE_ROWS_COMPRESSED, _T.DELETE_ROWS_COMPRESSED, _T.PARTIAL_UPDATE_ROWS)
    for code in range(256)
)  # fmt: skip

_WAYS_OUT: dict[int, str] = {
    _T.TRANSACTION_PAYLOAD: "Set binlog_transaction_compression=OFF at the source and start the task again with a new "
    "snapshot.",
    _T.PARTIAL_UPDATE_ROWS: "Set binlog_row_value_options='' at the source and start the task again with a new "
    "snapshot.",
    _T.START_ENCRYPTION: "Fetch the binlog from the server: its dump is not encrypted. Delete the relay directory and "
    "resume-task.",
    _T.INCIDENT: "The source says that its binlog lacks changes here: start the task again with a new snapshot.",
    _T.EXECUTE_LOAD_QUERY: "Set binlog_format=ROW at the source (LOAD DATA was logged as a statement) and start the "
    "task again with a new snapshot.",
}

Resolve = Callable[[str, str], TablePlan | None]
"""The plan of a source table (schema, table); None: its rows are skipped. May raise ShardmergeError."""


class _Mapped:
    """A table map that was seen: the bytes it came in, the reader of its rows (None: they are skipped)."""

    __slots__ = ("body", "head", "reader", "transactional")

    def __init__(self, body: bytes, head: TableMap, reader: ImageReader | None, transactional: bool) -> None:
        self.body = body
        self.head = head
        self.reader = reader
        self.transactional = transactional


class BlockDecoder:
    """Decodes the event blocks of one source in relay order; one thread at a time.

    ``resolve`` is asked once per table map that is new since the last format description: a server gives a table
    another id whenever its structure changes. ``source_keys``: give the key columns before mapping too. ``source``
    names the source in errors. After an error the decoder is of no further use.
    """

    def __init__(self, resolve: Resolve, source_keys: bool = False, source: str = "") -> None:
        self._resolve = resolve
        self._source_keys = source_keys
        self._source = source
        self._format: ev.FormatDescription | None = None
        self._id_bytes = b""
        self._is_mariadb = False
        self._known: dict[int, _Mapped] = {}
        self._active: dict[int, _Mapped] = {}
        # Of the group at hand: a table whose rows it changed; whether rows were given away with an earlier block;
        # whether each table that changed can roll back; where its rows begin in the block's list.
        self._changed: TableMap | None = None
        self._given = False
        self._undone = True
        self._first_row = 0

    def open(self, format_description: bytes) -> None:
        """Begin with (or go on behind) this FORMAT_DESCRIPTION event: a new file, so new table ids.

        No group reaches beyond it: what was seen of an unfinished one is forgotten.
        """
        self._format = ev.FormatDescription.parse(format_description, self._source)
        self._is_mariadb = self._format.is_mariadb
        lengths = self._format.post_header_lengths
        self._id_bytes = bytes(_ID_BYTES.get(length, 0) for length in lengths) + bytes(256 - len(lengths))
        self._known = {}
        self._active = {}
        self._changed = None
        self._given = False
        self._undone = True

    def decode(self, events: bytes, skip_events: int = 0) -> list[RowChange]:
        """The row changes of whole events, in order.

        A group may come in several blocks: its table maps are kept until it ends. Rows events among the first
        ``skip_events`` events are passed over, their table maps are not. Raises the errors of proto/errors/decode.py,
        ID_OVERFLOW of a mapping, and what ``resolve`` raises.
        """
        if self._format is None:
            raise ev.malformed(self._source, 0, "events came before a format description")
        rows: list[RowChange] = []
        self._given = self._changed is not None
        self._first_row = 0
        view = memoryview(events)
        data: cython.p_uchar = events
        treatments: cython.p_uchar = _TREATMENTS
        total: cython.Py_ssize_t = len(events)
        skip: cython.Py_ssize_t = skip_events
        at: cython.Py_ssize_t = 0
        ordinal: cython.Py_ssize_t = 0
        checked: cython.bint = self._format.checksum
        while at < total:
            if total - at < 19:
                raise ev.malformed(self._source, 0, f"{total - at} bytes are too few for an event header")
            code: cython.int = data[at + 4]
            size: cython.Py_ssize_t = _u32(data, at + 9)
            position: cython.Py_ssize_t = _u32(data, at + 13)
            end: cython.Py_ssize_t = at + size
            if size < 19 + (4 if checked else 0) or size > total - at:
                raise ev.malformed(self._source, position, f"event size {size} where {total - at} bytes are left")
            treatment: cython.int = treatments[code]
            if checked and treatment != _FORMAT:
                end -= 4
                if zlib.crc32(view[at:end]) != _u32(data, end):
                    raise errors.decode.BAD_CHECKSUM(source=self._source, position=position)
            if treatment == _ROWS:
                self._rows(events, at, end, code, position, ordinal, rows, ordinal < skip)
            elif treatment == _TABLE_MAP:
                self._table_map(events, at, end, position)
            elif treatment == _BOUND:
                self._group_begins(rows)
            elif treatment == _QUERY:
                self._query(events, at, end, code, position, rows)
            elif treatment == _FORMAT:
                self.open(events[at:end])
                checked = self._format.checksum
            elif treatment == _XA_PREPARE:
                self._xa_prepare(events, at, end, position, rows)
            elif treatment == _PARTIAL:
                mapped = self._rows_head(events, at, end, code, position)[0]
                if mapped is not None and mapped.reader is not None:
                    raise self._unsupported(code, position, "it holds parts of JSON values")
            elif treatment != _NOTHING and not (data[at + 17] & 0x80):
                # 0x80 is LOG_EVENT_IGNORABLE_F.
                raise self._unsupported(code, position, "this type is not supported")
            at += size
            ordinal += 1
        return rows

    def _group_begins(self, rows: list[RowChange]) -> None:
        """What was before ``rows`` ends here belongs to finished groups."""
        if self._active:
            self._active = {}
        self._changed = None
        self._given = False
        self._undone = True
        self._first_row = len(rows)

    def _unsupported(self, code: int, position: int, reason: str) -> errors.ShardmergeError:
        way_out = _WAYS_OUT.get(
            code, "Use a server version and settings this version knows (binlog_format=ROW), or leave this out of the "
            "binlog, and start the task again with a new snapshot."
        )  # fmt: skip
        return errors.decode.UNSUPPORTED_EVENT(
            source=self._source, event=ev.event_name(code), position=position, reason=reason, way_out=way_out
        )

    def _table_map(self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, position: int) -> None:
        body: bytes = events[at + 19 : end]
        table_id: int = self._table_id(events, at + 19, end, ev.EventType.TABLE_MAP, position)
        known = self._known.get(table_id)
        if known is None or known.body != body:
            head = parse_names(body, self._id_bytes[ev.EventType.TABLE_MAP], self._source, position)
            plan = self._resolve(head.schema, head.table)
            reader = None
            transactional = True
            if plan is not None:
                transactional = plan.table.engine.lower() in _TRANSACTIONAL
                reader = make_reader(head, body, plan, self._source_keys, self._is_mariadb, self._source, position)
            known = _Mapped(body, head, reader, transactional)
            if len(self._known) >= _MOST_CACHED:
                self._known = {}
            self._known[table_id] = known
        self._active[table_id] = known

    def _table_id(
        self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, code: cython.int, position: int
    ) -> int:
        data: cython.p_uchar = events
        sizes: cython.p_uchar = self._id_bytes
        size: cython.int = sizes[code]
        value: cython.ulonglong = 0
        i: cython.int
        if size == 0:
            raise ev.malformed(self._source, position, f"{ev.event_name(code)} is none of this server's event types")
        if at + size + 2 > end:
            raise ev.malformed(self._source, position, f"{ev.event_name(code)} is too short")
        for i in range(size - 1, -1, -1):
            value = (value << 8) | data[at + i]
        return value

    def _rows_head(
        self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, code: cython.int, position: int
    ) -> tuple[_Mapped | None, int, bool]:
        """A rows event's table map, the byte where its column count stands, whether it ends its statement."""
        data: cython.p_uchar = events
        extras: cython.p_uchar = _WITH_EXTRA
        table_id: int = self._table_id(events, at + 19, end, code, position)
        here: cython.Py_ssize_t = at + 19 + self._id_bytes[code]
        ends_statement: cython.bint = data[here] & 1
        here += 2
        if extras[code]:
            if here + 2 > end:
                raise ev.malformed(self._source, position, f"{ev.event_name(code)} is too short")
            extra: cython.Py_ssize_t = data[here] | data[here + 1] << 8
            if extra < 2 or here + extra > end:
                raise ev.malformed(self._source, position, f"{ev.event_name(code)} with extra data of {extra} bytes")
            here += extra
        mapped = self._active.get(table_id)
        if mapped is None:
            # The dummy event that only ends a statement has an id no table has, and no rows.
            if table_id in (0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFF) and ends_statement:
                return None, here, True
            raise ev.malformed(self._source, position, f"{ev.event_name(code)} of table id {table_id} without its map")
        return mapped, here, ends_statement

    def _rows(
        self,
        events: bytes,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        code: cython.int,
        position: int,
        ordinal: int,
        rows: list[RowChange],
        skipped: cython.bint,
    ) -> None:
        mapped, here, ends_statement = self._rows_head(events, at, end, code, position)
        reader = mapped.reader if mapped is not None else None
        if mapped is not None and reader is not None:
            head: TableMap = mapped.head
            self._changed = head
            if not mapped.transactional:
                self._undone = False
            if not skipped:
                try:
                    if code >= 166:
                        plain = self._uncompressed(events, here, end, code, position)
                        reader.read(plain, 0, len(plain), _KINDS[code], at, ordinal, rows)
                    else:
                        reader.read(events, here, end, _KINDS[code], at, ordinal, rows)
                except BadImage as bad:
                    raise ev.malformed(
                        self._source, position, f"{ev.event_name(code)} of {head.schema}.{head.table}: {bad}"
                    ) from None
                except MissingColumn as missing:
                    raise errors.decode.MISSING_COLUMN(
                        source=self._source,
                        schema=head.schema,
                        table=head.table,
                        position=position,
                        column=missing,
                    ) from None
        if ends_statement:
            self._active = {}

    def _uncompressed(self, events: bytes, at: int, end: int, code: int, position: int) -> bytes:
        """Column count and bitmaps as they are, and the images behind them uncompressed."""
        part = events[at:end]
        if not part:
            raise BadImage("a rows event without columns")
        count, head = (part[0], 1) if part[0] < 251 else (int.from_bytes(part[1:3], "little"), 3)
        head += (count + 7) // 8 * (2 if _KINDS[code] is _UPDATE else 1)
        return part[:head] + ev.uncompress(part[head:], _MOST_UNCOMPRESSED, self._source, position)

    def _query(self, events: bytes, at: int, end: int, code: int, position: int, rows: list[RowChange]) -> None:
        """BEGIN, COMMIT and ROLLBACK; what other statements do is no matter of the decoder."""
        body: bytes = events[at + 19 : end]
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

    def _rolled_back(self, statement: bytes, partly: bool, position: int, rows: list[RowChange]) -> None:
        """Take back the rows of the group.

        A server logs a rolled-back group when something in it could not be undone (a temporary table, MariaDB 10.11).
        Where its rows were given away with an earlier block, or part of them stays, or a table cannot roll back,
        that cannot be told right: an error.
        """
        changed = self._changed
        if changed is not None and (partly or self._given or not self._undone):
            raise errors.decode.ROLLED_BACK_ROWS(
                source=self._source,
                position=position,
                schema=changed.schema,
                table=changed.table,
                statement=statement.decode("utf-8", "replace"),
            )
        if not partly:
            del rows[self._first_row :]
            self._group_begins(rows)

    def _xa_prepare(self, events: bytes, at: int, end: int, position: int, rows: list[RowChange]) -> None:
        if end - at < 19 + 1:
            raise ev.malformed(self._source, position, "XA_PREPARE is too short")
        one_phase: bool = events[at + 19] != 0
        if self._changed is not None and not one_phase:
            raise errors.decode.PREPARED_ROWS(
                source=self._source, position=position, schema=self._changed.schema, table=self._changed.table
            )
        self._group_begins(rows)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _u32(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    value: cython.Py_ssize_t = data[at + 3]
    value = (value << 8) | data[at + 2]
    value = (value << 8) | data[at + 1]
    return (value << 8) | data[at]

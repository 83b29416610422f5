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
_INSERT, _UPDATE, _DELETE = ChangeKind.INSERT, ChangeKind.UPDATE, ChangeKind.DELETE

# Kinds of events, as the decoder treats their types.
_NOTHING = cython.declare(cython.int, 1)
_TABLE_MAP = cython.declare(cython.int, 2)
_ROWS = cython.declare(cython.int, 3)
_QUERY = cython.declare(cython.int, 4)
_BEGIN = cython.declare(cython.int, 5)
_END = cython.declare(cython.int, 6)
_XA_PREPARE = cython.declare(cython.int, 7)
_FORMAT = cython.declare(cython.int, 8)
_PARTIAL = cython.declare(cython.int, 9)

_T = ev.EventType
_TREATMENT = {
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
    **dict.fromkeys((_T.GTID, _T.ANONYMOUS_GTID, _T.GTID_TAGGED, _T.MARIADB_GTID), 5),
    _T.XID: 6,
    _T.XA_PREPARE: 7,
    _T.FORMAT_DESCRIPTION: 8,
    _T.PARTIAL_UPDATE_ROWS: 9,
}  # fmt: skip
_TREATMENTS = bytes(_TREATMENT.get(code, 0) for code in range(256))

_KINDS = {
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

_WAYS_OUT = {
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

    __slots__ = ("body", "head", "reader")

    def __init__(self, body: bytes, head: TableMap, reader: ImageReader | None) -> None:
        self.body = body
        self.head = head
        self.reader = reader


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
        self._known: dict[int, _Mapped] = {}
        self._active: dict[int, _Mapped] = {}
        self._changed: TableMap | None = None

    def open(self, format_description: bytes) -> None:
        """Begin with (or go on behind) this FORMAT_DESCRIPTION event: a new file, so new table ids."""
        self._format = ev.FormatDescription.parse(format_description, self._source)
        self._known = {}
        self._active = {}

    def decode(self, events: bytes, skip_events: int = 0) -> list[RowChange]:
        """The row changes of whole events, in order.

        A group may come in several blocks: its table maps are kept until it ends. Rows events among the first
        ``skip_events`` events are passed over, their table maps are not. Raises the errors of proto/errors/decode.py,
        ID_OVERFLOW of a mapping, and what ``resolve`` raises.
        """
        if self._format is None:
            raise ev.malformed(self._source, 0, "events came before a format description")
        rows: list[RowChange] = []
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
            elif treatment == _BEGIN:
                self._group_begins()
            elif treatment == _END:
                self._group_begins()
            elif treatment == _QUERY:
                self._query(events, at, end, code, position)
            elif treatment == _FORMAT:
                self.open(events[at:end])
                checked = self._format.checksum
            elif treatment == _XA_PREPARE:
                self._xa_prepare(events, at, end, position)
            elif treatment == _PARTIAL:
                if self._rows_head(events, at, end, code, position)[0] is not None:
                    raise self._unsupported(code, position, "it holds parts of JSON values")
            elif treatment != _NOTHING and not (data[at + 17] & 0x80):
                # 0x80 is LOG_EVENT_IGNORABLE_F.
                raise self._unsupported(code, position, "this type is not supported")
            at += size
            ordinal += 1
        return rows

    def _group_begins(self) -> None:
        if self._active:
            self._active = {}
        self._changed = None

    def _unsupported(self, code: int, position: int, reason: str) -> errors.ShardmergeError:
        way_out = _WAYS_OUT.get(
            code, "Use a server version and settings this version knows (binlog_format=ROW), or leave this out of the "
            "binlog, and start the task again with a new snapshot."
        )  # fmt: skip
        return errors.decode.UNSUPPORTED_EVENT(
            source=self._source, event=ev.event_name(code), position=position, reason=reason, way_out=way_out
        )

    def _id_bytes(self, code: int, position: int) -> int:
        """Bytes of the table id in table maps and rows events: old servers wrote 4, said by the post-header length."""
        length: int = self._format.post_header_length(code) if self._format is not None else 0
        if length == 6:
            return 4
        if length in (8, 10):
            return 6
        raise ev.malformed(self._source, position, f"{ev.event_name(code)} with a post-header of {length} bytes")

    def _table_map(self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, position: int) -> None:
        body_at: cython.Py_ssize_t = at + 19
        body: bytes = events[body_at:end]
        head = parse_names(body, 0, len(body), self._id_bytes(ev.EventType.TABLE_MAP, position), self._source, position)
        known = self._known.get(head.table_id)
        if known is None or known.body != body:
            plan = self._resolve(head.schema, head.table)
            reader = None
            if plan is not None:
                reader = make_reader(head, body, len(body), plan, self._source_keys, self._source, position)
            known = _Mapped(body, head, reader)
            if len(self._known) >= _MOST_CACHED:
                self._known = {}
            self._known[head.table_id] = known
        self._active[head.table_id] = known

    def _rows_head(
        self, events: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, code: cython.int, position: int
    ) -> tuple[ImageReader | None, TableMap | None, int, bool]:
        """A rows event's reader and table, the byte where its column count stands, whether it ends its statement."""
        data: cython.p_uchar = events
        id_bytes: cython.int = self._id_bytes(code, position)
        extras: cython.p_uchar = _WITH_EXTRA
        table_id: cython.ulonglong = 0
        i: cython.int
        here: cython.Py_ssize_t = at + 19
        if here + id_bytes + 2 + 2 > end:
            raise ev.malformed(self._source, position, f"{ev.event_name(code)} is too short")
        for i in range(id_bytes - 1, -1, -1):
            table_id = (table_id << 8) | data[here + i]
        here += id_bytes
        ends_statement: cython.bint = data[here] & 1
        here += 2
        if extras[code]:
            extra: cython.Py_ssize_t = data[here] | data[here + 1] << 8
            if extra < 2 or here + extra > end:
                raise ev.malformed(self._source, position, f"{ev.event_name(code)} with extra data of {extra} bytes")
            here += extra
        mapped = self._active.get(table_id)
        if mapped is None:
            # The dummy event that only ends a statement has an id no table has, and no rows.
            if table_id in (0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFF) and ends_statement:
                return None, None, here, True
            raise ev.malformed(self._source, position, f"{ev.event_name(code)} of table id {table_id} without its map")
        return mapped.reader, mapped.head, here, ends_statement

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
        reader, head, here, ends_statement = self._rows_head(events, at, end, code, position)
        if reader is not None and head is not None:
            self._changed = head
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

    def _query(self, events: bytes, at: int, end: int, code: int, position: int) -> None:
        """BEGIN, COMMIT and ROLLBACK; what other statements do is no matter of the decoder."""
        if code == ev.EventType.QUERY_COMPRESSED:
            return  # the statements that bound a transaction are too short to be compressed
        body: bytes = events[at + 19 : end]
        if len(body) < 13:
            raise ev.malformed(self._source, position, "QUERY is too short")
        start: int = 13 + int.from_bytes(body[11:13], "little") + body[8] + 1
        if start > len(body):
            raise ev.malformed(self._source, position, "QUERY: its variables and schema name exceed the event")
        words: list[bytes] = body[start : start + 64].upper().split()
        if not words:
            return
        first: bytes = words[0]
        if first == b"BEGIN" or first == b"COMMIT":
            self._group_begins()
        elif first == b"ROLLBACK":
            if self._changed is not None:
                raise errors.decode.ROLLED_BACK_ROWS(
                    source=self._source,
                    position=position,
                    schema=self._changed.schema,
                    table=self._changed.table,
                    statement=body[start : start + 64].decode("utf-8", "replace"),
                )
            if b"TO" not in words:
                self._group_begins()

    def _xa_prepare(self, events: bytes, at: int, end: int, position: int) -> None:
        if end - at < 19 + 1:
            raise ev.malformed(self._source, position, "XA_PREPARE is too short")
        one_phase: bool = events[at + 19] != 0
        if self._changed is not None and not one_phase:
            raise errors.decode.PREPARED_ROWS(
                source=self._source, position=position, schema=self._changed.schema, table=self._changed.table
            )
        self._group_begins()


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _u32(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    value: cython.Py_ssize_t = data[at + 3]
    value = (value << 8) | data[at + 2]
    value = (value << 8) | data[at + 1]
    return (value << 8) | data[at]

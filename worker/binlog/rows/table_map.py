"""Parses TABLE_MAP events: the table of the next row images, and the format of its columns in them.

Formats: MySQL Internals Manual, "Table_map event"; libs/mysql/binlog/event/rows_event.h (optional metadata).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.worker.binlog.events import FormatDescription, malformed
from shardmerge.worker.binlog.rows.charsets import charset_of_id
from shardmerge.worker.binlog.rows.column_codec import ColumnCodec
from shardmerge.worker.binlog.rows.image_reader import ImageReader
from shardmerge.worker.binlog.rows.row_filter import RowFilters
from shardmerge.worker.core.lane_hash import Bucket
from shardmerge.worker.core.table import Column, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, TablePlan

# Type codes of columns in the binlog (enum_field_types).
_TINY, _SHORT, _LONG, _FLOAT, _DOUBLE, _TIMESTAMP, _LONGLONG, _INT24 = 1, 2, 3, 4, 5, 7, 8, 9
_DATE, _TIME, _DATETIME, _YEAR, _VARCHAR, _BIT = 10, 11, 12, 13, 15, 16
_TIMESTAMP2, _DATETIME2, _TIME2 = 17, 18, 19
_BLOB_COMPRESSED, _VARCHAR_COMPRESSED, _VECTOR = 140, 141, 242
_JSON, _NEWDECIMAL, _ENUM, _SET, _BLOB, _VAR_STRING, _STRING, _GEOMETRY = 245, 246, 247, 248, 252, 253, 254, 255

_METADATA_BYTES = {
    **dict.fromkeys((_TINY, _SHORT, _LONG, _TIMESTAMP, _LONGLONG, _INT24, _DATE, _TIME, _DATETIME, _YEAR), 0),
    **dict.fromkeys((_FLOAT, _DOUBLE, _TIMESTAMP2, _DATETIME2, _TIME2, _BLOB, _JSON, _GEOMETRY), 1),
    **dict.fromkeys((_BLOB_COMPRESSED, _VECTOR), 1),
    **dict.fromkeys((_VARCHAR, _BIT, _NEWDECIMAL, _VAR_STRING, _STRING, _VARCHAR_COMPRESSED), 2),
}

_FIXED = {_TINY: 1, _SHORT: 2, _INT24: 3, _LONG: 4, _LONGLONG: 8, _FLOAT: 4, _DOUBLE: 8, _DATE: 3, _YEAR: 1,
          _TIME: 3, _DATETIME: 8, _TIMESTAMP: 4}  # fmt: skip
_PACKED = {_TIME2: 3, _DATETIME2: 5, _TIMESTAMP2: 4}
"""Bytes without the fraction."""
_GROUP_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes of a group of 0–9 decimal digits."""

_VARIABLE = (_VARCHAR, _VAR_STRING, _STRING, _VARCHAR_COMPRESSED)
_LONG_VALUES = (_BLOB, _GEOMETRY, _JSON, _BLOB_COMPRESSED, _VECTOR)

_SHAPES = "geometry point linestring polygon multipoint multilinestring multipolygon geometrycollection geomcollection"

_TYPES: dict[str, tuple[ValueKind, tuple[int, ...]]] = {
    "tinyint": (ValueKind.INTEGER, (_TINY,)),
    "smallint": (ValueKind.INTEGER, (_SHORT,)),
    "mediumint": (ValueKind.INTEGER, (_INT24,)),
    "int": (ValueKind.INTEGER, (_LONG,)),
    "bigint": (ValueKind.INTEGER, (_LONGLONG,)),
    "decimal": (ValueKind.DECIMAL, (_NEWDECIMAL,)),
    "float": (ValueKind.FLOAT, (_FLOAT,)),
    "double": (ValueKind.DOUBLE, (_DOUBLE,)),
    "bit": (ValueKind.BIT, (_BIT,)),
    "date": (ValueKind.DATE, (_DATE,)),
    "time": (ValueKind.TIME, (_TIME, _TIME2)),
    "datetime": (ValueKind.DATETIME, (_DATETIME, _DATETIME2)),
    "timestamp": (ValueKind.TIMESTAMP, (_TIMESTAMP, _TIMESTAMP2)),
    "year": (ValueKind.YEAR, (_YEAR,)),
    "char": (ValueKind.STRING, (_STRING,)),
    "varchar": (ValueKind.STRING, (_VARCHAR, _VAR_STRING)),
    "binary": (ValueKind.BINARY, (_STRING,)),
    "varbinary": (ValueKind.BINARY, (_VARCHAR, _VAR_STRING)),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), (ValueKind.STRING, (_BLOB,))),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), (ValueKind.BINARY, (_BLOB,))),
    "enum": (ValueKind.ENUM, (_ENUM,)),
    "set": (ValueKind.SET, (_SET,)),
    **dict.fromkeys(_SHAPES.split(), (ValueKind.GEOMETRY, (_GEOMETRY,))),
    "json": (ValueKind.JSON, (_JSON,)),
    "vector": (ValueKind.VECTOR, (_VECTOR,)),
    **dict.fromkeys(("inet4", "inet6", "uuid"), (ValueKind.BINARY, (_STRING,))),
}
"""Types of information_schema: the kind of their values, and their type codes in the binlog. Others are not
supported."""

_NAMES = {
    _TINY: "TINYINT", _SHORT: "SMALLINT", _INT24: "MEDIUMINT", _LONG: "INT", _LONGLONG: "BIGINT",
    _NEWDECIMAL: "DECIMAL", _FLOAT: "FLOAT", _DOUBLE: "DOUBLE", _BIT: "BIT", _DATE: "DATE", _TIME: "TIME",
    _TIME2: "TIME", _DATETIME: "DATETIME", _DATETIME2: "DATETIME", _TIMESTAMP: "TIMESTAMP", _TIMESTAMP2: "TIMESTAMP",
    _YEAR: "YEAR", _STRING: "CHAR or BINARY", _VARCHAR: "VARCHAR or VARBINARY", _VAR_STRING: "VARCHAR or VARBINARY",
    _BLOB: "TEXT or BLOB", _ENUM: "ENUM", _SET: "SET", _GEOMETRY: "GEOMETRY", _JSON: "JSON", _VECTOR: "VECTOR",
}  # fmt: skip
"""Types by their codes, for people."""

_BLOB_LENGTH_BYTES = {"tiny": 1, "medium": 3, "long": 4}

_BASE = re.compile(r"[a-z0-9]+")
_ARGUMENTS = re.compile(r"[a-z0-9]+\((\d+)(?:,(\d+))?\)")

_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSETS, _COLUMN_NAMES = 1, 2, 3, 4
_DEFAULT_CHARSET_OF_LABELS, _CHARSETS_OF_LABELS = 10, 11
"""Kinds of optional metadata that are compared with the known structure."""
_LABELLED = frozenset((_ENUM, _SET))
_TEXTUAL = frozenset((*_VARIABLE, _BLOB, _BLOB_COMPRESSED))
_TEXTUAL_OF_MARIADB, _TEXTUAL_OF_MYSQL = _TEXTUAL | {_GEOMETRY}, _TEXTUAL | {_VECTOR}
"""Types whose columns have a collation in the optional metadata (seen of MariaDB 10.11 and 11.8 and of MySQL 9.7)."""
_NUMERIC = frozenset((_TINY, _SHORT, _INT24, _LONG, _LONGLONG, _FLOAT, _DOUBLE, _NEWDECIMAL))


@dataclass(frozen=True, slots=True)
class TableMap:
    """The head of a TABLE_MAP event. ``columns_at``: byte of the body where its columns begin."""

    schema: str
    table: str
    columns_at: int


@dataclass(frozen=True, slots=True)
class WireColumn:
    """A column in row images: its real type, and its metadata as that type defines it (0 if it has none)."""

    type: int
    first: int
    second: int = 0


class _Reader:
    """Bounds-checked reading of one event's body."""

    def __init__(self, body: bytes, source: str, position: int, at: int = 0) -> None:
        self._body = body
        self._at = at
        self._end = len(body)
        self._source = source
        self._position = position

    def fail(self, reason: str) -> errors.ShardmergeError:
        return malformed(self._source, self._position, f"TABLE_MAP: {reason}")

    @property
    def at(self) -> int:
        return self._at

    @property
    def left(self) -> int:
        return self._end - self._at

    def take(self, size: int) -> bytes:
        if size > self._end - self._at:
            raise self.fail("a field exceeds the event")
        self._at += size
        return self._body[self._at - size : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def packed(self) -> int:
        """A length-encoded integer."""
        first = self.number(1)
        if first < 251:
            return first
        if first == 251 or first == 255:
            raise self.fail(f"length prefix {first}")
        return self.number({252: 2, 253: 3, 254: 8}[first])

    def within(self, part: bytes) -> _Reader:
        """A reader of a field's own bytes."""
        return _Reader(part, self._source, self._position)

    def name(self) -> str:
        """A name, preceded by its length in one byte and followed by a zero byte."""
        raw = self.take(self.number(1))
        if self.take(1) != b"\0":
            raise self.fail("a name without its end")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.fail("a name that is not UTF-8") from None


def parse_names(body: bytes, id_bytes: int, source: str, position: int) -> TableMap:
    """The table that a TABLE_MAP names. ``body``: the event without header and checksum. Raises MALFORMED_EVENT."""
    reader = _Reader(body, source, position)
    reader.take(id_bytes + 2)
    return TableMap(reader.name(), reader.name(), reader.at)


def make_reader(
    table_map: TableMap,
    body: bytes,
    plan: TablePlan,
    source_keys: bool,
    server: FormatDescription,
    source: str,
    position: int,
    bucket: Bucket,
    filters: RowFilters | None = None,
) -> ImageReader:
    """The reader of this table's row images, if they match the structure in ``plan``; ``filters``: its row filters.

    Raises MALFORMED_EVENT, STRUCTURE_MISMATCH, UNSUPPORTED_TYPE.
    """
    reader = _Reader(body, source, position, table_map.columns_at)
    wires = _parse_columns(reader)
    known = plan.table.columns
    try:
        pairs = _pairs(wires, known)
        _check_optional(reader, pairs, is_mariadb=server.is_mariadb)
        written = {column_plan.index: (slot, column_plan) for slot, column_plan in enumerate(plan.columns)}
        codecs: list[ColumnCodec] = []
        for index, (wire, column) in enumerate(pairs):
            slot, column_plan = written.get(index, (-1, None))
            key_slot = plan.key.index(slot) if source_keys and slot in plan.key else -1
            codecs.append(_codec(plan, column, column_plan, wire, slot, key_slot, server, source))
    except _Mismatch as mismatch:
        raise errors.decode.STRUCTURE_MISMATCH(
            source=source,
            schema=table_map.schema,
            table=table_map.table,
            position=position,
            reason=mismatch,
        ) from None
    return ImageReader(plan, codecs, len(plan.key) if source_keys else 0, bucket, filters)


class _Mismatch(Exception):
    """The difference from the known structure."""


def _parse_columns(reader: _Reader) -> list[WireColumn]:
    count = reader.packed()
    types = reader.take(count)
    metadata = reader.take(reader.packed())
    columns: list[WireColumn] = []
    at = 0
    for code in types:
        size = _METADATA_BYTES.get(code)
        if size is None:
            # The size of an unknown type's metadata is unknown, so that nothing after it can be read.
            raise reader.fail(f"column type {code} is not known")
        if at + size > len(metadata):
            raise reader.fail("the columns' metadata is too short")
        first = metadata[at] if size else 0
        second = metadata[at + 1] if size == 2 else 0
        at += size
        columns.append(_wire_column(code, first, second))
    if at != len(metadata):
        raise reader.fail("the columns' metadata is too long")
    reader.take((count + 7) // 8)  # which columns may be NULL
    return columns


def _wire_column(code: int, first: int, second: int) -> WireColumn:
    if code == _STRING:
        # The real type and the length share two bytes: bits 8 and 9 of the length are inverted in the type's byte.
        if first & 0x30 != 0x30:
            return WireColumn(first | 0x30, second | ((first & 0x30) ^ 0x30) << 4)
        return WireColumn(first, second)
    if code in _VARIABLE:
        return WireColumn(code, first | second << 8)
    return WireColumn(code, first, second)


def _pairs(wires: list[WireColumn], known: tuple[Column, ...]) -> tuple[tuple[WireColumn, Column], ...]:
    if len(wires) != len(known):
        raise _Mismatch(f"it has {len(wires)} columns, known are {len(known)}")
    return tuple(zip(wires, known, strict=True))


def _check_signs(reader: _Reader, value: bytes, pairs: tuple[tuple[WireColumn, Column], ...]) -> None:
    """One bit per number, the highest first: is it unsigned?

    MariaDB 10.11 and MySQL 9.7 count YEAR among the numbers (seen), MySQL's own reader does not (is_numeric_type() in
    sql/log_event.cc): one of both must match.
    """
    wrong: list[Column | None] = []
    for types in (_NUMERIC | {_YEAR}, _NUMERIC):
        numeric = [column for wire, column in pairs if wire.type in types]
        if len(value) == (len(numeric) + 7) // 8:
            wrong.append(_wrong_sign(value, numeric))
    if not wrong:
        raise reader.fail("signedness of another number of columns")
    if wrong[0] is not None and wrong[-1] is not None:
        there = "signed" if wrong[0].unsigned else "unsigned"
        raise _Mismatch(f"column {wrong[0].name} is {there} there")


def _wrong_sign(value: bytes, numeric: list[Column]) -> Column | None:
    """The first of the columns whose bit means another sign."""
    for bit, column in enumerate(numeric):
        unsigned = bool(value[bit >> 3] << (bit & 7) & 0x80)
        if column.kind != ValueKind.YEAR and unsigned != column.unsigned:
            return column
    return None


def _check_charsets(
    reader: _Reader, types: frozenset[int], shared: bool, pairs: tuple[tuple[WireColumn, Column], ...]
) -> None:
    """The collation of each column of these types: all of them in order, or one for most and pairs of a column's
    number among them and its collation for the others."""
    columns = [column for wire, column in pairs if wire.type in types]
    collations = [reader.packed()] * len(columns) if shared else []
    while reader.left:
        if not shared:
            collations.append(reader.packed())
            continue
        at = reader.packed()
        if at >= len(columns):
            raise reader.fail("the character set of another column")
        collations[at] = reader.packed()
    if len(collations) != len(columns):
        raise reader.fail("character sets of another number of columns")
    for column, collation in zip(columns, collations, strict=True):
        there, known = charset_of_id(collation), "utf8mb3" if column.charset == "utf8" else column.charset
        # Only text is checked: what is binary has its length in the event's metadata.
        if there and known and there != known:
            raise _Mismatch(
                f"column {column.name} has character set {there} there (collation {collation}), and {known} in the "
                "known structure"
            )


def _check_optional(reader: _Reader, pairs: tuple[tuple[WireColumn, Column], ...], *, is_mariadb: bool) -> None:
    """Compare the optional metadata with the known table; other kinds of metadata are ignored."""
    while reader.left:
        kind = reader.number(1)
        value = reader.take(reader.packed())
        if kind == _SIGNEDNESS:
            _check_signs(reader, value, pairs)
        elif kind in (_DEFAULT_CHARSET, _COLUMN_CHARSETS):
            textual = _TEXTUAL_OF_MARIADB if is_mariadb else _TEXTUAL_OF_MYSQL
            _check_charsets(reader.within(value), textual, kind == _DEFAULT_CHARSET, pairs)
        elif kind in (_DEFAULT_CHARSET_OF_LABELS, _CHARSETS_OF_LABELS):
            _check_charsets(reader.within(value), _LABELLED, kind == _DEFAULT_CHARSET_OF_LABELS, pairs)
        elif kind == _COLUMN_NAMES:
            names = reader.within(value)
            for _, column in pairs:
                name = names.take(names.packed()).decode("utf-8", "replace")
                if name != column.name:
                    raise _Mismatch(f"column {column.name} is called {name} there")


def _codec(
    plan: TablePlan,
    column: Column,
    column_plan: ColumnPlan | None,
    wire: WireColumn,
    slot: int,
    key_slot: int,
    server: FormatDescription,
    source: str,
) -> ColumnCodec:
    """One column's codec; the values of a column that is not written are only skipped, whatever its type."""
    mapping = column_plan.mapping if column_plan is not None else None
    codec = ColumnCodec(plan.table, column, slot, key_slot, mapping, source, plan.text_as_utf8, slot in plan.key)
    if column_plan is not None:
        base_match = _BASE.match(column.type_text)
        base = base_match.group() if base_match else ""
        kind, types = _TYPES.get(base, (column.kind, ()))
        if not types or kind != column.kind or wire.type in (_BLOB_COMPRESSED, _VARCHAR_COMPRESSED):
            raise codec.refused("this type is not supported")
        if wire.type not in types:
            there = _NAMES.get(wire.type, "of another type")
            raise _Mismatch(
                f"column {column.name} is {there} there (type code {wire.type}), and {column.type_text} in the known "
                "structure"
            )
        _check_arguments(column, base, wire)
    _bind(codec, wire, column)
    if wire.type == _JSON:
        codec.bind_json(server.server_version.startswith("5."))
    return codec


def _check_arguments(column: Column, base: str, wire: WireColumn) -> None:
    """Check that lengths and digits in ``type_text`` match the event, by which the bytes are split."""
    match = _ARGUMENTS.match(column.type_text)
    first = int(match.group(1)) if match else 0
    second = int(match.group(2)) if match and match.group(2) else 0
    expected: tuple[int, int] | None = None
    if base == "decimal":
        expected = (first, second)
    elif base == "bit":
        expected = (first % 8, first // 8)
    elif base in ("binary", "varbinary") or wire.type in _PACKED:
        expected = (first, 0)
    elif wire.type == _STRING and column.kind == ValueKind.BINARY:
        expected = (column.length, 0)
    elif wire.type in (_TIME, _DATETIME, _TIMESTAMP):
        # Older format: the event does not contain the number of fraction digits.
        expected = (0, 0) if first == 0 else (-1, 0)
    elif wire.type == _ENUM:
        expected = (1 if len(column.labels) < 256 else 2, 0)
    elif wire.type == _SET:
        size = (len(column.labels) + 7) // 8
        expected = (size if size <= 4 else 8, 0)
    elif wire.type == _BLOB:
        expected = (_BLOB_LENGTH_BYTES.get(base.removesuffix("text").removesuffix("blob"), 2), 0)
    if expected is not None and expected != (wire.first, wire.second):
        raise _Mismatch(f"column {column.name} is another {base} ({wire.first}, {wire.second}) there")


def _bind(codec: ColumnCodec, wire: WireColumn, column: Column) -> None:
    """Set the size of values in the codec. Raises _Mismatch for metadata that no column can have."""
    impossible = _Mismatch(f"column {column.name}: type code {wire.type} with metadata {wire.first}, {wire.second}")
    if wire.type in _FIXED:
        codec.bind(_FIXED[wire.type], 0, False, 0, 0)
    elif wire.type in _PACKED:
        if wire.first > 6:
            raise impossible
        codec.bind(_PACKED[wire.type] + (wire.first + 1) // 2, 0, True, 0, wire.first)
    elif wire.type == _NEWDECIMAL:
        precision, scale = wire.first, wire.second
        if not 1 <= precision <= 65 or scale > precision:
            raise impossible
        size = sum(digits // 9 * 4 + _GROUP_BYTES[digits % 9] for digits in (precision - scale, scale))
        codec.bind(size, 0, False, precision, scale)
    elif wire.type == _BIT:
        size = wire.second + (1 if wire.first else 0)
        if not 1 <= size <= 8 or wire.first > 7:
            raise impossible
        codec.bind(size, 0, False, 0, 0)
    elif wire.type in (_ENUM, _SET):
        if not 1 <= wire.first <= 8:
            raise impossible
        codec.bind(wire.first, 0, False, 0, 0)
    elif wire.type in _VARIABLE:
        codec.bind(-1, 1 if wire.first < 256 else 2, False, 0, 0)
    elif wire.type in _LONG_VALUES:
        if not 1 <= wire.first <= 4:
            raise impossible
        codec.bind(-1, wire.first, False, 0, 0)
    else:
        raise impossible

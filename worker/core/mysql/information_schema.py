"""Reads the structure of tables from a server's information_schema, and makes the expressions to read their values.

Sources: MySQL 8.4 Reference Manual, chapter "INFORMATION_SCHEMA Tables"; MariaDB Knowledge Base, "Information
Schema Tables". Where MySQL answers '' MariaDB may answer NULL: both are read as "".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shardmerge.proto import errors
from shardmerge.proto.config.rules.reserved_names import SYSTEM_SCHEMAS
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, is_tidb, quote_name, rows, text_of
from shardmerge.worker.core.table import FIXED_BINARY, Column, Table, ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan

_KINDS = {
    "tinyint": ValueKind.INTEGER,
    "smallint": ValueKind.INTEGER,
    "mediumint": ValueKind.INTEGER,
    "int": ValueKind.INTEGER,
    "bigint": ValueKind.INTEGER,
    "decimal": ValueKind.DECIMAL,
    "float": ValueKind.FLOAT,
    "double": ValueKind.DOUBLE,
    "bit": ValueKind.BIT,
    "date": ValueKind.DATE,
    "time": ValueKind.TIME,
    "datetime": ValueKind.DATETIME,
    "timestamp": ValueKind.TIMESTAMP,
    "year": ValueKind.YEAR,
    "char": ValueKind.STRING,
    "varchar": ValueKind.STRING,
    "tinytext": ValueKind.STRING,
    "text": ValueKind.STRING,
    "mediumtext": ValueKind.STRING,
    "longtext": ValueKind.STRING,
    "binary": ValueKind.BINARY,
    "varbinary": ValueKind.BINARY,
    "tinyblob": ValueKind.BINARY,
    "blob": ValueKind.BINARY,
    "mediumblob": ValueKind.BINARY,
    "longblob": ValueKind.BINARY,
    "enum": ValueKind.ENUM,
    "set": ValueKind.SET,
    "json": ValueKind.JSON,
    "geometry": ValueKind.GEOMETRY,
    "point": ValueKind.GEOMETRY,
    "linestring": ValueKind.GEOMETRY,
    "polygon": ValueKind.GEOMETRY,
    "multipoint": ValueKind.GEOMETRY,
    "multilinestring": ValueKind.GEOMETRY,
    "multipolygon": ValueKind.GEOMETRY,
    "geometrycollection": ValueKind.GEOMETRY,
    "geomcollection": ValueKind.GEOMETRY,
    "vector": ValueKind.VECTOR,
    "inet4": ValueKind.BINARY,
    "inet6": ValueKind.BINARY,
    "uuid": ValueKind.BINARY,
}
_GENERATED = re.compile(r"\b(VIRTUAL|STORED|PERSISTENT)\b", re.IGNORECASE)  # "DEFAULT_GENERATED" is a default
_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPE = re.compile(r"''|\\(.)", re.DOTALL)
_CONTROL = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}

# information_schema uses 3-byte UTF-8: it shows a label's characters beyond it as "?".
_WIDE_CHARSETS = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})


def list_tables(session: Session) -> list[tuple[str, str]]:
    """(schema, table) of every base table outside the server's own schemas, in name order.

    Raises ``pymysql.MySQLError``.
    """
    found = rows(
        session,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES "
        "WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')",
    )
    names = [(text_of(schema), text_of(name)) for schema, name in found]
    return sorted(pair for pair in names if pair[0].lower() not in SYSTEM_SCHEMAS)


def list_sequences(session: Session) -> list[tuple[str, str]]:
    """(schema, name) of every sequence (MariaDB), in name order. Raises ``pymysql.MySQLError``."""
    found = rows(
        session, "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'SEQUENCE'"
    )
    return sorted((text_of(schema), text_of(name)) for schema, name in found)


def list_views(session: Session) -> list[tuple[str, str]]:
    """(schema, name) of every view outside the server's own schemas, in name order. Raises ``pymysql.MySQLError``."""
    found = rows(session, "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'VIEW'")
    names = [(text_of(schema), text_of(name)) for schema, name in found]
    return sorted(pair for pair in names if pair[0].lower() not in SYSTEM_SCHEMAS)


def read_table(session: Session, schema: str, name: str, *, source: str = "") -> Table | None:
    """One table, or None if the server has none of that name (as spelt). Raises as :func:`read_tables`."""
    found = read_tables(session, [(schema, name)], source=source)
    return found[0] if found else None


def read_tables(session: Session, names: Iterable[tuple[str, str]], *, source: str = "") -> list[Table]:
    """The tables among ``names`` that exist, in the order of ``names``.

    ``source``: the source's id, for messages. Raises errors.check.UNSUPPORTED_COLUMN or UNSUPPORTED_TABLE
    for what cannot be copied faithfully, ``pymysql.MySQLError`` for the server's errors.
    """
    found: list[Table] = []
    for table in inspect_tables(session, names, source=source):
        if isinstance(table, ShardmergeError):
            raise table
        found.append(table)
    return found


def inspect_tables(
    session: Session, names: Iterable[tuple[str, str]], *, source: str = ""
) -> list[Table | ShardmergeError]:
    """Like :func:`read_tables`, with the error in place of each table that cannot be copied."""
    wanted = list(dict.fromkeys(names))
    raws: dict[tuple[str, str], _RawTable] = {}
    hidden = _hidden_expression(session) if wanted else ""
    for schema in dict.fromkeys(schema for schema, _ in wanted):
        in_schema = [name for other, name in wanted if other == schema]
        # One table: information_schema opens only that one. Several: one pass over the schema.
        _collect(session, schema, in_schema[0] if len(in_schema) == 1 else None, hidden, raws)
    results: list[Table | ShardmergeError] = []
    for pair in wanted:
        raw = raws.get(pair)
        if raw is None:
            continue
        try:
            results.append(_build(raw, source))
        except ShardmergeError as error:
            results.append(error)
    return results


@dataclass(slots=True)
class _RawColumn:
    name: str
    data_type: str
    type_text: str
    nullable: bool
    charset: str
    collation: str
    extra: str
    octets: int


@dataclass(slots=True)
class _RawTable:
    schema: str
    name: str
    table_type: str
    engine: str
    row_estimate: int
    byte_estimate: int
    columns: list[_RawColumn] = field(default_factory=list[_RawColumn])
    unique: dict[str, list[tuple[str, bool]]] = field(default_factory=dict[str, list[tuple[str, bool]]])
    """Per unique key: its parts in order, and whether each is a whole column."""

    hidden: set[str] = field(default_factory=set[str])
    """The unique keys whose indexes the server does not use for reading."""

    foreign_keys: int = 0


def _hidden_expression(session: Session) -> str:
    """The condition on information_schema.STATISTICS for a hidden index: MySQL has IS_VISIBLE since 8.0, MariaDB
    IGNORED since 10.6 (manuals, "The INFORMATION_SCHEMA STATISTICS Table"; "Ignored Indexes"); older versions have no
    hidden indexes.
    """
    for column, *_ in rows(session, "SHOW COLUMNS FROM information_schema.STATISTICS"):
        expression = _HIDDEN.get(text_of(column).upper())
        if expression is not None:
            return expression
    return "0"


_HIDDEN = {"IS_VISIBLE": "IS_VISIBLE = 'NO'", "IGNORED": "IGNORED = 'YES'"}


def _collect(
    session: Session, schema: str, name: str | None, hidden: str, raws: dict[tuple[str, str], _RawTable]
) -> None:
    """Read one schema's (or one table's) description; four queries. ``hidden``: of :func:`_hidden_expression`."""
    # TiDB shows a backslash in a label as it is (pkg/parser/types/field_type.go, ``CompactStr``).
    escapes_labels = not is_tidb(session)

    def ask(columns: str, view: str, schema_column: str = "TABLE_SCHEMA", order: str = "") -> Sequence[list[str]]:
        statement = f"SELECT {columns} FROM information_schema.{view} WHERE {schema_column} = %s"
        args: tuple[object, ...] = (schema,)
        if name is not None:
            statement += " AND TABLE_NAME = %s"
            args = (schema, name)
        found = rows(session, statement + order, args)
        return [[text_of(value) for value in row] for row in found]

    found: dict[str, _RawTable] = {}
    for table, table_type, engine, row_count, size in ask(
        "TABLE_NAME, TABLE_TYPE, ENGINE, TABLE_ROWS, DATA_LENGTH", "TABLES"
    ):
        if table_type in ("BASE TABLE", "SYSTEM VERSIONED"):
            found[table] = _RawTable(schema, table, table_type, engine, int(row_count or 0), int(size or 0))
    for table, *parts, octets in ask(
        "TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME, COLLATION_NAME, EXTRA, "
        "CHARACTER_OCTET_LENGTH",
        "COLUMNS",
        order=" ORDER BY TABLE_NAME, ORDINAL_POSITION",
    ):
        if table in found:
            column, data_type, type_text, nullable, charset, collation, extra = parts
            if data_type in ("enum", "set") and not escapes_labels:
                type_text = type_text.replace("\\", "\\\\")
            found[table].columns.append(
                _RawColumn(
                    column,
                    data_type.lower(),
                    type_text,
                    nullable == "YES",
                    charset,
                    collation,
                    extra,
                    int(octets or 0),
                )
            )
    for table, key, non_unique, column, prefix, is_hidden in ask(
        f"TABLE_NAME, INDEX_NAME, NON_UNIQUE, COLUMN_NAME, SUB_PART, {hidden}",
        "STATISTICS",
        order=" ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX",
    ):
        if table in found and non_unique == "0":
            # COLUMN_NAME is NULL for an expression (MySQL 8); such a part is not a whole column either.
            found[table].unique.setdefault(key, []).append((column or "(expression)", bool(column) and not prefix))
            if is_hidden == "1":
                found[table].hidden.add(key)
    for (table,) in ask("TABLE_NAME", "REFERENTIAL_CONSTRAINTS", "CONSTRAINT_SCHEMA"):
        if table in found:
            found[table].foreign_keys += 1
    raws.update({(schema, table): raw for table, raw in found.items()})


def _build(raw: _RawTable, source: str) -> Table:
    if raw.table_type == "SYSTEM VERSIONED":
        raise errors.check.UNSUPPORTED_TABLE(
            source=source,
            schema=raw.schema,
            table=raw.name,
            reason="it is system-versioned: its row events carry history rows",
        )
    columns = tuple(_column(raw, column, source) for column in raw.columns)
    places = {column.name: index for index, column in enumerate(columns)}
    key_name, key = _choose_key(raw, columns, places)
    return Table(
        schema=raw.schema,
        name=raw.name,
        columns=columns,
        key=key,
        key_name=key_name,
        key_hidden=key_name in raw.hidden,
        unique_keys=tuple(tuple(column for column, _ in parts) for parts in raw.unique.values()),
        has_foreign_keys=raw.foreign_keys > 0,
        engine=raw.engine,
        row_estimate=raw.row_estimate,
        byte_estimate=raw.byte_estimate,
    )


def _column(raw: _RawTable, column: _RawColumn, source: str) -> Column:
    def unsupported(reason: str) -> ShardmergeError:
        return errors.check.UNSUPPORTED_COLUMN(
            source=source,
            schema=raw.schema,
            table=raw.name,
            column=column.name,
            type=column.type_text,
            reason=reason,
        )

    kind = _KINDS.get(column.data_type)
    if kind is None:
        raise unsupported("values of this type cannot be copied exactly yet")
    if "COMPRESSED" in column.type_text:
        raise unsupported("compressed columns have another format in the binlog")
    if "/*" in column.type_text:  # "/* mariadb-5.3 */", "/* 5.5 binary format */"
        raise unsupported("it has an old storage format; ALTER TABLE … FORCE at the source renews it")
    if column.type_text == "year(2)":
        raise unsupported("two-digit years are ambiguous")
    labels: tuple[str, ...] = ()
    if kind in (ValueKind.ENUM, ValueKind.SET):
        labels = parse_labels(column.type_text)
        if column.charset in _WIDE_CHARSETS and any("?" in label for label in labels):
            raise unsupported('a label with "?" may hold a character that information_schema cannot show')
    return Column(
        name=column.name,
        kind=kind,
        type_text=column.type_text,
        nullable=column.nullable,
        unsigned="unsigned" in column.type_text and kind not in (ValueKind.ENUM, ValueKind.SET),
        charset=column.charset if kind in _TEXT_KINDS else "",
        collation=column.collation if kind in _TEXT_KINDS else "",
        labels=labels,
        generated=_GENERATED.search(column.extra) is not None,
        auto_increment="auto_increment" in column.extra.lower(),
        length=column.octets if column.data_type == "binary" else FIXED_BINARY.get(column.data_type, 0),
    )


_TEXT_KINDS = frozenset({ValueKind.STRING, ValueKind.ENUM, ValueKind.SET})


def parse_labels(type_text: str) -> tuple[str, ...]:
    """The labels in a COLUMN_TYPE such as ``enum('a','it''s')``.

    Servers double the quote and escape backslash, NUL, line feed and carriage return (append_unescaped() in
    sql/unireg.cc of MariaDB, sql/sql_show.cc of MySQL).
    """

    def unescape(match: re.Match[str]) -> str:
        escaped = match.group(1)
        return "'" if escaped is None else _CONTROL.get(escaped, escaped)

    return tuple(_ESCAPE.sub(unescape, label) for label in _LABEL.findall(type_text))


def _choose_key(raw: _RawTable, columns: Sequence[Column], places: dict[str, int]) -> tuple[str, tuple[int, ...]]:
    """The primary key, else the best unique key of whole NOT NULL columns: hidden ones last (rows are read by the key
    that identifies them), fewest columns, integers first.

    A key over a part of a column or over a generated column does not identify a row image.
    """
    best: tuple[tuple[bool, bool, int, bool, str], str, tuple[int, ...]] | None = None
    for name, parts in raw.unique.items():
        if not all(whole and column in places for column, whole in parts):
            continue
        key = tuple(places[column] for column, _ in parts)
        members = [columns[index] for index in key]
        if any(column.nullable or column.generated for column in members):
            continue
        integers = all(column.kind is ValueKind.INTEGER for column in members)
        rank = (name != "PRIMARY", name in raw.hidden, len(key), not integers, name)
        if best is None or rank < best[0]:
            best = (rank, name, key)
    return ("", ()) if best is None else (best[1], best[2])


def select_expression(column: Column) -> str:
    """The expression by which a raw session reads the column so that no bit is lost and each value has one text.

    FLOAT's own text drops digits, and DOUBLE(m,d) is cut to d digits: as plain DOUBLE. BIT, ENUM and SET:
    as unsigned integers (adding 0 would go through DOUBLE or a signed integer). ZEROFILL and YEAR: without
    leading zeros. INET4, INET6 and UUID: their bytes.
    """
    name = quote_name(column.name)
    match column.kind:
        case ValueKind.FLOAT | ValueKind.DOUBLE:
            return f"{name}*1e0"
        case ValueKind.BIT | ValueKind.ENUM | ValueKind.SET:
            return f"CAST({name} AS UNSIGNED)"
        case ValueKind.YEAR:
            return f"{name}+0"
        case ValueKind.INTEGER | ValueKind.DECIMAL if "zerofill" in column.type_text:
            return f"{name}+0"
        case ValueKind.BINARY if column.type_text in FIXED_BINARY:
            return f"CAST({name} AS BINARY({column.length}))"
        case _:
            return name


def select_list(columns: Iterable[Column]) -> str:
    """The expressions of the columns, joined for a SELECT."""
    return ", ".join(select_expression(column) for column in columns)


def select_written(items: Iterable[ColumnPlan]) -> str:
    """:func:`select_list` of written columns; a constant column is not read, but has its place in the row."""
    return ", ".join("''" if item.is_constant else select_expression(item.column) for item in items)

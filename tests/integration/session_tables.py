"""Reads what tests/integration/test_random_sessions.py compares: a table's definition and its rows, as text."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pymysql
from pymysql.constants import ER

State = tuple[str, ...]
"""Lines: of the definition, of each column, of each row."""

_NOT_MERGED = re.compile(
    r"""\ (?:CHARACTER\ SET|COLLATE)\ \w+  # of a column; MySQL prints them only if a statement has named them
    |\ (?:ENGINE|AUTO_INCREMENT|ROW_FORMAT|MIN_ROWS|`?PAGE_COMPRESSED`?|TRANSACTIONAL)=\S+
    |\ /\*!80023\ (?=INVISIBLE)
    |\ DEFAULT\ NULL\b  # MySQL's DROP DEFAULT: a copy of the table has it
    |\ AUTO_INCREMENT\b|\ ?\bauto_increment\b
    |\bCONSTRAINT\ `[^`]*`\ (?=CHECK)""",
    re.VERBOSE,
)
"""What a merged table has not, or not by the same name."""
_PARTITIONS = re.compile(r"\n(?:/\*!50100)? PARTITION BY.*", re.DOTALL)
_AS_TEXT = ("date", "datetime", "timestamp", "time", "json", "uuid", "inet4", "inet6")
_AS_IS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year", "decimal")
_AT_MARIADB = {"json": "longtext", "geomcollection": "geometrycollection"}
"""MySQL's data types, as MariaDB describes them."""


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def columns_of(cursor: pymysql.cursors.Cursor, schema: str, table: str) -> list[tuple[str, str, str, str, str]]:
    """Return name, data type, type, extra and what else describes it, of each column."""
    cursor.execute(
        "SELECT column_name, data_type, column_type, extra, CONCAT_WS('|', IFNULL(collation_name, ''), is_nullable) "
        "FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        (schema, table),
    )
    return [tuple(map(str, row)) for row in cursor.fetchall()]  # pyright: ignore[reportReturnType]


def state_of(
    cursor: pymysql.cursors.Cursor, schema: str, table: str, key: Iterable[str] = (), *, across: bool = False
) -> State | None:
    """Return the table's state; None if there is no such table. ``key``: columns that are not compared; then generated
    columns are not compared, either. ``across``: what a MySQL and a MariaDB have in common: names and types of columns,
    whether they take NULL, and rows, texts as utf8mb4."""
    name, without = f"{quoted(schema)}.{quoted(table)}", frozenset(key)
    # MySQL evaluates an index over an expression in the mode of the session that reads.
    cursor.execute("SET sql_mode = 'STRICT_ALL_TABLES,ALLOW_INVALID_DATES'")
    try:
        cursor.execute(f"SHOW CREATE TABLE {name}")
    except pymysql.MySQLError as error:
        return None if error.args[0] == ER.NO_SUCH_TABLE else (str(error),)
    [(_, text, *_)] = cursor.fetchall()
    text = _NOT_MERGED.sub("", _PARTITIONS.sub("", str(text)))
    lines = [line.rstrip(",") for line in text.splitlines()[1:] if not any(f"`{one}`" in line[:20] for one in without)]
    columns = [each for each in columns_of(cursor, schema, table) if each[0] not in without]
    lines += (" ".join(_NOT_MERGED.sub("", " ".join(each)).split()) for each in columns)
    if across:
        lines = [f"{each[0]} {_AT_MARIADB.get(each[1], each[1])} {each[4].split('|')[1]}" for each in columns]
    values = [
        f"HEX(CONVERT({quoted(each[0])} USING utf8mb4))"
        if across and (each[4][0] != "|" or each[1] == "json")
        else _value(each[0], each[1])
        for each in columns
        if not without or "GENERATED" not in each[3]
    ]
    cursor.execute(f"SELECT {', '.join(values) or '1'} FROM {name}")
    return *lines, *sorted(str(row) for row in cursor.fetchall())


def _value(name: str, kind: str) -> str:
    name = quoted(name)
    if kind in _AS_TEXT:
        return f"CAST({name} AS CHAR)"
    if kind in ("float", "double"):
        return f"{name} + 0e0"
    if kind == "bit":
        return f"{name} + 0"
    return name if kind in _AS_IS else f"HEX({name})"


def differences(source: State | None, target: State | None) -> list[str]:
    """Return the lines that only one of both has."""
    one, other = source or ("no table",), target or ("no table",)
    found = [f"  source: {line}" for line in one if line not in other]
    found += [f"  target: {line}" for line in other if line not in one]
    if not found and sorted(one) != sorted(other):
        found.append("  the same lines, another number of times")
    return found

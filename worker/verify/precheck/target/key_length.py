"""Computes how long a key of a table is, as the server counts it when it makes the key. Pure.

MySQL Reference Manual, "InnoDB Limits", "Data Type Storage Requirements"; MariaDB, "InnoDB Limitations". The limit of
3072 bytes holds for pages of 16 KiB and DYNAMIC rows, the defaults of both servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardmerge.worker.core.sql.table_text import Index
from shardmerge.worker.ddl.sql.common_type import ColumnType
from shardmerge.worker.ddl.sql.table_definition import MOST_INDEXED_BYTES

_BYTES = {
    "tinyint": 1,
    "smallint": 2,
    "mediumint": 3,
    "int": 4,
    "bigint": 8,
    "float": 4,
    "double": 8,
    "year": 1,
    "date": 3,
    "time": 3,
    "datetime": 5,
    "timestamp": 4,
    "enum": 2,
    "set": 8,
    "inet4": 4,
    "inet6": 16,
    "uuid": 16,
}
_FRACTION = frozenset({"time", "datetime", "timestamp"})
_SIZED = frozenset({"char", "varchar", "binary", "varbinary"})
_DIGITS, _BYTES_OF_DIGITS = 9, 4
_BYTES_OF_REST = (0, 1, 1, 2, 2, 3, 3, 4, 4)


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits of a server. ``hashes``: a unique key that is too long becomes one by hash (MariaDB)."""

    columns: int
    hashes: bool

    def exceeded(self, key: Index, types: Mapping[str, ColumnType]) -> tuple[str, str] | None:
        """What the key would have, and what is allowed; None: it is not too long. ``types``: of the table's columns, by
        their names in lower case."""
        if len(key.columns) > self.columns:
            return f"{len(key.columns)} columns", f"{self.columns} columns"
        count = key_bytes(key, types)
        if count > MOST_INDEXED_BYTES and not (self.hashes and key.name):
            return f"{count} bytes", f"{MOST_INDEXED_BYTES} bytes"
        return None


MARIADB = KeyLimits(32, hashes=True)
OTHERS = KeyLimits(16, hashes=False)


def key_bytes(key: Index, types: Mapping[str, ColumnType]) -> int:
    """The most bytes of a value of the key, without parts that are expressions."""
    parts = zip(key.columns, key.prefixes, strict=True)
    return sum(column_bytes(types[name.lower()], prefix) for name, prefix in parts if name.lower() in types)


def column_bytes(column: ColumnType, prefix: int = 0) -> int:
    """The most bytes of a value of a column in a key. ``prefix``: characters, or bytes of a binary type; 0: all."""
    if prefix:
        return ColumnType("char", (str(prefix),), charset=column.charset).most_bytes
    if column.base in _SIZED:
        return column.most_bytes
    if column.base == "decimal":
        total, scale = (int(each) for each in (*column.arguments, "0")[:2])
        return _digits(total - scale) + _digits(scale)
    if column.base == "bit":
        return (max(column.length, 1) + 7) // 8
    return _BYTES.get(column.base, 0) + ((column.length + 1) // 2 if column.base in _FRACTION else 0)


def _digits(count: int) -> int:
    return count // _DIGITS * _BYTES_OF_DIGITS + _BYTES_OF_REST[count % _DIGITS]

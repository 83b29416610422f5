"""Parses a CREATE TABLE into columns, indexes, primary key, checks and options. Pure.

The text comes from SHOW CREATE TABLE of the target's server, so equal definitions have equal texts (MySQL Reference
Manual, "SHOW CREATE TABLE Statement"; MariaDB, "SHOW CREATE TABLE").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.table_text import INDEXES, Index, lowercase_names, read_create_table, read_index
from shardmerge.worker.ddl.sql.column_definition import ColumnDefinition, parse_column
from shardmerge.worker.ddl.sql.common_type import ColumnType

MOST_INDEXED_BYTES = 3072
"""The limit for one column in an InnoDB index (MySQL Reference Manual, "InnoDB Limits")."""

_NEXT_VALUE = re.compile(r"\bAUTO_INCREMENT=\d+\s*")
_NO_CHECKS = INDEXES | {ClauseKind.ADD_COLUMN, ClauseKind.ADD_FOREIGN_KEY}


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A table's structure. ``primary_key``: its item, "" without one; ``checks``: the items that are neither columns
    nor indexes nor foreign keys, without their names, sorted; ``options``: the text after the list of columns,
    without the next AUTO_INCREMENT value; ``collation``: the table's default."""

    columns: tuple[ColumnDefinition, ...]
    indexes: tuple[Index, ...]
    primary_key: str
    checks: tuple[str, ...]
    options: str
    collation: str

    def column(self, key: str) -> ColumnDefinition | None:
        """By its name in lower case."""
        return next((each for each in self.columns if each.key == key), None)

    def index(self, key: str) -> Index | None:
        """By its name in lower case."""
        return next((each for each in self.indexes if each.key == key), None)

    def index_too_long(self, key: str, wide: ColumnType) -> str:
        """:func:`first_too_long_index` for the table's indexes."""
        primary = (read_index(self.primary_key),) if self.primary_key else ()
        return first_too_long_index(key, wide, (*primary, *self.indexes))


def parse_table_definition(creation: CreateStatement) -> TableDefinition:
    """Raises :class:`shardmerge.worker.core.sql.table_text.UnreadableCreateTable`."""
    found = read_create_table(creation.text)
    # The recorded default is the source's. A server without its character set has printed the one that it has instead.
    collation = found.collation or creation.collation
    return TableDefinition(
        tuple(parse_column(item.name, item.declared, collation) for item in found.columns),
        found.secondary,
        next((lowercase_names(index.text) for index in found.indexes if index.word == "PRIMARY"), ""),
        tuple(sorted(lowercase_names(item.unnamed) for item in found.items if item.kind not in _NO_CHECKS)),
        _NEXT_VALUE.sub("", found.text[found.end :]).strip(),
        collation,
    )


def first_too_long_index(key: str, wide: ColumnType, indexes: Iterable[Index]) -> str:
    """The text of the first of these indexes that is on the whole column ``key`` and would be too long when the column
    has type ``wide``; "" for none."""
    if not wide.needs_prefix and wide.most_bytes <= MOST_INDEXED_BYTES:
        return ""
    return next((index.text for index in indexes if _takes_whole(index, key)), "")


def remaining_columns(index: Index, gone: Iterable[str]) -> tuple[str, ...]:
    """The columns, in lower case, that a server leaves in the index when it drops those of ``gone``."""
    lost = frozenset(gone)
    return tuple(each for each in index.keys if each not in lost)


def _takes_whole(index: Index, key: str) -> bool:
    by_prefix = {name.lower() for name, length in zip(index.columns, index.prefixes, strict=True) if length}
    return index.word not in ("FULLTEXT", "SPATIAL") and key in index.keys and key not in by_prefix

"""Parses a CREATE TABLE into columns, indexes, primary key, checks and options. Pure.

The text comes from SHOW CREATE TABLE of the target's server, so equal definitions have equal texts (MySQL Reference
Manual, "SHOW CREATE TABLE Statement"; MariaDB, "SHOW CREATE TABLE").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from shardmerge.proto.sql_lexer import Kind, Token, tokens
from shardmerge.worker.core.mysql.create_table import (
    UnreadableCreateTable,
    index_parts,
    parse_create_table,
    printed_collation,
)
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.ddl.sql.column_definition import ColumnDefinition, parse_column
from shardmerge.worker.ddl.sql.common_type import ColumnType

MOST_INDEXED_BYTES = 3072
"""The limit for one column in an InnoDB index (MySQL Reference Manual, "InnoDB Limits")."""

_NAME = re.compile(r"`((?:[^`]|``)*)`")
_CONSTRAINT = re.compile(r"CONSTRAINT\s+`(?:[^`]|``)*`\s*", re.IGNORECASE)
_FOREIGN_KEY = re.compile(r"FOREIGN\s+KEY\b", re.IGNORECASE)
_PRIMARY_KEY = re.compile(r"PRIMARY\s+KEY\b", re.IGNORECASE)
_NEXT_VALUE = re.compile(r"\bAUTO_INCREMENT=\d+\s*")


@dataclass(frozen=True, slots=True)
class Index:
    """One index that is not the primary key. ``text``: the whole item of the CREATE TABLE. ``columns``: their names in
    lower case, in order."""

    name: str
    text: str
    columns: tuple[str, ...]
    unique: bool

    @property
    def key(self) -> str:
        """The lower-case name, by which indexes are found."""
        return self.name.lower()

    @property
    def same(self) -> str:
        """Equal for equal indexes, independent of the case of names."""
        return lowercase_names(self.text)


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
        return first_too_long_index(key, wide, (self.primary_key, *(each.text for each in self.indexes)))


def parse_table_definition(creation: CreateStatement) -> TableDefinition:
    """Raises :class:`shardmerge.worker.core.mysql.create_table.UnreadableCreateTable`."""
    text = creation.text
    # The recorded default is the source's. A server without its character set has printed the one that it has instead.
    collation = printed_collation(text) or creation.collation
    columns: list[ColumnDefinition] = []
    checks: list[str] = []
    primary = ""
    parts = {part.text: part for part in index_parts(text)}
    items = parse_create_table(text).items
    for item in items:
        own = _NAME.match(item)
        unnamed = _CONSTRAINT.sub("", item, count=1) if _CONSTRAINT.match(item) else item
        if own is not None:
            columns.append(parse_column(own.group(1).replace("``", "`"), item[own.end() :], collation))
        elif _PRIMARY_KEY.match(item):
            primary = lowercase_names(item)
        elif item not in parts and not _FOREIGN_KEY.match(unnamed):
            checks.append(lowercase_names(unnamed))
    indexes = tuple(
        Index(part.name, part.text, tuple(map(str.lower, part.columns)), part.text.upper().startswith("UNIQUE"))
        for part in parts.values()
    )
    end = _end(text)
    options = _NEXT_VALUE.sub("", text[end:]).strip()
    return TableDefinition(tuple(columns), indexes, primary, tuple(sorted(checks)), options, collation)


def lowercase_names(text: str) -> str:
    """``text`` with quoted names in lower case, because names of columns and indexes are not case-sensitive. Strings
    are unchanged."""
    found: list[str] = []
    at = 0
    for token in tokens(text):
        if token.kind is Kind.NAME:
            found += (text[at : token.start], text[token.start : token.end].lower())
            at = token.end
    return "".join((*found, text[at:]))


def first_too_long_index(key: str, wide: ColumnType, items: Iterable[str]) -> str:
    """The first of these items of a CREATE TABLE that is an index on the whole column ``key`` and would be too long
    when the column has type ``wide``; "" for none."""
    if not wide.needs_prefix and wide.most_bytes <= MOST_INDEXED_BYTES:
        return ""
    return next((item for item in items if _takes_whole(item, key)), "")


def remaining_columns(index: Index, gone: Iterable[str]) -> tuple[str, ...]:
    """The columns that a server leaves in the index when it drops those of ``gone``."""
    lost = frozenset(gone)
    return tuple(each for each in index.columns if each not in lost)


def _takes_whole(text: str, key: str) -> bool:
    found = tokens(text)
    start = next((at for at, token in enumerate(found) if token.is_symbol("(")), len(found))
    if any(token.is_word("FULLTEXT", "SPATIAL") for token in found[:start]):
        return False
    following: list[Token | None] = [*found[1:], None]
    return any(
        token.kind is Kind.NAME
        and token.text.lower() == key
        and at > start
        and (next_token is None or not next_token.is_symbol("("))
        for at, (token, next_token) in enumerate(zip(found, following, strict=True))
    )


def _end(text: str) -> int:
    """The end of the list of columns."""
    depth = 0
    for token in tokens(text):
        depth += token.is_symbol("(") - token.is_symbol(")")
        if depth == 0 and token.is_symbol(")"):
            return token.end
    raise UnreadableCreateTable("parentheses do not match")

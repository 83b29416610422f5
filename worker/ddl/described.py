"""A table as a CREATE TABLE describes it, in values: columns, indexes, primary key, the rest. Pure.

The text is that of SHOW CREATE TABLE of the target's server, so equal things are printed alike (MySQL Reference Manual,
"SHOW CREATE TABLE Statement"; MariaDB, "SHOW CREATE TABLE").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from proto.lexer import Kind, Token, tokens
from worker.create_table import UnreadableCreateTable, index_parts, parse_create_table
from worker.ddl.creation import Creation
from worker.ddl.definition import Definition, definition
from worker.ddl.widening import ColumnType

MOST_INDEXED_BYTES = 3072
"""Of one column in an index of InnoDB (MySQL Reference Manual, "InnoDB Limits")."""

_NAME = re.compile(r"`((?:[^`]|``)*)`")
_CONSTRAINT = re.compile(r"CONSTRAINT\s+`(?:[^`]|``)*`\s*", re.IGNORECASE)
_FOREIGN_KEY = re.compile(r"FOREIGN\s+KEY\b", re.IGNORECASE)
_PRIMARY_KEY = re.compile(r"PRIMARY\s+KEY\b", re.IGNORECASE)
_NEXT_VALUE = re.compile(r"\bAUTO_INCREMENT=\d+\s*")


@dataclass(frozen=True, slots=True)
class Index:
    """One index that is not the primary key. ``text``: the item of the CREATE TABLE, whole; ``columns``: their names in
    lower case, in order; ``unique``: whether it refuses rows."""

    name: str
    text: str
    columns: tuple[str, ...]
    unique: bool

    @property
    def key(self) -> str:
        """The name as indexes are found by: in lower case."""
        return self.name.lower()

    @property
    def same(self) -> str:
        """Equal for equal indexes, in whatever case the names are."""
        return lowered(self.text)


@dataclass(frozen=True, slots=True)
class Shape:
    """A table's structure. ``primary_key``: its item, "" without one; ``checks``: the items that are neither columns
    nor indexes nor foreign keys, without their names, sorted; ``options``: what stands behind the list of columns,
    without the next AUTO_INCREMENT value; ``collation``: the table's default."""

    columns: tuple[Definition, ...]
    indexes: tuple[Index, ...]
    primary_key: str
    checks: tuple[str, ...]
    options: str
    collation: str

    def column(self, key: str) -> Definition | None:
        """By its name in lower case."""
        return next((each for each in self.columns if each.key == key), None)

    def index(self, key: str) -> Index | None:
        """By its name in lower case."""
        return next((each for each in self.indexes if each.key == key), None)

    def too_long(self, key: str, wide: ColumnType) -> str:
        """See :func:`too_long`: of the table's indexes."""
        return too_long(key, wide, (self.primary_key, *(each.text for each in self.indexes)))


def described(creation: Creation) -> Shape:
    """Raises :class:`worker.create_table.UnreadableCreateTable`."""
    text = creation.text
    columns: list[Definition] = []
    checks: list[str] = []
    primary = ""
    parts = {part.text: part for part in index_parts(text)}
    items = parse_create_table(text).items
    for item in items:
        own = _NAME.match(item)
        unnamed = _CONSTRAINT.sub("", item, count=1) if _CONSTRAINT.match(item) else item
        if own is not None:
            columns.append(definition(own.group(1).replace("``", "`"), item[own.end() :], creation.collation))
        elif _PRIMARY_KEY.match(item):
            primary = lowered(item)
        elif item not in parts and not _FOREIGN_KEY.match(unnamed):
            checks.append(lowered(unnamed))
    indexes = tuple(
        Index(part.name, part.text, tuple(map(str.lower, part.columns)), part.text.upper().startswith("UNIQUE"))
        for part in parts.values()
    )
    end = _end(text)
    options = _NEXT_VALUE.sub("", text[end:]).strip()
    return Shape(tuple(columns), indexes, primary, tuple(sorted(checks)), options, creation.collation)


def lowered(text: str) -> str:
    """With the quoted names in lower case: names of columns and indexes count without their case. What is in strings
    stays."""
    found: list[str] = []
    at = 0
    for token in tokens(text):
        if token.kind is Kind.NAME:
            found += (text[at : token.start], text[token.start : token.end].lower())
            at = token.end
    return "".join((*found, text[at:]))


def too_long(key: str, wide: ColumnType, items: Iterable[str]) -> str:
    """The first of these items of a CREATE TABLE that is an index on the whole of the column ``key``, and could not be
    once the column is ``wide``; "" for none."""
    if not wide.needs_prefix and wide.most_bytes <= MOST_INDEXED_BYTES:
        return ""
    return next((item for item in items if _takes_whole(item, key)), "")


def without(index: Index, gone: Iterable[str]) -> tuple[str, ...]:
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
        and (behind is None or not behind.is_symbol("("))
        for at, (token, behind) in enumerate(zip(found, following, strict=True))
    )


def _end(text: str) -> int:
    """Behind the list of columns."""
    depth = 0
    for token in tokens(text):
        depth += token.is_symbol("(") - token.is_symbol(")")
        if depth == 0 and token.is_symbol(")"):
            return token.end
    raise UnreadableCreateTable("parentheses do not match")

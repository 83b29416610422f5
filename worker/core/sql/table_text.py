"""Reads the text of a CREATE TABLE on tokens: its columns, keys, checks and options, and where they are. Pure.

Under an empty sql_mode, servers print every name in backticks and strings in single quotes (MySQL Reference Manual,
"SHOW CREATE TABLE Statement"; store_create_info() in sql/sql_show.cc of both servers).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from shardmerge.proto.sql_lexer import Kind, Token, edited, quote_name, tokens
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.token_reader import NotUnderstoodError, TokenReader, find_words, split_at_commas


class UnreadableCreateTable(ValueError):
    """The text is not what SHOW CREATE TABLE prints."""


@dataclass(frozen=True)
class TableItem:
    """A column, key, check or other part of a table. ``name``: of a column, an index or a constraint, "" for none.
    ``text``: between the commas, from ``start`` on in the CREATE TABLE."""

    kind: ClauseKind
    name: str
    text: str
    start: int

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """Those of ``text``."""
        return tokens(self.text)

    @property
    def unnamed(self) -> str:
        """The text without CONSTRAINT and its name."""
        is_named = self.name and self.tokens[0].is_word("CONSTRAINT")
        return self.text[self.tokens[1].end :].lstrip() if is_named else self.text

    @property
    def declared(self) -> str:
        """Of a column: the text after its name."""
        return self.text[len(quote_name(self.name)) :]

    def place(self, *words: str) -> tuple[int, int] | None:
        """The positions in ``text`` of these keywords outside of parentheses; None: they are not there."""
        at = find_words(self.tokens, *words) if words[0] in self.text.upper() else None
        return None if at is None else (self.tokens[at].start, self.tokens[at + len(words) - 1].end)


@dataclass(frozen=True, slots=True)
class Index:
    """A key or another index. ``name``: "" for the primary key. ``word``: the first word of its ``text``. ``columns``:
    in order; a part that is an expression has none. ``prefixes``: for each column the length of the prefix that is
    indexed, 0 for the whole column. ``names``: all names in its parts. ``end``: where the list of parts ends in
    ``text``."""

    name: str
    word: str
    text: str
    columns: tuple[str, ...]
    prefixes: tuple[int, ...]
    names: tuple[str, ...]
    has_expressions: bool
    end: int

    @property
    def key(self) -> str:
        """The lower-case name, by which indexes are found."""
        return self.name.lower()

    @property
    def keys(self) -> tuple[str, ...]:
        """All names in its parts in lower case."""
        return tuple(map(str.lower, self.names))

    @property
    def unique(self) -> bool:
        return self.word in ("PRIMARY", "UNIQUE")

    @property
    def same(self) -> str:
        """Equal for equal indexes, independent of the case of names."""
        return lowercase_names(self.text)

    @property
    def shown(self) -> str:
        """For people."""
        return f"{self.name or 'PRIMARY KEY'} ({', '.join(self.columns) or 'an expression'})"

    def extended(self, columns: Collection[str]) -> Index:
        """The index with further columns at its end."""
        added = "".join(f",{quote_name(name)}" for name in columns)
        return replace(
            self,
            text=f"{self.text[: self.end]}{added}{self.text[self.end :]}",
            columns=(*self.columns, *columns),
            prefixes=(*self.prefixes, *(0 for _ in columns)),
            names=(*self.names, *columns),
            end=self.end + len(added),
        )


@dataclass(frozen=True)
class TableText:
    """A CREATE TABLE. ``items``: its columns, keys and checks. ``end``: where their list ends."""

    text: str
    items: tuple[TableItem, ...]
    end: int

    @cached_property
    def rest(self) -> tuple[Token, ...]:
        """The tokens after the list, their positions in ``text[end:]``."""
        return tokens(self.text[self.end :])

    @cached_property
    def columns(self) -> tuple[TableItem, ...]:
        return tuple(item for item in self.items if item.kind is ClauseKind.ADD_COLUMN)

    @cached_property
    def indexes(self) -> tuple[Index, ...]:
        """All indexes, with the primary key."""
        return tuple(_index(item) for item in self.items if item.kind in INDEXES)

    @property
    def secondary(self) -> tuple[Index, ...]:
        """The indexes without the primary key."""
        return tuple(index for index in self.indexes if index.word != "PRIMARY")

    @property
    def unique_keys(self) -> tuple[Index, ...]:
        """The primary key and the unique keys."""
        return tuple(index for index in self.indexes if index.unique)

    @property
    def numbered(self) -> str:
        """The name of the column with AUTO_INCREMENT, "" for none."""
        return next((item.name for item in self.columns if item.place("AUTO_INCREMENT")), "")

    @property
    def comment(self) -> str:
        """The table's comment as a literal, "" for none."""
        return self._option("COMMENT")

    @property
    def collation(self) -> str:
        """The default collation in the table's options, "" where none is printed."""
        return self._option("COLLATE")

    @property
    def partitions(self) -> Sequence[Token]:
        """The tokens from PARTITION BY on, none for a table without partitions."""
        at = find_words(self.rest, "PARTITION", "BY")
        return () if at is None else self.rest[at:]

    @property
    def partition_text(self) -> str:
        """PARTITION BY … on one line, "" for a table without partitions."""
        found = self.partitions
        return " ".join(self.text[self.end + found[0].start :].removesuffix("*/").split()) if found else ""

    def column(self, name: str) -> TableItem | None:
        """By its name in any case."""
        return next((item for item in self.columns if item.name.lower() == name.lower()), None)

    def has_index_on(self, columns: Collection[str]) -> bool:
        """Whether an index begins with these columns, in any order: their values are found without a scan."""
        wanted = {column.lower() for column in columns}
        return any(
            wanted == set(index.keys[: len(wanted)])
            for index in self.indexes
            if index.word in ("PRIMARY", "UNIQUE", "KEY")
        )

    def _option(self, word: str) -> str:
        at = find_words(self.rest, word)
        following = () if at is None else self.rest[at + 1 : at + 3]
        if not following or (self.partitions and following[0].start > self.partitions[0].start):
            return ""
        return following[-1 if following[0].is_symbol("=") else 0].text


@lru_cache(maxsize=64)
def read_create_table(text: str) -> TableText:
    """The parts of what SHOW CREATE TABLE prints. Raises :class:`UnreadableCreateTable`."""
    if _HEAD.match(text) is None:
        raise UnreadableCreateTable("no CREATE TABLE with a list of columns")
    items: list[TableItem] = []
    depth = begin = 0
    for cut in _CUT.finditer(text):
        symbol, at = cut[1], cut.start()
        depth += (symbol == "(") - (symbol == ")")
        if symbol == "(" and depth == 1:
            begin = at + 1
        elif (symbol == "," and depth == 1) or (symbol == ")" and not depth):
            items.append(_item(text, begin, at))
            begin = at + 1
            if symbol == ")":
                return TableText(text, tuple(items), begin)
    raise UnreadableCreateTable("parentheses do not match")


_HEAD = re.compile(r"\s*CREATE\s+TABLE\b[^(]*\(", re.IGNORECASE)
_CUT = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"|`(?:[^`]|``)*`|([(),])", re.DOTALL)
_NAME = re.compile(r"`((?:[^`]|``)*)`")


def read_index(text: str) -> Index:
    """One index, from its text in a CREATE TABLE. Raises :class:`UnreadableCreateTable`."""
    return _index(_item(text, 0, len(text)))


def lowercase_names(text: str) -> str:
    """``text`` with quoted names in lower case, because names of columns and indexes are not case-sensitive. Strings
    are unchanged."""
    return edited(
        text,
        (
            (each.start, each.end, text[each.start : each.end].lower())
            for each in tokens(text)
            if each.kind is Kind.NAME
        ),
    )


def element_kind(found: Sequence[Token]) -> ClauseKind:
    """The kind of what one part of a table's definition adds."""
    words = TokenReader(found, "")
    word = words.word()
    if word == "VECTOR" and len(found) > 1:
        # Not reserved: it may be a column's name.
        is_index = found[1].is_word("INDEX", "KEY") or found[1].is_symbol("(")
        return ClauseKind.ADD_INDEX if is_index else ClauseKind.ADD_COLUMN
    if word == "PERIOD" and len(found) > 1 and found[1].is_word("FOR", "IF"):
        return ClauseKind.PERIOD
    if not words.take("CONSTRAINT"):
        return _ELEMENTS.get(word, ClauseKind.ADD_COLUMN)
    words.exists()
    if words.word() not in _CONSTRAINTS:
        words.name()
    return _ELEMENTS[words.word()] if words.word() in _CONSTRAINTS else ClauseKind.OTHER


_CONSTRAINTS = frozenset({"PRIMARY", "UNIQUE", "FOREIGN", "CHECK"})
_ELEMENTS = {
    "INDEX": ClauseKind.ADD_INDEX,
    "KEY": ClauseKind.ADD_INDEX,
    "FULLTEXT": ClauseKind.ADD_INDEX,
    "SPATIAL": ClauseKind.ADD_INDEX,
    "UNIQUE": ClauseKind.ADD_UNIQUE,
    "PRIMARY": ClauseKind.ADD_PRIMARY_KEY,
    "FOREIGN": ClauseKind.ADD_FOREIGN_KEY,
    "CHECK": ClauseKind.ADD_CHECK,
}
INDEXES = frozenset({ClauseKind.ADD_INDEX, ClauseKind.ADD_UNIQUE, ClauseKind.ADD_PRIMARY_KEY})


def _item(text: str, begin: int, end: int) -> TableItem:
    """The item ``text[begin:end]``."""
    part = text[begin:end].strip()
    start = text.index(part, begin)
    if own := _NAME.match(part):
        return TableItem(ClauseKind.ADD_COLUMN, own[1].replace("``", "`"), part, start)
    item = TableItem(ClauseKind.OTHER, "", part, start)
    words = TokenReader(item.tokens, "")
    words.take("CONSTRAINT", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR")
    words.take("INDEX", "KEY")
    try:
        kind = element_kind(item.tokens)
    except NotUnderstoodError:
        return item
    # A column has quotes: this is a part that is not known here.
    return replace(item, kind=ClauseKind.OTHER if kind is ClauseKind.ADD_COLUMN else kind, name=words.quoted_name())


def _index(item: TableItem) -> Index:
    found = item.tokens
    first = next((at for at, token in enumerate(found) if token.is_symbol("(")), len(found))
    words = TokenReader(found[first:], "")
    if not words.group():
        raise UnreadableCreateTable(f"an index without a list of columns: {item.text}")
    end = first + words.at - 1
    listed = found[first + 1 : end]
    plain: list[tuple[str, int]] = []
    has_expressions = False
    for part in split_at_commas(listed):
        words = TokenReader(part, "")
        name = words.quoted_name()
        prefix = part[2].text if words.group() else "0"
        words.take("ASC", "DESC")
        if name and words.at_end and prefix.isdigit():
            plain.append((name, int(prefix)))
        else:
            has_expressions |= any(token.is_symbol("(") for token in part)
    return Index(
        item.name,
        found[0].text.upper(),
        item.text,
        tuple(name for name, _ in plain),
        tuple(length for _, length in plain),
        tuple(token.text for token in listed if token.kind is Kind.NAME),
        has_expressions,
        found[end].start,
    )

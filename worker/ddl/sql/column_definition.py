"""Parses one column of a CREATE TABLE into the parts that a schema join compares. Pure.

MySQL Reference Manual, "CREATE TABLE Statement", "Data Type Default Values"; MariaDB, "CREATE TABLE".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from shardmerge.proto.sql_lexer import Kind, Token, tokens
from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.mysql.create_table import charset_of
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable
from shardmerge.worker.core.sql.token_reader import NotUnderstoodError, TokenReader, keywords
from shardmerge.worker.ddl.sql.common_type import INTEGERS, TEXTUAL, ColumnType

NO_DEFAULT, NULL = "", "NULL"

_IMPLIED_NULL = frozenset({"tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob",
                           "json", "vector", "geometry", "point", "linestring", "polygon", "multipoint",
                           "multilinestring", "multipolygon", "geomcollection", "geometrycollection"})  # fmt: skip
"""Types for which MySQL does not print DEFAULT NULL."""

_BEHIND_DEFAULT = keywords(
    "AUTO_INCREMENT CHECK COLUMN_FORMAT COMMENT COMPRESSED ENGINE_ATTRIBUTE GENERATED INVISIBLE ON REF_SYSTEM_ID "
    "SECONDARY_ENGINE_ATTRIBUTE SRID STORAGE VISIBLE WITHOUT"
)
_BEGINS = ("AUTO_INCREMENT", "CHECK", "GENERATED", "INVISIBLE", "ON", "SRID")
_LITERAL = re.compile(r"NULL|[bBxX]?'(?:[^'\\]|''|\\.)*'|[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?|0x[0-9a-fA-F]+", re.DOTALL)
_OF_CHARSET = re.compile(r"\A(\s+CHARACTER SET \w+)?(\s+COLLATE \w+)?", re.IGNORECASE)
_NUMBER = re.compile(r"'?([+-]?[0-9.]+)'?")
_FRACTION = re.compile(r"(\.[0-9]*?)0+'$")
_FIRST_COLLATION = {
    "armscii8": "general", "big5": "chinese", "cp850": "general", "cp932": "japanese", "dec8": "swedish",
    "eucjpms": "japanese", "euckr": "korean", "gb18030": "chinese", "gb2312": "chinese", "gbk": "chinese",
    "hp8": "english", "latin1": "swedish", "latin5": "turkish", "sjis": "japanese", "swe7": "swedish",
    "tis620": "thai", "ujis": "japanese",
}  # fmt: skip
"""Default collations other than general. Older servers print no COLLATE for a character set's default ("Supported
Character Sets and Collations")."""


def first_collation(charset: str) -> str:
    """The default collation of a character set at servers and in sessions that have no other default for it."""
    return "binary" if charset == "binary" else f"{charset}_{_FIRST_COLLATION.get(charset, 'general')}_ci"


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """``text``: as printed after the name. ``default``: as printed, "NULL" when implied, "" for none. ``rest``: all
    other attributes, as printed. ``comment``: a literal or ""."""

    name: str
    text: str
    type: ColumnType
    nullable: bool
    default: str
    comment: str
    rest: tuple[str, ...]

    @property
    def key(self) -> str:
        """The lower-case name, by which columns are found."""
        return self.name.lower()

    @property
    def shown(self) -> str:
        """For people."""
        return f"{quote_name(self.name)} {self.text}"

    @property
    def default_value(self) -> str:
        """The default, independent of the number of digits that the server prints for the type: DECIMAL(4,1) DEFAULT
        1.5 and DECIMAL(5,2) DEFAULT 1.50 are equal. FLOAT and DOUBLE DEFAULT 0.1 are not: FLOAT has a near value."""
        if self.type.base in ("float", "double") and not self.type.arguments:
            return _real_text(self.default, self.type.base)
        number = _NUMBER.fullmatch(self.default)
        if number is not None and (self.type.base in INTEGERS or self.type.base == "decimal"):
            return format(Decimal(number.group(1)).normalize(), "f")
        if self.type.base in ("datetime", "timestamp", "time"):
            return _FRACTION.sub(r"\1'", self.default).replace(".'", "'")
        return self.default

    @property
    def is_generated(self) -> bool:
        return any(each.upper().startswith(("GENERATED", "AS ", "AS(")) for each in self.rest)

    @property
    def unfillable(self) -> str:
        """Why a row without the column could get different values on different servers; "" when it cannot."""
        if self.is_generated:
            return "its values are generated"
        upper = [each.upper() for each in self.rest]
        if any(each.startswith("AUTO_INCREMENT") for each in upper):
            return "the target would number its rows by itself (AUTO_INCREMENT)"
        if any(each.startswith("ON UPDATE") for each in upper):
            return "the target would set it to the current time (ON UPDATE)"
        if any(each.startswith("CHECK") and each != self._json_check for each in upper):
            return "its CHECK may refuse rows without it"
        if self.default == NO_DEFAULT:
            return "it has no default" if self.nullable else "it is NOT NULL without a default"
        if not is_literal(self.default):
            return f"its default {self.default} is no literal: the target may compute another value than the source"
        return ""

    @property
    def _json_check(self) -> str:
        """The CHECK that MariaDB adds to a JSON column, in upper case; it accepts NULL (MariaDB, "JSON Data Type")."""
        return f"CHECK (JSON_VALID({quote_name(self.name).upper()}))"

    @property
    def same(self) -> tuple[object, ...]:
        """Equal for equal definitions, independent of the name."""
        return self.type, self.nullable, self.default_value, self.comment, self.rest

    def written(self) -> str:
        """As SQL after the name, built from the parts: MariaDB accepts a CHECK only as the last of them."""
        null = "NULL" if self.nullable else "NOT NULL"
        default = f"DEFAULT {self.default}" if self.default else ""
        comment = f"COMMENT {self.comment}" if self.comment else ""
        return " ".join(filter(None, (self.type.sql, null, default, comment, *self.rest)))

    def verbatim(self) -> str:
        """As printed, but always with the character set: another table's default may differ."""
        bare = self.type.bare
        if not self.type.charset or not self.text.startswith(bare):
            return self.text
        return self.type.sql + _OF_CHARSET.sub("", self.text[len(bare) :], count=1)


def _real_text(default: str, base: str) -> str:
    """The number that rows get for the default of a FLOAT or DOUBLE; the default itself where it is no number."""
    try:
        value = float(default.strip("'"))
        return repr(value if base == "double" else struct.unpack("<f", struct.pack("<f", value))[0])
    except (ValueError, OverflowError):
        return default


def is_literal(default: str) -> bool:
    """Whether a default, as printed, is a literal: the same value on every server and at any time."""
    return _LITERAL.fullmatch(default) is not None


def parse_column(name: str, text: str, collation: str) -> ColumnDefinition:
    """``text``: as printed after ``name``. ``collation``: the table's default. Raises
    :class:`shardmerge.worker.core.sql.table_text.UnreadableCreateTable`."""
    try:
        return _Reader(name, text.strip(), collation).read()
    except NotUnderstoodError as error:
        raise UnreadableCreateTable(f"the definition of column {name} is not understood: {text}") from error


@dataclass(frozen=True, slots=True)
class _TokenSpan:
    """A token with the parentheses after it, up to ``end``."""

    token: Token
    end: int


class _Reader:
    """Reads one column definition."""

    def __init__(self, name: str, text: str, collation: str) -> None:
        self._name, self._text, self._collation = name, text, collation
        self._tokens = tokens(text)
        self._words = TokenReader(self._tokens, "")

    def read(self) -> ColumnDefinition:
        words = self._words
        base = words.name().lower()
        arguments = self._arguments()
        if base == "double" and words.take("PRECISION"):
            pass
        flags: set[str] = set()
        nullable, default, comment = True, NO_DEFAULT, ""
        charset = collation = ""
        rest: list[_TokenSpan] = []
        while words.next is not None:
            if words.word() in ("UNSIGNED", "ZEROFILL"):
                flags.add(words.name().upper())
            elif words.take_all("CHARACTER", "SET") or words.take("CHARSET"):
                charset = words.name()
            elif words.take("COLLATE"):
                collation = words.name()
            elif words.take_all("NOT", "NULL"):
                nullable = False
            elif words.take("NULL"):
                pass
            elif words.take("DEFAULT"):
                default = self._default()
            elif words.take("COMMENT"):
                comment = self._next().text
            else:
                token = self._next()
                words.group()
                rest.append(_TokenSpan(token, self._tokens[words.at - 1].end))
        if default == NO_DEFAULT and nullable and base in _IMPLIED_NULL:
            default = NULL
        zerofill = "ZEROFILL" in flags
        if base in INTEGERS and not zerofill:
            arguments = ()
        if base in TEXTUAL:
            collation = collation or self._own_collation(charset)
            charset = charset or charset_of(collation)
        type_ = ColumnType(base, arguments, "UNSIGNED" in flags, zerofill, charset, collation)
        return ColumnDefinition(self._name, self._text, type_, nullable, default, comment, self._runs(rest))

    def _own_collation(self, charset: str) -> str:
        if not charset or charset == charset_of(self._collation):
            return self._collation
        return first_collation(charset)

    def _next(self) -> Token:
        token = self._words.next
        if token is None or token.kind is Kind.BAD:
            raise NotUnderstoodError
        self._words.advance()
        return token

    def _arguments(self) -> tuple[str, ...]:
        first = self._words.at
        if not self._words.group():
            return ()
        inner = self._tokens[first + 1 : self._words.at - 1]
        return tuple(token.text for token in inner if not token.is_symbol(","))

    def _default(self) -> str:
        words, first = self._words, self._words.at
        if not words.group():
            self._next()
        while words.next is not None and words.word() not in _BEHIND_DEFAULT:
            if not words.group():
                self._next()
        return self._sliced(self._tokens[first : words.at])

    def _sliced(self, found: Sequence[Token]) -> str:
        return self._text[found[0].start : found[-1].end]

    def _runs(self, found: Sequence[_TokenSpan]) -> tuple[str, ...]:
        """The attributes, adjacent tokens joined, as printed; a comment with code begins or ends one."""
        runs: list[tuple[int, int]] = []
        for span in found:
            start = span.token.start
            if runs and not span.token.is_word(*_BEGINS) and not self._text[runs[-1][1] : start].strip():
                start = runs.pop()[0]
            runs.append((start, span.end))
        return tuple(self._text[start:end] for start, end in runs)

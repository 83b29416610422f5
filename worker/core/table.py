"""The structure of a table as its server describes it."""

from __future__ import annotations

import enum
import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from shardmerge.proto.sql_lexer import quote_name

_SIZES = re.compile(r"\((\d+)(?:,(\d+))?\)")


class ValueKind(enum.IntEnum):
    """How a column's value is decoded from the binlog, read by SELECT and written as an SQL literal."""

    INTEGER = 1  # TINYINT … BIGINT, signed or unsigned
    DECIMAL = 2
    FLOAT = 3  # 4 bytes; read as DOUBLE, for its text form loses bits
    DOUBLE = 4
    BIT = 5  # read as an unsigned integer (col + 0)
    DATE = 6
    TIME = 7
    DATETIME = 8
    TIMESTAMP = 9  # text in UTC
    YEAR = 10
    STRING = 11  # CHAR, VARCHAR, TEXT: raw bytes in the column's own charset
    BINARY = 12  # BINARY, VARBINARY, BLOB; MariaDB's INET4, INET6, UUID, read as BINARY
    ENUM = 13  # read as its index (col + 0), written as its label
    SET = 14  # read as its bit mask (col + 0), written as its labels
    JSON = 15  # MySQL's binary JSON (MariaDB's JSON is STRING)
    GEOMETRY = 16  # raw bytes: SRID and WKB
    VECTOR = 17  # MySQL's: raw bytes, floats of 4 bytes


FIXED_BINARY = {"inet4": 4, "inet6": 16, "uuid": 16}
"""MariaDB's types of so many bytes: a literal ``X'…'`` of the bytes that CAST(… AS BINARY) reads is the same value."""


EXACT_KINDS = frozenset(
    {
        ValueKind.INTEGER,
        ValueKind.DECIMAL,
        ValueKind.BIT,
        ValueKind.DATE,
        ValueKind.TIME,
        ValueKind.DATETIME,
        ValueKind.TIMESTAMP,
        ValueKind.YEAR,
        ValueKind.BINARY,
        ValueKind.ENUM,
        ValueKind.SET,
    }
)
"""Kinds of which equal values are the same bytes: not text ('a' = 'A' under most collations), not floats (0 = -0)."""


_DISPLAY_WIDTH = re.compile(r"\(\d+\)")
_WIDTH_KINDS = frozenset({ValueKind.INTEGER, ValueKind.YEAR})
_LABEL_KINDS = frozenset({ValueKind.ENUM, ValueKind.SET})


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``type_text`` is information_schema's COLUMN_TYPE, e.g. "int(10) unsigned". ``written_as``: the type
    of numbers that are texts at the source for a while; the target's column keeps this type meanwhile, and each of
    these texts is a number (worker/ddl/locks/way_back.py); "" otherwise."""

    name: str
    kind: ValueKind
    type_text: str
    nullable: bool
    unsigned: bool = False
    charset: str = ""  # "" for what is no text
    collation: str = ""
    labels: tuple[str, ...] = ()  # of ENUM and SET, in the server's order
    generated: bool = False  # VIRTUAL or STORED: never written
    auto_increment: bool = False
    length: int = 0  # BINARY(n): n (the binlog strips trailing zeros), INET4: 4, INET6 and UUID: 16; else 0
    written_as: str = ""

    def comparable(self, *, with_collation: bool) -> Column:
        """The column without what servers of different kinds and versions describe differently."""
        text = self.type_text
        if self.kind in _LABEL_KINDS:
            text = ""
        elif self.kind in _WIDTH_KINDS:
            text = _DISPLAY_WIDTH.sub("", text).replace(" zerofill", "")
        charset = "utf8mb3" if self.charset == "utf8" else self.charset
        return replace(self, type_text=text, charset=charset, collation=self.collation if with_collation else "")


def type_size(type_text: str) -> int:
    """The first number in parentheses, a length or precision; 0 without one (for a temporal type: no fraction; BIT
    always has one)."""
    found = _SIZES.search(type_text)
    return int(found[1]) if found else 0


def type_scale(type_text: str) -> int:
    """The second number in parentheses; 0 without one."""
    found = _SIZES.search(type_text)
    return int(found[2] or 0) if found else 0


@dataclass(frozen=True, slots=True)
class Table:
    """One table: columns in the server's order, the key that identifies its rows.

    ``key``: indexes into ``columns`` of the primary key, else of the best unique NOT NULL
    key, else () for a table without any. ``key_hidden``: the server does not use the key's index for reading, not even
    with FORCE INDEX (MySQL: INVISIBLE, MariaDB: IGNORED), though it still is unique. ``unique_keys``: every unique key,
    as column names, hidden ones too. ``has_foreign_keys``: only for earlier versions of the program, which compare it;
    it depends on the account's privileges.
    """

    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    key_name: str
    unique_keys: tuple[tuple[str, ...], ...]
    has_foreign_keys: bool
    engine: str
    row_estimate: int = 0
    byte_estimate: int = 0
    key_hidden: bool = False

    @property
    def structure(self) -> Table:
        """The table without what depends on its rows or on the account that reads it."""
        return replace(self, row_estimate=0, byte_estimate=0, has_foreign_keys=False)

    def without_columns(self, names: Collection[str]) -> Table:
        """The table without these columns, of which none belongs to its key."""
        places = {column.name: at for at, column in enumerate(c for c in self.columns if c.name not in names)}
        return replace(
            self,
            columns=tuple(column for column in self.columns if column.name in places),
            key=tuple(places[self.columns[at].name] for at in self.key),
        )

    @property
    def dotted(self) -> str:
        """Its name in messages, without quotation marks."""
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        """Its name as SQL."""
        return f"{quote_name(self.schema)}.{quote_name(self.name)}"

    @property
    def full_name(self) -> str:
        return f"`{self.schema}`.`{self.name}`"

    @property
    def has_dates(self) -> bool:
        """Whether a column may have dates that do not exist, such as 2026-02-30."""
        return any(column.kind in (ValueKind.DATE, ValueKind.DATETIME) for column in self.columns)

    @property
    def collations(self) -> frozenset[str]:
        """The collations of its columns."""
        return frozenset(column.collation for column in self.columns if column.collation)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(self.columns[index] for index in self.key)

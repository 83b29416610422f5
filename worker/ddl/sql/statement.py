"""Parses DDL statements of the binlog, on tokens. Pure.

MySQL Reference Manual, "Data Definition Statements"; MariaDB, "Data Definition". Names are returned as written. Text in
version comments is handled as in :mod:`shardmerge.proto.sql_lexer`. Not read: tables in the SELECT of a CREATE TABLE,
the table option UNION, tables as qualifiers of columns in expressions.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from shardmerge.proto.sql_lexer import Kind, Token, pieces
from shardmerge.worker.core.sql.clause import Clause, ClauseKind
from shardmerge.worker.core.sql.token_reader import (
    OPTIONS_OF_SCHEMA,
    NameAt,
    NotUnderstoodError,
    TokenReader,
    keywords,
    read_object_kind,
    referenced_tables,
)
from shardmerge.worker.ddl.sql.alter_parser import parse_clauses


@dataclass(frozen=True, slots=True)
class CreateTable:
    """``form``: "like" has ``like``; "select" has rows, those in the binlog too (MySQL: START TRANSACTION at the end).

    ``references``: the tables of its foreign keys.
    """

    table: NameAt
    if_not_exists: bool
    or_replace: bool
    form: Literal["columns", "like", "select"]
    like: NameAt | None = None
    references: tuple[NameAt, ...] = ()


@dataclass(frozen=True, slots=True)
class DropTables:
    tables: tuple[NameAt, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class RenameTables:
    """``if_exists``: MariaDB leaves out the pairs whose first table does not exist."""

    pairs: tuple[tuple[NameAt, NameAt], ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class TruncateTable:
    table: NameAt


@dataclass(frozen=True, slots=True)
class AlterTable:
    """``ignore``: MariaDB's ALTER IGNORE TABLE, which may delete rows without row events."""

    table: NameAt
    clauses: tuple[Clause, ...]
    ignore: bool
    sql_mode: int


@dataclass(frozen=True, slots=True)
class CreateIndex:
    table: NameAt
    name: str
    unique: bool


@dataclass(frozen=True, slots=True)
class DropIndex:
    table: NameAt
    name: str


@dataclass(frozen=True, slots=True)
class CreateSchema:
    schema: str


@dataclass(frozen=True, slots=True)
class AlterSchema:
    schema: str


@dataclass(frozen=True, slots=True)
class DropSchema:
    schema: str


Ddl = (
    CreateTable
    | DropTables
    | RenameTables
    | TruncateTable
    | AlterTable
    | CreateIndex
    | DropIndex
    | CreateSchema
    | AlterSchema
    | DropSchema
)


def parse_ddl(text: str, default_schema: str, sql_mode: int | None) -> Ddl | None:
    """None for statements that are not DDL of permanent tables or of schemas, and for those that cannot be parsed.

    ``default_schema``: "" for none; ``sql_mode``: the server's bit mask in the statement's event, None counts as 0.
    """
    found = list(pieces(text, sql_mode or 0))
    marks = [piece.start for piece in found if piece.kind is Kind.MARK]
    found = [piece for piece in found if piece.kind is not Kind.MARK]
    while found and found[-1].is_symbol(";"):
        found.pop()
    if any(token.kind is Kind.BAD or token.is_symbol(";") for token in found):
        return None
    try:
        ddl = _Statement(found, default_schema, sql_mode or 0).read()
    except NotUnderstoodError:
        return None
    if ddl is not None and any(name.start < mark < name.end for name in names(ddl) for mark in marks):
        return None  # replacing the name would leave half a comment
    return ddl


def names(ddl: Ddl) -> tuple[NameAt, ...]:
    """All tables that the statement names, in the text's order."""
    match ddl:
        case CreateTable():
            return (ddl.table, *((ddl.like,) if ddl.like else ()), *ddl.references)
        case DropTables():
            return ddl.tables
        case RenameTables():
            return tuple(itertools.chain.from_iterable(ddl.pairs))
        case AlterTable():
            return (ddl.table, *itertools.chain.from_iterable(clause.names for clause in ddl.clauses))
        case TruncateTable() | CreateIndex() | DropIndex():
            return (ddl.table,)
        case CreateSchema() | AlterSchema() | DropSchema():
            return ()


_BEFORE_TABLE = keywords("OR REPLACE ONLINE OFFLINE IGNORE UNIQUE FULLTEXT SPATIAL VECTOR")
_SELECTS = frozenset({"SELECT", "VALUES", "TABLE"})
_RESERVED_OPTIONS = frozenset({"CHARACTER", "COLLATE", "DEFAULT", "READ"})


class _Statement:
    def __init__(self, found: Sequence[Token], default_schema: str, sql_mode: int) -> None:
        self._words = TokenReader(found, default_schema)
        self._sql_mode = sql_mode

    def read(self) -> Ddl | None:
        words = self._words
        if words.take_all("SET", "STATEMENT") and not words.seek("FOR"):  # MariaDB
            return None
        first = words.word()
        words.advance()
        match first:
            case "CREATE" | "DROP" | "ALTER":
                return self._thing(first)
            case "TRUNCATE":
                words.take("TABLE")
                table = words.table()
                words.wait()
                # MariaDB, sql_mode ORACLE
                if words.take("DROP", "REUSE"):
                    words.take("STORAGE")
                return self._whole(TruncateTable(table))
            case "RENAME" if words.take("TABLE", "TABLES"):
                if_exists = words.exists()
                return self._whole(RenameTables(words.renames(), if_exists))
            case _:
                return None

    def _whole(self, ddl: Ddl) -> Ddl | None:
        """``ddl`` if all tokens are read."""
        return ddl if self._words.at_end else None

    def _thing(self, verb: str) -> Ddl | None:
        words = self._words
        found = read_object_kind(words)
        if not found.before.keys() <= _BEFORE_TABLE:
            return None
        match verb, found.word:
            case _, "DATABASE" | "SCHEMA":
                return self._schema(verb)
            case "CREATE", "INDEX":
                words.exists()
                name = words.name()
                return CreateIndex(self._behind_on(), name, "UNIQUE" in found.before)
            case "DROP", "INDEX":
                words.exists()
                name = words.name()
                return DropIndex(self._behind_on(), name)
            case "CREATE", "TABLE":
                return self._create_table(or_replace="REPLACE" in found.before)
            case "DROP", "TABLE" | "TABLES":
                if_exists = words.exists()
                ddl = DropTables(words.tables(), if_exists)
                words.wait()
                words.take("RESTRICT", "CASCADE")
                return self._whole(ddl)
            case "ALTER", "TABLE":
                words.exists()
                table = words.table()
                made = tuple(parse_clauses(words, table))
                if online := found.before.get("ONLINE"):
                    made = (Clause(ClauseKind.HOW, online.start, online.end), *made)
                return AlterTable(table, made, "IGNORE" in found.before, self._sql_mode)
            case _:
                return None

    def _behind_on(self) -> NameAt:
        if not self._words.seek("ON"):
            raise NotUnderstoodError
        return self._words.table()

    def _schema(self, verb: str) -> Ddl:
        words = self._words
        words.exists()
        if verb == "CREATE":
            return CreateSchema(words.name())
        if verb == "DROP":
            return DropSchema(words.name())
        if not self._option_is_next():
            return AlterSchema(words.name())
        if not words.default_schema:
            raise NotUnderstoodError
        return AlterSchema(words.default_schema)

    def _option_is_next(self) -> bool:
        """Whether ALTER DATABASE has no name: a word such as COMMENT may be a name or an option."""
        words = self._words
        word = words.word()
        following = TokenReader(words.rest()[1:], "").word()
        return word in _RESERVED_OPTIONS or (word in OPTIONS_OF_SCHEMA and following not in OPTIONS_OF_SCHEMA)

    def _create_table(self, *, or_replace: bool) -> CreateTable:
        words = self._words
        if_not_exists = words.exists()
        table = words.table()
        rest = words.rest()
        opened = words.take_symbol("(")
        if words.take("LIKE"):
            like = words.table()
            if (opened and not words.take_symbol(")")) or not words.at_end:
                raise NotUnderstoodError
            return CreateTable(table, if_not_exists, or_replace, "like", like)
        references = tuple(referenced_tables(rest, table.schema))
        form = "select" if _selects(rest) else "columns"
        return CreateTable(table, if_not_exists, or_replace, form, None, references)


def _selects(found: Sequence[Token]) -> bool:
    """Whether a query follows: SELECT, VALUES or TABLE outside of parentheses, or one in parentheses."""
    depth = 0
    opens = False  # only opening parentheses since the last token outside of them
    for token in found:
        if depth == 0 and token.is_word(*_SELECTS):
            return True
        if opens and token.is_word(*_SELECTS, "WITH"):
            return True
        opens = token.is_symbol("(") and (opens or depth == 0)
        depth += token.is_symbol("(") - token.is_symbol(")")
    return False

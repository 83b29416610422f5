"""Reads tables as SHOW CREATE TABLE describes them; the schema tracker copies tables from it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pymysql
from pymysql.constants import ER

from shardmerge.worker.core.mysql.connection import Session, execute, quote_name, rows, text_of
from shardmerge.worker.core.sql.sequence_defaults import without_sequence_defaults
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable
from shardmerge.worker.core.sql.token_reader import NotUnderstoodError

_HEAD = re.compile(r"^\s*CREATE\s+TABLE\s+`(?:[^`]|``)*`", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CreateStatement:
    """``text``: of SHOW CREATE TABLE, with any table name; ``collation``: the table's default."""

    text: str
    collation: str

    @property
    def as_recorded(self) -> CreateStatement:
        """Without what only the server of a shard table can have. Raises UnreadableCreateTable."""
        try:
            return replace(self, text=without_sequence_defaults(self.text))
        except NotUnderstoodError as error:
            raise UnreadableCreateTable("parentheses do not match") from error

    @property
    def body(self) -> str:
        """The text after the name."""
        return _HEAD.sub("", self.text)


def read_create_statement(session: Session, schema: str, table: str) -> CreateStatement:
    """The statement of an existing table. Raises ``pymysql.MySQLError``."""
    return read_create_statements(session, [(schema, table)])[0]


def read_create_texts(session: Session, names: Iterable[tuple[str, str]]) -> list[str]:
    """What SHOW CREATE TABLE prints for existing tables, in order. Raises ``pymysql.MySQLError``."""
    execute(session, "SET SESSION sql_quote_show_create = 1")
    return [
        _create_text(session, f"SHOW CREATE TABLE {quote_name(schema)}.{quote_name(table)}") for schema, table in names
    ]


def read_shard_statements(session: Session, names: Iterable[tuple[str, str]]) -> list[CreateStatement]:
    """As :func:`read_create_statements`, of shard tables: without what only their server can have. Raises
    UnreadableCreateTable too."""
    return [statement.as_recorded for statement in read_create_statements(session, names)]


_INTRODUCED = re.compile(r"_(?!utf8)\w+ ?'")
"""A text literal in an expression that MySQL has stored in another character set."""
_LITERAL = re.compile(rb"_(\w+) ?'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(rb"''|\\(.)", re.DOTALL)
_ESCAPES = {b"0": b"\0", b"n": b"\n", b"r": b"\r", b"Z": b"\x1a"}


def _create_text(session: Session, statement: str) -> str:
    found = rows(session, statement)[0][1]
    if isinstance(found, bytes):
        return with_exact_literals(found)
    text = text_of(found)
    if "?" not in text or _INTRODUCED.search(text) is None:
        return text
    # MySQL prints the bytes of such a literal as they are, and converts the whole text as if it were UTF-8: what is not
    # valid becomes "?". Without a conversion it sends the bytes.
    [(before,)] = rows(session, "SELECT @@SESSION.character_set_results")
    # A session that is not raw has a conversion, and gives text.
    execute(session, "SET SESSION character_set_results = NULL")
    session.use_unicode = False
    try:
        exact = rows(session, statement)[0][1]
    finally:
        session.use_unicode = True
        execute(session, f"SET SESSION character_set_results = {text_of(before)}")
    return with_exact_literals(exact)


def with_exact_literals(text: bytes) -> str:
    """The text of SHOW CREATE TABLE in which literals that are not UTF-8 are hexadecimal. Pure."""

    def exact(match: re.Match[bytes]) -> bytes:
        charset, escaped = match.groups()
        try:
            escaped.decode()
        except UnicodeDecodeError:
            value = _ESCAPED.sub(lambda each: _ESCAPES.get(each[1], each[1]) if each[1] else b"'", escaped)
            return b"_%s X'%s'" % (charset, value.hex().upper().encode())
        return match.group()

    return _LITERAL.sub(exact, text).decode("utf-8", "replace")


def read_create_statements(session: Session, names: Iterable[tuple[str, str]]) -> list[CreateStatement]:
    """The statements of existing tables, in order. Raises ``pymysql.MySQLError``."""
    found: list[CreateStatement] = []
    wanted = tuple(names)
    for (schema, table), text in zip(wanted, read_create_texts(session, wanted), strict=True):
        collations = rows(
            session,
            "SELECT TABLE_COLLATION FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            (schema, table),
        )
        if not collations:  # it was dropped meanwhile
            raise pymysql.ProgrammingError(ER.NO_SUCH_TABLE, f"Table '{schema}.{table}' doesn't exist")
        found.append(CreateStatement(text, text_of(collations[0][0])))
    return found

"""Reads tables as SHOW CREATE TABLE describes them; the schema tracker copies tables from it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from shardmerge.worker.core.mysql.connection import Session, execute, quote_name, rows, text_of
from shardmerge.worker.core.mysql.create_table import without_sequence_defaults

_HEAD = re.compile(r"^\s*CREATE\s+TABLE\s+`(?:[^`]|``)*`", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CreateStatement:
    """``text``: of SHOW CREATE TABLE, with any table name; ``collation``: the table's default."""

    text: str
    collation: str

    @property
    def as_recorded(self) -> CreateStatement:
        """Without what only the server of a shard table can have. Raises UnreadableCreateTable."""
        return replace(self, text=without_sequence_defaults(self.text))

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
        text_of(rows(session, f"SHOW CREATE TABLE {quote_name(schema)}.{quote_name(table)}")[0][1])
        for schema, table in names
    ]


def read_shard_statements(session: Session, names: Iterable[tuple[str, str]]) -> list[CreateStatement]:
    """As :func:`read_create_statements`, of shard tables: without what only their server can have. Raises
    UnreadableCreateTable too."""
    return [statement.as_recorded for statement in read_create_statements(session, names)]


def read_create_statements(session: Session, names: Iterable[tuple[str, str]]) -> list[CreateStatement]:
    """The statements of existing tables, in order. Raises ``pymysql.MySQLError``."""
    found: list[CreateStatement] = []
    wanted = tuple(names)
    for (schema, table), text in zip(wanted, read_create_texts(session, wanted), strict=True):
        [(collation,)] = rows(
            session,
            "SELECT TABLE_COLLATION FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            (schema, table),
        )
        found.append(CreateStatement(text, text_of(collation)))
    return found

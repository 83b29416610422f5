"""A table as SHOW CREATE TABLE describes it: what its tracker is made of."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from worker.connection import Session, execute, quote_name, rows, text_of

_HEAD = re.compile(r"^\s*CREATE\s+TABLE\s+`(?:[^`]|``)*`", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Creation:
    """``text``: of SHOW CREATE TABLE, by whatever name; ``collation``: the table's default."""

    text: str
    collation: str

    @property
    def body(self) -> str:
        """The text behind the name."""
        return _HEAD.sub("", self.text)


def read_creation(session: Session, schema: str, table: str) -> Creation:
    """Of a table that is there. Raises ``pymysql.MySQLError``."""
    return read_creations(session, [(schema, table)])[0]


def read_creations(session: Session, names: Iterable[tuple[str, str]]) -> list[Creation]:
    """Of tables that are there, in order. Raises ``pymysql.MySQLError``."""
    execute(session, "SET SESSION sql_quote_show_create = 1")
    found: list[Creation] = []
    for schema, table in names:
        text = text_of(rows(session, f"SHOW CREATE TABLE {quote_name(schema)}.{quote_name(table)}")[0][1])
        [(collation,)] = rows(
            session,
            "SELECT TABLE_COLLATION FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            (schema, table),
        )
        found.append(Creation(text, text_of(collation)))
    return found

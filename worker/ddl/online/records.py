"""What a subtask's streams have seen of the tables that are made beside its shard tables: the records at the target.

    online_ddl   one row per table made beside another

Written in the transaction with which a stream passes the statement; gone with the table, or with the swap. A record is
its table's stream's: both go on together when the table waits or comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from worker.connection import Session, quote_name
from worker.ddl.creation import Creation
from worker.ddl.session import StatementSession
from worker.ddl.tables import TableName
from worker.table import Table

TABLE = """CREATE TABLE IF NOT EXISTS {schema}.`online_ddl` (
        `task` VARCHAR(191) NOT NULL,
        `source` VARCHAR(64) NOT NULL,
        `table_schema` VARCHAR(64) COLLATE utf8mb4_bin NOT NULL,
        `table_name` VARCHAR(64) COLLATE utf8mb4_bin NOT NULL,
        `seen` LONGTEXT NOT NULL,
        PRIMARY KEY (`task`, `source`, `table_schema`, `table_name`)
    ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""
NAME = "online_ddl"


@dataclass(frozen=True, slots=True)
class Kept:
    """An ALTER TABLE of a shadow table, as its server read it. ``sql_mode``: the server's bits; ``given``: its
    session."""

    text: str
    schema: str
    sql_mode: int
    given: StatementSession


@dataclass(frozen=True, slots=True)
class Shadow:
    """A shadow table that was seen to come to be: its structure by now, and by which statements."""

    table: Table
    creation: Creation
    kept: tuple[Kept, ...] = ()
    kind: Literal["shadow"] = "shadow"


@dataclass(frozen=True, slots=True)
class Unclear:
    """A shadow table whose structure is not known from what was seen. ``why``: for people."""

    why: str
    kind: Literal["unclear"] = "unclear"


@dataclass(frozen=True, slots=True)
class Away:
    """The shard table ``number`` itself, which bears this name until its shadow table takes its place."""

    number: int
    kind: Literal["away"] = "away"


Seen = Shadow | Unclear | Away

_JSON: TypeAdapter[Seen] = TypeAdapter(Annotated[Seen, Field(discriminator="kind")])


def read(session: Session, schema: str, task: str, source: str) -> dict[TableName, Seen]:
    """By the table's name."""
    with session.cursor() as cursor:
        cursor.execute(
            f"SELECT `table_schema`, `table_name`, `seen` FROM {quote_name(schema)}.`online_ddl` "
            "WHERE `task` = %s AND `source` = %s",
            (task, source),
        )
        return {(str(at), str(name)): _JSON.validate_json(str(text)) for at, name, text in cursor.fetchall()}


def write(session: Session, schema: str, task: str, source: str, changes: Mapping[TableName, Seen | None]) -> None:
    """Inside the caller's transaction. None: the record goes."""
    with session.cursor() as cursor:
        for (table_schema, name), seen in changes.items():
            if seen is None:
                cursor.execute(
                    f"DELETE FROM {quote_name(schema)}.`online_ddl` "
                    "WHERE `task` = %s AND `source` = %s AND `table_schema` = %s AND `table_name` = %s",
                    (task, source, table_schema, name),
                )
            else:
                cursor.execute(
                    f"REPLACE INTO {quote_name(schema)}.`online_ddl` VALUES (%s, %s, %s, %s, %s)",
                    (task, source, table_schema, name, _JSON.dump_json(seen).decode()),
                )

"""Records the shadow tables that online schema changes create for a subtask's shard tables.

    online_ddl   one row per shadow table

Written in the transaction in which a stream executes the statement; deleted when the shadow table is dropped or
swapped. A record belongs to its shard table's stream: it moves with the table when the table is parked or returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table import Table
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.records import subtask_rows
from shardmerge.worker.target.records.statement_session import StatementSession


@dataclass(frozen=True, slots=True)
class ShadowAlter:
    """An ALTER TABLE of a shadow table, as its server read it. ``sql_mode``: the server's bits. ``session``: the
    statement's session."""

    text: str
    schema: str
    sql_mode: int
    session: Annotated[StatementSession, Field(alias="given")]


@dataclass(frozen=True, slots=True)
class ShadowTable:
    """A shadow table whose creation the stream has read: its current structure and the statements that led to it."""

    table: Table
    creation: CreateStatement
    alters: Annotated[tuple[ShadowAlter, ...], Field(alias="kept")] = ()
    kind: Literal["shadow"] = "shadow"


@dataclass(frozen=True, slots=True)
class UnclearShadow:
    """A shadow table whose structure cannot be known from the binlog. ``why``: for people."""

    why: str
    kind: Literal["unclear"] = "unclear"


@dataclass(frozen=True, slots=True)
class AwayTable:
    """The shard table ``number`` itself, which has this name until its shadow table replaces it."""

    number: int
    kind: Literal["away"] = "away"


ShadowRecord = ShadowTable | UnclearShadow | AwayTable

_JSON: TypeAdapter[ShadowRecord] = TypeAdapter(Annotated[ShadowRecord, Field(discriminator="kind")])


def read(session: Session, who: SubtaskKey) -> dict[TableName, ShadowRecord]:
    """Records by the table's name."""
    found = subtask_rows.select(session, who, "online_ddl", "`table_schema`, `table_name`, `seen`")
    return {(str(at), str(name)): _JSON.validate_json(str(text)) for at, name, text in found}


def write(session: Session, who: SubtaskKey, changes: Mapping[TableName, ShadowRecord | None]) -> None:
    """Inside the caller's transaction. None: delete the record."""
    for name, seen in changes.items():
        if seen is None:
            subtask_rows.delete(session, who, "online_ddl", "AND `table_schema` = %s AND `table_name` = %s", name)
        else:
            subtask_rows.replace(session, who, "online_ddl", [(*name, _JSON.dump_json(seen, by_alias=True).decode())])

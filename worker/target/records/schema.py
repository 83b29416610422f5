"""The CREATE TABLE texts of all tables in the meta schema at the target.

worker/target/RECORDS.md describes each table: what it means, who writes and reads it, which tables change together.
Names and the order of columns are persisted: they stay when the code is renamed.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.worker.core.mysql.connection import Session, quote_name
from shardmerge.worker.core.stream import Stream

_SUBTASK = "task VARCHAR(191), source VARCHAR(64)"
_TABLE = "table_schema VARCHAR(64), table_name VARCHAR(64)"
_TARGET = "target_schema VARCHAR(64), target_table VARCHAR(64)"
_AT = "source_file VARCHAR(255), source_pos BIGINT UNSIGNED"
_POSITION = f"{_AT}, gtid_set LONGTEXT, source_server VARCHAR(64)"
_OFFSET = "relay_id VARCHAR(64), segment BIGINT UNSIGNED, byte BIGINT UNSIGNED"


@dataclass(frozen=True, slots=True)
class _Table:
    """``key``: the columns of the primary key with their types, which come first; "" for no key. ``columns``: the
    others. A column is NOT NULL unless its type ends with NULL. ``index``: a further index. ``is_owned``: see
    :data:`OWNED_TABLES`. ``of_copy``: an earlier version made it for a subtask that copies tables only."""

    name: str
    key: str
    columns: str = ""
    index: str = ""
    is_owned: bool = True
    of_copy: bool = False

    def creation(self, schema: str) -> str:
        columns = [each.split(" ", 1) for text in (self.key, self.columns) if text for each in text.split(", ")]
        parts = [f"`{name}` {kind}{'' if kind.endswith(' NULL') else ' NOT NULL'}" for name, kind in columns]
        if self.key:
            parts.append(f"PRIMARY KEY ({', '.join(f'`{each.split()[0]}`' for each in self.key.split(', '))})")
        parts += [self.index] if self.index else []
        name = f"{quote_name(schema)}.`{self.name}`"
        return f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(parts)}) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"


_TABLES = (
    # The subtask
    _Table(
        "subtask",
        _SUBTASK,
        "epoch BIGINT, phase VARCHAR(16), meta_token VARCHAR(64), start_file VARCHAR(255), start_pos BIGINT UNSIGNED, "
        "start_gtid_set LONGTEXT, start_server VARCHAR(64), dealing LONGTEXT, joining LONGTEXT, "
        "update_token VARCHAR(64)",
        is_owned=False,
    ),
    _Table("table_structure", f"{_SUBTASK}, number INT", f"{_TABLE}, structure LONGTEXT"),
    _Table("subtask_version", _SUBTASK, "epoch BIGINT, version BIGINT", is_owned=False),
    _Table(
        "table_version",
        f"{_SUBTASK}, number INT",
        "version BIGINT",
        "KEY `by_version` (`task`, `source`, `version`)",
    ),
    *(
        _Table(
            stream.table,
            f"{_SUBTASK}, lane INT",
            f"epoch BIGINT, seq BIGINT, {_OFFSET}, skip_events BIGINT UNSIGNED, {_POSITION}, commit_time DOUBLE",
        )
        for stream in Stream
    ),
    _Table(
        "deferred_index",
        f"{_TARGET}, number INT",
        "index_name VARCHAR(64), definition MEDIUMTEXT",
        is_owned=False,
    ),
    _Table("subtask_bound", f"{_SUBTASK}, bound VARCHAR(16)", f"given LONGTEXT, {_POSITION}, moment DOUBLE"),
    # DDL
    _Table("statement_passed", f"{_SUBTASK}, stream VARCHAR(16)", "place LONGTEXT"),
    _Table("statement_begun", f"{_SUBTASK}, subject VARCHAR(64)", "statement LONGTEXT, before_digest VARCHAR(64)"),
    _Table("table_creation", f"{_SUBTASK}, number INT", "creation LONGTEXT, collation VARCHAR(64)"),
    _Table(
        "operator_statement",
        f"{_SUBTASK}, subject VARCHAR(64)",
        "place LONGTEXT, statement LONGTEXT, occurrence INT, ran TINYINT",
    ),
    _Table("parked_table", f"{_SUBTASK}, number INT", "parked LONGTEXT"),
    _Table("dropped_column", f"{_SUBTASK}, number INT, column VARCHAR(64)"),
    _Table("online_ddl", f"{_SUBTASK}, {_TABLE}", "seen LONGTEXT"),
    _Table("forgotten_structure", f"{_SUBTASK}, number INT"),
    _Table(
        "lock_run",
        f"task VARCHAR(191), {_TARGET}",
        "generation VARCHAR(64), structure VARCHAR(64)",
        is_owned=False,
    ),
    _Table(
        "unlocked_statement",
        f"{_SUBTASK}, number INT, generation VARCHAR(64)",
        "form VARCHAR(64), structure VARCHAR(64), unlocked_at DOUBLE",
    ),
    # Rows that were not applied
    _Table(
        "skipped_change",
        "",
        f"{_SUBTASK}, {_AT}, lane INT, number INT, {_TABLE}, {_TARGET}, operation VARCHAR(16), before_image LONGTEXT, "
        "after_image LONGTEXT, note TEXT, word VARCHAR(64), skipped_at DOUBLE",
        "KEY `by_place` (`task`, `source`, `source_pos`)",
    ),
    _Table(
        "held_change",
        f"{_SUBTASK}, digest CHAR(64), seq BIGINT",
        f"{_TARGET}, shard INT, {_TABLE}, key_columns LONGTEXT, key_value LONGBLOB, columns LONGTEXT, "
        f"operation VARCHAR(16), image LONGBLOB NULL, {_AT}, {_OFFSET}, code INT, errno INT, reason TEXT, "
        "held_at DOUBLE",
    ),
    # The snapshot
    _Table("snapshot_passed", f"{_SUBTASK}, shard INT"),
    _Table("snapshot_interrupted", f"{_SUBTASK}, shard INT", "interrupted LONGTEXT"),
    # Target tables
    _Table(
        "target_rename",
        "task VARCHAR(191)",
        "from_schema VARCHAR(64), from_table VARCHAR(64), to_schema VARCHAR(64), to_table VARCHAR(64), "
        "state VARCHAR(16), partitionings LONGTEXT",
        is_owned=False,
    ),
    _Table("rowless_table", f"{_SUBTASK}, number INT", "epoch BIGINT"),
    # The snapshot of a subtask that copies tables
    _Table(
        "snapshot_table",
        f"{_SUBTASK}, shard INT",
        f"source_schema VARCHAR(64), source_table VARCHAR(64), {_TARGET}",
        of_copy=True,
    ),
    _Table(
        "snapshot_chunk",
        f"{_SUBTASK}, shard INT, number BIGINT",
        "lower_bound MEDIUMTEXT, upper_bound MEDIUMTEXT, state TINYINT, row_count BIGINT, byte_count BIGINT, "
        f"seconds DOUBLE, {_POSITION}, {_OFFSET}",
        of_copy=True,
    ),
)

OWNED_TABLES = tuple(table.name for table in _TABLES if table.is_owned)
"""Tables whose rows belong to one subtask: start-task --remove-meta deletes them. Not ``subtask``, which is reset,
``subtask_version``, whose versions only grow, ``lock_run`` and ``target_rename``, which belong to the task, and
``deferred_index``, which belongs to the target table."""

_NOT_IN_EARLIER_VERSIONS = frozenset({"snapshot_interrupted", "target_rename", "rowless_table", "unlocked_statement"})
"""Tables that a subtask of the version before does not have: a table that is added belongs here until that version has
it, or an upgrade would stop running tasks with RECORDS_LOST. Their loss is not noticed."""


def creations(schema: str) -> dict[str, str]:
    """The CREATE TABLE statements of the meta schema ``schema``, by the table's name."""
    return {table.name: table.creation(schema) for table in _TABLES}


def ensure_meta(connection: Session, schema: str) -> None:
    """Create the meta schema and its tables where they are missing. Safe to run concurrently."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quote_name(schema)}")
        for statement in creations(schema).values():
            cursor.execute(statement)


def missing_tables(connection: Session, schema: str, *, copies: bool) -> list[str]:
    """The names of tables that every version has made for a subtask that has begun, and that are not there.

    ``copies``: the subtask copies tables.
    """
    tables = (table for table in _TABLES if copies or not table.of_copy)
    names = [table.name for table in tables if table.name not in _NOT_IN_EARLIER_VERSIONS]
    with connection.cursor() as cursor:
        cursor.execute("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s", (schema,))
        there = {str(name) for (name,) in cursor.fetchall()}
    return [name for name in names if name not in there]

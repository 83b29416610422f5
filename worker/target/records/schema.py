"""The CREATE TABLE texts of all tables in the meta schema at the target.

worker/target/RECORDS.md describes each table: what it means, who writes and reads it, which tables change together.
Names of tables and columns are persisted: they stay when the code is renamed. ``{schema}`` in a text is the quoted
name of the meta schema (``meta-schema`` of the task file, dm_meta by default).
"""

from __future__ import annotations

import re

from shardmerge.worker.core.mysql.connection import Session, quote_name
from shardmerge.worker.core.stream import Stream

# --- The subtask

_SUBTASK = """CREATE TABLE IF NOT EXISTS {schema}.`subtask` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `epoch` BIGINT NOT NULL,
    `phase` VARCHAR(16) NOT NULL,
    `meta_token` VARCHAR(64) NOT NULL,
    `start_file` VARCHAR(255) NOT NULL,
    `start_pos` BIGINT UNSIGNED NOT NULL,
    `start_gtid_set` LONGTEXT NOT NULL,
    `start_server` VARCHAR(64) NOT NULL,
    `dealing` LONGTEXT NOT NULL,
    `joining` LONGTEXT NOT NULL,
    `update_token` VARCHAR(64) NOT NULL,
    PRIMARY KEY (`task`, `source`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_TABLE_STRUCTURE = """CREATE TABLE IF NOT EXISTS {schema}.`table_structure` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `number` INT NOT NULL,
    `table_schema` VARCHAR(64) NOT NULL,
    `table_name` VARCHAR(64) NOT NULL,
    `structure` LONGTEXT NOT NULL,
    PRIMARY KEY (`task`, `source`, `number`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_TABLE_CREATION = """CREATE TABLE IF NOT EXISTS {schema}.`table_creation` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `number` INT NOT NULL,
    `creation` LONGTEXT NOT NULL,
    `collation` VARCHAR(64) NOT NULL,
    PRIMARY KEY (`task`, `source`, `number`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_SUBTASK_VERSION = """CREATE TABLE IF NOT EXISTS {schema}.`subtask_version` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `epoch` BIGINT NOT NULL,
    `version` BIGINT NOT NULL,
    PRIMARY KEY (`task`, `source`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_TABLE_VERSION = """CREATE TABLE IF NOT EXISTS {schema}.`table_version` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `number` INT NOT NULL,
    `version` BIGINT NOT NULL,
    PRIMARY KEY (`task`, `source`, `number`),
    KEY `by_version` (`task`, `source`, `version`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_SUBTASK_BOUND = """CREATE TABLE IF NOT EXISTS {schema}.`subtask_bound` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `bound` VARCHAR(16) NOT NULL,
    `given` LONGTEXT NOT NULL,
    `source_file` VARCHAR(255) NOT NULL,
    `source_pos` BIGINT UNSIGNED NOT NULL,
    `gtid_set` LONGTEXT NOT NULL,
    `source_server` VARCHAR(64) NOT NULL,
    `moment` DOUBLE NOT NULL,
    PRIMARY KEY (`task`, `source`, `bound`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

# --- Checkpoints: one table per stream, all with these columns

_CHECKPOINT = """CREATE TABLE IF NOT EXISTS {schema}.`{table}` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `lane` INT NOT NULL,
    `epoch` BIGINT NOT NULL,
    `seq` BIGINT NOT NULL,
    `relay_id` VARCHAR(64) NOT NULL,
    `segment` BIGINT UNSIGNED NOT NULL,
    `byte` BIGINT UNSIGNED NOT NULL,
    `skip_events` BIGINT UNSIGNED NOT NULL,
    `source_file` VARCHAR(255) NOT NULL,
    `source_pos` BIGINT UNSIGNED NOT NULL,
    `gtid_set` LONGTEXT NOT NULL,
    `source_server` VARCHAR(64) NOT NULL,
    `commit_time` DOUBLE NOT NULL,
    PRIMARY KEY (`task`, `source`, `lane`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

# --- The snapshot

_SNAPSHOT_TABLE = """CREATE TABLE IF NOT EXISTS {schema}.`snapshot_table` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `shard` INT NOT NULL,
    `source_schema` VARCHAR(64) NOT NULL,
    `source_table` VARCHAR(64) NOT NULL,
    `target_schema` VARCHAR(64) NOT NULL,
    `target_table` VARCHAR(64) NOT NULL,
    PRIMARY KEY (`task`, `source`, `shard`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_SNAPSHOT_CHUNK = """CREATE TABLE IF NOT EXISTS {schema}.`snapshot_chunk` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `shard` INT NOT NULL,
    `number` BIGINT NOT NULL,
    `lower_bound` MEDIUMTEXT NOT NULL,
    `upper_bound` MEDIUMTEXT NOT NULL,
    `state` TINYINT NOT NULL,
    `row_count` BIGINT NOT NULL,
    `byte_count` BIGINT NOT NULL,
    `seconds` DOUBLE NOT NULL,
    `source_file` VARCHAR(255) NOT NULL,
    `source_pos` BIGINT UNSIGNED NOT NULL,
    `gtid_set` LONGTEXT NOT NULL,
    `source_server` VARCHAR(64) NOT NULL,
    `relay_id` VARCHAR(64) NOT NULL,
    `segment` BIGINT UNSIGNED NOT NULL,
    `byte` BIGINT UNSIGNED NOT NULL,
    PRIMARY KEY (`task`, `source`, `shard`, `number`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_SNAPSHOT_PASSED = """CREATE TABLE IF NOT EXISTS {schema}.`snapshot_passed` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `shard` INT NOT NULL,
    PRIMARY KEY (`task`, `source`, `shard`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_SNAPSHOT_INTERRUPTED = """CREATE TABLE IF NOT EXISTS {schema}.`snapshot_interrupted` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `shard` INT NOT NULL,
    `interrupted` LONGTEXT NOT NULL,
    PRIMARY KEY (`task`, `source`, `shard`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

# --- DDL

_STATEMENT_PASSED = """CREATE TABLE IF NOT EXISTS {schema}.`statement_passed` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `stream` VARCHAR(16) NOT NULL,
    `place` LONGTEXT NOT NULL,
    PRIMARY KEY (`task`, `source`, `stream`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_STATEMENT_BEGUN = """CREATE TABLE IF NOT EXISTS {schema}.`statement_begun` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `subject` VARCHAR(64) NOT NULL,
    `statement` LONGTEXT NOT NULL,
    `before_digest` VARCHAR(64) NOT NULL,
    PRIMARY KEY (`task`, `source`, `subject`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_OPERATOR_STATEMENT = """CREATE TABLE IF NOT EXISTS {schema}.`operator_statement` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `subject` VARCHAR(64) NOT NULL,
    `place` LONGTEXT NOT NULL,
    `statement` LONGTEXT NOT NULL,
    `occurrence` INT NOT NULL,
    `ran` TINYINT NOT NULL,
    PRIMARY KEY (`task`, `source`, `subject`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_LOCK_RUN = """CREATE TABLE IF NOT EXISTS {schema}.`lock_run` (
    `task` VARCHAR(191) NOT NULL,
    `target_schema` VARCHAR(64) NOT NULL,
    `target_table` VARCHAR(64) NOT NULL,
    `generation` VARCHAR(64) NOT NULL,
    `structure` VARCHAR(64) NOT NULL,
    PRIMARY KEY (`task`, `target_schema`, `target_table`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_PARKED_TABLE = """CREATE TABLE IF NOT EXISTS {schema}.`parked_table` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `number` INT NOT NULL,
    `parked` LONGTEXT NOT NULL,
    PRIMARY KEY (`task`, `source`, `number`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_FORGOTTEN_STRUCTURE = """CREATE TABLE IF NOT EXISTS {schema}.`forgotten_structure` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `number` INT NOT NULL,
    PRIMARY KEY (`task`, `source`, `number`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_DROPPED_COLUMN = """CREATE TABLE IF NOT EXISTS {schema}.`dropped_column` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `number` INT NOT NULL,
    `column` VARCHAR(64) NOT NULL,
    PRIMARY KEY (`task`, `source`, `number`, `column`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_ONLINE_DDL = """CREATE TABLE IF NOT EXISTS {schema}.`online_ddl` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `table_schema` VARCHAR(64) COLLATE utf8mb4_bin NOT NULL,
    `table_name` VARCHAR(64) COLLATE utf8mb4_bin NOT NULL,
    `seen` LONGTEXT NOT NULL,
    PRIMARY KEY (`task`, `source`, `table_schema`, `table_name`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

# --- Rows that were not applied

_SKIPPED_CHANGE = """CREATE TABLE IF NOT EXISTS {schema}.`skipped_change` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `source_file` VARCHAR(255) NOT NULL,
    `source_pos` BIGINT UNSIGNED NOT NULL,
    `lane` INT NOT NULL,
    `number` INT NOT NULL,
    `table_schema` VARCHAR(64) NOT NULL,
    `table_name` VARCHAR(64) NOT NULL,
    `target_schema` VARCHAR(64) NOT NULL,
    `target_table` VARCHAR(64) NOT NULL,
    `operation` VARCHAR(16) NOT NULL,
    `before_image` LONGTEXT NOT NULL,
    `after_image` LONGTEXT NOT NULL,
    `note` TEXT NOT NULL,
    `word` VARCHAR(64) NOT NULL,
    `skipped_at` DOUBLE NOT NULL,
    KEY `by_place` (`task`, `source`, `source_pos`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_HELD_CHANGE = """CREATE TABLE IF NOT EXISTS {schema}.`held_change` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `digest` CHAR(64) NOT NULL,
    `seq` BIGINT NOT NULL,
    `target_schema` VARCHAR(64) NOT NULL,
    `target_table` VARCHAR(64) NOT NULL,
    `shard` INT NOT NULL,
    `table_schema` VARCHAR(64) NOT NULL,
    `table_name` VARCHAR(64) NOT NULL,
    `key_columns` LONGTEXT NOT NULL,
    `key_value` LONGBLOB NOT NULL,
    `columns` LONGTEXT NOT NULL,
    `operation` VARCHAR(16) NOT NULL,
    `image` LONGBLOB,
    `source_file` VARCHAR(255) NOT NULL,
    `source_pos` BIGINT UNSIGNED NOT NULL,
    `relay_id` VARCHAR(64) NOT NULL,
    `segment` BIGINT UNSIGNED NOT NULL,
    `byte` BIGINT UNSIGNED NOT NULL,
    `code` INT NOT NULL,
    `errno` INT NOT NULL,
    `reason` TEXT NOT NULL,
    `held_at` DOUBLE NOT NULL,
    PRIMARY KEY (`task`, `source`, `digest`, `seq`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

# --- Target tables

_DEFERRED_INDEX = """CREATE TABLE IF NOT EXISTS {schema}.`deferred_index` (
    `target_schema` VARCHAR(64) NOT NULL,
    `target_table` VARCHAR(64) NOT NULL,
    `number` INT NOT NULL,
    `index_name` VARCHAR(64) NOT NULL,
    `definition` MEDIUMTEXT NOT NULL,
    PRIMARY KEY (`target_schema`, `target_table`, `number`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_TARGET_RENAME = """CREATE TABLE IF NOT EXISTS {schema}.`target_rename` (
    `task` VARCHAR(191) NOT NULL,
    `from_schema` VARCHAR(64) NOT NULL,
    `from_table` VARCHAR(64) NOT NULL,
    `to_schema` VARCHAR(64) NOT NULL,
    `to_table` VARCHAR(64) NOT NULL,
    `state` VARCHAR(16) NOT NULL,
    `partitionings` LONGTEXT NOT NULL,
    PRIMARY KEY (`task`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_ROWLESS_TABLE = """CREATE TABLE IF NOT EXISTS {schema}.`rowless_table` (
    `task` VARCHAR(191) NOT NULL,
    `source` VARCHAR(64) NOT NULL,
    `number` INT NOT NULL,
    `epoch` BIGINT NOT NULL,
    PRIMARY KEY (`task`, `source`, `number`)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

_COPY = (_SNAPSHOT_TABLE, _SNAPSHOT_CHUNK)

_TABLES = (
    _SUBTASK,
    _TABLE_STRUCTURE,
    _SUBTASK_VERSION,
    _TABLE_VERSION,
    *(_CHECKPOINT.replace("{table}", stream.table) for stream in Stream),
    _DEFERRED_INDEX,
    _SUBTASK_BOUND,
    _STATEMENT_PASSED,
    _STATEMENT_BEGUN,
    _TABLE_CREATION,
    _OPERATOR_STATEMENT,
    _PARKED_TABLE,
    _DROPPED_COLUMN,
    _ONLINE_DDL,
    _FORGOTTEN_STRUCTURE,
    _LOCK_RUN,
    _SKIPPED_CHANGE,
    _HELD_CHANGE,
    _SNAPSHOT_PASSED,
    _SNAPSHOT_INTERRUPTED,
    _TARGET_RENAME,
    _ROWLESS_TABLE,
    *_COPY,
)

OWNED_TABLES = (
    "table_structure",
    *(stream.table for stream in Stream),
    "subtask_bound",
    "snapshot_chunk",
    "snapshot_table",
    "snapshot_passed",
    "snapshot_interrupted",
    "statement_passed",
    "statement_begun",
    "table_creation",
    "table_version",
    "operator_statement",
    "parked_table",
    "dropped_column",
    "online_ddl",
    "forgotten_structure",
    "skipped_change",
    "held_change",
    "rowless_table",
)
"""Tables whose rows belong to one subtask: start-task --remove-meta deletes them. Not ``subtask``, which is reset,
``subtask_version``, whose versions only grow, ``lock_run`` and ``target_rename``, which belong to the task, and
``deferred_index``, which belongs to the target table."""


_NAME = re.compile(r"\{schema\}\.`(\w+)`")

_NOT_IN_EARLIER_VERSIONS = frozenset({"snapshot_interrupted", "target_rename", "rowless_table"})
"""Tables that a subtask of the version before does not have: a table that is added belongs here until that version has
it, or an upgrade would stop running tasks with RECORDS_LOST. Their loss is not noticed."""


def ensure_meta(connection: Session, schema: str) -> None:
    """Create the meta schema and its tables where they are missing. Safe to run concurrently."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quote_name(schema)}")
        for statement in _TABLES:
            cursor.execute(statement.format(schema=quote_name(schema)))


def missing_tables(connection: Session, schema: str, *, copies: bool) -> list[str]:
    """The names of tables that every version has made for a subtask that has begun, and that are not there.

    ``copies``: the subtask copies tables. An earlier version made the tables of a copy for such a subtask only.
    """
    texts = [text for text in _TABLES if copies or text not in _COPY]
    names = [name for text in texts for name in _NAME.findall(text) if name not in _NOT_IN_EARLIER_VERSIONS]
    with connection.cursor() as cursor:
        cursor.execute("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s", (schema,))
        there = {str(name) for (name,) in cursor.fetchall()}
    return [name for name in names if name not in there]

"""The subtask's records at the target: schema ``meta-schema`` (default dm_meta).

Rows and the record of them commit in one target transaction, so the records live where the rows do.

    subtask           one row per (task, source): newest epoch, phase, where replication began
    table_structure   the structures the rules let through, as of the subtask's first start, or as they joined
    lane_checkpoint   one row per lane (worker/replicate/checkpoint.py)
    join_checkpoint   the same of tables that are joining (worker/join/)
    subtask_bound     where replication begins for certain, and ends (worker/bounds.py)
    snapshot_*        the chunk plan and its state (worker/snapshot/store.py)
    snapshot_passed   tables whose chunks' marks every lane has passed (worker/snapshot/passed.py)
    statement_*, table_creation   the DDL that the streams have come to (worker/ddl/records.py)
    operator_statement   statements of an operator that ran for a statement (worker/ddl/operator_records.py)
    lock_run          which locks' statements have run at a target table (worker/ddl/run_locks.py)
    parked_table      shard tables that wait before a sharding DDL (worker/ddl/parked.py)
    forgotten_structure   shard tables whose structure is to be read anew (worker/ddl/forgotten.py)
    dropped_column    columns that shard tables dropped while the target keeps them (worker/ddl/dropped.py)
    online_ddl        tables that are made beside shard tables by an online schema change (worker/ddl/online/records.py)
    skipped_change    rows that an operator let pass by (worker/replicate/skipped.py)
    held_change       changes that the target refused, and what waits behind them (worker/quarantine/store.py)
    deferred_index    secondary indexes that a target table of ours still lacks (worker/deferred/store.py)

A unit takes over by raising ``subtask.epoch``; every commit below re-reads an epoch in its own
transaction, so a process of an older epoch cannot commit (I3).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pymysql
from pydantic import TypeAdapter
from pymysql.constants import ER

from proto import errors
from worker import bounds
from worker.connection import Session, quote_name
from worker.ddl import dropped, forgotten, operator_records, parked, run_locks
from worker.ddl import records as ddl_records
from worker.ddl.online import records as online_records
from worker.position import SourcePosition
from worker.quarantine import store as quarantine
from worker.replicate import skipped
from worker.replicate.stream import Stream
from worker.snapshot import passed
from worker.table import Table

_TABLE_JSON: TypeAdapter[Table] = TypeAdapter(Table)

_TABLES = (
    """CREATE TABLE IF NOT EXISTS {schema}.`subtask` (
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
    ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin""",
    """CREATE TABLE IF NOT EXISTS {schema}.`table_structure` (
        `task` VARCHAR(191) NOT NULL,
        `source` VARCHAR(64) NOT NULL,
        `number` INT NOT NULL,
        `table_schema` VARCHAR(64) NOT NULL,
        `table_name` VARCHAR(64) NOT NULL,
        `structure` LONGTEXT NOT NULL,
        PRIMARY KEY (`task`, `source`, `number`)
    ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin""",
    *(
        f"""CREATE TABLE IF NOT EXISTS {{schema}}.`{stream.table}` (
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
        for stream in Stream
    ),
    """CREATE TABLE IF NOT EXISTS {schema}.`deferred_index` (
        `target_schema` VARCHAR(64) NOT NULL,
        `target_table` VARCHAR(64) NOT NULL,
        `number` INT NOT NULL,
        `index_name` VARCHAR(64) NOT NULL,
        `definition` MEDIUMTEXT NOT NULL,
        PRIMARY KEY (`target_schema`, `target_table`, `number`)
    ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin""",
    bounds.TABLE,
    *ddl_records.TABLES,
    operator_records.TABLE,
    parked.TABLE,
    dropped.TABLE,
    online_records.TABLE,
    forgotten.TABLE,
    run_locks.TABLE,
    skipped.TABLE,
    quarantine.TABLE,
    passed.TABLE,
)

_OWNED = (
    "table_structure",
    *(stream.table for stream in Stream),
    "subtask_bound",
    "snapshot_chunk",
    "snapshot_table",
    passed.NAME,
    *ddl_records.OWNED,
    operator_records.NAME,
    parked.NAME,
    dropped.NAME,
    online_records.NAME,
    forgotten.NAME,
    skipped.NAME,
    quarantine.NAME,
)


class Phase(enum.Enum):
    """How far a subtask has come; only moves forward."""

    NEW = "new"
    SNAPSHOT = "snapshot"
    REPLICATE = "replicate"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class SubTaskRow:
    """The subtask's row as the new owner of the epoch found it.

    ``start``: None before the first start; else where the relay must reach back to while there
    are no lane checkpoints. ``dealing``: how rows are dealt to the lanes (worker/replicate/dealing.py), "" before that
    was recorded; changed together with the checkpoints, for what a checkpoint covers depends on it. ``joining``: the
    tables that are on their way into the subtask (worker/join/record.py), "" when none are. ``update_token``: of the
    last update that was begun.
    """

    phase: Phase
    start: SourcePosition | None
    dealing: str
    joining: str
    update_token: str


_ROW = "`phase`, `start_file`, `start_pos`, `start_gtid_set`, `start_server`, `dealing`, `joining`, `update_token`"


def ensure_meta(connection: Session, schema: str) -> None:
    """Make the meta schema and this module's tables when missing. Safe to run side by side."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quote_name(schema)}")
        for statement in _TABLES:
            cursor.execute(statement.format(schema=quote_name(schema)))


def take_over(connection: Session, schema: str, task: str, source: str, epoch: int, meta_token: str) -> SubTaskRow:
    """Raise the subtask's epoch to ``epoch``; from its commit on nothing older commits (I3).

    A ``meta_token`` other than the recorded one drops the subtask's records first
    (start-task --remove-meta). Raises FENCED when a newer epoch is there already.
    """
    name = quote_name(schema)
    who = (task, source)
    with connection.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute(
            f"INSERT IGNORE INTO {name}.`subtask` VALUES (%s, %s, 0, 'new', %s, '', 0, '', '', '', '', '')",
            (*who, meta_token),
        )
        cursor.execute(
            f"SELECT `epoch`, `meta_token`, {_ROW} "
            f"FROM {name}.`subtask` WHERE `task` = %s AND `source` = %s FOR UPDATE",
            who,
        )
        [(found_epoch, found_token, *recorded)] = cursor.fetchall()
        row = _row(recorded)
        if int(found_epoch) >= epoch:
            cursor.execute("ROLLBACK")
            raise errors.replicate.FENCED(task=task, source=source, epoch=epoch)
        if meta_token and meta_token != found_token:
            row = SubTaskRow(Phase.NEW, None, "", "", "")
            _forget(connection, schema, task, source)
            cursor.execute(
                f"UPDATE {name}.`subtask` SET `phase` = 'new', `meta_token` = %s, `start_file` = '', `dealing` = '', "
                "`joining` = '', `update_token` = '' "
                "WHERE `task` = %s AND `source` = %s",
                (meta_token, *who),
            )
        cursor.execute(f"UPDATE {name}.`subtask` SET `epoch` = %s WHERE `task` = %s AND `source` = %s", (epoch, *who))
        for stream in Stream:
            cursor.execute(
                f"UPDATE {name}.`{stream.table}` SET `epoch` = %s WHERE `task` = %s AND `source` = %s",
                (epoch, *who),
            )
        cursor.execute("COMMIT")
    return row


def _forget(connection: Session, schema: str, task: str, source: str) -> None:
    with connection.cursor() as cursor:  # the target's, whichever source begins anew first
        cursor.execute(f"DELETE FROM {quote_name(schema)}.`{run_locks.NAME}` WHERE `task` = %s", (task,))
    for table in _OWNED:
        try:
            with connection.cursor() as cursor:
                cursor.execute(
                    f"DELETE FROM {quote_name(schema)}.`{table}` WHERE `task` = %s AND `source` = %s",
                    (task, source),
                )
        except pymysql.err.ProgrammingError as error:
            if error.args[0] != ER.NO_SUCH_TABLE:
                raise


def begin(
    connection: Session,
    schema: str,
    task: str,
    source: str,
    epoch: int,
    phase: Phase,
    start: SourcePosition,
    tables: tuple[Table, ...],
    also: Callable[[Session], None],
) -> None:
    """Leave phase NEW: record where the relay must begin, the structures, and what ``also`` writes, in one
    transaction. Raises FENCED."""
    columns = {
        "phase": phase.value,
        "start_file": start.file,
        "start_pos": start.pos,
        "start_gtid_set": start.gtid_set,
        "start_server": start.server,
    }

    def add(session: Session) -> None:
        for number, table in enumerate(tables):
            _insert_table(session, schema, task, source, number, table)
        also(session)

    _change(connection, schema, task, source, epoch, columns, add)


def enter_phase(
    connection: Session,
    schema: str,
    task: str,
    source: str,
    epoch: int,
    phase: Phase,
    also: Callable[[Session], None],
) -> None:
    """Move to ``phase`` and write what ``also`` writes, in one transaction. Raises FENCED."""
    _change(connection, schema, task, source, epoch, {"phase": phase.value}, also)


def deal_anew(
    connection: Session,
    schema: str,
    task: str,
    source: str,
    epoch: int,
    dealing: str,
    also: Callable[[Session], None],
) -> None:
    """Record how rows are dealt to the lanes and write what ``also`` writes, in one transaction. Raises FENCED."""
    _change(connection, schema, task, source, epoch, {"dealing": dealing}, also)


def begin_update(
    connection: Session,
    schema: str,
    task: str,
    source: str,
    epoch: int,
    update_token: str,
    joining: str,
    tables: Mapping[int, Table],
    also: Callable[[Session], None],
) -> None:
    """Record that an update has begun, which tables join by it, their structures by number, and what ``also`` writes,
    in one transaction. Raises FENCED."""

    def add(session: Session) -> None:
        for number, table in tables.items():
            _insert_table(session, schema, task, source, number, table)
        also(session)

    _change(connection, schema, task, source, epoch, {"update_token": update_token, "joining": joining}, add)


def record_joining(
    connection: Session,
    schema: str,
    task: str,
    source: str,
    epoch: int,
    joining: str,
    also: Callable[[Session], None],
) -> None:
    """Record which tables are joining and write what ``also`` writes, in one transaction. Raises FENCED."""
    _change(connection, schema, task, source, epoch, {"joining": joining}, also)


def adopt(
    connection: Session,
    schema: str,
    task: str,
    source: str,
    epoch: int,
    dealing: str,
    also: Callable[[Session], None],
) -> None:
    """The joining tables are the subtask's own from here on: record how rows are dealt now and write what ``also``
    writes, in one transaction. Raises FENCED."""
    _change(connection, schema, task, source, epoch, {"dealing": dealing, "joining": ""}, also)


def pass_statement(
    connection: Session,
    schema: str,
    task: str,
    source: str,
    epoch: int,
    columns: Mapping[str, str],
    tables: Mapping[int, Table],
    also: Callable[[Session], None],
) -> None:
    """A statement lies behind a stream: record the structures behind it by number, how rows are dealt from there on
    (``columns`` of the subtask's row) and what ``also`` writes, in one transaction. Raises FENCED."""

    def write(session: Session) -> None:
        for number, table in tables.items():
            _insert_table(session, schema, task, source, number, table, verb="REPLACE")
        also(session)

    _change(connection, schema, task, source, epoch, {**columns, "epoch": str(epoch)}, write)


def _change(
    connection: Session,
    schema: str,
    task: str,
    source: str,
    epoch: int,
    columns: Mapping[str, str | int],
    also: Callable[[Session], None],
) -> None:
    """Set columns of the subtask's row and write what ``also`` writes, in one transaction. Raises FENCED."""
    assignments = ", ".join(f"`{name}` = %s" for name in columns)
    with connection.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute(
            f"UPDATE {quote_name(schema)}.`subtask` SET {assignments} "
            "WHERE `task` = %s AND `source` = %s AND `epoch` = %s",
            (*columns.values(), task, source, epoch),
        )
        if cursor.rowcount != 1:
            cursor.execute("ROLLBACK")
            raise errors.replicate.FENCED(task=task, source=source, epoch=epoch)
        also(connection)
        cursor.execute("COMMIT")


def _insert_table(
    connection: Session, schema: str, task: str, source: str, number: int, table: Table, verb: str = "INSERT"
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"{verb} INTO {quote_name(schema)}.`table_structure` VALUES (%s, %s, %s, %s, %s, %s)",
            (task, source, number, table.schema, table.name, _TABLE_JSON.dump_json(table).decode()),
        )


def read_row(connection: Session, schema: str, task: str, source: str) -> SubTaskRow | None:
    """The subtask's row as it stands, taking nothing over; None when there is none."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {_ROW} FROM {quote_name(schema)}.`subtask` WHERE `task` = %s AND `source` = %s", (task, source)
        )
        row = cursor.fetchone()
    return None if row is None else _row(row)


def _row(row: Sequence[object]) -> SubTaskRow:
    phase, file, pos, gtid_set, server, dealing, joining, updated = map(str, row)
    start = SourcePosition(file, int(pos), gtid_set, server) if file else None
    return SubTaskRow(Phase(phase), start, dealing, joining, updated)


def read_tables(connection: Session, schema: str, task: str, source: str) -> tuple[Table, ...]:
    """The structures recorded by :func:`begin`, in their order."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT `structure` FROM {quote_name(schema)}.`table_structure` "
            "WHERE `task` = %s AND `source` = %s ORDER BY `number`",
            (task, source),
        )
        return tuple(_TABLE_JSON.validate_json(row[0]) for row in cursor.fetchall())

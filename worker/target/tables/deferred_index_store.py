"""Stores which deferred indexes a target table still lacks: table ``deferred_index`` of the meta schema.

Written before the indexes are dropped from the empty table: after the worker's CREATE TABLE, or for a table that
existed. Deleted once the table has all of them. Between the two the table may lack them. Both are done under the
table's server lock: several sources and tasks use one record. It belongs to the target table, not to a task: start-task
--remove-meta does not delete it.

Functions raise ``pymysql.MySQLError``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

import pymysql
from pymysql.constants import ER

from shardmerge.worker.core.mysql.connection import Session, errno_of, execute, quote_name, rows, text_of
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.target.tables.deferred_index import DeferredIndex, Load

LOCK_SECONDS = 20
"""How long a load waits for another connection that drops or adds indexes of its table."""

_OPEN_ABOVE = "[]"
"""The upper bound of a table's last chunk, as worker/snapshot/chunk_store.py writes it."""


@contextmanager
def table_lock(session: Session, target: TargetTable, seconds: int) -> Generator[bool]:
    """Hold the server lock under which deferred indexes of the table are recorded, dropped and added; False: another
    connection has held it for ``seconds``."""
    name = lock_name(target)
    [(got,)] = rows(session, "SELECT GET_LOCK(%s, %s)", (name, seconds))
    try:
        yield got == 1
    finally:
        if got == 1:
            with suppress(pymysql.MySQLError):
                execute(session, "DO RELEASE_LOCK(%s)", (name,))


def lock_name(target: TargetTable) -> str:
    """At most 64 characters for any table name (MySQL 8.4 Reference Manual, "Locking Functions")."""
    return "shardmerge-" + hashlib.sha1(target.quoted.lower().encode(), usedforsecurity=False).hexdigest()


def record(session: Session, meta_schema: str, target: TargetTable, indexes: Sequence[DeferredIndex]) -> None:
    """Record exactly these indexes as missing from the table."""
    name = _table(meta_schema)
    session.begin()
    try:
        execute(session, f"DELETE FROM {name} WHERE `target_schema` = %s AND `target_table` = %s", target.names)
        for number, index in enumerate(indexes):
            execute(
                session,
                f"INSERT INTO {name} VALUES (%s, %s, %s, %s, %s)",
                (*target.names, number, index.name, index.definition),
            )
        session.commit()
    finally:
        session.rollback()


def delete(session: Session, meta_schema: str, target: TargetTable) -> None:
    """Record that the table lacks no index."""
    record(session, meta_schema, target, ())


def read_tables(session: Session, meta_schema: str) -> tuple[TargetTable, ...]:
    """The tables that have a record."""
    found = rows(session, f"SELECT DISTINCT `target_schema`, `target_table` FROM {_table(meta_schema)} ORDER BY 1, 2")
    return tuple(TargetTable(text_of(schema), text_of(table)) for schema, table in found)


def read_owed(session: Session, meta_schema: str, target: TargetTable) -> tuple[DeferredIndex, ...]:
    found = rows(
        session,
        f"SELECT `index_name`, `definition` FROM {_table(meta_schema)} "
        "WHERE `target_schema` = %s AND `target_table` = %s ORDER BY `number`",
        target.names,
    )
    return tuple(DeferredIndex(text_of(name), text_of(definition)) for name, definition in found)


def read_present(session: Session, target: TargetTable) -> frozenset[str] | None:
    """The names of the table's indexes, in lower case, and "" if a column has AUTO_INCREMENT; None without the
    table."""
    try:
        found = rows(session, f"SHOW INDEX FROM {target.quoted}")
        columns = rows(session, f"SHOW COLUMNS FROM {target.quoted}")
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR):
            raise
        return None
    numbered = {"" for row in columns if "auto_increment" in text_of(row[5]).lower()}
    return frozenset({text_of(row[2]).lower() for row in found} | numbered)


def read_loads(session: Session, meta_schema: str, task: str, target: TargetTable) -> tuple[Load, ...]:
    """The sources of the task that have begun their snapshot of the table. A source counts as loaded if the copy of its
    table is interrupted: the statement that interrupts it waits for the indexes, and the rest is copied after it."""
    schema = quote_name(meta_schema)
    try:
        found = rows(
            session,
            "SELECT t.`source`, COALESCE(SUM(c.`state` = 0), 0), COALESCE(SUM(c.`upper_bound` = %s), 0), "
            f"COUNT(i.`shard`) FROM {schema}.`snapshot_table` t LEFT JOIN {schema}.`snapshot_chunk` c "
            "ON c.`task` = t.`task` AND c.`source` = t.`source` AND c.`shard` = t.`shard` "
            f"LEFT JOIN {schema}.`snapshot_interrupted` i "
            "ON i.`task` = t.`task` AND i.`source` = t.`source` AND i.`shard` = t.`shard` "
            "WHERE t.`task` = %s AND t.`target_schema` = %s AND t.`target_table` = %s GROUP BY t.`source`, t.`shard`",
            (_OPEN_ABOVE, task, *target.names),
        )
    except pymysql.MySQLError as error:
        if errno_of(error) != ER.NO_SUCH_TABLE:
            raise
        return ()  # no snapshot has begun
    return tuple(
        Load(text_of(source), (int(planned) == 0 and int(last) > 0) or int(interrupted) > 0)
        for source, planned, last, interrupted in found
    )


def _table(meta_schema: str) -> str:
    return f"{quote_name(meta_schema)}.`deferred_index`"

"""The record of what is owed: ``deferred_index`` in the meta schema, made by worker/meta.py.

Written after our CREATE TABLE and before the indexes are dropped from the empty table; deleted once the table was seen
to have them all. Between the two a table may lack them, and only a table that we made is ever in the record.
It belongs to the target table, not to a task: start-task --remove-meta forgets no index that a table still lacks.

Functions raise ``pymysql.MySQLError``.
"""

from __future__ import annotations

from collections.abc import Sequence

import pymysql
from pymysql.constants import ER

from worker.connection import Session, errno_of, execute, quote_name, rows, text_of
from worker.deferred.index import DeferredIndex, Load
from worker.plan import TargetTable

_OPEN_ABOVE = "[]"
"""A last chunk's upper bound, as the snapshot's store writes it."""


def record(session: Session, meta_schema: str, target: TargetTable, indexes: Sequence[DeferredIndex]) -> None:
    """These, and no others, are owed to the table."""
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


def forget(session: Session, meta_schema: str, target: TargetTable) -> None:
    """Nothing is owed to the table."""
    record(session, meta_schema, target, ())


def read_owed(session: Session, meta_schema: str, target: TargetTable) -> tuple[DeferredIndex, ...]:
    found = rows(
        session,
        f"SELECT `index_name`, `definition` FROM {_table(meta_schema)} "
        "WHERE `target_schema` = %s AND `target_table` = %s ORDER BY `number`",
        target.names,
    )
    return tuple(DeferredIndex(text_of(name), text_of(definition)) for name, definition in found)


def read_present(session: Session, target: TargetTable) -> frozenset[str] | None:
    """The names of the table's indexes, in lower case; None without the table."""
    try:
        found = rows(session, f"SHOW INDEX FROM {target.quoted}")
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR):
            raise
        return None
    return frozenset(text_of(row[2]).lower() for row in found)


def read_loads(session: Session, meta_schema: str, task: str, target: TargetTable) -> tuple[Load, ...]:
    """Every source of the task whose snapshot of the table has begun."""
    schema = quote_name(meta_schema)
    try:
        found = rows(
            session,
            "SELECT t.`source`, COALESCE(SUM(c.`state` = 0), 0), COALESCE(SUM(c.`upper_bound` = %s), 0) "
            f"FROM {schema}.`snapshot_table` t LEFT JOIN {schema}.`snapshot_chunk` c "
            "ON c.`task` = t.`task` AND c.`source` = t.`source` AND c.`shard` = t.`shard` "
            "WHERE t.`task` = %s AND t.`target_schema` = %s AND t.`target_table` = %s GROUP BY t.`source`, t.`shard`",
            (_OPEN_ABOVE, task, *target.names),
        )
    except pymysql.MySQLError as error:
        if errno_of(error) != ER.NO_SUCH_TABLE:
            raise
        return ()  # no snapshot has begun
    return tuple(Load(text_of(source), int(planned) == 0 and int(last) > 0) for source, planned, last in found)


def _table(meta_schema: str) -> str:
    return f"{quote_name(meta_schema)}.`deferred_index`"

"""Records the shard tables of which no row was merged into the target table that the task has created.

    rowless_table   one row per shard table, with the epoch of the run up to which it is known

A missing target table may be created again only while all of its shard tables are known to have no row in it
(worker/target/members/merged_targets.py). Without a row here, a shard table may have rows there. A row is valid while
its epoch is that of the subtask: a program of an earlier version raises the subtask's epoch and leaves this one, and
its lanes do not delete the row. ``worker/target/records/subtask_record.py`` moves the epoch when a run takes over, and
deletes the rows for start-task --remove-meta.
"""

from __future__ import annotations

from collections.abc import Iterable

import pymysql
from pymysql.constants import ER

from shardmerge.worker.core.mysql.connection import Session, errno_of, quote_name, quote_text, rows, send
from shardmerge.worker.core.subtask_key import SubtaskKey

NAME = "rowless_table"

_ROWS = 500


def write(session: Session, who: SubtaskKey, numbers: Iterable[int], epoch: int) -> None:
    """The target table of these shard tables was just created. Raises ``pymysql.MySQLError``."""
    with session.cursor() as cursor:
        cursor.executemany(
            f"REPLACE INTO {quote_name(who.schema)}.`{NAME}` VALUES (%s, %s, %s, %s)",
            [(who.task, who.source, number, epoch) for number in sorted(numbers)],
        )


def read(session: Session, who: SubtaskKey) -> frozenset[int]:
    """The numbers of the shard tables that are known to have no row. Raises ``pymysql.MySQLError``."""
    name = quote_name(who.schema)
    found = rows(
        session,
        f"SELECT r.`number` FROM {name}.`{NAME}` r JOIN {name}.`subtask` s "
        "ON s.`task` = r.`task` AND s.`source` = r.`source` AND s.`epoch` = r.`epoch` "
        "WHERE r.`task` = %s AND r.`source` = %s",
        (who.task, who.source),
    )
    return frozenset(int(number) for (number,) in found)


def delete_statements(who: SubtaskKey, numbers: Iterable[int]) -> tuple[bytes, ...]:
    """Rows of these shard tables are written in the same transaction. ``who``: (meta schema, task, source)."""
    schema, task, source = who
    ordered = sorted(numbers)  # two transactions that delete several rows must not wait for each other
    where = f"WHERE `task` = {quote_text(task)} AND `source` = {quote_text(source)}"
    return tuple(
        f"DELETE FROM {quote_name(schema)}.`{NAME}` {where} AND `number` IN ({', '.join(map(str, part))})".encode()
        for at in range(0, len(ordered), _ROWS)
        for part in (ordered[at : at + _ROWS],)
    )


def forget(session: Session, who: SubtaskKey, number: int) -> None:
    """As :func:`delete_statements`, at once. Raises ``pymysql.MySQLError``."""
    try:
        for statement in delete_statements(who, (number,)):
            send(session, statement)
    except pymysql.MySQLError as error:
        if errno_of(error) != ER.NO_SUCH_TABLE:  # of a run of an earlier version
            raise

"""Versions of the records of each shard table, so that a reader with a copy reads only what has changed.

    subtask_version   one row per subtask: the epoch whose owner keeps the versions, and the newest version
    table_version     one row per shard table: the version at which one of its records changed last

Every transaction that changes `table_structure`, `table_creation` or `parked_table` rows calls :func:`touch`. It holds
the lock of the subtask's row, so the versions of one subtask become visible in their order.

A process of an earlier version changes the records without new versions. It is the owner of an epoch of its own, which
differs from `subtask_version`.`epoch`: a reader must use the versions only if the two are equal.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardmerge.worker.core.mysql.connection import Session, quote_name
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.target.records import subtask_rows

_ROWS = 200


def begin_epoch(session: Session, who: SubtaskKey, epoch: int) -> None:
    """The owner of ``epoch`` keeps the versions from now on. Inside the transaction that sets the subtask's epoch."""
    with session.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {quote_name(who.schema)}.`subtask_version` VALUES (%s, %s, %s, 1) "
            "ON DUPLICATE KEY UPDATE `epoch` = VALUES(`epoch`), `version` = `version` + 1",
            (who.task, who.source, epoch),
        )


def touch(session: Session, who: SubtaskKey, numbers: Iterable[int]) -> None:
    """The records of these shard tables change. Inside the caller's transaction, which holds the lock of the
    subtask's row."""
    touched = sorted(set(numbers))
    if not touched:
        return
    name = quote_name(who.schema)
    with session.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {name}.`subtask_version` VALUES (%s, %s, 0, 1) "
            "ON DUPLICATE KEY UPDATE `version` = `version` + 1",
            (who.task, who.source),
        )
        for at in range(0, len(touched), _ROWS):
            part = touched[at : at + _ROWS]
            rows = " UNION ALL ".join(["SELECT %s AS `number`"] * len(part))
            cursor.execute(
                f"INSERT INTO {name}.`table_version` "
                f"SELECT v.`task`, v.`source`, n.`number`, v.`version` FROM {name}.`subtask_version` v "
                f"JOIN ({rows}) n WHERE v.`task` = %s AND v.`source` = %s "
                "ON DUPLICATE KEY UPDATE `version` = VALUES(`version`)",
                (*part, who.task, who.source),
            )


def read_changed(session: Session, who: SubtaskKey, after: int) -> tuple[int, ...]:
    """Numbers of the shard tables whose records have changed after version ``after``."""
    more = "AND `version` > %s ORDER BY `number`"
    found = subtask_rows.select(session, who, "table_version", "`number`", more, (after,))
    return tuple(int(number) for (number,) in found)

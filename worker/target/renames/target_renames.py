"""Records that a target table of a task is being renamed (update-task --rename-target).

    target_rename   one row per task: from its begin until a run has begun with the file that has the new name

RENAME TABLE commits by itself. So the row is written before it, with what each source's records have to become. A
process that finds it looks which of the two tables exists (worker/target/renames/rename_target.py): either nothing
was renamed, and the row goes, or the records follow, all in one transaction.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pymysql
from pydantic import TypeAdapter
from pymysql.constants import ER

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, errno_of, execute, quote_name, rows
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.target.records import member_versions
from shardmerge.worker.target.records.subtask_record import FORGOTTEN, Phase


class RenameState(enum.Enum):
    BEGUN = "begun"
    """The table may have either name, and the records name it as before: no run may begin."""
    MOVED = "moved"
    """The table has its new name, and so do the records; the task's file may have the old one."""


@dataclass(frozen=True, slots=True)
class PartitioningChange:
    """The partitioning of one subtask as recorded, while the table is renamed, and afterwards, each as JSON."""

    recorded: str
    meanwhile: str
    following: str


@dataclass(frozen=True, slots=True)
class TargetTableRename:
    """``changes``: by source; it may be empty for a source of which no record names the table."""

    task: str
    before: TargetTable
    after: TargetTable
    state: RenameState
    changes: Mapping[str, PartitioningChange]


_CHANGES = TypeAdapter(dict[str, PartitioningChange])


def read(session: Session, schema: str, task: str) -> TargetTableRename | None:
    """None also where an earlier version has made the tables. Raises ``pymysql.MySQLError``."""
    try:
        found = rows(
            session,
            "SELECT `from_schema`, `from_table`, `to_schema`, `to_table`, `state`, `partitionings` "
            f"FROM {quote_name(schema)}.`target_rename` WHERE `task` = %s",
            (task,),
        )
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR):
            raise
        return None
    if not found:
        return None
    *names, state, changes = map(str, found[0])
    return TargetTableRename(
        task,
        TargetTable(names[0], names[1]),
        TargetTable(names[2], names[3]),
        RenameState(state),
        _CHANGES.validate_json(changes),
    )


def begin(session: Session, schema: str, rename: TargetTableRename, epoch: int) -> None:
    """Record that the rename begins, unless a source's records have changed since they were read. No older process can
    commit afterwards (I3). ``epoch``: of a moment at which all runs of the task had ended.

    Raises RENAME_BUSY and ``pymysql.MySQLError``; rolls back what an exception interrupts.
    """
    name = quote_name(schema)
    session.begin()
    try:
        found = rows(
            session,
            f"SELECT `source`, `epoch`, `phase`, `joining`, `dealing`, `meta_token` FROM {name}.`subtask` "
            "WHERE `task` = %s ORDER BY `source` FOR UPDATE",
            (rename.task,),
        )
        present = {str(source): rest for source, *rest in found if str(rest[-1]) != FORGOTTEN}
        for source in sorted(present.keys() | rename.changes.keys()):
            change = rename.changes.get(source)
            now = present.get(source)
            if now is None or change is None or int(now[0]) > epoch:
                raise _busy(rename, f"another run of source {source} has begun")
            if (str(now[1]), str(now[2]), str(now[3])) != (Phase.REPLICATE.value, "", change.recorded):
                raise _busy(rename, f"the records of source {source} have just changed")
        execute(
            session,
            f"REPLACE INTO {name}.`target_rename` VALUES (%s, %s, %s, %s, %s, %s, %s)",
            (
                rename.task,
                *rename.before.names,
                *rename.after.names,
                RenameState.BEGUN.value,
                _CHANGES.dump_json(dict(rename.changes)).decode(),
            ),
        )
        for source, change in rename.changes.items():
            _write(session, SubtaskKey(schema, rename.task, source), change.meanwhile, epoch)
        session.commit()
    finally:
        session.rollback()


def move(session: Session, schema: str, rename: TargetTableRename) -> TargetTableRename:
    """The table has its new name: write it into all records of the task that name it. Raises RENAME_UNCLEAR and
    ``pymysql.MySQLError``; rolls back what an exception interrupts."""
    name = quote_name(schema)
    session.begin()
    try:
        found = rows(
            session,
            f"SELECT `source`, `epoch`, `dealing` FROM {name}.`subtask` WHERE `task` = %s ORDER BY `source` FOR UPDATE",
            (rename.task,),
        )
        present = {str(source): (int(epoch), str(recorded)) for source, epoch, recorded in found}
        for source, change in rename.changes.items():
            epoch, recorded = present.get(source, (0, ""))
            if recorded != change.meanwhile:
                raise errors.replicate.RENAME_UNCLEAR(
                    task=rename.task,
                    before=rename.before.quoted,
                    after=rename.after.quoted,
                    reason=f"the records of source {source} were changed since it began",
                )
            _write(session, SubtaskKey(schema, rename.task, source), change.following, epoch)
        # A table that had the new name earlier: one key for both rows.
        execute(
            session,
            f"DELETE FROM {name}.`lock_run` WHERE `task` = %s AND `target_schema` = %s AND `target_table` = %s",
            (rename.task, *rename.after.names),
        )
        for table in ("lock_run", "snapshot_table", "skipped_change"):
            _move_names(session, f"{name}.`{table}`", rename)
        execute(
            session,
            f"UPDATE {name}.`target_rename` SET `state` = %s WHERE `task` = %s",
            (RenameState.MOVED.value, rename.task),
        )
        session.commit()
    finally:
        session.rollback()
    return replace(rename, state=RenameState.MOVED)


def delete(session: Session, schema: str, task: str) -> None:
    """Raises ``pymysql.MySQLError``."""
    execute(session, f"DELETE FROM {quote_name(schema)}.`target_rename` WHERE `task` = %s", (task,))


def _write(session: Session, who: SubtaskKey, partitioning: str, epoch: int) -> None:
    """With a new version: readers with a copy read all records of the subtask again."""
    name = quote_name(who.schema)
    execute(
        session,
        f"UPDATE {name}.`subtask` SET `dealing` = %s, `epoch` = %s WHERE `task` = %s AND `source` = %s",
        (partitioning, epoch, who.task, who.source),
    )
    execute(
        session,
        f"UPDATE {name}.`{Stream.MAIN.table}` SET `epoch` = %s WHERE `task` = %s AND `source` = %s",
        (epoch, who.task, who.source),
    )
    member_versions.begin_epoch(session, who, epoch)


def _move_names(session: Session, table: str, rename: TargetTableRename) -> None:
    try:
        execute(
            session,
            f"UPDATE {table} SET `target_schema` = %s, `target_table` = %s "
            "WHERE `task` = %s AND `target_schema` = %s AND `target_table` = %s",
            (*rename.after.names, rename.task, *rename.before.names),
        )
    except pymysql.MySQLError as error:
        if errno_of(error) != ER.NO_SUCH_TABLE:  # no task has copied a snapshot
            raise


def _busy(rename: TargetTableRename, reason: str) -> ShardmergeError:
    return errors.master.RENAME_BUSY(task=rename.task, reason=reason)

"""Stops before a statement that changes values which another task merges into the same target table.

Tasks do not wait for each other's statements. A dropped or renamed column, a narrower type and a renamed target take
values of the other task's rows with them, and nothing would notice it before the other task's next row.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from enum import Enum

import pymysql

from shardmerge.proto import errors
from shardmerge.proto.listed_names import listed
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of
from shardmerge.worker.core.mysql.show_create import read_create_statement
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.sql.common_type import common_type
from shardmerge.worker.ddl.sql.rewrite import rename_tables
from shardmerge.worker.ddl.sql.statement import AlterTable, Ddl, RenameTables, parse_ddl
from shardmerge.worker.ddl.sql.table_definition import parse_table_definition
from shardmerge.worker.ddl.sql.target_statement import removed_column_names
from shardmerge.worker.ddl.structure.schema_tracker import open_tracker
from shardmerge.worker.ddl.structure.target_copy import CopyStatement, TargetCopies
from shardmerge.worker.target.members.target_members import tables_of_other_tasks
from shardmerge.worker.target.records.statement_session import StatementSession

_SHOWN_TABLES = 3
_MAY_CONVERT = frozenset({ClauseKind.MODIFY_COLUMN, ClauseKind.CHANGE_COLUMN, ClauseKind.CONVERT_CHARSET})
_MAY_LOSE_ROWS = frozenset({ClauseKind.DROP_PRIMARY_KEY, ClauseKind.RENAME_TABLE, ClauseKind.PARTITION_ROWS})


class _Change(Enum):
    """Whether a statement changes or removes values of rows that exist."""

    NO = enum.auto()
    BY_TYPE = enum.auto()  # if a new type does not hold all values of the one before
    YES = enum.auto()


def check_other_tasks(
    session: Session,
    who: SubtaskKey,
    epoch: int,
    targets: Collection[TargetTable],
    statement: str,
    settings: StatementSession,
    position: object,
) -> None:
    """Check that ``statement``, which is about to run on ``targets`` for the task of ``who``, keeps the values of other
    tasks' rows. ``session``: in no transaction. Raises OTHER_TASK_VALUES, the rules' errors and
    ``pymysql.MySQLError``."""
    ddl = parse_ddl(statement, "", settings.sql_mode)
    change = _change_of(ddl)
    if ddl is None or change is _Change.NO:
        return
    others = tables_of_other_tasks(session, who, targets)
    for target in targets:
        its = [each for each in others if each.target == target]
        if not its or (
            change is _Change.BY_TYPE and not _narrows_a_type(session, who, epoch, target, statement, ddl, settings)
        ):
            continue
        raise errors.ddl.OTHER_TASK_VALUES(
            source=who.source,
            task=who.task,
            position=position,
            statement=statement,
            target=target.quoted,
            others=listed(sorted({each.task for each in its}), _SHOWN_TABLES),
            tables=listed([f"{each.table} of source {each.source}" for each in its], _SHOWN_TABLES),
        )


def _change_of(ddl: Ddl | None) -> _Change:
    """What the statement does with values of rows that exist. A table that is dropped or emptied has no rows of other
    tasks (remove_rows.py). Pure."""
    if isinstance(ddl, RenameTables):
        return _Change.YES
    if not isinstance(ddl, AlterTable):
        return _Change.NO
    kinds = {clause.kind for clause in ddl.clauses}
    if ddl.ignore or removed_column_names(ddl) or not kinds.isdisjoint(_MAY_LOSE_ROWS):
        return _Change.YES
    return _Change.NO if kinds.isdisjoint(_MAY_CONVERT) else _Change.BY_TYPE


def _narrows_a_type(
    session: Session,
    who: SubtaskKey,
    epoch: int,
    target: TargetTable,
    statement: str,
    ddl: Ddl,
    settings: StatementSession,
) -> bool:
    """Whether a column's type after the statement does not hold all values of the one before, by an empty copy of the
    target."""
    copies = TargetCopies(open_tracker(session, who, "other tasks", epoch))
    text = rename_tables(statement, ddl, lambda schema, table: copies.place.names)
    try:
        before = parse_table_definition(read_create_statement(session, *target.names))
        after = parse_table_definition(copies.creation(target, CopyStatement(text, settings)))
    except UnreadableCreateTable:
        return True
    except pymysql.MySQLError as error:
        if kind_of(errno_of(error)) in (ErrorKind.STATEMENT, ErrorKind.SESSION):
            return False  # it does not run at the target either, whose error is the one to show
        raise
    now = {column.key: column for column in after.columns}
    return any(
        common_type((was.type, now[was.key].type)) != now[was.key].type or (was.nullable and not now[was.key].nullable)
        for was in before.columns
    )

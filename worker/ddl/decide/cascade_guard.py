"""Decides whether a statement changes tables or keys from which changes by cascade are derived. Pure.

The lanes know the foreign keys as they were when the task began. A statement that changes such a key, its columns or
the name of its table stops the task.
"""

from __future__ import annotations

from collections.abc import Mapping

from shardmerge.worker.core.cascades import CascadeKeys
from shardmerge.worker.core.sql.clause import LEAVES_ROWS, MOVES, Clause, ClauseKind
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.sql.statement import (
    AlterTable,
    CreateTable,
    Ddl,
    DropSchema,
    DropTables,
    RenameTables,
    names,
)
from shardmerge.worker.rules.table_scope import TableName

_HARMLESS = LEAVES_ROWS | {
    ClauseKind.ADD_FOREIGN_KEY,
    ClauseKind.ADD_CHECK,
    ClauseKind.DROP_CHECK,
    ClauseKind.ALTER_CHECK,
}
_OF_COLUMNS = frozenset({ClauseKind.DROP_COLUMN, ClauseKind.CHANGE_COLUMN, ClauseKind.MODIFY_COLUMN})


def changes_cascades(ddl: Ddl, keys: CascadeKeys, plans: Mapping[int, TablePlan]) -> TableName | None:
    """The first table of ``keys`` that the statement changes in such a way; None: there is none. ``plans``: by number.
    Names are compared without their case: a statement may only be refused too often."""
    concerned = ((number, plans[number].table) for number in keys.tables if number in plans)
    family = {_folded(table.schema, table.name): number for number, table in concerned}
    match ddl:
        case DropSchema(schema=schema):
            return next((name for name in family if name[0] == schema.lower()), None)
        case DropTables() | RenameTables() | CreateTable():
            found = (ddl.table,) if isinstance(ddl, CreateTable) else names(ddl)
            return next((name for each in found if (name := _folded(each.schema, each.table)) in family), None)
        case AlterTable(table=table):
            name = _folded(table.schema, table.table)
            number = family.get(name)
            if number is None:
                clauses = (clause for clause in ddl.clauses if clause.kind in MOVES)
                moved = (_folded(each.schema, each.table) for clause in clauses for each in clause.names)
                return next((each for each in moved if each in family), None)
            columns = _columns(keys, number)
            if ddl.ignore or not all(_is_harmless(clause, columns) for clause in ddl.clauses):
                return name
            return None
        case _:
            return None


def _is_harmless(clause: Clause, columns: frozenset[str]) -> bool:
    if clause.kind in _OF_COLUMNS:
        return columns.isdisjoint(name.lower() for name in clause.columns)
    return clause.kind in _HARMLESS


def _columns(keys: CascadeKeys, number: int) -> frozenset[str]:
    """The columns of a table that its cascading keys, and those of other tables, have."""
    found: set[str] = set()
    for key in keys.keys:
        if key.child == number:
            found.update(name.lower() for name in key.columns)
        if key.parent == number:
            found.update(name.lower() for name in key.to_columns)
    return frozenset(found)


def _folded(schema: str, table: str) -> TableName:
    return schema.lower(), table.lower()

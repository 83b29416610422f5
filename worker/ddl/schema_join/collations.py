"""Gives the columns of shard tables the collations that the target's columns have. Pure.

A collation decides how texts are compared, not which texts a column holds. Shard tables of servers with different
defaults (MariaDB's utf8mb4_general_ci, MySQL's utf8mb4_0900_ai_ci) have different ones, and the target has one of them
since its column was created. So a statement that leaves a column's collation as it is, or that adds a column which the
target has, is no change of the collation at the target, and shard tables do not contradict each other there. Character
sets are another matter: they decide which texts a column holds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from shardmerge.worker.ddl.sql.column_definition import ColumnDefinition
from shardmerge.worker.ddl.sql.table_definition import TableDefinition


def changed_collations(before: TableDefinition, after: TableDefinition) -> frozenset[str]:
    """Lower-case names of the columns whose collation a statement has changed."""
    known = {each.key: each.type.collation for each in before.columns}
    return frozenset(
        each.key for each in after.columns if known.get(each.key, each.type.collation) != each.type.collation
    )


def with_target_collations(
    definition: TableDefinition, target: TableDefinition, changed: Collection[str] = ()
) -> TableDefinition:
    """``definition`` with the target's collation for each text column that has the same character set there, but for
    those of ``changed``."""
    goals = {each.key: each.type for each in target.columns if each.key not in changed}

    def column(each: ColumnDefinition) -> ColumnDefinition:
        goal = goals.get(each.key)
        if goal is None or goal.charset != each.type.charset or goal.collation == each.type.collation:
            return each
        return replace(each, type=replace(each.type, collation=goal.collation))

    return replace(definition, columns=tuple(map(column, definition.columns)))

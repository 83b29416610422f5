"""Compares the key by which a table's chunks are bounded with the key that the table has later. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.snapshot.key_order import bound_columns
from shardmerge.worker.target.records.history.interrupted_copies import KeyColumn

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_LENGTH_IS_FREE = frozenset({"varchar", "varbinary", "datetime", "timestamp", "time"})
"""Types of which a change of the length or precision changes neither values nor their order."""

_TYPE = re.compile(r"[a-z]+")


def chunk_key(plan: TablePlan) -> tuple[KeyColumn, ...]:
    """The columns by which the table's chunks are bounded."""
    return tuple(KeyColumn.of(column) for column in bound_columns(plan.table))


def orders_alike(before: Sequence[KeyColumn], after: Sequence[KeyColumn]) -> bool:
    """Whether the bounds of chunks that were cut by the columns ``before`` divide the rows by the columns ``after`` in
    the same way. Names do not matter."""
    return len(before) == len(after) and all(map(_orders_alike, before, after))


def _orders_alike(before: KeyColumn, after: KeyColumn) -> bool:
    if before == after:
        return True
    old, new = _name(before), _name(after)
    if old in _INTEGERS and new in _INTEGERS:
        return True
    return old == new and old in _LENGTH_IS_FREE and before.collation == after.collation


def _name(column: KeyColumn) -> str:
    found = _TYPE.match(column.type_text.lower())
    return found.group() if found is not None else ""

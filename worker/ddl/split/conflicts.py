"""Which actions TiDB refuses, or runs with another result, in one ALTER TABLE. Pure.

TiDB checks each action against the table before the statement, and refuses two actions with one column or index (errors
1054, 1060, 1061, 1072, 1091, 8200; its manual, "ALTER TABLE"; its source, pkg/ddl/multi_schema_change.go). It gives a
new column the character set that the table has before the statement. Seen on TiDB 8.4.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from shardmerge.worker.ddl.split.alter_actions import Action, ActionKind

_TEXTLESS = re.compile(
    r"(tinyint|smallint|mediumint|int|integer|bigint|decimal|numeric|float|double|real|bit|bool|boolean|date|time|"
    r"datetime|timestamp|year)\b",
    re.IGNORECASE,
)
"""Types without a character set, and short enough for every index."""

_DECLARES = (ActionKind.ADD_COLUMN, ActionKind.CHANGE_COLUMN)


def may_join(group: Sequence[Action], action: Action) -> bool:
    """Whether one ALTER TABLE may have ``action`` after the actions of ``group``."""
    return all(_agree(other, action) for other in group)


def _agree(first: Action, second: Action) -> bool:
    """Whether one ALTER TABLE may have both, ``first`` being earlier in the order of single actions."""
    kinds = {first.kind, second.kind}
    if ActionKind.CHECK in kinds:
        return False  # refused where TiDB enforces checks (tidb_enable_check_constraint)
    if _columns(first) & _columns(second) or _indexes(first) & _indexes(second):
        return False
    if second.uses & _columns(first) or first.uses & _columns(second):
        return False
    if any(other.after and other.after.lower() in _begun_or_ended(one) for one, other in _both(first, second)):
        return False
    is_declared = second.kind in _DECLARES and bool(second.definition) and not _TEXTLESS.match(second.definition)
    if first.charset and is_declared:
        return False
    # The column may be in the index, which its new type may not allow.
    may_need = second.kind is ActionKind.DROP_COLUMN or (is_declared and bool(second.old))
    if first.kind is ActionKind.DROP_INDEX and may_need:
        return False
    # An index of which all columns are dropped makes its name free.
    if first.kind is ActionKind.DROP_COLUMN and second.kind is ActionKind.ADD_INDEX:
        return False
    return not any(
        after.unnamed and any(_is_made_of(name, after.unnamed) for name in _indexes(before))
        for before, after in _both(first, second)
    )


def _both(first: Action, second: Action) -> Iterable[tuple[Action, Action]]:
    return (first, second), (second, first)


def _columns(action: Action) -> frozenset[str]:
    """The columns that it adds, drops or changes."""
    return frozenset({action.old_key, action.new_key} - {""})


def _begun_or_ended(action: Action) -> frozenset[str]:
    """The columns that no other action may name as a place: they begin or end."""
    is_kept = action.kind in (ActionKind.CHANGE_COLUMN, ActionKind.SET_DEFAULT) and not action.renames
    return frozenset() if is_kept else _columns(action)


def _indexes(action: Action) -> frozenset[str]:
    """The indexes that it adds, drops or changes; a name that the server makes is known but for its number."""
    names = {action.index.lower(), action.new_index.lower(), action.unnamed}
    return frozenset(names - {""})


def _is_made_of(name: str, base: str) -> bool:
    """Whether ``name`` may be one that a server makes of a column's name for an index without a name."""
    return re.fullmatch(rf"{re.escape(base)}(_\d+)?", name) is not None

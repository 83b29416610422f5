"""The order in which the single actions of an ALTER TABLE have the result of the whole. Pure.

An ALTER TABLE names existing columns and indexes as they are before it. The columns of new indexes and the places of
columns are named as they are after it. The names of columns and indexes that it drops or renames become free. Columns
with a place are put there in the order of their clauses, after all others are changed (MySQL Reference Manual, "ALTER
TABLE Statement"; seen on MySQL 8.0 and MariaDB 10.11).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.ddl.split.alter_actions import Action, ActionKind

_TEMPORARY = "_shardmerge_"


def ordered(actions: Sequence[Action]) -> tuple[Action, ...]:
    """The actions in an order in which they may run one by one; columns and indexes that take each other's names get a
    temporary name in between."""
    seed = "\n".join(action.text for action in actions)
    parts = tuple(part for action in actions for part in _parted(action, actions))
    columns = [action for action in parts if action.kind is ActionKind.CHANGE_COLUMN and action.after is None]
    kept = [action for action in columns if not action.renames]
    renamed = [action for action in columns if action.renames]
    placed = [
        action
        for action in parts
        if action.kind is ActionKind.ADD_COLUMN
        or (action.kind is ActionKind.CHANGE_COLUMN and action.after is not None)
    ]
    return (
        *_of(parts, ActionKind.DROP_INDEX),
        *_named_apart(_of(parts, ActionKind.RENAME_INDEX), _index_names, _renamed_index, seed),
        *_of(parts, ActionKind.ALTER_INDEX),
        *_of(parts, ActionKind.DROP_COLUMN),
        *_of(parts, ActionKind.TABLE),
        *_of(parts, ActionKind.SET_DEFAULT),
        *kept,
        *_named_apart(renamed, _column_names, _renamed_column, seed),
        *placed,
        *_of(parts, ActionKind.ADD_INDEX),
        *_of(parts, ActionKind.CHECK),
    )


def _of(actions: Iterable[Action], kind: ActionKind) -> list[Action]:
    return [action for action in actions if action.kind is kind]


def _parted(action: Action, every: Sequence[Action]) -> Iterator[Action]:
    """A column that gets a name and a place, as two actions if another action needs its former name or has its new
    one: the name is free before columns are placed."""
    names = {action.old_key, action.new_key}
    others = {
        name
        for other in every
        if other is not action and other.kind in (ActionKind.CHANGE_COLUMN, ActionKind.ADD_COLUMN)
        for name in (other.old_key, other.new_key)
        if name
    }
    if action.kind is not ActionKind.CHANGE_COLUMN or action.after is None or not action.renames or not names & others:
        yield action
        return
    yield Action(
        ActionKind.CHANGE_COLUMN,
        f"RENAME COLUMN {quote_name(action.old)} TO {quote_name(action.new)}",
        old=action.old,
        new=action.new,
    )
    place = f"AFTER {quote_name(action.after)}" if action.after else "FIRST"
    yield replace(action, text=f"MODIFY COLUMN {quote_name(action.new)} {action.definition} {place}", old=action.new)


def _named_apart(
    actions: Sequence[Action],
    names: Callable[[Action], tuple[str, str]],
    renamed: Callable[[Action, str, str], Action],
    seed: str,
) -> Iterator[Action]:
    """The renames in an order in which each new name is free. ``names``: the old and the new one, in lower case.
    ``renamed``: the action with another old name, and with another new one ("": its own)."""
    pending = list(actions)
    while pending:
        former = {names(action)[0] for action in pending}
        for action in pending:
            old, new = names(action)
            if new not in former - {old}:
                break
        else:  # each takes the name of another one
            action = pending.pop(0)
            old, new = names(action)
            free = f"{_TEMPORARY}{hashlib.sha256(f'{old} {new} {seed}'.encode()).hexdigest()[:24]}"
            yield renamed(action, "", free)
            pending.append(renamed(action, free, ""))
            continue
        pending.remove(action)
        yield action


def _index_names(action: Action) -> tuple[str, str]:
    return action.index.lower(), action.new_index.lower()


def _renamed_index(action: Action, old: str, new: str) -> Action:
    old, new = old or action.index, new or action.new_index
    text = f"RENAME INDEX {quote_name(old)} TO {quote_name(new)}"
    return replace(action, text=text, index=old, new_index=new)


def _column_names(action: Action) -> tuple[str, str]:
    return action.old_key, action.new_key


def _renamed_column(action: Action, old: str, new: str) -> Action:
    """With a temporary new name only the name changes; the definition follows with the last name."""
    changes = f" {action.definition}" if action.definition and not new else ""
    was, now = quote_name(old or action.old), quote_name(new or action.new)
    text = f"CHANGE COLUMN {was} {now}{changes}" if changes else f"RENAME COLUMN {was} TO {now}"
    definition = "" if new else action.definition
    return replace(action, text=text, old=old or action.old, new=new or action.new, definition=definition)

"""The statements that a target runs for one ALTER TABLE. Pure."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from shardmerge.proto.sql_lexer import Kind, pieces
from shardmerge.worker.core.mysql.target_dialect import TargetDialect
from shardmerge.worker.ddl.split.action_order import ordered
from shardmerge.worker.ddl.split.alter_actions import Action, ActionKind, read_actions
from shardmerge.worker.ddl.split.conflicts import may_join
from shardmerge.worker.ddl.sql.statement import AlterTable, parse_ddl


def statements_at(target: TargetDialect, text: str, sql_mode: int) -> tuple[str, ...]:
    """The statements with the result of ``text`` at ``target``: itself, unless it combines actions that the target does
    not combine."""
    return (text,) if target.combines_actions else divided(text, sql_mode)


def divided(text: str, sql_mode: int) -> tuple[str, ...]:
    """As few ALTER TABLE as possible that TiDB runs, and that together have the result of ``text``; ``text`` itself if
    it is one of them, or if it has an action that is unknown here."""
    ddl = parse_ddl(text, "?", sql_mode)
    if not isinstance(ddl, AlterTable) or ddl.ignore or any(each.kind is Kind.MARK for each in pieces(text, sql_mode)):
        return (text,)
    actions = read_actions(text, ddl)
    if actions is None or len(actions) < 2 or _depends_on_order(actions):
        return (text,)
    groups: list[list[Action]] = []
    for action in ordered(actions):
        if groups and may_join(groups[-1], action):
            groups[-1].append(action)
        else:
            groups.append([action])
    if len(groups) == 1:
        return (text,)
    table = text[ddl.table.start : ddl.table.end]
    return tuple(f"ALTER TABLE {table} {', '.join(action.text for action in group)}" for group in groups)


def _depends_on_order(actions: Sequence[Action]) -> bool:
    """Whether single actions could have another result: a condition (IF EXISTS) on a name that another action adds or
    removes; the visibility of an index that another action changes; a column whose name another one had before, which
    gets its indexes or not; a change of a column that the statement adds, which only MariaDB runs."""
    added = {action.new_key for action in actions if action.kind is ActionKind.ADD_COLUMN}
    if any(action.old_key in added for action in actions):
        return True
    named = Counter(itertools.chain.from_iterable(map(_names, actions)))
    exact = (action for action in actions if action.conditional or action.kind is ActionKind.ALTER_INDEX)
    return any(named[name] > 1 for action in exact for name in _names(action))


def _names(action: Action) -> frozenset[tuple[str, str]]:
    columns = {("column", name) for name in (action.old_key, action.new_key) if name}
    return frozenset(columns | {("index", name.lower()) for name in (action.index, action.new_index) if name})

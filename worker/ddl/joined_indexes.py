"""What one shard's change of its indexes makes of the target's. Pure.

An index that is not unique is the target's while any shard has it. A unique one is only while all have it: it refuses
rows. Whether it may refuse those of another shard is for the operator, so only what the statement changes is acted on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proto.lexer import Kind, tokens
from worker.connection import quote_name
from worker.ddl.described import Index, too_long, without
from worker.ddl.shards import ColumnsJoined, Question, refuse


@dataclass(frozen=True, slots=True)
class IndexesJoined:
    """Filled as found. ``removed``, ``added``: clauses; ``unique_added``: names; ``keys_removed``: in lower case."""

    removed: list[str] = field(default_factory=list[str])
    added: list[str] = field(default_factory=list[str])
    unique_added: list[str] = field(default_factory=list[str])
    keys_removed: set[str] = field(default_factory=set[str])


def joined_indexes(asked: Question, columns: ColumnsJoined) -> IndexesJoined:
    """``columns``: what becomes of the columns. Raises :class:`~worker.ddl.shards.Refused`."""
    found = IndexesJoined()
    before, after = asked.before.shape, asked.after
    dropped = {each.key for each in before.columns if after.column(each.key) is None}
    for was in before.indexes:
        now = after.index(was.key)
        if now is None:
            _dropped(asked, was, found)
        elif now.same != was.same and not (now.columns == without(was, dropped) != was.columns):
            _changed(asked, was, now, found)
    for now in after.indexes:
        if before.index(now.key) is None:
            _added(asked, now, found)
    for key in sorted(columns.dropped):
        _check_unique(asked, key, found)
    return found


def _dropped(asked: Question, was: Index, found: IndexesJoined) -> None:
    goal = asked.target.index(was.key)
    if goal is None or goal.unique != was.unique or without(goal, asked.before.dropped) != was.columns:
        return  # the target's is another one
    if was.unique or not any(shard.shape.index(was.key) for shard in asked.others):
        found.removed.append(f"DROP INDEX {quote_name(goal.name)}")
        found.keys_removed.add(was.key)


def _changed(asked: Question, was: Index, now: Index, found: IndexesJoined) -> None:
    goal = asked.target.index(was.key)
    for shard in asked.others:
        theirs = shard.shape.index(was.key)
        if theirs is not None and theirs.same != now.same:
            raise refuse(
                f"{asked.before.name} changes index {was.text} to {now.text}, which {shard.name} has as {theirs.text}",
                now.name, shard.name, waits=True,
            )  # fmt: skip
    if goal is not None and goal.same == was.same:
        found.removed.append(f"DROP INDEX {quote_name(goal.name)}")
        found.keys_removed.add(was.key)
    _added(asked, now, found)


def _added(asked: Question, now: Index, found: IndexesJoined) -> None:
    all_have = True
    for shard in asked.others:
        theirs = shard.shape.index(now.key)
        all_have = all_have and theirs is not None
        if theirs is not None and theirs.same != now.same:
            raise refuse(
                f"{asked.before.name} adds index {now.text}, which {shard.name} has as {theirs.text}",
                now.name, shard.name,
            )  # fmt: skip
    goal = asked.target.index(now.key)
    if goal is not None and now.key not in found.keys_removed:
        if goal.same != now.same:
            raise refuse(f"{asked.before.name} adds index {now.text}, which the target has as {goal.text}", now.name)
        return
    if now.unique and not all_have:
        return
    for key in now.columns:
        wide = asked.target.column(key)
        if wide is not None and too_long(key, wide.type, (now.text,)):
            raise refuse(
                f"{asked.before.name} adds index {now.text}, but the target has column {wide.shown}, which is too long "
                "to be indexed whole",
                now.name,
            )  # fmt: skip
    found.added.append(f"ADD {now.text}")
    if now.unique:
        found.unique_added.append(now.name)


def _check_unique(asked: Question, key: str, found: IndexesJoined) -> None:
    """Of a column that only this shard drops: its rows all get the default there, and a key must not meet them."""
    primary = {token.text for token in tokens(asked.target.primary_key) if token.kind is Kind.NAME}
    left = [each for each in asked.target.indexes if each.unique and each.key not in found.keys_removed]
    by = next((each.text for each in left if key in each.columns), asked.target.primary_key if key in primary else "")
    if by:
        raise refuse(
            f"{asked.before.name} drops column {quote_name(key)}, which is in the target's {by}: rows of "
            f"{asked.before.name} without it could meet others there",
            key, waits=True,
        )  # fmt: skip

"""Computes the change of the target's indexes for one shard table's change of its indexes. Pure.

The target has a non-unique index while any shard table has it, and a unique index only while all have it, because a
unique index refuses rows. Whether it may refuse rows of other shard tables is the operator's decision, so only indexes
that the statement changes are handled.

A non-unique index changes no row. Where shard tables define one name differently, the target keeps its definition for
as long as any of them has it; so no shard table waits for another one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.sql.table_text import Index, read_index
from shardmerge.worker.ddl.schema_join.model import ColumnsJoined, JoinInput, not_joinable
from shardmerge.worker.ddl.sql.table_definition import first_too_long_index, remaining_columns


@dataclass(frozen=True, slots=True)
class IndexesJoined:
    """The result, filled step by step. ``removed``, ``added``: clauses. ``unique_added``: names. ``keys_removed``:
    names in lower case."""

    removed: list[str] = field(default_factory=list[str])
    added: list[str] = field(default_factory=list[str])
    unique_added: list[str] = field(default_factory=list[str])
    keys_removed: set[str] = field(default_factory=set[str])


def join_indexes(asked: JoinInput, columns: ColumnsJoined) -> IndexesJoined:
    """``columns``: the change of the columns. Raises
    :class:`~shardmerge.worker.ddl.schema_join.model.NotJoinableError`."""
    found = IndexesJoined()
    before, after = asked.before.definition, asked.after
    dropped = {each.key for each in before.columns if after.column(each.key) is None}
    for was in before.indexes:
        now = after.index(was.key)
        if now is None:
            _dropped(asked, was, found)
        elif now.same != was.same and not (now.keys == remaining_columns(was, dropped) != was.keys):
            _changed(asked, was, now, found)
    for now in after.indexes:
        if before.index(now.key) is None:
            _added(asked, now, found)
    for key in sorted(columns.dropped):
        _check_unique(asked, key, found)
    return found


def _dropped(asked: JoinInput, was: Index, found: IndexesJoined) -> None:
    goal = asked.target.index(was.key)
    if goal is None or goal.unique != was.unique or remaining_columns(goal, asked.before.dropped) != was.keys:
        return  # the target's index differs
    left = _definitions(asked, was.key)
    if was.unique or not any(theirs.same == goal.same for theirs in left):
        found.removed.append(f"DROP INDEX {quote_name(goal.name)}")
        found.keys_removed.add(was.key)
        if not was.unique and left and not left[0].unique:
            _added(asked, left[0], found)


def _definitions(asked: JoinInput, key: str) -> list[Index]:
    """The other shard tables' definitions of an index, those of parked ones before and after their statements."""
    found = (shard.definition.index(key) for shard in (*asked.others, *asked.coming))
    return [each for each in found if each is not None]


def _changed(asked: JoinInput, was: Index, now: Index, found: IndexesJoined) -> None:
    goal = asked.target.index(was.key)
    left = _definitions(asked, was.key)
    if goal is not None and not any(each.unique for each in (was, now, goal, *left)):
        if goal.same == was.same and not any(theirs.same == goal.same for theirs in left):
            found.removed.append(f"DROP INDEX {quote_name(goal.name)}")
            found.keys_removed.add(was.key)
            _add(asked, now, found)
        return
    for shard in asked.others:
        theirs = shard.definition.index(was.key)
        if theirs is not None and theirs.same != now.same:
            raise not_joinable(
                f"{asked.before.name} changes index {was.text} to {now.text}, which {shard.name} has as {theirs.text}",
                now.name, shard.name, waits=True,
            )  # fmt: skip
    if goal is not None and goal.same == was.same:
        found.removed.append(f"DROP INDEX {quote_name(goal.name)}")
        found.keys_removed.add(was.key)
    _added(asked, now, found)


def _added(asked: JoinInput, now: Index, found: IndexesJoined) -> None:
    goal = asked.target.index(now.key)
    is_there = goal is not None and now.key not in found.keys_removed
    if goal is not None and is_there and not any(each.unique for each in (now, goal, *_definitions(asked, now.key))):
        return
    all_have = True
    for shard in asked.others:
        theirs = shard.definition.index(now.key)
        all_have = all_have and theirs is not None
        if theirs is not None and theirs.same != now.same:
            raise not_joinable(
                f"{asked.before.name} adds index {now.text}, which {shard.name} has as {theirs.text}",
                now.name, shard.name,
            )  # fmt: skip
    if goal is not None and is_there:
        if goal.same != now.same:
            raise not_joinable(
                f"{asked.before.name} adds index {now.text}, which the target has as {goal.text}", now.name
            )
        return
    if now.unique and not all_have and now.key not in asked.completed:
        return
    _add(asked, now, found)


def _add(asked: JoinInput, now: Index, found: IndexesJoined) -> None:
    for key in now.keys:
        wide = asked.target.column(key)
        if wide is not None and first_too_long_index(key, wide.type, (now,)):
            raise not_joinable(
                f"{asked.before.name} adds index {now.text}, but the target has column {wide.shown}, which is too long "
                "for an index on the whole column",
                now.name,
            )  # fmt: skip
    found.added.append(f"ADD {now.text}")
    if now.unique:
        found.unique_added.append(now.name)


def _check_unique(asked: JoinInput, key: str, found: IndexesJoined) -> None:
    """Check a column that only this shard table drops: its rows all get the default there, which a unique key would
    refuse."""
    primary = read_index(asked.target.primary_key).keys if asked.target.primary_key else ()
    left = [each for each in asked.target.indexes if each.unique and each.key not in found.keys_removed]
    by = next((each.text for each in left if key in each.keys), asked.target.primary_key if key in primary else "")
    if by:
        raise not_joinable(
            f"{asked.before.name} drops column {quote_name(key)}, which is in the target's {by}: rows of "
            f"{asked.before.name} without it could have equal keys there",
            key, waits=True,
        )  # fmt: skip

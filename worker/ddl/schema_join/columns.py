"""Computes the change of the target's columns for one shard table's change of its columns. Pure.

Rows are written to the target by column names, so the order of columns does not count. A shard table writes every
column that it has; where it lacks one, its rows get the target's default.
"""

from __future__ import annotations

from dataclasses import replace

from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.ddl.schema_join.model import ColumnsJoined, JoinInput, not_joinable
from shardmerge.worker.ddl.sql.column_definition import NO_DEFAULT, NULL, ColumnDefinition
from shardmerge.worker.ddl.sql.common_type import ColumnType, NoCommonType, common_type, keeps_when_strict


def join_columns(asked: JoinInput) -> ColumnsJoined:
    """Raises :class:`~shardmerge.worker.ddl.schema_join.model.NotJoinableError`."""
    found = ColumnsJoined()
    before, after = asked.before.definition, asked.after
    for was in before.columns:
        if after.column(was.key) is None:
            _dropped(asked, was, found)
    _left_over(asked, found)
    placed = {each.key for each in asked.target.columns} - found.gone
    for at, now in enumerate(after.columns):
        was = before.column(now.key)
        goal = asked.target.column(now.key)
        if was is not None and was.same == now.same:
            continue
        if was is not None:
            found.clauses.extend(_changed(asked, was, now, goal))
        elif goal is not None:
            found.clauses.extend(_added_again(asked, now, goal))
        else:
            _check_new(asked, now)
            found.clauses.append(f"ADD COLUMN {quote_name(now.name)} {now.verbatim()}{_place(asked, at, placed)}")
        placed.add(now.key)
    return found


def _place(asked: JoinInput, at: int, placed: set[str]) -> str:
    """The position clause after a column that the target currently has, in the order of the source."""
    columns = asked.after.columns
    if at == len(columns) - 1:
        return ""
    earlier = [each for each in columns[:at] if each.key in placed]
    return f" AFTER {quote_name(earlier[-1].name)}" if earlier else " FIRST"


def _dropped(asked: JoinInput, was: ColumnDefinition, found: ColumnsJoined) -> None:
    goal = asked.target.column(was.key)
    having = asked.having(was.key) + asked.will_have(was.key)
    if not having:
        found.gone.add(was.key)
        if goal is not None:
            found.clauses.append(f"DROP COLUMN {quote_name(goal.name)}")
    elif goal is not None:
        if why := goal.unfillable:
            name, theirs = having[0]
            raise not_joinable(
                f"{asked.before.name} drops column {was.shown}, which {name} keeps as {theirs.shown}: rows of "
                f"{asked.before.name} would reach the target, where it is {goal.shown}, without it, and {why}",
                was.name, name, waits=True,
            )  # fmt: skip
        found.dropped.add(was.key)


def _left_over(asked: JoinInput, found: ColumnsJoined) -> None:
    """Drop columns that all shard tables have dropped: the target has kept them for a table that was parked at a
    statement which adds such a column, and whose further statements have led back."""
    dropped = asked.before.dropped.union(*(shard.dropped for shard in asked.others)) - found.gone
    for goal in asked.target.columns:
        if goal.key not in dropped or asked.before.definition.column(goal.key) or asked.after.column(goal.key):
            continue
        if not asked.having(goal.key) and not asked.will_have(goal.key):
            found.gone.add(goal.key)
            found.clauses.append(f"DROP COLUMN {quote_name(goal.name)}")


def _check_new(asked: JoinInput, now: ColumnDefinition) -> None:
    """Check a new column that the target lacks."""
    having, lacking = asked.having(now.key), asked.lacking(now.key)
    parked = asked.will_have(now.key)
    if not having and parked:
        raise not_joinable(
            f"{asked.before.name} adds column {now.shown}, and {parked[0][0]} is parked at a statement after which it "
            f"has {parked[0][1].shown}",
            now.name, parked[0][0], waits=True,
        )  # fmt: skip
    if having:
        name, theirs = having[0]
        raise not_joinable(
            f"{asked.before.name} adds column {now.shown}, which {name} has as {theirs.shown}, but the target lacks "
            "it: the values of its rows are missing there",
            now.name, name,
        )  # fmt: skip
    if lacking and (why := now.unfillable):
        raise not_joinable(
            f"{asked.before.name} adds column {now.shown}, which {lacking[0]} lacks: its rows reach the target "
            f"without it meanwhile, and {why}",
            now.name, lacking[0], waits=True,
        )  # fmt: skip


def _added_again(asked: JoinInput, now: ColumnDefinition, goal: ColumnDefinition) -> list[str]:
    """The clauses for a column that the target has and the shard table adds."""
    own, having = asked.before.name, asked.having(now.key) + asked.will_have(now.key)
    if not asked.others and now.same == goal.same and now.key not in asked.before.dropped:
        return []  # an operator added it for this statement
    name, theirs = having[0] if having else ("", goal)
    there = f"which {name} has as {theirs.shown} and the target as {goal.shown}" if name else _there(goal)
    if now.key in asked.before.dropped:
        raise not_joinable(
            f"{own} dropped column {quote_name(now.name)} and adds it again as {now.shown}, {there}: re-added with "
            f"another meaning, because rows of {own} still have their former values at the target",
            now.name, name,
        )  # fmt: skip
    if why := now.unfillable:
        raise not_joinable(
            f"{own} adds column {now.shown}, {there}: rows of {own} that are at the target already would have other "
            f"values than at the source, because {why}",
            now.name, name,
        )  # fmt: skip
    if now.default_value != goal.default_value:
        raise not_joinable(
            f"{own} adds column {now.shown}, {there}: rows of {own} that are at the target already have its default "
            f"{goal.default or 'none'}, those at the source have {now.default}",
            now.name, name,
        )  # fmt: skip
    if now.rest != goal.rest:
        raise not_joinable(f"{own} adds column {now.shown}, {there}: their attributes differ", now.name, name)
    return _settled(asked, None, now, goal)


def _there(goal: ColumnDefinition) -> str:
    return f"which the target has as {goal.shown}"


def _changed(
    asked: JoinInput, was: ColumnDefinition, now: ColumnDefinition, goal: ColumnDefinition | None
) -> list[str]:
    own = asked.before.name
    change = f"{own} changes column {was.shown} to {now.shown}"
    if goal is None:
        raise not_joinable(f"{change}, which the target lacks", now.name)
    if was.rest != now.rest or now.is_generated:
        raise not_joinable(f"{change}: an attribute or a generated column", now.name, waits=True)
    if goal.is_generated:
        raise not_joinable(f"{change}, {_there(goal)}, generated", now.name)
    if was.type != now.type:
        both = common_type((was.type, now.type))
        if isinstance(both, NoCommonType):
            raise not_joinable(f"{change}: {both.why}", now.name, waits=True)
        if both != now.type and not (asked.strict and keeps_when_strict(was.type, now.type)):
            raise not_joinable(
                f"{change}, which is narrower: the source may have changed values that the target still has",
                now.name, waits=True,
            )  # fmt: skip
    if was.nullable and not now.nullable and not asked.strict:
        raise not_joinable(
            f"{change} without a strict sql_mode: the source may have replaced NULLs", now.name, waits=True
        )
    filled = asked.never_had(now.key)
    if was.default_value != now.default_value and filled:
        raise not_joinable(
            f"{change}, which {filled[0]} lacks: its rows at the target have the default {goal.default or 'none'}, "
            f"and it may not change until {filled[0]} has the column or all have dropped it",
            now.name, filled[0],
        )  # fmt: skip
    return _settled(asked, was, now, goal)


def _settled(
    asked: JoinInput, was: ColumnDefinition | None, now: ColumnDefinition, goal: ColumnDefinition
) -> list[str]:
    """The clause for a column that the target has. ``was``: None for a column that the shard table adds."""
    theirs = [each for _, each in asked.having(now.key) + asked.will_have(now.key)]
    type_ = goal.type if was is not None and was.type == now.type else _type(asked, was, now, goal)
    nullable, lacking = goal.nullable, asked.lacking(now.key) + asked.will_lack(now.key)
    if was is None or was.nullable != now.nullable:
        # Rows of a shard table that lacks it may have NULL.
        by_others = any(each.nullable for each in theirs) or (goal.nullable and bool(lacking))
        nullable = now.nullable or by_others
    default = goal.default
    if was is not None and was.default_value != now.default_value:
        # Rows of the shard tables that have the column contain its value, and those of a table that has dropped it get
        # it back by an operator's decision or from the lock that drops it for all: different defaults do no harm.
        default = now.default if all(each.default_value == now.default_value for each in theirs) else default
    if nullable and not goal.nullable and default == NO_DEFAULT:
        default = NULL
    if not nullable and default == NULL:
        default = NO_DEFAULT
    comment = goal.comment
    if was is not None and was.comment != now.comment and all(each.comment == now.comment for each in theirs):
        comment = now.comment
    result = replace(goal, type=type_, nullable=nullable, default=default, comment=comment)
    if lacking and result.unfillable and not goal.unfillable:
        result = replace(result, default=goal.default)
    if result.same == goal.same:
        return []
    _check_result(asked, result, now, goal)
    printed = next((each.verbatim() for each in (now, *theirs) if each.same == result.same), "")
    return [f"MODIFY COLUMN {quote_name(goal.name)} {printed or result.written()}"]


def _type(asked: JoinInput, was: ColumnDefinition | None, now: ColumnDefinition, goal: ColumnDefinition) -> ColumnType:
    """The type that holds the values of all shard tables and, if the target may have other values, those too."""
    having = asked.having(now.key) + asked.will_have(now.key)
    theirs = [each.type for _, each in having]
    all_shards = common_type((*theirs, now.type))
    is_left = any(
        now.key in shard.dropped for shard in (*asked.others, asked.before)
    )  # rows of a shard table that dropped it
    is_due = was is not None and common_type((*theirs, was.type)) == goal.type  # otherwise an operator chose the type
    if is_due and not is_left and isinstance(all_shards, ColumnType):
        return all_shards
    found = common_type((*theirs, now.type, goal.type))
    if isinstance(found, ColumnType):
        return found
    for name, each in having:
        apart = common_type((each.type, now.type))
        if isinstance(apart, NoCommonType):
            raise not_joinable(
                f"{asked.before.name} has column {now.shown} now, {name} has it as {each.shown}: {apart.why}",
                now.name, name, waits=was is not None,
            )  # fmt: skip
    raise not_joinable(
        f"{asked.before.name} has column {now.shown} now, {_there(goal)}: {found.why}", now.name, waits=was is not None
    )


def _check_result(asked: JoinInput, result: ColumnDefinition, now: ColumnDefinition, goal: ColumnDefinition) -> None:
    """Check that the target's server accepts the definition."""
    change = f"{asked.before.name} has column {now.shown} now, {_there(goal)}, to become {result.type.bare}"
    if result.type != goal.type and (whole := asked.target.index_too_long(result.key, result.type)):
        raise not_joinable(f"{change}: {whole} uses the whole column, which is too long for an index", now.name)
    has_default = result.default not in (NULL, NO_DEFAULT)
    if has_default and result.type.needs_prefix and not goal.type.needs_prefix and not now.type.needs_prefix:
        raise not_joinable(
            f"{change}: not every server accepts a default of this type, here {result.default}", now.name
        )

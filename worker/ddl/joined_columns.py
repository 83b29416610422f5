"""What one shard's change of its columns makes of the target's. Pure.

Rows go to the target by column names, so the order of columns does not count. A shard writes every column that it has;
where it lacks one, its rows have the target's default.
"""

from __future__ import annotations

from dataclasses import replace

from worker.connection import quote_name
from worker.ddl.definition import NO_DEFAULT, NULL, Definition
from worker.ddl.shards import ColumnsJoined, Question, refuse
from worker.ddl.widening import Apart, ColumnType, keeps_when_strict, widest


def joined_columns(asked: Question) -> ColumnsJoined:
    """Raises :class:`~worker.ddl.shards.Refused`."""
    found = ColumnsJoined()
    before, after = asked.before.shape, asked.after
    for was in before.columns:
        if after.column(was.key) is None:
            _dropped(asked, was, found)
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


def _place(asked: Question, at: int, placed: set[str]) -> str:
    """Behind which of the columns that the target has at this moment, as at the source."""
    columns = asked.after.columns
    if at == len(columns) - 1:
        return ""
    earlier = [each for each in columns[:at] if each.key in placed]
    return f" AFTER {quote_name(earlier[-1].name)}" if earlier else " FIRST"


def _dropped(asked: Question, was: Definition, found: ColumnsJoined) -> None:
    goal = asked.target.column(was.key)
    having = asked.having(was.key)
    if not having:
        found.gone.add(was.key)
        if goal is not None:
            found.clauses.append(f"DROP COLUMN {quote_name(goal.name)}")
    elif goal is not None:
        if why := goal.unfillable:
            name, theirs = having[0]
            raise refuse(
                f"{asked.before.name} drops column {was.shown}, which {name} keeps as {theirs.shown}: rows of "
                f"{asked.before.name} would come to the target, where it is {goal.shown}, without it, and {why}",
                was.name, name, waits=True,
            )  # fmt: skip
        found.dropped.add(was.key)


def _check_new(asked: Question, now: Definition) -> None:
    """Of a column that the target lacks."""
    having, lacking = asked.having(now.key), asked.lacking(now.key)
    if having:
        name, theirs = having[0]
        raise refuse(
            f"{asked.before.name} adds column {now.shown}, which {name} has as {theirs.shown}, but the target lacks "
            "it: the values that its rows should have are not there",
            now.name, name,
        )  # fmt: skip
    if lacking and (why := now.unfillable):
        raise refuse(
            f"{asked.before.name} adds column {now.shown}, which {lacking[0]} lacks: its rows come to the target "
            f"without it meanwhile, and {why}",
            now.name, lacking[0], waits=True,
        )  # fmt: skip


def _added_again(asked: Question, now: Definition, goal: Definition) -> list[str]:
    """A column that the target has, and the shard had not."""
    own, having = asked.before.name, asked.having(now.key)
    if not asked.others and now.same == goal.same:
        return []  # added for this very statement
    name, theirs = having[0] if having else ("", goal)
    there = f"which {name} has as {theirs.shown} and the target as {goal.shown}" if name else _there(goal)
    if now.key in asked.before.dropped:
        raise refuse(
            f"{own} dropped column {quote_name(now.name)} and adds it again as {now.shown}, {there}: re-added with "
            f"another meaning, for rows of {own} still have their former values at the target",
            now.name, name,
        )  # fmt: skip
    if why := now.unfillable:
        raise refuse(
            f"{own} adds column {now.shown}, {there}: rows of {own} that are at the target already would have other "
            f"values than at the source, for {why}",
            now.name, name,
        )  # fmt: skip
    if now.default_value != goal.default_value:
        raise refuse(
            f"{own} adds column {now.shown}, {there}: rows of {own} that are at the target already have its default "
            f"{goal.default or 'none'}, those at the source have {now.default}",
            now.name, name,
        )  # fmt: skip
    if now.rest != goal.rest:
        raise refuse(f"{own} adds column {now.shown}, {there}: their attributes differ", now.name, name)
    return _settled(asked, None, now, goal)


def _there(goal: Definition) -> str:
    return f"which the target has as {goal.shown}"


def _changed(asked: Question, was: Definition, now: Definition, goal: Definition | None) -> list[str]:
    own = asked.before.name
    change = f"{own} changes column {was.shown} to {now.shown}"
    if goal is None:
        raise refuse(f"{change}, which the target lacks", now.name)
    if was.rest != now.rest or now.is_generated:
        raise refuse(f"{change}: an attribute or a generated column", now.name, waits=True)
    if goal.is_generated:
        raise refuse(f"{change}, {_there(goal)}, generated", now.name)
    if was.type != now.type:
        both = widest((was.type, now.type))
        if isinstance(both, Apart):
            raise refuse(f"{change}: {both.why}", now.name, waits=True)
        if both != now.type and not (asked.strict and keeps_when_strict(was.type, now.type)):
            raise refuse(
                f"{change}, which is narrower: the source may have changed values that the target still has",
                now.name, waits=True,
            )  # fmt: skip
    if was.nullable and not now.nullable and not asked.strict:
        raise refuse(f"{change} without a strict sql_mode: the source may have replaced NULLs", now.name, waits=True)
    lacking = asked.lacking(now.key)
    if was.default_value != now.default_value and lacking:
        raise refuse(
            f"{change}, which {lacking[0]} lacks: its rows at the target have the default {goal.default or 'none'}, "
            f"and it may not change until {lacking[0]} has the column or all have dropped it",
            now.name, lacking[0],
        )  # fmt: skip
    return _settled(asked, was, now, goal)


def _settled(asked: Question, was: Definition | None, now: Definition, goal: Definition) -> list[str]:
    """The clause for a column that the target has; ``was``: None for one that the shard adds."""
    theirs = [each for _, each in asked.having(now.key)]
    type_ = goal.type if was is not None and was.type == now.type else _type(asked, was, now, goal)
    nullable = goal.nullable
    if was is None or was.nullable != now.nullable:
        # Where a shard lacks it, NULL may be what its rows have.
        by_others = any(each.nullable for each in theirs) or (goal.nullable and bool(asked.lacking(now.key)))
        nullable = now.nullable or by_others
    default = goal.default
    if was is not None and was.default_value != now.default_value:
        # Every shard has the column here, so rows carry their values: a default that is not shared does no harm.
        default = now.default if all(each.default_value == now.default_value for each in theirs) else default
    if nullable and not goal.nullable and default == NO_DEFAULT:
        default = NULL
    if not nullable and default == NULL:
        default = NO_DEFAULT
    comment = goal.comment
    if was is not None and was.comment != now.comment and all(each.comment == now.comment for each in theirs):
        comment = now.comment
    result = replace(goal, type=type_, nullable=nullable, default=default, comment=comment)
    if result.same == goal.same:
        return []
    _check_result(asked, result, now, goal)
    printed = next((each.verbatim() for each in (now, *theirs) if each.same == result.same), "")
    return [f"MODIFY COLUMN {quote_name(goal.name)} {printed or result.written()}"]


def _type(asked: Question, was: Definition | None, now: Definition, goal: Definition) -> ColumnType:
    """What holds the values of all shards and, unless every value of it is theirs now, what the target holds."""
    having = asked.having(now.key)
    theirs = [each.type for _, each in having]
    all_shards = widest((*theirs, now.type))
    is_left = any(now.key in shard.dropped for shard in (*asked.others, asked.before))  # rows of a shard without it
    is_due = was is not None and widest((*theirs, was.type)) == goal.type  # else the operator chose it
    if is_due and not is_left and isinstance(all_shards, ColumnType):
        return all_shards
    found = widest((*theirs, now.type, goal.type))
    if isinstance(found, ColumnType):
        return found
    for name, each in having:
        apart = widest((each.type, now.type))
        if isinstance(apart, Apart):
            raise refuse(
                f"{asked.before.name} has column {now.shown} now, {name} has it as {each.shown}: {apart.why}",
                now.name, name, waits=was is not None,
            )  # fmt: skip
    raise refuse(
        f"{asked.before.name} has column {now.shown} now, {_there(goal)}: {found.why}", now.name, waits=was is not None
    )


def _check_result(asked: Question, result: Definition, now: Definition, goal: Definition) -> None:
    """Whether the target's server takes the definition."""
    change = f"{asked.before.name} has column {now.shown} now, {_there(goal)}, to become {result.type.bare}"
    if result.type != goal.type and (whole := asked.target.too_long(result.key, result.type)):
        raise refuse(f"{change}: {whole} takes the column whole, which is too long for an index", now.name)
    has_default = result.default not in (NULL, NO_DEFAULT)
    if has_default and result.type.needs_prefix and not goal.type.needs_prefix and not now.type.needs_prefix:
        raise refuse(f"{change}: not every server takes a default of it, here {result.default}", now.name)

"""What a change of a target table may do to data, as sentences for people. Pure.

Only what is certain is said: a risk that is not listed is none that can be told from the structures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from worker.connection import quote_name
from worker.ddl.definition import NO_DEFAULT, Definition
from worker.ddl.described import Shape
from worker.ddl.optimistic import renamed_of, replaced_of
from worker.ddl.shape import Changing
from worker.ddl.widening import INTEGERS, ColumnType, widest

_NAMED = 5  # so many shard tables are named in one sentence

_NUMBERS = frozenset({*INTEGERS, "decimal", "float", "double"})
_TIMES = frozenset({"date", "datetime", "timestamp", "time", "year"})
_SIZED = frozenset({"decimal", "datetime", "timestamp", "time"})
"""Types whose arguments say how a value is stored."""


@dataclass(frozen=True, slots=True)
class Change:
    """``name``: of the shard table whose statement ``ddl`` makes ``after`` of ``before``. ``target`` becomes ``goal``:
    the same when nothing runs there. ``others``: the target's other shard tables as they are when it runs, by name.
    ``strict``: whether what does not fit is refused; else the source's sql_mode decides."""

    name: str
    ddl: Changing
    before: Shape
    after: Shape
    target: Shape
    goal: Shape
    others: Mapping[str, Shape]
    strict: bool


def risks(change: Change) -> tuple[str, ...]:
    """Sentences, the gravest first."""
    return (
        *_leaving(change),
        *_narrowed(change),
        *_required(change),
        *_unique(change),
        *_defaults(change),
        *_rewritten(change),
    )


def listed(names: Sequence[str]) -> str:
    """Some of them, and how many more."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _leaving(change: Change) -> Iterator[str]:
    renamed = {old for new, old in renamed_of(change.ddl).items() if change.goal.column(new) is not None}
    again = replaced_of(change.ddl)
    for was in change.target.columns:
        if change.goal.column(was.key) is None and was.key not in renamed:
            yield f"column {quote_name(was.name)} leaves the target, with the values of all its rows there"
        elif was.key in again and change.target != change.goal:
            yield f"column {quote_name(was.name)} leaves the target, with the values of all its rows, and comes anew"


def _kept(change: Change) -> Iterator[tuple[Definition, Definition]]:
    """The target's columns that stay, before and after."""
    former = {new: old for new, old in renamed_of(change.ddl).items() if change.target.column(new) is None}
    again = replaced_of(change.ddl)
    for now in change.goal.columns:
        was = change.target.column(former.get(now.key, now.key))
        if was is not None and now.key not in again:
            yield was, now


def _narrowed(change: Change) -> Iterator[str]:
    refused = "the target refuses the statement if a value there does not fit"
    fate = refused if change.strict else f"{refused}, or cuts the value where the source's sql_mode is not strict"
    for was, now in _kept(change):
        if was.type != now.type and widest((was.type, now.type)) != now.type:
            yield f"column {quote_name(now.name)} changes from {was.type.sql} to {now.type.sql}: {fate}"


def _required(change: Change) -> Iterator[str]:
    fate = "" if change.strict else ", or replaces it where the source's sql_mode is not strict"
    for was, now in _kept(change):
        if was.nullable and not now.nullable:
            yield (
                f"column {quote_name(now.name)} becomes NOT NULL: the target refuses the statement if a row of any "
                f"shard table has NULL there{fate}"
            )
    for now in change.goal.columns:
        is_new = change.target.column(now.key) is None and now.key not in renamed_of(change.ddl)
        if is_new and not now.nullable and now.default == NO_DEFAULT and not now.is_generated:
            yield f"column {quote_name(now.name)} comes NOT NULL without a default: rows get their type's zero value"


def _unique(change: Change) -> Iterator[str]:
    if not change.others:
        return
    for now in change.goal.indexes:
        was = change.target.index(now.key)
        if now.unique and (was is None or was.same != now.same):
            yield (
                f"{now.text} spans the rows of all shard tables: the target refuses it if two of them have equal values"
            )
    if change.goal.primary_key not in ("", change.target.primary_key):
        yield f"the {change.goal.primary_key} spans the rows of all shard tables: two with equal values are refused"


def _defaults(change: Change) -> Iterator[str]:
    for now in change.goal.columns:
        if change.after.column(now.key) is None:
            if change.before.column(now.key) is not None:
                yield (
                    f"the target keeps column {quote_name(now.name)} for others: rows of {change.name} that are there "
                    f"keep their values, those to come have {_default(now)}"
                )
        elif change.target.column(now.key) is None:
            lacking = [name for name, shape in change.others.items() if shape.column(now.key) is None]
            if lacking and now.key not in renamed_of(change.ddl):
                yield (
                    f"rows of {listed(lacking)} have {_default(now)} in column {quote_name(now.name)} until these have "
                    "it"
                )


def _default(column: Definition) -> str:
    return f"the default {column.default}" if column.default != NO_DEFAULT else "no value"


def _rewritten(change: Change) -> Iterator[str]:
    if "REDUNDANT" in change.target.options.upper():
        return  # MariaDB changes such a table in place (MariaDB, "InnoDB Online DDL")
    found = [now for was, now in _kept(change) if _copies(was.type, now.type)]
    if found:
        names = ", ".join(quote_name(now.name) for now in found)
        yield f"the target copies the whole table for the new type of {names}; writes to it wait meanwhile"


def _copies(was: ColumnType, now: ColumnType) -> bool:
    """Whether every server copies the table for this (MySQL Reference Manual, "Online DDL Operations"): what some do in
    place is left out, such as longer strings, or utf8mb3 to utf8mb4."""
    if was.charset and now.charset and was.charset != now.charset:
        return not (was.charset in ("utf8", "utf8mb3") and now.charset == "utf8mb4")
    if was.base != now.base:
        return was.base in _NUMBERS | _TIMES or now.base in _NUMBERS | _TIMES
    return was.base in _SIZED and was.arguments != now.arguments

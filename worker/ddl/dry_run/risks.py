"""Lists what a change of a target table may do to data, as sentences for people. Pure.

The list has only risks that follow from the structures; others may exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardmerge.proto import errors, listed_names
from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.execute.optimistic import renamed_of, replaced_of
from shardmerge.worker.ddl.sql.column_definition import NO_DEFAULT, ColumnDefinition
from shardmerge.worker.ddl.sql.common_type import INTEGERS, ColumnType, common_type
from shardmerge.worker.ddl.sql.table_definition import TableDefinition
from shardmerge.worker.ddl.sql.target_statement import Changing, time_dependent_columns
from shardmerge.worker.relay.model import Statement

_NAMED = 5  # the most shard tables that one sentence names

_NUMBERS = frozenset({*INTEGERS, "decimal", "float", "double"})
_TIMES = frozenset({"date", "datetime", "timestamp", "time", "year"})
_SIZED = frozenset({"decimal", "datetime", "timestamp", "time"})
"""Types whose arguments change how a value is stored."""


@dataclass(frozen=True, slots=True)
class Change:
    """``name``: of the shard table that the statement ``ddl`` changes from ``before`` to ``after``. ``target`` becomes
    ``goal``, the same when nothing runs there. ``others``: the target's other shard tables when it runs, by name.
    ``strict``: whether values that do not fit are refused; otherwise the source's sql_mode decides."""

    name: str
    ddl: Changing
    before: TableDefinition
    after: TableDefinition
    target: TableDefinition
    goal: TableDefinition
    others: Mapping[str, TableDefinition]
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


def session_risk(statement: Statement, ddl: Changing, plan: TablePlan, *, is_mariadb: bool) -> tuple[str, ...]:
    """A sentence if the session that runs the statement at the source decides whether the task stops before it."""
    columns = time_dependent_columns(statement, ddl, plan.table, None, is_mariadb=is_mariadb)
    if not columns or time_dependent_columns(statement, ddl, plan.table, True, is_mariadb=is_mariadb):
        return ()
    return (
        f"it depends on explicit_defaults_for_timestamp of the session that runs it at {plan.source}: with OFF, column "
        f"{', '.join(map(quote_name, columns))} gets the time of the statement in existing rows, and the task stops "
        f"before it ({errors.ddl.VALUES_OF_TIME.code})",
    )


def listed(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    return listed_names.listed(names, _NAMED)


def _leaving(change: Change) -> Iterator[str]:
    renamed = {old for new, old in renamed_of(change.ddl).items() if change.goal.column(new) is not None}
    again = replaced_of(change.ddl)
    for was in change.target.columns:
        if change.goal.column(was.key) is None and was.key not in renamed:
            yield f"column {quote_name(was.name)} leaves the target, with the values of all its rows there"
        elif was.key in again and change.target != change.goal:
            name = quote_name(was.name)
            yield f"column {name} leaves the target, with the values of all its rows, and is added again"


def _kept(change: Change) -> Iterator[tuple[ColumnDefinition, ColumnDefinition]]:
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
        if was.type != now.type and common_type((was.type, now.type)) != now.type:
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
            name = quote_name(now.name)
            yield f"column {name} is added NOT NULL without a default: rows get the zero value of its type"


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
                    f"keep their values, new rows get {_default(now)}"
                )
        elif change.target.column(now.key) is None:
            lacking = [name for name, shape in change.others.items() if shape.column(now.key) is None]
            if lacking and now.key not in renamed_of(change.ddl):
                yield (
                    f"rows of {listed(lacking)} have {_default(now)} in column {quote_name(now.name)} until these have "
                    "it"
                )


def _default(column: ColumnDefinition) -> str:
    return f"the default {column.default}" if column.default != NO_DEFAULT else "no value"


def _rewritten(change: Change) -> Iterator[str]:
    if "REDUNDANT" in change.target.options.upper():
        return  # MariaDB changes such a table in place (MariaDB, "InnoDB Online DDL")
    found = [now for was, now in _kept(change) if _copies(was.type, now.type)]
    if found:
        names = ", ".join(quote_name(now.name) for now in found)
        yield f"the target copies the whole table for the new type of {names}; writes to it wait meanwhile"


def _copies(was: ColumnType, now: ColumnType) -> bool:
    """Whether every server copies the table for this (MySQL Reference Manual, "Online DDL Operations"). Changes that
    some servers make in place are left out, such as longer strings, or utf8mb3 to utf8mb4."""
    if was.charset and now.charset and was.charset != now.charset:
        return not (was.charset in ("utf8", "utf8mb3") and now.charset == "utf8mb4")
    if was.base != now.base:
        return was.base in _NUMBERS | _TIMES or now.base in _NUMBERS | _TIMES
    return was.base in _SIZED and was.arguments != now.arguments

"""Derives the rows that the source's storage engine changed by cascade, and changes them at the target.

The source logs only the change of the row that others refer to. Its engine then deletes the rows that refer to it, sets
their columns to NULL or to the new key, and does the same with the rows that refer to these. At the target the rows are
found by the same columns: the shard table's rows there are exactly those that the source had at that moment, because
one lane applies all changes of these tables in the source's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shardmerge.worker.core.cascades import CascadeKey, CascadeKeys
from shardmerge.worker.core.mysql.connection import Session, quote_name, rows, send, text_of
from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.sql.foreign_keys import ForeignKeyAction
from shardmerge.worker.core.table import ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, PartitionId, TablePlan
from shardmerge.worker.target.apply.key_condition import MOST_TUPLES, values_condition

_NULL = b"NULL"
_MOST_VALUES = 500  # of one column


@dataclass(frozen=True, slots=True)
class ParentChange:
    """Rows of a parent lose the values ``old`` in the columns to which ``key`` refers. ``new``: the values that they
    have instead, of one row; None: the rows were deleted. ``copied_later``: tables whose copied rows are newer than
    this change and contain its effect."""

    key: CascadeKey
    old: tuple[Literals, ...]
    new: Literals | None
    copied_later: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ChildRows:
    """The rows of one shard table at the target whose ``columns`` have one of the ``values``."""

    plan: TablePlan
    columns: tuple[str, ...]
    values: tuple[Literals, ...]


class TargetRows(Protocol):
    """Access to the target's rows, in one transaction."""

    def values(self, of: ChildRows, columns: tuple[str, ...]) -> list[Literals]:
        """The different values of ``columns`` in these rows, which stay locked."""
        ...

    def delete(self, of: ChildRows) -> None: ...

    def update(self, of: ChildRows, values: Literals) -> None:
        """Give the rows other ``values`` in the columns by which they were found."""
        ...


@dataclass(frozen=True, slots=True)
class Cascades:
    """``plans``: of the tables of ``keys``, by number; without those that are no longer in the subtask."""

    keys: CascadeKeys
    plans: Mapping[int, TablePlan] = field(default_factory=dict[int, TablePlan])

    def apply(self, target: TargetRows, changes: Iterable[ParentChange]) -> None:
        """Change the rows that ``changes`` reach, in order, at all levels."""
        for change in merged_deletions(changes):
            self._follow(target, change)

    def _follow(self, target: TargetRows, change: ParentChange) -> None:
        key, new = change.key, change.new
        action = key.on_delete if new is None else key.on_update
        old = tuple(values for values in change.old if _NULL not in values)
        if not action or not old or key.child in change.copied_later or key.child not in self.plans:
            return
        if new is not None and action is ForeignKeyAction.CASCADE and old == (new,):
            return
        found = ChildRows(self.plans[key.child], key.columns, old)
        if new is None and action is ForeignKeyAction.CASCADE:
            below = [(each, self._referred(target, found, each)) for each in self._below(key) if each.on_delete]
            target.delete(found)
            for each, values in below:
                self._follow(target, ParentChange(each, values, None, change.copied_later))
            return
        given = (_NULL,) * len(key.columns) if action is ForeignKeyAction.SET_NULL or new is None else new
        changed = dict(zip(key.columns, given, strict=True))
        moved = [
            (each, self._referred(target, found, each))
            for each in self._below(key)
            if each.on_update and not changed.keys().isdisjoint(each.to_columns)
        ]
        target.update(found, given)
        for each, values in moved:
            for one in values:
                after = tuple(changed.get(name, value) for name, value in zip(each.to_columns, one, strict=True))
                if after != one:
                    self._follow(target, ParentChange(each, (one,), after, change.copied_later))

    def _below(self, key: CascadeKey) -> tuple[CascadeKey, ...]:
        return self.keys.of_parent.get(key.child, ())

    def _referred(self, target: TargetRows, found: ChildRows, below: CascadeKey) -> tuple[Literals, ...]:
        return tuple(target.values(found, below.to_columns))


def merged_deletions(changes: Iterable[ParentChange]) -> Iterator[ParentChange]:
    """``changes`` in order; the deletions between two other changes are one change for each key. Their order does not
    matter: no key refers to a column that another one sets to NULL (worker/rules/cascades.py)."""
    waiting: dict[tuple[CascadeKey, frozenset[int]], list[Literals]] = {}
    for change in changes:
        if change.new is None:
            waiting.setdefault((change.key, change.copied_later), []).extend(change.old)
            continue
        yield from _flushed(waiting)
        waiting = {}
        yield change
    yield from _flushed(waiting)


def _flushed(waiting: Mapping[tuple[CascadeKey, frozenset[int]], list[Literals]]) -> Iterator[ParentChange]:
    for (key, copied_later), old in waiting.items():
        yield ParentChange(key, tuple(dict.fromkeys(old)), None, copied_later)


class SqlRows:
    """See :class:`TargetRows`: the target's server. Raises ``pymysql.MySQLError``."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def values(self, of: ChildRows, columns: tuple[str, ...]) -> list[Literals]:
        names = ", ".join(quote_name(_written(of.plan, name).target_name) for name in columns)
        found: dict[Literals, None] = {}
        for where in _conditions(of):
            statement = f"SELECT {names} FROM {of.plan.target_name}{where.decode()} FOR UPDATE"
            for row in rows(self._session, statement):
                found[tuple(_NULL if value is None else text_of(value).encode() for value in row)] = None
        return list(found)

    def delete(self, of: ChildRows) -> None:
        for where in _conditions(of):
            send(self._session, b"DELETE FROM " + of.plan.target_name.encode() + where)

    def update(self, of: ChildRows, values: Literals) -> None:
        given = [
            quote_name(_written(of.plan, name).target_name).encode() + b" = " + value
            for name, value in zip(of.columns, values, strict=True)
        ]
        # The source's engine does not set a column that is ON UPDATE CURRENT_TIMESTAMP; a column that gets its own
        # value is not set here either.
        for column in of.plan.columns:
            if column.column.kind in (ValueKind.TIMESTAMP, ValueKind.DATETIME) and column.index >= 0:
                name = quote_name(column.target_name).encode()
                given.append(name + b" = " + name)
        for where in _conditions(of):
            send(self._session, b"UPDATE " + of.plan.target_name.encode() + b" SET " + b", ".join(given) + where)


def _conditions(of: ChildRows) -> Iterator[bytes]:
    """WHERE clauses that together match the rows."""
    columns = [_written(of.plan, name) for name in of.columns]
    names = [item.target_name for item in columns]
    own = _own_rows(of.plan)
    most = _MOST_VALUES if len(columns) == 1 else MOST_TUPLES
    for start in range(0, len(of.values), most):
        yield b" WHERE " + values_condition(columns, names, of.values[start : start + most]) + own


def _own_rows(plan: TablePlan) -> bytes:
    """The condition for the rows of the shard table in its target. It has one: see
    :func:`shardmerge.worker.rules.cascades.find_cascades`."""
    ranges: list[str] = []
    for index in plan.key:
        mapping = plan.columns[index].mapping
        if isinstance(mapping, PartitionId) and not mapping.is_shared:
            name = quote_name(plan.columns[index].target_name)
            ranges.append(f" AND {name} BETWEEN {mapping.prefix} AND {mapping.last}")
    if not ranges:
        raise AssertionError(f"the rows of {plan.table.full_name} cannot be distinguished")
    return "".join(ranges).encode()


def _written(plan: TablePlan, column: str) -> ColumnPlan:
    return next(each for each in plan.columns if each.index >= 0 and each.column.name == column)


def parent_changes(
    keys: Sequence[CascadeKey], plan: TablePlan, before: Literals, after: Literals, copied_later: frozenset[int]
) -> list[ParentChange]:
    """What a logged change of a row means for the tables that refer to its table by ``keys``. ``after`` is () for a
    deleted row."""
    found: list[ParentChange] = []
    places = {each.column.name: at for at, each in enumerate(plan.columns) if each.index >= 0}
    for key in keys:
        at = [places[name] for name in key.to_columns]
        old = tuple(before[place] for place in at)
        new = tuple(after[place] for place in at) if after else None
        if _NULL in old or old == new or not (key.on_delete if new is None else key.on_update):
            continue
        found.append(ParentChange(key, (old,), new, copied_later))
    return found

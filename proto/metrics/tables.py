"""Bounds the number of series that a metric with a label for each table has. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

T = TypeVar("T")

OTHER = "_other"
"""The name of the series that holds all tables without a series of their own."""


class PerTable(enum.Enum):
    """Which tables have series of their own: the first ones up to a limit, or none."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"

    @property
    def limit(self) -> int:
        """The most tables of a task."""
        return {PerTable.AUTO: 100, PerTable.ON: 10_000, PerTable.OFF: 0}[self]

    @property
    def total(self) -> int:
        """The most tables of all tasks, each counted once for each lane."""
        return {PerTable.AUTO: 2_000, PerTable.ON: 20_000, PerTable.OFF: 0}[self]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a task has: tables, and lanes that each have a series of each table."""

    tables: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Share:
    """How many tables of a task have series of their own. ``is_final``: it has had more tables than that."""

    tables: int
    lanes: int
    is_final: bool


Shares = Mapping[str, Share]
"""By task."""


def shared_out(demands: Mapping[str, Demand], before: Shares, per_table: PerTable) -> dict[str, Share]:
    """The shares of the tasks in ``demands``. ``before``: the result of the previous call.

    A share never becomes smaller while its task exists: series would vanish. It never grows again once a table was left
    out: the counter of :data:`OTHER` would fall by what that table has. What a task that has ended leaves is for the
    others. A task that copies its history has no lanes yet: those that it gets later count, also for the tables that it
    has. They may exceed the bound; then no task gets more.
    """
    left = per_table.total - sum(
        share.tables * max(share.lanes, demands[task].lanes) for task, share in before.items() if task in demands
    )
    found: dict[str, Share] = {}
    for task, demand in demands.items():
        known = before.get(task)
        lanes = demand.lanes if known is None else max(demand.lanes, known.lanes)
        if known is not None and (known.is_final or demand.tables <= known.tables):
            found[task] = replace(known, lanes=lanes)
            continue
        present = 0 if known is None else known.tables
        more = max(0, min(demand.tables, per_table.limit) - present)
        more = min(more, max(0, left) // max(1, lanes))
        left -= more * lanes
        found[task] = Share(present + more, lanes, present + more < demand.tables)
    return found


@dataclass(frozen=True, slots=True)
class TableName:
    """A target table."""

    schema: str
    table: str


def with_others(shown: Mapping[TableName, T], others: Callable[[Collection[T]], T]) -> dict[TableName, T]:
    """The values of the tables with series of their own, and those of all others under :data:`OTHER`.

    ``others``: what all tables have together, less the values that it gets. The tables that are ``shown`` must not
    change between two calls, or a counter would fall: the first ones in the order in which they were seen do not.
    """
    other = TableName(OTHER, OTHER)
    # A table may have this name: then it has the same series.
    return {**shown, other: others([value for name, value in shown.items() if name != other])}

"""What a dashboard shows, without the form in which Grafana stores it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

WIDTH = 24
"""Columns of Grafana's grid."""


class Look(enum.Enum):
    """How a panel shows its series: Grafana's name of the panel."""

    LINES = "timeseries"
    NUMBER = "stat"
    TABLE = "table"


class Unit(enum.Enum):
    """Grafana's name of a unit."""

    COUNT = "short"
    SECONDS = "s"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    PER_SECOND = "ops"
    SHARE = "percentunit"
    STAGE = "stage"
    YES_NO = "bool_yes_no"


@dataclass(frozen=True, slots=True)
class Query:
    """An expression of Prometheus. ``legend``: the name of a series, with `{{label}}`; of a column in a table.
    ``unit``: of a column in a table."""

    expression: str
    legend: str = ""
    unit: Unit = Unit.COUNT


@dataclass(frozen=True, slots=True)
class Panel:
    """``note``: what to see in it, above the texts of its metrics. ``stacked``: the series add up to a whole. ``warn``,
    ``alarm``: values from which on a number is yellow or red. ``rank``: the column by which a table is sorted, largest
    first; it is not shown."""

    title: str
    queries: tuple[Query, ...]
    unit: Unit = Unit.COUNT
    look: Look = Look.LINES
    note: str = ""
    width: int = WIDTH // 2
    height: int = 8
    stacked: bool = False
    warn: float | None = None
    alarm: float | None = None
    rank: str = ""

    @classmethod
    def of(
        cls, title: str, expression: str, legend: str, unit: Unit = Unit.COUNT, *, note: str = "", stacked: bool = False
    ) -> Panel:
        """A panel with one query."""
        return cls(title, (Query(expression, legend),), unit, note=note, stacked=stacked)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one title."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of a dashboard. ``metric``: its series have the choices, as values of ``label``; it may have
    a selector."""

    name: str
    metric: str
    label: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """``name``: of its file and, after `shardmerge-`, its identity in Grafana."""

    name: str
    title: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()


TASK = Variable("task", "dm_worker_task_state", "task")
SOURCE_OF_TASK = Variable("source_id", 'dm_worker_task_state{task=~"$task"}', "source_id")
SOURCE = Variable("source_id", "dm_source_connected", "source_id")

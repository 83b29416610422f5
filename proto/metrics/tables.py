"""Bounds the number of series that a metric with a label for each table has. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
        return {PerTable.AUTO: 100, PerTable.ON: 10_000, PerTable.OFF: 0}[self]


@dataclass(frozen=True, slots=True)
class TableName:
    """A target table."""

    schema: str
    table: str


def bounded(tables: Mapping[TableName, T], per_table: PerTable, add: Callable[[T, T], T]) -> dict[TableName, T]:
    """The values of the first tables, and the sum of all others under :data:`OTHER`.

    The order of ``tables`` must not change between two calls, or a counter would fall: the order in which tables were
    first seen does not.
    """
    found: dict[TableName, T] = {}
    other = TableName(OTHER, OTHER)
    for number, (name, value) in enumerate(tables.items()):
        place = name if number < per_table.limit else other
        found[place] = add(found[place], value) if place in found else value
    return found

"""Decides which rows of a target table can belong to one shard table. Pure.

Only where this is known can a row be called extra: otherwise it may belong to a shard table of another source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.table_plan import PartitionId, TablePlan


@dataclass(frozen=True, slots=True)
class AllRows:
    """All rows of the target: the shard table is the only one of the task that is merged into it."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows whose ``column`` is from ``first`` to ``last``: `partition id` gives each shard table its own range."""

    column: str
    first: int
    last: int

    @property
    def condition(self) -> str:
        return f"{quote_name(self.column)} BETWEEN {self.first} AND {self.last}"


@dataclass(frozen=True, slots=True)
class NotSeparable:
    """The rows of several shard tables are mixed. ``why``: for people."""

    why: str


Owned = AllRows | KeyRange | NotSeparable


def owned_rows(plan: TablePlan, members: Sequence[TablePlan]) -> Owned:
    """``members``: the plans of all shard tables of the task, of all sources, ``plan`` included."""
    merged = [other for other in members if other.target_name == plan.target_name]
    if len(merged) <= 1:
        return AllRows()
    for item in plan.columns:
        if not isinstance(item.mapping, PartitionId) or item.mapping.is_shared or item.column.nullable:
            continue  # a NULL is in no range
        ranges = sorted(found for other in merged for found in _ranges(other, item.target_name))
        disjoint = all(one[1] < next_one[0] for one, next_one in pairwise(ranges))
        if len(ranges) == len(merged) and disjoint:
            [(first, last)] = _ranges(plan, item.target_name)
            return KeyRange(item.target_name, first, last)
    return NotSeparable(f"rows of {len(merged)} shard tables are mixed, without `partition id` to separate them")


def stray_condition(plan: TablePlan, members: Sequence[TablePlan]) -> str | None:
    """The condition for rows of ``plan``'s target that no shard table can have; None: any row may belong to one."""
    owned = owned_rows(plan, members)
    if not isinstance(owned, KeyRange):
        return None
    ranges = [owned_rows(other, members) for other in members if other.target_name == plan.target_name]
    inside = " OR ".join(found.condition for found in ranges if isinstance(found, KeyRange))
    # A NULL is in no range, and a comparison with it is neither true nor false.
    return f"NOT COALESCE({inside}, 0)"


def _ranges(plan: TablePlan, column: str) -> list[tuple[int, int]]:
    return [
        (item.mapping.prefix, item.mapping.last)
        for item in plan.columns
        if item.target_name == column and isinstance(item.mapping, PartitionId)
    ]

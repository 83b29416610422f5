"""Which rows of a target table can be of one shard table. Pure.

Only where that is known can a row be called extra: elsewhere it may be another shard's, at another source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from worker.connection import quote_name
from worker.plan import PartitionId, TablePlan


@dataclass(frozen=True, slots=True)
class Everything:
    """The shard table is the only one of the task that goes to its target."""


@dataclass(frozen=True, slots=True)
class Between:
    """The rows whose ``column`` lies from ``first`` to ``last``: `partition id` gives each shard its range."""

    column: str
    first: int
    last: int

    @property
    def condition(self) -> str:
        return f"{quote_name(self.column)} BETWEEN {self.first} AND {self.last}"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Rows of several shard tables lie between each other."""

    why: str


Owned = Everything | Between | Unknown


def owned_rows(plan: TablePlan, everyone: Sequence[TablePlan]) -> Owned:
    """``everyone``: the plans of all shard tables of the task, of all sources, ``plan`` included."""
    merged = [other for other in everyone if other.target_name == plan.target_name]
    if len(merged) <= 1:
        return Everything()
    for item in plan.columns:
        if not isinstance(item.mapping, PartitionId):
            continue
        ranges = sorted(found for other in merged for found in _ranges(other, item.target_name))
        disjoint = all(one[1] < next_one[0] for one, next_one in pairwise(ranges))
        if len(ranges) == len(merged) and disjoint:
            [(first, last)] = _ranges(plan, item.target_name)
            return Between(item.target_name, first, last)
    return Unknown(f"rows of {len(merged)} shard tables lie between each other, without `partition id` to tell them")


def stray_condition(plan: TablePlan, everyone: Sequence[TablePlan]) -> str | None:
    """Which rows of ``plan``'s target no shard table can have; None where every row may be some shard's."""
    owned = owned_rows(plan, everyone)
    if not isinstance(owned, Between):
        return None
    ranges = [owned_rows(other, everyone) for other in everyone if other.target_name == plan.target_name]
    inside = " OR ".join(found.condition for found in ranges if isinstance(found, Between))
    # A NULL lies in no range, and comparing it says neither yes nor no.
    return f"NOT COALESCE({inside}, 0)"


def _ranges(plan: TablePlan, column: str) -> list[tuple[int, int]]:
    return [
        (item.mapping.prefix, item.mapping.prefix + (1 << item.mapping.bits) - 1)
        for item in plan.columns
        if item.target_name == column and isinstance(item.mapping, PartitionId)
    ]

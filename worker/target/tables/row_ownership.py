"""Decides which rows of a target table can belong to one shard table. Pure.

Only where this is known can a row be called extra: otherwise it may belong to a shard table of another source.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.table_plan import PartitionId, TablePlan
from shardmerge.worker.target.tables.extracted_keys import comparable_text, extracted_texts

_SIMPLE = re.compile(r"[0-9A-Za-z_ .-]*")


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
class ExtractedTexts:
    """The rows with these texts in the columns that routes extract from names: no other shard table has the same."""

    values: tuple[tuple[str, str], ...]

    @property
    def condition(self) -> str:
        return " AND ".join(f"{quote_name(column)} = {text_literal(text)}" for column, text in self.values)


@dataclass(frozen=True, slots=True)
class NotSeparable:
    """The rows of several shard tables are mixed. ``why``: for people."""

    why: str


Owned = AllRows | KeyRange | ExtractedTexts | NotSeparable


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
    return by_texts(plan, merged)


def stray_condition(plan: TablePlan, members: Sequence[TablePlan]) -> str | None:
    """The condition for rows of ``plan``'s target that no shard table can have; None: any row may belong to one."""
    owned = owned_rows(plan, members)
    if not isinstance(owned, KeyRange | ExtractedTexts):
        return None
    parts = [owned_rows(other, members) for other in members if other.target_name == plan.target_name]
    inside = " OR ".join(found.condition for found in parts if isinstance(found, KeyRange | ExtractedTexts))
    # A NULL is in no range, and a comparison with it is neither true nor false.
    return f"NOT COALESCE({inside}, 0)"


def by_texts(plan: TablePlan, merged: Sequence[TablePlan]) -> ExtractedTexts | NotSeparable:
    """``merged``: the plans of all shard tables of the target, ``plan`` included."""
    texts = [extracted_texts(other) for other in merged]
    common = frozenset[str].intersection(*(frozenset(found) for found in texts))
    mixed = f"rows of {len(merged)} shard tables are mixed, without `partition id` to separate them"
    if not common:
        return NotSeparable(mixed)
    if len({tuple(comparable_text(found[name]) for name in sorted(common)) for found in texts}) < len(merged):
        return NotSeparable(f"{mixed}, and several of them have the same texts in {', '.join(sorted(common))}")
    return ExtractedTexts(tuple((name, text) for name, text in extracted_texts(plan).items() if name in common))


def text_literal(text: str) -> str:
    """SQL that is right under every sql_mode."""
    return f"'{text}'" if _SIMPLE.fullmatch(text) else f"_utf8mb4 X'{text.encode().hex()}'"


def _ranges(plan: TablePlan, column: str) -> list[tuple[int, int]]:
    return [
        (item.mapping.prefix, item.mapping.last)
        for item in plan.columns
        if item.target_name == column and isinstance(item.mapping, PartitionId)
    ]

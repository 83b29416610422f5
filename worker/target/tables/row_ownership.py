"""Decides which rows of a target table can belong to one shard table, or to one source. Pure.

Only where this is known can a row be called extra: otherwise it may belong to a shard table of another source.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

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
    return separated_rows(plan, merged) if len(merged) > 1 else AllRows()


def separated_rows(plan: TablePlan, merged: Sequence[TablePlan]) -> KeyRange | ExtractedTexts | NotSeparable:
    """The rows of ``plan`` in a target that has rows of others too. ``merged``: the plans of all shard tables of the
    target that are known, ``plan`` included."""
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


def source_conditions(merged: Sequence[TablePlan]) -> dict[str, str] | None:
    """For each source the condition of its rows, "" for all rows; None: rows of several sources are mixed.

    Each row of the target meets the condition of exactly one source, also a row that no shard table can have.
    ``merged``: the plans of all shard tables of the target, in any order. Those of one source may have the same ids or
    texts.
    """
    first, *others = sorted({plan.source for plan in merged})
    if not others:
        return {first: ""}
    own = _source_ranges(merged) or _source_texts(merged)
    if own is None:
        return None
    # A NULL is in no range, and a comparison with it is neither true nor false.
    rest = f"NOT COALESCE({' OR '.join(own[source] for source in others)}, 0)"
    return {first: rest} | {source: own[source] for source in others}


def _source_ranges(merged: Sequence[TablePlan]) -> dict[str, str] | None:
    for name in sorted(item.target_name for item in merged[0].columns):
        found = [(*ends, plan.source) for plan in merged for ends in _ranges(plan, name, null=False)]
        if len(found) < len(merged):
            continue
        # Neighbours of one source become one range: each row is compared with all of them.
        runs = [(source, [*run]) for source, run in groupby(sorted(found), key=lambda each: each[2])]
        joined = [(source, KeyRange(name, run[0][0], max(last for _, last, _ in run))) for source, run in runs]
        if all(one.last < next_one.first for (_, one), (_, next_one) in pairwise(joined)):
            own: dict[str, list[str]] = {}
            for source, one in joined:
                own.setdefault(source, []).append(one.condition)
            return {source: " OR ".join(conditions) for source, conditions in own.items()}
    return None


def _source_texts(merged: Sequence[TablePlan]) -> dict[str, str] | None:
    texts = [(plan.source, extracted_texts(plan)) for plan in merged]
    common = sorted(frozenset[str].intersection(*(frozenset(found) for _, found in texts)))
    for names in (*((name,) for name in common), tuple(common)):
        comparable = {(source, tuple(comparable_text(found[name]) for name in names)) for source, found in texts}
        if len({values for _, values in comparable}) < len(comparable):
            continue  # two sources have the same
        own: dict[str, set[str]] = {}
        for source, found in texts:
            own.setdefault(source, set()).add(f"({', '.join(text_literal(found[name]) for name in names)})")
        columns = ", ".join(map(quote_name, names))
        return {source: f"({columns}) IN ({', '.join(sorted(values))})" for source, values in own.items()}
    return None


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


def _ranges(plan: TablePlan, column: str, *, null: bool = True) -> list[tuple[int, int]]:
    """``null``: also of a column that may be NULL, which is in no range."""
    return [
        (item.mapping.prefix, item.mapping.last)
        for item in plan.columns
        if item.target_name == column and isinstance(item.mapping, PartitionId) and (null or not item.column.nullable)
    ]

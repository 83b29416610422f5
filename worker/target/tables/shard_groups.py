"""Groups shard tables of one target by their definitions, and finds how the groups differ. Pure, on text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardmerge.worker.core.mysql.create_table import numbered_column, parse_create_table, partition_clause

SHOWN_TABLES = 3

_KEY = re.compile(r"\s*(CONSTRAINT\s+\S+\s+)?FOREIGN\s+KEY\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ShardDefinition:
    """``own``: the shard table's CREATE TABLE. ``merged``: that of its target, made from it."""

    name: str
    own: str
    merged: str


@dataclass(frozen=True, slots=True)
class Group:
    """Shard tables with equal definitions. ``only_here``, ``lacking``: parts of the merged definition that the largest
    group lacks, and has in addition. ``left_out``: parts of the shard tables' own definition that a created target does
    not get."""

    names: tuple[str, ...]
    merged: str
    only_here: tuple[str, ...]
    lacking: tuple[str, ...]
    left_out: tuple[str, ...]


def groups_of(shards: Iterable[ShardDefinition]) -> tuple[Group, ...]:
    """The groups, the largest first; of equal ones the first by its first table's name.

    Raises :class:`shardmerge.worker.core.mysql.create_table.UnreadableCreateTable`.
    """
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for shard in sorted(shards, key=lambda each: each.name):
        found.setdefault((shard.merged, _left_out(shard)), []).append(shard.name)
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    if not ordered:
        return ()
    reference = _parts(ordered[0][0][0])
    return tuple(
        Group(tuple(names), merged, _beyond(_parts(merged), reference), _beyond(reference, _parts(merged)), left_out)
        for (merged, left_out), names in ordered
    )


def _parts(creation: str) -> tuple[str, ...]:
    """Its columns, keys and checks, then the options after them."""
    return (*parse_create_table(creation).items, creation[creation.rindex("\n)") + 2 :].strip())


def _beyond(parts: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    return tuple((Counter(parts) - Counter(others)).elements())


def _left_out(shard: ShardDefinition) -> tuple[str, ...]:
    items = parse_create_table(shard.own).items
    found = [item for item in items if _KEY.match(item)]
    if numbered_column(shard.own) and not numbered_column(shard.merged):
        found.append("AUTO_INCREMENT")
    partitions = partition_clause(shard.own)
    if partitions and not partition_clause(shard.merged):
        found.append(partitions)
    return tuple(found)

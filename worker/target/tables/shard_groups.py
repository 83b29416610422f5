"""Groups shard tables of one target by their definitions, and finds how the groups differ. Pure, on text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.table_text import read_create_table

SHOWN_TABLES = 3


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

    Raises :class:`shardmerge.worker.core.sql.table_text.UnreadableCreateTable`.
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
    found = read_create_table(creation)
    return (*(item.text for item in found.items), creation[found.end :].strip())


def _beyond(parts: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    return tuple((Counter(parts) - Counter(others)).elements())


def _left_out(shard: ShardDefinition) -> tuple[str, ...]:
    own, merged = read_create_table(shard.own), read_create_table(shard.merged)
    found = [item.text for item in own.items if item.kind is ClauseKind.ADD_FOREIGN_KEY]
    if own.numbered and not merged.numbered:
        found.append("AUTO_INCREMENT")
    if own.partitions and not merged.partitions:
        found.append(own.partition_text)
    return tuple(found)

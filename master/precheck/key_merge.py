"""Finds shard tables that may have equal keys, and those that do, from the workers' answers. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from shardmerge.proto import worker_pb2 as pb

SHOWN = 10
"""Duplicates that are listed one by one."""


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """One unique key of one target table, and the shard tables that have its columns."""

    target: tuple[str, str]
    columns: tuple[str, ...]
    shards: tuple[pb.KeyShard, ...]

    @property
    def target_name(self) -> str:
        return ".".join(self.target)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(shard.source for shard in self.shards))


def groups(shards: Iterable[pb.KeyShard]) -> list[KeyGroup]:
    """The groups in which two rows could have one key: of several shard tables, or of one that does not keep it unique.

    Target tables whose names differ only in case count as one.
    """
    found: dict[tuple[str, str, frozenset[str]], list[pb.KeyShard]] = {}
    for shard in shards:
        names = (shard.target_schema.lower(), shard.target_table.lower(), frozenset(shard.columns))
        found.setdefault(names, []).append(shard)
    return [
        KeyGroup((some[0].target_schema, some[0].target_table), tuple(some[0].columns), tuple(some))
        for together in found.values()
        for some in _by_extracted_texts(together)
        if len(some) > 1 or not some[0].unique
    ]


def _by_extracted_texts(shards: Sequence[pb.KeyShard]) -> Iterable[Sequence[pb.KeyShard]]:
    """Shard tables whose rows have different texts of an extracted column in the key never have equal keys."""
    if not all(shard.extracted for shard in shards):
        return [shards]  # a worker of an earlier version does not report the texts
    found: dict[tuple[str, ...], list[pb.KeyShard]] = {}
    for shard in shards:
        found.setdefault(tuple(shard.extracted), []).append(shard)
    return found.values()


def overlapping(group: KeyGroup) -> list[tuple[pb.KeyShard, pb.KeyShard]] | None:
    """Neighbours whose ranges overlap; [] when the ranges keep all keys apart, None when a table has no range."""
    if not all(shard.first for shard in group.shards):
        return None
    ordered = sorted(group.shards, key=lambda shard: (int(shard.first), int(shard.last)))
    return [(one, other) for one, other in pairwise(ordered) if int(one.last) >= int(other.first)]


def ranges_disjoint(group: KeyGroup) -> bool:
    """Whether the ranges alone show that no key exists twice."""
    return overlapping(group) == [] and all(shard.unique for shard in group.shards)


def sharing_a_range(group: KeyGroup) -> list[str]:
    """Shard tables of several sources to which `partition id` gives one range."""
    met: dict[str, None] = {}
    for one, other in overlapping(group) or []:
        if one.mapped and other.mapped and len(group.columns) == 1:
            met |= {table_of(one): None, table_of(other): None}
    return list(met)


def table_of(shard: pb.KeyShard) -> str:
    return f"{shard.source} {shard.schema}.{shard.table}"


@dataclass(frozen=True, slots=True)
class KeyStream:
    """The keys that one worker reads; ``tables`` by number."""

    source: str
    form: str
    tables: tuple[str, ...]
    batches: Iterator[pb.KeyBatch]


@dataclass(frozen=True, slots=True)
class KeyMergeResult:
    """``read``: keys; ``twice``: values that several rows have; ``shown``: some of them."""

    read: int
    twice: int
    shown: tuple[str, ...]


def opened(source: str, batches: Iterator[pb.KeyBatch]) -> KeyStream | None:
    """Read the first batch; None when the worker no longer has such a table."""
    first = next(batches, None)
    return None if first is None else KeyStream(source, first.form, tuple(first.tables), batches)


def prove(streams: Sequence[KeyStream]) -> KeyMergeResult:
    """Merge streams of one form; holds one batch of each."""
    entries = heapq.merge(*(_entries(stream) for stream in streams), key=lambda entry: entry[0])
    read = twice = 0
    shown: list[str] = []
    for _, same in groupby(entries, key=lambda entry: entry[0]):
        tables: list[str] = []
        count, key = 0, ""
        for _, table, text in same:
            count, key = count + 1, text
            if count <= SHOWN:
                tables.append(table)
        read += count
        if count > 1:
            twice += 1
            if len(shown) < SHOWN:
                shown.append(f"{key} in {', '.join(tables)}")
    return KeyMergeResult(read, twice, tuple(shown))


def _entries(stream: KeyStream) -> Iterator[tuple[bytes, str, str]]:
    for batch in stream.batches:
        for order, number, key in zip(batch.orders, batch.shards, batch.shown, strict=True):
            yield order, f"{stream.source} {stream.tables[number]}", key

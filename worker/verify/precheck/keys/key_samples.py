"""Samples keys of shard tables at random places of their index, and looks up samples of other shard tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pymysql

from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import Session, rows, text_of
from shardmerge.worker.core.mysql.server_errors import errno_of
from shardmerge.worker.core.table import ValueKind
from shardmerge.worker.core.table_plan import PartitionId
from shardmerge.worker.target.tables.target_table import NO_SUCH_COLLATION
from shardmerge.worker.verify.precheck.keys.merged_keys import MergedKey, MergedKeyColumn

SAMPLES = 20
"""The most samples of one key of one shard table."""

_ALL_SAMPLES = 4000
_LEAST_SAMPLES = 3
_DEEPEST = 2000  # rows of an index that are skipped to reach a place
_KEYS_AT_ONCE = 200
_SAME = 1000


def samples_each(keys: int) -> int:
    """How many samples to take of each key, so that a source with thousands of tables does not take hours. Pure."""
    return max(min(SAMPLES, _ALL_SAMPLES // max(keys, 1)), _LEAST_SAMPLES)


def places(low: int, high: int, count: int, random: Random) -> list[int]:
    """A number out of each of ``count`` equal parts of low … high, both ends among them. Pure."""
    span = high - low + 1
    if span <= count:
        return list(range(low, high + 1))
    edges = [low + span * part // count for part in range(count + 1)]
    inner = [random.randrange(edges[part], edges[part + 1]) for part in range(1, count - 1)]
    return [low, *inner, high] if count > 1 else [low]


def offsets(rows_about: int, count: int, random: Random) -> tuple[list[int], list[int]]:
    """How many rows to skip from the index's beginning, and from its end. Pure.

    Reaching a place far from both ends takes a scan. So keys that are not a single number are sampled near the ends.
    """
    reach = max(min(rows_about // 2, _DEEPEST), 1)
    half = (count + 1) // 2
    chosen = [sorted({0, *(random.randrange(reach) for _ in range(half - 1))}) for _ in range(2)]
    return chosen[0], chosen[1]


def sample(session: Session, key: MergedKey, count: int, random: Random) -> pb.KeyShard:
    """The key with its range, as far as that is known, and ``count`` samples. Raises ``pymysql.MySQLError``."""
    shard = key.to_proto()
    if not key.form:
        return shard
    first = key.columns[0]
    numbers = first.item.column.kind is ValueKind.INTEGER
    bounds = _bounds(session, key, first) if numbers and key.unique else None
    mapped = next((column for column in key.columns if isinstance(column.item.mapping, PartitionId)), None)
    if mapped is not None and isinstance(mapped.item.mapping, PartitionId):
        shard.mapped = True
        prefix, bits = mapped.item.mapping.prefix, mapped.item.mapping.bits
        shard.first, shard.last = str(prefix), str(prefix + (1 << bits) - 1)
    elif bounds is not None:
        shard.first, shard.last = str(bounds[0]), str(bounds[1])
    if bounds is not None and len(key.columns) == 1:
        statement = _at_places(key, first, places(*bounds, count, random))
    else:
        statement = _at_offsets(key, *offsets(key.plan.table.row_estimate, count, random))
    found = {tuple(text_of(value) for value in row) for row in rows(session, statement)}
    shard.samples.extend(pb.KeyValues(values=key.mapped(row)) for row in sorted(found))
    return shard


def _bounds(session: Session, key: MergedKey, first: MergedKeyColumn) -> tuple[int, int] | None:
    """Lowest and highest value of the first column, unmapped; None for an empty table."""
    if first.item.column.name not in {unique[0] for unique in key.plan.table.unique_keys}:
        return None  # it would take a scan
    [(low, high)] = rows(session, f"SELECT MIN({first.name}), MAX({first.name}) FROM {key.full_name}")
    return None if low is None else (int(low), int(high))


def _at_places(key: MergedKey, column: MergedKeyColumn, at: Sequence[int]) -> str:
    name = column.name
    parts = [
        f"(SELECT {column.read} AS k FROM {key.full_name} WHERE {name} >= {place} ORDER BY {name} LIMIT 1)"
        for place in at
    ]
    return " UNION ALL ".join(parts)


def _at_offsets(key: MergedKey, from_begin: Sequence[int], from_end: Sequence[int]) -> str:
    listed = ", ".join(f"{column.read} AS k{number}" for number, column in enumerate(key.columns))
    where = f" WHERE {key.not_null}" if key.not_null else ""
    parts: list[str] = []
    for down, some in (("", from_begin), (" DESC", from_end)):
        order = ", ".join(column.name + down for column in key.columns)
        parts += [
            f"(SELECT {listed} FROM {key.full_name}{where} ORDER BY {order} LIMIT 1 OFFSET {offset})" for offset in some
        ]
    return " UNION ALL ".join(parts)


def look_up(
    session: Session, target: Session | None, keys: Sequence[MergedKey], looked_for: Sequence[pb.KeyShard]
) -> tuple[list[pb.KeyClash], int]:
    """The samples of ``looked_for`` that other shard tables among ``keys`` have, and how many were looked up.

    The source searches by its own collation. So keys that only the target treats as equal are not found, and keys that
    only the source treats as equal are not reported as a clash. Raises ``pymysql.MySQLError``.
    """
    clashes: list[pb.KeyClash] = []
    count = 0
    for key in keys:
        own = key.to_proto()
        for other in looked_for:
            if not _meets(own, other):
                continue
            wanted = [tuple(sample.values) for sample in other.samples]
            count += len(wanted)
            for found in _found(session, key, wanted):
                same = next((one for one in wanted if one == found or _equal(target, key, one, found)), None)
                if same is not None:
                    theirs = pb.KeyShard()
                    theirs.CopyFrom(other)
                    del theirs.samples[:]
                    clashes.append(pb.KeyClash(sampled=theirs, other=own, key=pb.KeyValues(values=[key.shown(found)])))
    return clashes, count


def _meets(own: pb.KeyShard, other: pb.KeyShard) -> bool:
    """Whether these are two shard tables of one target, with keys that can be compared."""
    targets = ((one.target_schema, one.target_table, tuple(one.columns), one.form) for one in (own, other))
    tables = ((one.source, one.schema, one.table) for one in (own, other))
    return len(set(targets)) == 1 and len(set(tables)) == 2 and bool(own.form)


def _found(session: Session, key: MergedKey, wanted: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    conditions: list[str] = []
    for values in wanted:
        originals = [column.unmapped(value) for column, value in zip(key.columns, values, strict=True)]
        parts = [
            f"{column.name} = {column.literal(original)}"
            for column, original in zip(key.columns, originals, strict=True)
            if original is not None
        ]
        if len(parts) == len(key.columns):
            conditions.append(f"({' AND '.join(parts)})")
    listed = ", ".join(column.read for column in key.columns)
    for start in range(0, len(conditions), _KEYS_AT_ONCE):
        some = " OR ".join(conditions[start : start + _KEYS_AT_ONCE])
        for row in rows(session, f"SELECT {listed} FROM {key.full_name} WHERE {some} LIMIT {_SAME}"):
            yield key.mapped(text_of(value) for value in row)


def _equal(target: Session | None, key: MergedKey, one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether the target treats two keys with different texts as equal."""
    if target is None:
        return False
    for column, left, right in zip(key.columns, one, other, strict=True):
        if left == right:
            continue
        if not column.collation:
            return False
        charset = column.collation.partition("_")[0]
        sides = (f"CONVERT(_utf8mb4 X'{text}' USING {charset}) COLLATE {column.collation}" for text in (left, right))
        try:
            [(same,)] = rows(target, f"SELECT {' = '.join(sides)}")
        except pymysql.MySQLError as error:
            if errno_of(error) not in NO_SUCH_COLLATION:
                raise
            return False  # its fallback collation distinguishes more
        if not same:
            return False
    return True

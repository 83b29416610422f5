"""Assigns a key to its lane by a hash. Pure; the result is the same in every process."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.table import EXACT_KINDS, Column, ValueKind
from shardmerge.worker.core.table_plan import TablePlan


@dataclass(frozen=True, slots=True)
class Bucket:
    """Lane ``lane`` of ``lanes``."""

    lane: int
    lanes: int


ONLY_LANE = Bucket(0, 1)


def _is_byte_exact(column: Column) -> bool:
    """Whether values that are equal at the target have equal literals.

    They do not for text ('a' = 'A' under most collations) and floating point (0 = -0): two such keys
    must go to the same lane, so these columns are not part of the hash.
    """
    return column.kind in EXACT_KINDS or (column.kind is ValueKind.STRING and column.collation.endswith("_bin"))


def hash_indexes(plan: TablePlan) -> tuple[int, ...]:
    """Indexes of the key columns whose literals determine the lane; () sends the whole table to one lane."""
    if plan.one_lane or plan.lane_group:
        return ()
    return tuple(at for at, index in enumerate(plan.key) if _is_byte_exact(plan.columns[index].column))


def crc_seed(plan: TablePlan) -> int:
    """The start value of a key's hash: CRC-32 of the quoted target name, of the former one, or of the name of its
    group."""
    return zlib.crc32((plan.lane_group or plan.hash_name or plan.target_name).encode())


@dataclass(frozen=True, slots=True)
class LaneHash:
    """The hash that assigns keys to lanes; the reader of row images computes the same without literals."""

    seed: int
    indexes: tuple[int, ...]

    def lane(self, key: Literals, lanes: int) -> int:
        """``key``: of the target; () for a row of a table without a key: all such rows go to one lane."""
        value = self.seed
        for index in self.indexes:
            value = zlib.crc32(key[index], value)
        return value % lanes


def lane_hash(plan: TablePlan) -> LaneHash:
    """The hash for the plan's target. Make it once for many keys: it takes longer than to compute a key's lane."""
    return LaneHash(crc_seed(plan), hash_indexes(plan))


def lane_of(plan: TablePlan, key: Literals, lanes: int) -> int:
    """The lane of one key of ``plan``'s target."""
    return lane_hash(plan).lane(key, lanes)

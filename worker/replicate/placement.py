"""Which lane applies a key: pure, and the same in every process."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from worker.plan import TablePlan
from worker.rows import Literals
from worker.table import EXACT_KINDS, Column, ValueKind


@dataclass(frozen=True, slots=True)
class Bucket:
    """Lane ``lane`` of ``lanes``."""

    lane: int
    lanes: int


ONLY_LANE = Bucket(0, 1)


def _is_byte_exact(column: Column) -> bool:
    """Equal at the target means equal literals.

    Not so for text ('a' = 'A' under most collations) and floating point (0 = -0): two such keys
    must meet in one lane, so these columns take no part in the hash.
    """
    return column.kind in EXACT_KINDS or (column.kind is ValueKind.STRING and column.collation.endswith("_bin"))


def hash_indexes(plan: TablePlan) -> tuple[int, ...]:
    """Positions inside the key whose literals decide the lane; () sends the whole table to one lane."""
    if plan.one_lane:
        return ()
    return tuple(at for at, index in enumerate(plan.key) if _is_byte_exact(plan.columns[index].column))


def crc_seed(plan: TablePlan) -> int:
    """Where the hash of a key begins: CRC-32 of the quoted target name."""
    return zlib.crc32(plan.target_name.encode())


@dataclass(frozen=True, slots=True)
class KeyHash:
    """What decides the lane of keys; the row images' reader computes the same without literals."""

    seed: int
    indexes: tuple[int, ...]

    def lane(self, key: Literals, lanes: int) -> int:
        """``key``: of the target; () for a row of a table without a key, which all go to one lane."""
        value = self.seed
        for index in self.indexes:
            value = zlib.crc32(key[index], value)
        return value % lanes


def key_hash(plan: TablePlan) -> KeyHash:
    """Of the plan's target. Made once for many keys: it takes longer than a key's lane."""
    return KeyHash(crc_seed(plan), hash_indexes(plan))


def lane_of(plan: TablePlan, key: Literals, lanes: int) -> int:
    """The lane of one key of ``plan``'s target."""
    return key_hash(plan).lane(key, lanes)

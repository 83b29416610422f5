"""Checks the merged table: compares each shard table with its part of it, by count and checksum."""

from __future__ import annotations

from tests.benchmarks.sysbench import SCHEMA
from tests.benchmarks.task import MERGED, ORIGINAL_BITS, merged_id
from tests.benchmarks.world import World, say

_ORIGINAL = (1 << ORIGINAL_BITS) - 1
_SUMS = "COUNT(*), COALESCE(SUM({id}), 0), COALESCE(BIT_XOR(CRC32(CONCAT_WS('#', {id}, k, c, pad))), 0)"


def differences(world: World) -> tuple[int, list[str]]:
    """Return the number of compared rows, and the shard tables whose part differs; the sources must be quiet."""
    world.wait_applied()
    say("comparing")
    rows = 0
    found: list[str] = []
    for number, server in enumerate(world.sources, 1):
        for table in range(1, world.settings.tables + 1):
            [wanted] = server.query(f"SELECT {_SUMS.format(id='id')} FROM {SCHEMA}.sbtest{table}")
            first = merged_id(number, table, 0)
            [there] = world.target.query(
                f"SELECT {_SUMS.format(id=f'(id & {_ORIGINAL})')} FROM {MERGED} "
                f"WHERE id BETWEEN {first} AND {first | _ORIGINAL}"
            )
            rows += int(str(wanted[0]))
            if [str(value) for value in wanted] != [str(value) for value in there]:
                found.append(f"sbtest{table} of source {number}: {wanted} there, {there} at the target")
    return rows, found

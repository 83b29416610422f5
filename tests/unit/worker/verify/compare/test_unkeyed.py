"""Which shard tables without a key are compared together, and how their sums are added up."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.verify.compare.compared_tables import UnkeyedTables, unkeyed_tables
from shardmerge.worker.verify.compare.unkeyed import added_sums
from tests.unit.worker.target.tables.test_row_ownership import TARGET, shard

NO_KEY = replace(TARGET, key=(), key_name="", unique_keys=())


def plan(number: int) -> TablePlan:
    return replace(shard(number, None), key=())


def why(plans: list[TablePlan], target: Table | None, everyone: list[TablePlan] | str) -> list[str]:
    found = unkeyed_tables(plans, target, everyone)
    assert isinstance(found, list)
    return [item.why for item in found]


def test_all_shard_tables_of_the_target_are_counted() -> None:
    mine, other, elsewhere = [plan(0), plan(1)], plan(2), replace(plan(3), target_table="elsewhere")
    found = unkeyed_tables(mine, NO_KEY, [*mine, other, elsewhere])
    assert isinstance(found, UnkeyedTables)
    assert (found.plans, found.shard_tables) == (tuple(mine), 3)
    assert len(list(found.source_sums())) == 2
    assert found.target_sums().endswith(f"FROM {mine[0].target_name}".encode())


def test_why_a_table_is_not_compared() -> None:
    assert why([plan(0)], NO_KEY, "source s2 does not replicate yet") == [
        "it has no key, and source s2 does not replicate yet"
    ]
    assert why([plan(0), plan(1)], None, [plan(0), plan(1)]) == ["the target table does not exist"] * 2


def test_sums_of_several_tables_are_added_up() -> None:
    rows: list[list[bytes | None]] = [
        [b"3", b"3", b"18446744073709551615", b"1"],
        [b"2", b"1", b"5", b"0"],
        [b"0", b"0", b"0", b"0"],
    ]
    sums = added_sums(iter(rows))
    assert (sums.rows, sums.first, sums.second) == (5, str((1 << 64) + 4), "1")
    assert sums.without_checksum == 1

"""Tests which shard table an id belongs to: only if its range is of one of them."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.worker.core.table_plan import PartitionId, TargetTable
from shardmerge.worker.target.members.target_members import TargetMembers
from tests.support.plans import integer, table_plan

_ORDERS = TargetTable("shop", "orders")


def _plan(number: int, *, is_shared: bool = False) -> TargetMembers:
    plan = table_plan(
        (integer(),), (0,), shard=number, name=f"order_{number}", mapping=PartitionId(number << 44, 44, is_shared)
    )
    return TargetMembers({number: plan}, (), (), (), ())


def test_an_id_has_the_shard_table_of_its_range() -> None:
    one, two = _plan(1), _plan(2)
    both = replace(one, same_task=tuple(two.own.values()))
    found = both.owner_of(_ORDERS, (2 << 44) + 17)
    assert found is not None and found.table.name == "order_2"
    assert both.owner_of(_ORDERS, (3 << 44) + 17) is None
    assert both.owner_of(TargetTable("shop", "other"), (2 << 44) + 17) is None


def test_ranges_of_several_tables_name_none() -> None:
    one, two = _plan(1), _plan(1)
    renamed = replace(two.own[1], source="mysql-02")
    assert replace(one, other_tasks=(renamed,)).owner_of(_ORDERS, 1 << 44) is None
    assert _plan(1, is_shared=True).owner_of(_ORDERS, 1 << 44) is None

"""A subtask's records after a statement."""

from __future__ import annotations

from dataclasses import replace

from shardmerge.proto import config_pb2
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.decide.barrier_state import BarrierChanges, StreamTables
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.target.records.partitioning import Partitioning
from tests.support.plans import integer, table_plan

RULES = Rules.from_config(config_pb2.SubTaskConfig(task="t", source_id="mysql-01"))
OTHERS = frozenset({("d", "joins"), ("d", "else")})


def plan(number: int, name: str, target: str = "", *, one_lane: bool = False) -> TablePlan:
    made = table_plan((integer(),), (0,), shard=number, schema="d", name=name, one_lane=one_lane)
    return replace(made, target_table=target or name)


def standing(*plans: TablePlan, tables: int | None = None) -> StreamTables:
    """``tables``: how many there are, those of the past too."""
    known = {made.shard: made.table for made in plans}
    past = plan(0, "past").table
    count = len(plans) if tables is None else tables
    dealing = Partitioning(2, frozenset(p.target_name for p in plans if p.one_lane), frozenset(known), "{}")
    return StreamTables(
        tuple(known.get(number, past) for number in range(count)),
        {made.shard: made for made in plans},
        dealing,
        TableScope(RULES, OTHERS),
    )


def creation(text: str = "") -> CreateStatement:
    return CreateStatement(text, "utf8mb4_bin")


def test_new_tables_get_numbers_after_all_former_ones() -> None:
    passing = BarrierChanges(standing(plan(1, "b"), tables=4))
    assert passing.next_number == 4
    passing.set_structure(plan(4, "new"), creation())
    assert passing.next_number == 5
    passing.set_structure(plan(1, "b2"), creation())
    assert passing.next_number == 5
    passing.set_structure(plan(5, "newer"), creation())
    assert passing.next_number == 6
    result = passing.apply()
    assert [table.name for table in result.tables] == ["past", "b2", "past", "past", "new", "newer"]
    assert sorted(result.plans) == [1, 4, 5]
    assert result.partitioning.shards == {1, 4, 5}


def test_no_change_keeps_everything() -> None:
    before = standing(plan(0, "a", one_lane=True), plan(1, "b"))
    assert BarrierChanges(before).apply() == before


def test_a_removed_table_keeps_its_number() -> None:
    passing = BarrierChanges(standing(plan(0, "a", one_lane=True), plan(1, "b")))
    passing.removed.add(0)
    passing.set_structure(plan(2, "a"), creation())
    result = passing.apply()
    assert sorted(result.plans) == [1, 2]
    assert len(result.tables) == 3
    assert result.partitioning.shards == {1, 2}
    assert result.partitioning.one_lane == frozenset()


def test_a_targets_facts_are_those_of_all_its_shard_tables() -> None:
    before = standing(plan(0, "a", "all"), plan(1, "b", "all"), plan(2, "c", one_lane=True))
    passing = BarrierChanges(before)
    passing.set_structure(plan(1, "b", "all"), creation())
    passing.one_lane[TargetTable("shop", "all")] = True
    result = passing.apply()
    assert [made.one_lane for made in result.plans_in_order] == [True, True, True]
    assert result.partitioning.one_lane == {plan(0, "a", "all").target_name, plan(2, "c").target_name}
    passing.one_lane[TargetTable("shop", "c")] = False
    assert [made.one_lane for made in passing.apply().plans_in_order] == [True, True, False]


def test_merged_streams() -> None:
    own = standing(plan(0, "a"), plan(1, "b"), tables=4)
    joined = standing(plan(2, "joins", one_lane=True), tables=4)
    both = own.with_joined(joined)
    assert [table.name for table in both.tables] == ["a", "b", "joins", "past"]
    assert sorted(both.plans) == [0, 1, 2]
    assert both.partitioning.shards == {0, 1, 2}
    assert both.partitioning.one_lane == {plan(2, "joins").target_name}
    assert both.scope.others == {("d", "else")}

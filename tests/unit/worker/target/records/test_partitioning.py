"""The steps from recorded lanes to wanted lanes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.proto import config_pb2, errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.lane_hash import lane_of
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.partitioning import (
    DrainTo,
    Growing,
    Keep,
    LeavingTable,
    Partitioning,
    Repartition,
    merge_partitionings,
    next_step,
    partitioning_for,
    repartitioned,
)
from tests.support.plans import integer, table_plan, text

SPREAD = table_plan((integer(), text("v")), (0,))
ONE = replace(SPREAD, one_lane=True)
CONFIG = config_pb2.SubTaskConfig(
    task="t",
    source_id="s",
    meta_schema="dm_meta",
    target=config_pb2.Endpoint(host="h", user="u", password="secret"),
    block_allow_list=config_pb2.BlockAllowList(name="b", do_dbs=["shard"]),
)
DEALING = partitioning_for(CONFIG, 2, [SPREAD])


def at(lane: int, byte: int, skip: int = 0, seq: int = 0) -> Checkpoint:
    offset = RelayOffset(1, byte)
    return Checkpoint(lane, 1, seq, "relay", offset, skip, SourcePosition("bin.000001", byte), 0.0)


SAME = (at(0, 100), at(1, 100))
APART = (at(0, 100), at(1, 200))


def end_of_group(offset: RelayOffset) -> RelayOffset:
    return RelayOffset(offset.segment, offset.byte + 50)


def step(
    found: tuple[Checkpoint, ...], recorded: Partitioning | None, wanted: Partitioning
) -> Keep | Repartition | DrainTo:
    return next_step(found, recorded, wanted, "s", end_of_group)


OTHERS = [
    replace(DEALING, lanes=3),
    partitioning_for(CONFIG, 2, [ONE]),
    partitioning_for(config_pb2.SubTaskConfig(task="t", case_sensitive=True), 2, [SPREAD]),
    replace(DEALING, shards=frozenset({0, 1})),
]


def test_nothing_changed() -> None:
    assert step(APART, DEALING, DEALING) == Keep()
    assert step(APART, Partitioning.from_json(DEALING.to_json()), DEALING) == Keep()


@pytest.mark.parametrize("wanted", OTHERS)
def test_lanes_at_one_place_are_dealt_anew_there(wanted: Partitioning) -> None:
    assert step(SAME, DEALING, wanted) == Repartition(SAME[0])


@pytest.mark.parametrize("wanted", OTHERS)
def test_lanes_apart_meet_where_the_furthest_is(wanted: Partitioning) -> None:
    assert step(APART, DEALING, wanted) == DrainTo(RelayOffset(1, 200))


def test_a_barrier_is_no_place_inside_a_group() -> None:
    inside = (at(0, 100), at(1, 100, skip=3))
    assert step(inside, DEALING, OTHERS[0]) == DrainTo(RelayOffset(1, 150))
    assert step((at(0, 90, skip=7), at(1, 100)), DEALING, OTHERS[0]) == DrainTo(RelayOffset(1, 140))


def test_the_first_start_records_it() -> None:
    assert Partitioning.from_json("") is None
    assert step(SAME, None, DEALING) == Repartition(SAME[0])
    assert step((at(0, 100),), None, DEALING) == Repartition(at(0, 100))


def test_another_version_dealt_them() -> None:
    other = replace(DEALING, version=0)
    assert step(SAME, other, DEALING) == Repartition(SAME[0])
    with pytest.raises(ShardmergeError) as caught:
        step(APART, other, DEALING)
    assert caught.value.spec is errors.replicate.LANES_MOVED


@pytest.mark.parametrize("found", [(at(0, 100),), (at(0, 100), at(2, 100)), (*SAME, at(2, 100))])
def test_checkpoints_that_are_not_those_of_the_record(found: tuple[Checkpoint, ...]) -> None:
    with pytest.raises(ShardmergeError) as caught:
        step(found, DEALING, DEALING)
    assert caught.value.spec is errors.replicate.LANES_MISSING


def test_no_task_of_the_old_lanes_can_commit_on_the_new_ones() -> None:
    """A commit names the sequence number it found."""
    found = (at(0, 200, seq=4), at(1, 200, seq=9))
    following = repartitioned(found, found[0], 3, 7)
    assert [item.lane for item in following] == [0, 1, 2]
    assert {item.seq for item in following} == {10}
    assert {(item.offset, item.epoch) for item in following} == {(RelayOffset(1, 200), 7)}


def test_the_record_holds_the_rules_and_no_secret() -> None:
    assert "secret" not in DEALING.to_json()
    assert DEALING.compiled_rules().block_allow.passes("shard", "t")
    assert not DEALING.compiled_rules().block_allow.passes("other", "t")


def test_where_it_begins_and_ends_is_no_matter_of_dealing() -> None:
    ended = config_pb2.SubTaskConfig()
    ended.CopyFrom(CONFIG)
    ended.start_at.earliest = True
    ended.stop_at.time = "2026-01-02 03:04:05"
    assert partitioning_for(ended, 2, [SPREAD]) == DEALING


def test_old_plans_are_made_of_the_record_alone() -> None:
    table = replace(SPREAD.table, schema="shard")
    [plan] = partitioning_for(CONFIG, 2, [SPREAD]).plans("s", (table,))
    assert (plan.shard, plan.one_lane) == (0, False)
    [plan] = replace(DEALING, one_lane=frozenset({plan.target_name})).plans("s", (table,))
    assert plan.one_lane
    assert DEALING.plans("s", (replace(table, schema="other"),)) == ()
    assert replace(DEALING, shards=frozenset({1})).plans("s", (table,)) == ()


def test_keys_keep_their_lanes_when_a_target_is_renamed() -> None:
    """Until all lanes are at one position; an earlier version, which would compute other lanes, cannot read it."""
    table = replace(SPREAD.table, schema="shard")
    recorded = partitioning_for(CONFIG, 8, [SPREAD])
    routed = config_pb2.SubTaskConfig()
    routed.CopyFrom(CONFIG)
    routed.routes.add(name="r", schema_pattern="shard", table_pattern="*", target_schema="all", target_table="new")
    [before] = recorded.plans("s", (table,))
    wanted = partitioning_for(routed, 8, [])
    renamed = recorded.with_renamed(before.target, TargetTable("all", "new"), wanted.rules)
    [after] = renamed.plans("s", (table,))
    assert after.target == TargetTable("all", "new")
    keys = [(str(number).encode(),) for number in range(100)]
    assert [lane_of(before, key, 8) for key in keys] == [lane_of(after, key, 8) for key in keys]
    assert [lane_of(before, key, 8) for key in keys] != [lane_of(replace(after, hash_name=""), key, 8) for key in keys]
    assert isinstance(
        step(tuple(at(lane, lane) for lane in range(8)), renamed, replace(wanted, shards=renamed.shards)), DrainTo
    )
    assert wanted.inherit(renamed).former_names == ()
    assert Partitioning.from_json(renamed.to_json()) == renamed
    assert '"version":"1+renamed"' in renamed.to_json()
    again = renamed.with_renamed(after.target, before.target, recorded.rules)
    assert [lane_of(again.plans("s", (table,))[0], key, 8) for key in keys] == [lane_of(before, key, 8) for key in keys]


def test_a_renamed_target_keeps_its_only_lane() -> None:
    one = replace(DEALING, one_lane=frozenset({"`a`.`b`", "`a`.`c`"}))
    renamed = one.with_renamed(TargetTable("a", "b"), TargetTable("a", "d"), one.rules)
    assert renamed.one_lane == {"`a`.`d`", "`a`.`c`"}


def test_a_target_keeps_one_lane_while_a_shard_table_has_a_further_key() -> None:
    further = table_plan((integer(), text("v")), (0,), unique_keys=(("id",), ("v",)))
    other = table_plan((integer(), text("v")), (0,), shard=1, unique_keys=(("id",),))
    one = replace(DEALING, one_lane=frozenset({further.target_name}))
    assert [plan.one_lane for plan in one.keep_one_lane((further, other))] == [True, True]
    assert [plan.one_lane for plan in one.keep_one_lane((other,))] == [False], "no shard table has the key any more"
    assert [plan.one_lane for plan in DEALING.keep_one_lane((further, other))] == [False, False]


PLACE = StatementPlace(SourcePosition("bin.000001", 70, "", "server"), 40)
LEFT = replace(DEALING, leaving=(LeavingTable(SPREAD.shard, PLACE, one_lane=True),))

GROWN = replace(DEALING, growing=(Growing(SPREAD.shard, SourcePosition("bin.000001", 150), ("v",)),))


def test_a_record_is_read_as_it_was_written() -> None:
    for record in (DEALING, LEFT, GROWN):
        assert Partitioning.from_json(record.to_json()) == record


def test_tables_that_leave_are_those_that_are_parked_at_this_place() -> None:
    tables = (replace(SPREAD.table, schema="shard"),)
    [plan] = LEFT.leaving_plans("s", tables, {0: PLACE})
    assert (plan.shard, plan.one_lane) == (0, True)
    elsewhere = replace(PLACE, at=41)
    for places in ({}, {0: elsewhere}, {1: PLACE}):
        assert LEFT.leaving_plans("s", tables, places) == ()


def test_a_statement_is_passed_when_all_lanes_have_passed_it() -> None:
    [grown] = GROWN.growing
    assert not grown.is_passed(SAME)
    assert not grown.is_passed(APART)
    assert grown.is_passed((at(0, 150), at(1, 200)))


def test_other_rules_keep_the_tables_that_grow() -> None:
    assert OTHERS[0].inherit(GROWN).growing == GROWN.growing
    assert merge_partitionings(GROWN, DEALING).growing == GROWN.growing


def test_other_rules_keep_the_tables_that_leave() -> None:
    assert OTHERS[0].inherit(LEFT).leaving == LEFT.leaving
    assert step(APART, LEFT, DEALING.inherit(LEFT)) == Keep()


def test_a_table_that_has_joined_no_longer_leaves() -> None:
    other = replace(DEALING, shards=frozenset({7}))
    assert merge_partitionings(LEFT, other).leaving == LEFT.leaving
    assert merge_partitionings(LEFT, DEALING).leaving == ()

"""Which blocks are split for lanes, and that a lane gets a whole block where its share is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import config_pb2
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.core.batch import Batch
from shardmerge.worker.core.lane_hash import Bucket
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.relay.model import BlockData, GroupStart
from shardmerge.worker.replicate import lane_shares
from shardmerge.worker.replicate.lane.lane_change import LaneChange, LanePlans, LaterPlan
from shardmerge.worker.replicate.lane_shares import LaneShares
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.rules.table_window import TableWindow
from tests.support.binlog import only
from tests.unit.worker.binlog.test_decoder import BINLOG, GTID, SMALL, XID, contents, insert, table_map

_LANES = 3
_GROUPS = b"".join(GTID + table_map() + insert(number) + XID for number in range(30))


def _block(start: int, events: bytes = _GROUPS) -> BlockData:
    begin = RelayOffset(1, start)
    return BlockData(
        begin, RelayOffset(1, start + len(events)), True, begin, 0, SourcePosition("f.1", start), 1.0, events
    )


_RULES = Rules.from_config(
    config_pb2.SubTaskConfig(
        task="t", source_id="s", routes=[config_pb2.RouteRule(schema_pattern="d", target_schema="m", target_table="m")]
    )
)


def _scope(only: frozenset[tuple[str, str]] | None = None) -> TableScope:
    return TableScope(_RULES, only=only)


def _plans(*plans: TablePlan, windows: tuple[TableWindow, ...] = (), later: tuple[LaterPlan, ...] = ()) -> LanePlans:
    return LanePlans.of(plans, _scope(frozenset()), windows, later)


def _shares(plans: LanePlans, begin: RelayOffset | None = None) -> LaneShares:
    return LaneShares("s1", _LANES, plans, lambda _: BINLOG.format_description, begin)


def _all(shares: LaneShares, block: BlockData) -> list[bytes]:
    return [shares.of(lane, block) for lane in range(_LANES)]


def _is_split(parts: list[bytes], events: bytes = _GROUPS) -> bool:
    """Whether each event was sent to one lane; False: all of them to each."""
    if all(part == events for part in parts):
        return False
    assert sum(map(len, parts)) == len(events)
    return True


def test_each_block_is_split_once() -> None:
    shares = _shares(_plans(SMALL))
    first, second = _block(100), _block(100 + len(_GROUPS))
    assert _is_split(_all(shares, first))
    # The first lane is ahead of the others.
    ahead = shares.of(0, second)
    assert shares.of(2, second) != ahead
    assert shares.of(1, second) not in (ahead, _GROUPS)
    assert shares.of(1, second) == _GROUPS, "a share is taken once"
    assert shares.of(1, first) == _GROUPS, "earlier blocks are not split again"


_STARTS = [len(_GROUPS) // 30 * number for number in range(31)]
"""Where groups begin in _GROUPS; all are as long."""


@given(st.lists(st.tuples(st.integers(0, _LANES - 1), st.integers(1, 12)), max_size=60), st.integers(0, 3))
def test_lanes_with_other_blocks_find_the_same_changes(steps: list[tuple[int, int]], held_groups: int) -> None:
    """Each step: a lane gets the next so many groups as one block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane_shares, "_MOST_BYTES", held_groups * _STARTS[1])
        shares = _shares(_plans(SMALL))
        reached, found = [0] * _LANES, [b""] * _LANES
        for lane, count in [*steps, *((lane, 30) for lane in range(_LANES))]:
            begin, end = reached[lane], min(reached[lane] + count, 30)
            if begin < end:
                block = _block(100 + _STARTS[begin], _GROUPS[_STARTS[begin] : _STARTS[end]])
                found[lane] += shares.of(lane, block)
                reached[lane] = end
    for lane in range(_LANES):
        assert contents(_picked(found[lane], lane)) == contents(_picked(_GROUPS, lane))


def _picked(events: bytes, lane: int) -> Batch:
    batch = Batch(lane, _LANES, "f")
    decoder = BlockDecoder(only(SMALL), source="s1", bucket=Bucket(lane, _LANES), filters=True)
    decoder.open(BINLOG.format_description)
    decoder.pick(events, 0, "f", batch)
    return batch


def test_a_lane_with_larger_blocks_takes_the_shares_of_smaller_ones() -> None:
    shares = _shares(_plans(SMALL))
    parts = [shares.of(0, _block(100 + _STARTS[at], _GROUPS[_STARTS[at] : _STARTS[at + 10]])) for at in (0, 10, 20)]
    whole = _block(100)
    assert _is_split([b"".join(parts), shares.of(1, whole), shares.of(2, whole)])
    assert shares.of(2, whole) == _GROUPS


@pytest.mark.parametrize(
    "block",
    [
        replace(_block(100), ends_group=False),
        replace(_block(100), group_start=RelayOffset(1, 50), first_event=4),
        replace(_block(100), places=(GroupStart(0, 100),)),
        replace(_block(100), end=RelayOffset(1, 101)),
    ],
)
def test_blocks_of_which_a_lane_counts_the_events_are_whole(block: BlockData) -> None:
    assert _all(_shares(_plans(SMALL)), block) == [_GROUPS] * _LANES


def test_blocks_that_a_hand_over_filters_are_whole() -> None:
    shares = _shares(_plans(SMALL), begin=RelayOffset(1, 101))
    assert not _is_split(_all(shares, _block(100)))
    assert _is_split(_all(shares, _block(100 + len(_GROUPS))))


def test_a_table_outside_its_window_is_sent_to_no_lane() -> None:
    name, size = (SMALL.table.schema, SMALL.table.name), len(_GROUPS)
    opens = TableWindow(name, RelayOffset(1, 100 + size), RelayOffset(1, 100 + 2 * size))
    shares = _shares(_plans(SMALL, windows=(opens,)))
    assert _all(shares, _block(100)) == [b""] * _LANES
    assert _is_split(_all(shares, _block(100 + size)))
    assert _all(shares, _block(100 + 2 * size)) == [b""] * _LANES


def test_plans_change_where_the_lanes_change_them() -> None:
    size = len(_GROUPS)
    # Another target: other lanes for the same keys.
    other, third = replace(SMALL, target_table="other"), replace(SMALL, target_table="third")
    expected = {plan.target_table: _all(_shares(_plans(plan)), _block(100)) for plan in (SMALL, other, third)}
    assert len({tuple(parts) for parts in expected.values()}) == 3
    before = _plans(SMALL, later=(LaterPlan(RelayOffset(1, 100 + size), other),))
    shares = _shares(before)
    assert _all(shares, _block(100)) == expected[SMALL.target_table]
    assert _all(shares, _block(100 + size)) == expected["other"]
    change, _ = LaneChange.between(before, (third,), before.scope)
    for _ in range(_LANES):
        shares.change(change.to_bytes())
    assert _all(shares, _block(100 + 2 * size)) == expected["third"]


def test_an_unknown_table_and_a_damaged_block_reach_the_lanes() -> None:
    shares = _shares(LanePlans.of((), _scope()))
    assert _all(shares, _block(100)) == [_GROUPS] * _LANES
    assert _all(shares, _block(100 + len(_GROUPS))) == [_GROUPS] * _LANES
    damaged = _GROUPS[:-1] + bytes([_GROUPS[-1] ^ 1])
    assert _all(_shares(_plans(SMALL)), _block(100, damaged)) == [damaged] * _LANES


def test_a_lane_that_lags_far_gets_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_shares, "_MOST_BYTES", 2 * len(_GROUPS))
    shares, size = _shares(_plans(SMALL)), len(_GROUPS)
    blocks = [_block(100 + number * size) for number in range(10)]
    for block in blocks:
        shares.of(0, block)
    found = [shares.of(1, block) for block in blocks]
    assert found[0] == _GROUPS
    assert _GROUPS not in found[-2:]

"""A key's lane changes only where all lanes stand at the same place."""

from __future__ import annotations

import pytest

from proto import errors
from proto.errors import ShardmergeError
from tests.support.plans import integer, table_plan, text
from worker.plans import keep_lanes
from worker.position import RelayOffset, SourcePosition
from worker.replicate.checkpoint import Checkpoint

SPREAD = table_plan((integer(), text("v")), (0,))
ONE = table_plan((integer(), text("v")), (0,), one_lane=True)
NAME = SPREAD.target_name


def at(lane: int, pos: int, skip: int = 0) -> Checkpoint:
    return Checkpoint(lane, 1, 0, "relay", RelayOffset(1, pos), skip, SourcePosition("bin.000001", pos), 0.0)


SAME = (at(0, 100), at(1, 100))
APART = (at(0, 100), at(1, 200))


def test_one_lane_stays_when_the_unique_key_is_gone() -> None:
    [kept] = keep_lanes((SPREAD,), frozenset({NAME}), APART)
    assert kept.one_lane


def test_a_new_unique_key_is_taken_where_the_lanes_stand_together() -> None:
    [kept] = keep_lanes((ONE,), frozenset(), SAME)
    assert kept.one_lane


@pytest.mark.parametrize("apart", [APART, (at(0, 100), at(1, 100, skip=3))])
def test_a_new_unique_key_is_refused_where_they_do_not(apart: tuple[Checkpoint, ...]) -> None:
    with pytest.raises(ShardmergeError) as caught:
        keep_lanes((ONE,), frozenset(), apart)
    assert caught.value.spec is errors.replicate.LANES_MOVED
    assert "orders" in caught.value.message


def test_nothing_new_nothing_moved() -> None:
    assert keep_lanes((SPREAD,), frozenset(), APART) == (SPREAD,)
    assert keep_lanes((ONE,), frozenset({NAME}), APART) == (ONE,)

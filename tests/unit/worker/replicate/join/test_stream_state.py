"""Where two streams may become one."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.replicate.join.stream_state import is_after_statements, is_one_place
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.ddl_progress import StatementPlace


def stands(pos: int, *, lane: int = 0, skip: int = 0) -> Checkpoint:
    return Checkpoint(lane, 7, 3, "relay", RelayOffset(1, pos), skip, place(pos), 0.0)


def place(pos: int) -> SourcePosition:
    return SourcePosition("bin.000001", pos, "", "one")


def passed(pos: int) -> StatementPlace:
    return StatementPlace(place(pos), 40)


def test_lanes_stand_at_one_place_or_not() -> None:
    assert is_one_place([stands(9), stands(9, lane=1)])
    assert not is_one_place([stands(9), stands(10, lane=1)])
    assert not is_one_place([stands(9), stands(9, lane=1, skip=1)])


@pytest.mark.parametrize(
    ("last", "is_behind"),
    [((None, None), True), ((passed(8), None), True), ((passed(8), passed(9)), False), ((passed(9), None), False)],
)
def test_of_a_statement_right_there_it_is_not_told_on_which_side_a_stream_stands(
    last: tuple[StatementPlace | None, ...], *, is_behind: bool
) -> None:
    assert is_after_statements([stands(9), stands(9, lane=1)], last) is is_behind

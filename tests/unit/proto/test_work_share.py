from __future__ import annotations

import pytest

from shardmerge.proto.work_share import WorkShare


def test_single_changes_are_handled_at_once() -> None:
    limit = WorkShare(share=0.25, burst=0.5, longest=1.0)
    assert [limit.pause(at, at + 0.1) for at in (0.0, 10.0, 10.2, 10.4)] == [0.0] * 4


def test_a_loop_that_always_has_work_works_for_its_share() -> None:
    limit = WorkShare(share=0.25, burst=0.5, longest=1.0)
    now = worked = 0.0
    while now < 1000:
        pause = limit.pause(now, now + 0.1)
        worked += 0.1
        now += 0.1 + pause
    assert worked / now == pytest.approx(0.25, abs=0.01)


def test_no_pause_is_longer_than_the_longest() -> None:
    limit = WorkShare(share=0.1, burst=0.0, longest=0.3)
    assert limit.pause(0.0, 5.0) == 0.3

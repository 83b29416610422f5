"""A relay log has caught up with an end that was told before, not with one that may be told too early."""

from __future__ import annotations

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.daemon.source.caught_up import CaughtUp


def _at(pos: int, server: str = "one") -> SourcePosition:
    return SourcePosition("bin.000001", pos, "", server)


def test_it_has_come_to_an_end_that_was_noted_before() -> None:
    asked = CaughtUp()
    assert not asked.has(_at(900), SourcePosition("", 0)), "the source has told nothing"
    assert not asked.has(_at(900), _at(500)), "the end may be older than what the log before has"
    assert not asked.has(_at(499), _at(700))
    assert asked.has(_at(500), _at(800)), "the source goes on and on"
    assert asked.has(_at(40, "two"), _at(40, "two")) is False, "another server's files tell nothing of it"


def test_after_a_fail_over_the_end_of_the_server_at_hand_counts() -> None:
    asked = CaughtUp()
    assert not asked.has(_at(100), _at(500))
    assert not asked.has(_at(100), _at(50, "two"))
    assert not asked.has(_at(100), _at(60, "two"))
    assert not asked.has(_at(49, "two"), _at(60, "two"))
    assert asked.has(_at(50, "two"), _at(60, "two"))

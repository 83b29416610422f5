"""Lag in time: never below zero, never older than it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.replicate.lag import (
    AppliedThrough,
    AppliedTransaction,
    CatchUp,
    SourceProgress,
    age_ms,
    unfetched_bytes,
    worst_lag_ms,
)


def at(pos: int, file: int = 1) -> SourcePosition:
    return SourcePosition(f"bin.{file:06d}", pos)


def test_a_target_with_a_slow_clock_gives_no_negative_lag() -> None:
    assert AppliedTransaction(100.0, 99.0).lag_ms == 0
    assert AppliedTransaction(100.0, 100.25).lag_ms == pytest.approx(250)


def test_the_worst_of_the_lanes_that_have_just_applied_something() -> None:
    long_ago = AppliedTransaction(0.5, 60.5)
    assert worst_lag_ms(
        [AppliedTransaction(999.0, 1000.0), AppliedTransaction(999.5, 1000.0), long_ago]
    ) == pytest.approx(1000)
    assert worst_lag_ms([long_ago]) == pytest.approx(60_000)
    assert worst_lag_ms([AppliedTransaction(0.0, 0.0)]) == 0


def test_the_age_of_a_transaction_known_by_its_second_only() -> None:
    assert age_ms(110.5, 100.0, 0.0) == pytest.approx(10_500)
    assert age_ms(100.66, 100.0, 100.65) == pytest.approx(10), "the one before it committed at .65"
    assert age_ms(110.5, None, 0.0) == 0
    assert age_ms(99.0, 100.0, 0.0) == 0


def test_the_lag_grows_while_nothing_is_applied_and_the_source_writes_or_does_not_answer() -> None:
    through = AppliedThrough()
    assert through.seconds(100.0, at(100)) is None
    through.add(100.0, 2.5, None)
    assert through.seconds(130.0, at(100)) == pytest.approx(32.5)
    through.add(140.0, 0.0, at(100))
    assert through.seconds(170.0, at(100)) == 0, "the source has written nothing since"
    assert through.seconds(170.0, at(101)) == pytest.approx(30)
    assert through.seconds(170.0, None) == pytest.approx(30)
    through.add(180.0, 0.0, replace(at(100), server="one"))
    assert through.seconds(190.0, replace(at(100), server="other")) == pytest.approx(10)


def test_since_when_something_has_not_been_fetched() -> None:
    trail = SourceProgress()
    trail.add(10.0, at(100))
    trail.add(11.0, at(200))
    trail.add(12.0, at(200))
    assert trail.unfetched_since(at(50)) == 10.0
    assert trail.unfetched_since(at(100)) == 11.0
    assert trail.unfetched_since(at(200)) is None
    trail.add(13.0, at(4, file=2))
    assert trail.unfetched_since(at(200)) == 13.0
    assert trail.unfetched_since(at(4, file=2)) is None


def test_a_long_outage_of_the_relay_keeps_its_beginning() -> None:
    trail = SourceProgress(keep=3)
    for moment in range(10):
        trail.add(float(moment), at(100 + moment))
        assert trail.unfetched_since(at(50)) == 0.0
    trail.add(50.0, SourcePosition("", 0))
    assert trail.unfetched_since(at(102)) is None


@pytest.mark.parametrize(
    ("head", "end", "expected"),
    [
        (at(100), at(100), 0),
        (at(100), at(350), 250),
        (at(350), at(100), 0),
        (at(900), at(70, file=2), 70),
        (at(5, file=2), at(900), 0),
    ],
)
def test_bytes_not_fetched(head: SourcePosition, end: SourcePosition, expected: int) -> None:
    assert unfetched_bytes(head, end) == expected


def test_the_remaining_time_follows_the_speed() -> None:
    found = CatchUp(seconds=10)
    assert found.remaining_seconds() is None
    for at, behind in ((0, 1_000), (5, 900), (10, 800)):
        found.add(at, behind)
    assert found.remaining_seconds() == 40
    found.add(11, 0)
    assert found.remaining_seconds() == 0


def test_what_is_on_its_way_remains_for_less_than_a_second() -> None:
    found = CatchUp(seconds=10)
    found.add(0, 5_200)
    found.add(5, 5_000, 100_000)
    assert found.remaining_seconds() == 0.25  # not 125 s, by which the backlog has become smaller
    found.add(10, 60_000, 100_000)
    assert found.remaining_seconds() is None


def test_the_remaining_time_is_unknown_while_the_lag_grows() -> None:
    found = CatchUp(seconds=10)
    for at, behind in ((0, 100), (5, 200)):
        found.add(at, behind)
    assert found.remaining_seconds() is None


def test_only_the_last_seconds_count_for_the_speed() -> None:
    found = CatchUp(seconds=10)
    for at, behind in ((0, 100_000), (100, 1_000), (110, 900), (111, 890)):
        found.add(at, behind)
    assert found.remaining_seconds() == pytest.approx(89)

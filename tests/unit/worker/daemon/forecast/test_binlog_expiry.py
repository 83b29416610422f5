"""Tests when the source may delete binlog that is not fetched."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.daemon.forecast.binlog_expiry import (
    BinlogExpiry,
    Expiry,
    ExpiryUnknown,
    FetchProgress,
    NoLimit,
    SourceBytes,
    expiry,
    fetched_until,
)
from shardmerge.worker.daemon.forecast.rates import Rate
from shardmerge.worker.relay.binlog_retention import BinlogFile, BinlogLimits
from shardmerge.worker.relay.model import Head
from shardmerge.worker.relay.source_clock import NO_END, SourceEnd, SourceReading

_NOW = 10_000.0
_SERVER = "server-id 1"


def _place(file: int, pos: int = 400, server: str = _SERVER) -> SourcePosition:
    return SourcePosition(f"b.{file:06d}", pos, "", server)


def _head(file: int, commit_time: float, pos: int = 400) -> Head:
    return Head(RelayOffset(1, pos), _place(file, pos), commit_time)


def _reading(limits: BinlogLimits | None, age: float = 0.0, files: tuple[BinlogFile, ...] = ()) -> SourceReading:
    return SourceReading(SourceEnd(_place(9), _NOW - age), age, limits, files)


def _of_age(until: float, speed: Rate | None = None, *, is_fetching: bool = False, kept: float = 600.0) -> BinlogExpiry:
    return expiry(_reading(BinlogLimits(kept)), _place(1), until, speed, None, is_fetching=is_fetching)


# --- what is fetched, in the source's time


def test_everything_is_fetched() -> None:
    assert fetched_until(0.0, SourceEnd(_place(3, 500), 900.0), _head(3, 100.0, 500)) == 900


def test_the_present_file_is_never_deleted() -> None:
    assert fetched_until(0.0, SourceEnd(_place(3, 9_000), 900.0), _head(3, 100.0)) == 900


def test_in_an_older_file_the_last_commit_counts() -> None:
    assert fetched_until(0.0, SourceEnd(_place(4), 900.0), _head(3, 100.0)) == 100


def test_an_idle_source_whose_file_has_just_ended_is_not_about_to_delete_it() -> None:
    # The last commit is hours old, but the file was written until it ended, which was later than the call before.
    assert fetched_until(890.0, SourceEnd(_place(4), 900.0), _head(3, 100.0)) == 890


def test_another_server_begins_anew() -> None:
    progress = FetchProgress()
    progress.add(0.0, SourceEnd(_place(3), 900.0), _head(3, 100.0))
    assert progress.until == 900
    other = SourceEnd(_place(7, server="server-id 2"), 905.0)
    progress.add(5.0, other, _head(3, 100.0))
    assert progress.until == 100, "by its last commit"
    assert progress.speed() is None


# --- the limit of the age


def test_what_was_read_a_minute_ago_is_a_minute_older_now() -> None:
    found = expiry(_reading(BinlogLimits(600.0), age=60.0), _place(1), _NOW - 60, None, None, is_fetching=False)
    assert isinstance(found, Expiry) and found.left == 540


@pytest.mark.parametrize(
    ("speed", "is_fetching", "due"),
    [
        (Rate(1.0, 600.0), False, 300.0),  # it does not fetch now: its former speed has no meaning
        (Rate(0.0, 600.0), True, 300.0),
        (Rate(0.5, 600.0), True, 600.0),
        (Rate(0.9, 600.0), True, 3_000.0),
        (Rate(1.0, 600.0), True, None),
        (Rate(4.0, 600.0), True, None),
        (Rate(0.5, 10.0), True, None),  # measured for too short
        (None, True, None),
    ],
)
def test_due_at_the_relays_speed(speed: Rate | None, is_fetching: bool, due: float | None) -> None:
    found = _of_age(_NOW - 300, speed, is_fetching=is_fetching)
    assert isinstance(found, Expiry)
    assert (found.kept, found.left) == (600, 300)
    assert found.due == (due if due is None else pytest.approx(due))


def test_too_late_is_no_negative_time() -> None:
    assert _of_age(_NOW - 5_000) == Expiry(600.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("kept", "due", "is_near"),
    [
        (2_592_000.0, 90_000.0, False),
        (2_592_000.0, 80_000.0, True),  # less than a day
        (3_600.0, 3_500.0, False),  # a source that keeps an hour, and whose relay was just paused
        (3_600.0, 1_700.0, True),  # less than half of it
        (600.0, None, False),
    ],
)
def test_a_warning_is_near(kept: float, due: float | None, is_near: bool) -> None:
    assert Expiry(kept, due or kept, due).is_near is is_near


@given(
    kept=st.floats(1.0, 1e7),
    behind=st.floats(0.0, 1e7),
    speed=st.floats(0.0, 0.99),
)
def test_the_forecast_agrees_with_a_simulation(kept: float, behind: float, speed: float) -> None:
    """At ``due`` the oldest time that is not fetched is exactly as old as the limit."""
    found = _of_age(_NOW - behind, Rate(speed, 600.0), is_fetching=True, kept=kept)
    assert isinstance(found, Expiry) and found.due is not None
    fetched = _NOW - behind + speed * found.due
    age = _NOW + found.due - fetched
    # Sums of times have an error of their own.
    assert age == pytest.approx(max(kept, behind), rel=1e-6, abs=1e-3)
    assert behind < kept or found.due == pytest.approx(0.0, abs=1e-6)


# --- the limit of the size

_FILES = (BinlogFile("b.000001", 600), BinlogFile("b.000002", 100))


def _of_size(source: Rate | None, head: int = 1, **more: BinlogLimits) -> BinlogExpiry:
    reading = _reading(more.get("limits", BinlogLimits(None, 1_000)), files=_FILES)
    return expiry(reading, _place(head), _NOW, None, source, is_fetching=False)


def test_the_limit_of_the_size() -> None:
    assert _of_size(Rate(10.0, 600.0)) == Expiry(100.0, 30.0, 30.0)
    assert _of_size(Rate(10.0, 600.0), head=2) == Expiry(100.0, 90.0, 90.0)


def test_of_two_limits_the_one_that_is_reached_first_counts() -> None:
    assert _of_size(Rate(10.0, 600.0), limits=BinlogLimits(20.0, 1_000)) == Expiry(20.0, 20.0, 20.0)
    assert _of_size(Rate(10.0, 600.0), limits=BinlogLimits(50.0, 1_000)) == Expiry(100.0, 30.0, 30.0)


def test_a_source_that_writes_nothing_reaches_no_size() -> None:
    assert _of_size(Rate(0.0, 600.0)) == NoLimit()


def test_the_list_of_files_is_read_once_a_minute() -> None:
    """The source has written since then."""
    old = replace(_reading(BinlogLimits(None, 1_000), files=_FILES), files_age=20.0)
    found = [expiry(old, _place(head), _NOW, None, Rate(10.0, 600.0), is_fetching=False) for head in (1, 2, 3)]
    assert found == [Expiry(100.0, 10.0, 10.0), Expiry(100.0, 70.0, 70.0), Expiry(100.0, 80.0, 80.0)]
    older = replace(old, files_age=50.0)
    assert expiry(older, _place(1), _NOW, None, Rate(10.0, 600.0), is_fetching=False) == Expiry(100.0, 0.0, 0.0)


@pytest.mark.parametrize(("source", "file"), [(None, 1), (Rate(10.0, 600.0), 0)])
def test_a_size_that_is_not_known(source: Rate | None, file: int) -> None:
    assert isinstance(_of_size(source, head=file), ExpiryUnknown)


def test_what_a_source_writes_is_counted_across_files() -> None:
    written = SourceBytes()
    written.add(0.0, _FILES)
    written.add(30.0, _FILES)
    assert written.rate() is None, "the same list"
    written.add(60.0, (BinlogFile("b.000002", 400), BinlogFile("b.000003", 300)))
    assert written.rate() == Rate(10.0, 60.0)
    written.add(120.0, (BinlogFile("other.000001", 1), BinlogFile("other.000002", 5)))
    assert written.rate() is None, "another server"
    written.add(180.0, (BinlogFile("other.000002", 3),))
    assert written.rate() is None, "its binlog was begun anew under the same name"


# --- unknown


def test_nothing_has_been_read_yet() -> None:
    assert isinstance(expiry(_reading(None), _place(1), 0.0, None, None, is_fetching=True), ExpiryUnknown)
    nothing = SourceReading(NO_END, 0.0, BinlogLimits(600.0))
    assert isinstance(expiry(nothing, _place(1), 0.0, None, None, is_fetching=True), ExpiryUnknown)
    assert isinstance(_of_age(0.0), ExpiryUnknown)


def test_no_limit() -> None:
    assert expiry(_reading(BinlogLimits()), _place(1), _NOW, None, None, is_fetching=True) == NoLimit()

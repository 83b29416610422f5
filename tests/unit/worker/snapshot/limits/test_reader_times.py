"""What readers of a snapshot spend their time on."""

from __future__ import annotations

from shardmerge.worker.snapshot.limits.reader_times import NO_SECONDS, ReaderTimes, ReaderTotal


def test_reports_are_sums_of_a_chunk() -> None:
    times = ReaderTimes()
    times.begins(0)
    times.worked(0, 1.0, 0.25)
    times.worked(0, 3.0, 1.25)
    times.begins(0)
    times.worked(0, 2.0, 0.5)
    times.worked(1, 4.0, 4.0)
    times.throttled(7.0)
    times.waited(4.0)
    assert times.read().by_cause == {"read": 3.25, "write": 5.75, "throttle": 7.0, "wait": 4.0}


def test_an_attempt_that_begins_again_writes_from_the_start() -> None:
    times = ReaderTimes()
    times.begins(0)
    times.worked(0, 3.0, 2.0)
    times.worked(0, 4.0, 0.5)
    assert times.read().by_cause == {"read": 1.5, "write": 2.5, "throttle": 0.0, "wait": 0.0}


def test_the_time_between_two_samples() -> None:
    times = ReaderTimes()
    times.worked(0, 3.0, 2.0)
    before = times.read()
    times.worked(0, 5.0, 3.5)
    assert times.read().since(before) == {"read": 0.5, "write": 1.5, "throttle": 0.0, "wait": 0.0}
    assert NO_SECONDS.since(before) == {}
    other = ReaderTimes()
    other.worked(0, 1.0, 0.0)
    assert other.read().since(before) == {"read": 1.0, "write": 0.0, "throttle": 0.0, "wait": 0.0}, (
        "another copy has begun"
    )


def test_the_copies_of_a_subtask_have_one_total_that_never_falls() -> None:
    """A run, or tables that join, begin a copy of their own with the same numbers of readers."""
    total = ReaderTotal()
    assert total.read() == {"read": 0.0, "write": 0.0, "throttle": 0.0, "wait": 0.0}
    for _ in range(2):
        times = ReaderTimes(total.add)
        times.worked(0, 3.0, 2.0)
        times.throttled(0.5)
        times.waited(0.25)
        assert times.read().by_cause == {"read": 1.0, "write": 2.0, "throttle": 0.5, "wait": 0.25}
    assert total.read() == {"read": 2.0, "write": 4.0, "throttle": 1.0, "wait": 0.5}

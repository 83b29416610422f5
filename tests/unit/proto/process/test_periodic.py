"""Tests when a repeated step is carried out, and what ends it."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.http.loops import LoopAges
from shardmerge.proto.process.periodic import LAST, Backoff, Clock, LoopThread, Stop, repeat
from tests.support.fake_clock import FakeClock


class _Steps:
    """A step that notes when it is carried out. ``answers``: what the first ones return or raise; later ones return
    None."""

    def __init__(self, clock: FakeClock, *answers: float | Exception | None) -> None:
        self._clock, self._began, self._answers = clock, clock.now(), list(answers)
        self.at: list[float] = []

    def __call__(self) -> float | None:
        self.at.append(self._clock.now() - self._began)
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


def _unreachable() -> ShardmergeError:
    return errors.master.ETCD_UNAVAILABLE(endpoints="a", reason="refused")


def test_the_first_step_follows_an_interval() -> None:
    clock = FakeClock()
    step = _Steps(clock)
    clock.run_for(16, lambda stop: repeat(step, 5.0, stop, clock=clock))
    assert step.at == [5, 10, 15]


def test_the_first_step_at_once() -> None:
    clock = FakeClock()
    step = _Steps(clock)
    clock.run_for(11, lambda stop: repeat(step, 5.0, stop, first=0.0, clock=clock))
    assert step.at == [0, 5, 10]


def test_a_step_chooses_the_next_pause_and_the_last_step() -> None:
    clock = FakeClock()
    step = _Steps(clock, 1.0, None, 0.0, LAST)
    repeat(step, 5.0, threading.Event(), clock=clock)
    assert step.at == [5, 6, 11, 11]
    assert clock.waits == [5, 1, 5, 0], "no wait follows the last step"


def test_a_stop_ends_a_wait() -> None:
    clock = FakeClock()
    step = _Steps(clock)
    clock.run_for(7, lambda stop: repeat(step, 5.0, stop, clock=clock))
    assert clock.waits == [5, 2] and step.at == [5]


def test_no_step_after_a_stop_during_the_work() -> None:
    clock = FakeClock()
    stop = threading.Event()
    done: list[float] = []

    def step() -> float:
        done.append(clock.now())
        stop.set()
        return 0.0

    repeat(step, 5.0, stop, clock=clock)
    assert len(done) == 1


def test_no_step_after_a_stop_before_the_start() -> None:
    clock = FakeClock()
    step = _Steps(clock)
    stop = threading.Event()
    stop.set()
    repeat(step, 5.0, stop, first=0.0, clock=clock)
    assert step.at == []


class _Wakeable:
    """A stop whose waits also end when there is something to do."""

    def __init__(self) -> None:
        self.changed = threading.Event()
        self.stopped = False

    def wait(self, seconds: float, /) -> bool:
        self.changed.wait(seconds)
        self.changed.clear()
        return self.stopped

    def wake(self) -> None:
        self.changed.set()

    def end(self) -> None:
        self.stopped = True
        self.changed.set()


def test_a_wait_that_ends_early_brings_the_next_step_forward() -> None:
    """In real time: an interval of ten minutes must not pass."""
    stop, steps = _Wakeable(), threading.Semaphore(0)
    thread = LoopThread("woken", lambda _: repeat(steps.release, 600.0, stop))
    thread.start()
    for _ in range(3):
        stop.wake()
        assert steps.acquire(timeout=60), "a wake-up was lost"
    stop.end()
    thread.end(60)
    assert not thread.is_alive()


def test_pauses_grow_with_failures_and_begin_anew_after_success() -> None:
    clock, backoff = FakeClock(), Backoff(2.0, 6.0)
    seen: list[tuple[str, int]] = []

    def failed(error: ShardmergeError, failures: int) -> float:
        seen.append((error.spec.name, failures))
        return backoff.seconds(failures)

    step = _Steps(clock, *(_unreachable() for _ in range(4)), None, _unreachable())
    clock.run_for(40, lambda stop: repeat(step, 10.0, stop, on_error=failed, clock=clock))
    assert step.at == [10, 12, 16, 22, 28, 38]
    assert [number for _, number in seen] == [1, 2, 3, 4, 1]
    assert {name for name, _ in seen} == {"etcd-unavailable"}


def test_a_stop_ends_the_pause_after_a_failure() -> None:
    clock = FakeClock()
    step = _Steps(clock, _unreachable())
    clock.run_for(7, lambda stop: repeat(step, 5.0, stop, on_error=lambda error, failures: 600.0, clock=clock))
    assert step.at == [5] and clock.waits == [5, 2]


def test_an_error_after_the_stop_is_not_reported() -> None:
    clock, stop = FakeClock(), threading.Event()

    def step() -> None:
        stop.set()
        raise _unreachable()

    def failed(error: ShardmergeError, failures: int) -> float:
        raise AssertionError("reported")

    repeat(step, 5.0, stop, on_error=failed, clock=clock)


@pytest.mark.parametrize("error", [_unreachable(), RuntimeError("a bug")])
def test_other_errors_end_the_loop(error: Exception) -> None:
    clock = FakeClock()
    has_handler = isinstance(error, RuntimeError)
    with pytest.raises(type(error)):
        repeat(
            _Steps(clock, error),
            5.0,
            clock.stop,
            on_error=(lambda error, failures: 0.0) if has_handler else None,
            clock=clock,
        )


def test_the_age_of_a_loop_is_that_of_its_last_step() -> None:
    clock = FakeClock()
    ages = LoopAges(clock.now)
    seen: list[float] = []
    clock.after(9, lambda: seen.append(ages.ages()["a loop"]))
    clock.run_for(12, lambda stop: repeat(partial(ages.begins, "a loop"), 5.0, stop, first=0.0, clock=clock))
    assert seen == [4]
    assert ages.ages() == {"a loop": 2}


def test_backoff() -> None:
    backoff = Backoff(1.0, 60.0)
    assert [backoff.seconds(number) for number in (1, 2, 3, 6, 7, 8)] == [1, 2, 4, 32, 60, 60]
    assert backoff.seconds(10_000) == 60.0, "no overflow"
    assert Backoff(0.4).seconds(3) == 1.6


def test_a_thread_that_waits_in_real_time_ends_at_once() -> None:
    waits = threading.Event()

    class Noted(Clock):
        def wait(self, stop: Stop, seconds: float) -> bool:
            waits.set()
            return super().wait(stop, seconds)

    thread = LoopThread("long", lambda stop: repeat(lambda: None, 3600.0, stop, clock=Noted()))
    thread.start()
    assert waits.wait(60)
    thread.end(60)
    assert not thread.is_alive()


def test_a_thread_that_was_not_started_can_be_ended() -> None:
    LoopThread("idle", lambda stop: None).end()

"""Limits of calls at once and of unfinished requests."""

from __future__ import annotations

import contextlib
import threading

import pytest

from shardmerge.proto.log_rate_limit import RateLimit
from shardmerge.proto.rpc.admission import Admission, Full, MethodCalls, Readings, RunningCalls
from shardmerge.proto.rpc.limits import MethodLimit
from tests.support.wait import until


class _Clock:
    """Each look at it takes a tenth of a second, so that a wait ends without time passing."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 0.1
        return self.now


def test_calls_beyond_the_limit_are_refused_until_one_ends() -> None:
    admission = Admission("/a.B/C", MethodLimit(2, 2, 1), Readings(4, 1.0), _Clock())
    with admission.place():
        with admission.place(), pytest.raises(Full):
            admission.place().__enter__()
        with admission.place():
            pass


def test_a_call_takes_the_place_of_one_that_ends_while_it_waits() -> None:
    waits = threading.Event()

    class Observed(Readings):
        def evict(self, method: str) -> float:
            waits.set()
            return super().evict(method)

    admission = Admission("/a.B/C", MethodLimit(1, 1, 1), Observed(4, 1.0), lambda: 100.0)
    got = threading.Event()

    def take() -> None:
        with admission.place():
            got.set()

    first = admission.place()
    first.__enter__()
    waiting = threading.Thread(target=take)
    waiting.start()
    assert waits.wait(300)
    assert not got.is_set()
    first.__exit__(None, None, None)
    waiting.join(300)
    assert got.is_set()


def test_as_many_as_may_run_may_wait() -> None:
    admission = Admission("/a.B/C", MethodLimit(2, 2, 1), Readings(4, 1.0))
    assert [admission.admit() for _ in range(5)] == [True] * 4 + [False]
    admission.release()
    assert admission.admit()


def test_an_unfinished_request_gives_way_to_a_new_call_of_its_method() -> None:
    now = 100.0
    readings = Readings(4, 1.0, lambda: now)
    admission = Admission("/a.B/C", MethodLimit(1, 1, 1), readings, _Clock())
    cancelled: list[str] = []
    message = readings.enter("/a.B/C", lambda: cancelled.append("C"))
    readings.enter("/a.B/D", lambda: cancelled.append("D"))
    with admission.place():
        with pytest.raises(Full):
            admission.place().__enter__()
        assert cancelled == [], "its message is not overdue"
        now += 1
        with admission.place():
            assert cancelled == ["C"]
            with pytest.raises(Full):
                admission.place().__enter__()
            readings.leave(message)
        with pytest.raises(Full):
            admission.place().__enter__()
    assert cancelled == ["C"], "none of the method is left to give way"


def test_a_flood_that_has_just_begun_does_not_refuse_a_real_call() -> None:
    """All calls of the method are unfinished requests of this moment: the next one waits until they are overdue."""
    readings = Readings(4, 1.0)
    admission = Admission("/a.B/C", MethodLimit(64, 64, 1), readings)
    with contextlib.ExitStack() as held:
        for _ in range(64):
            assert admission.admit()
            held.enter_context(admission.place())
        cancelled: list[None] = []
        for _ in range(4):
            readings.enter("/a.B/C", lambda: cancelled.append(None))
        for _ in range(4):
            assert admission.admit()
            held.enter_context(admission.place())
        assert len(cancelled) == 4


def test_calls_that_were_cancelled_take_no_place() -> None:
    now = 100.0
    readings = Readings(4, 1.0, lambda: now)
    admission = Admission("/a.B/C", MethodLimit(1, 1, 1), readings, _Clock())
    with contextlib.ExitStack() as held:
        for _ in range(4):  # more than run and wait, for none of the cancelled ones has ended
            assert admission.admit()
            held.enter_context(admission.place())
            readings.enter("/a.B/C", lambda: None)
            now += 1
        assert admission.admit()


def test_an_unfinished_request_is_overdue_however_long_it_waited_to_be_read() -> None:
    now = 100.0
    readings = Readings(1, 60.0, lambda: now)
    first = readings.enter("/a.B/D", lambda: None)
    entered = threading.Event()

    def wait() -> None:
        readings.enter("/a.B/C", lambda: None)
        entered.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: vars(readings)["_waiting"], "it waits")
    now += 1
    readings.leave(first)
    assert entered.wait(300)
    assert readings.evict("/a.B/C") == 0.0
    waiting.join(300)


def test_a_message_that_has_come_is_not_cancelled() -> None:
    now = 100.0
    readings = Readings(1, 1.0, lambda: now)
    readings.received(readings.enter("/a.B/C", lambda: pytest.fail("cancelled")))
    now += 1000
    assert readings.evict("/a.B/C") > 0


def test_the_newest_is_read_first_and_the_oldest_gives_way() -> None:
    readings = Readings(1, 0.2)
    order: list[int] = []
    oldest = threading.Event()
    first = readings.enter("/a.B/C", oldest.set)

    def wait(number: int) -> None:
        message = readings.enter("/a.B/C", lambda: None)
        order.append(number)
        readings.leave(message)

    waiting = [threading.Thread(target=wait, args=(number,)) for number in range(2)]
    for thread in waiting:
        count = len(vars(readings)["_waiting"])
        thread.start()
        until(lambda count=count: len(vars(readings)["_waiting"]) > count, "it waits")
    assert oldest.wait(300)
    readings.leave(first)
    for thread in waiting:
        thread.join(300)
    assert order == [1, 0]


def test_a_connection_has_its_share() -> None:
    admission = Admission("/a.B/C", MethodLimit(9, 2, 1), Readings(4, 1.0))
    with admission.connection("one"):
        with admission.connection("one"), admission.connection("two"), pytest.raises(Full):
            admission.connection("one").__enter__()
        with admission.connection("one"):
            pass


def test_of_many_lines_one_is_due_and_the_others_are_counted() -> None:
    now = 100.0
    limit = RateLimit(10.0, lambda: now)
    assert limit.left_out("a") == 0
    assert limit.left_out("a") is None
    assert limit.left_out("a") is None
    assert limit.left_out("b") == 0
    now += 10
    assert limit.left_out("a") == 2


def test_the_running_calls_have_an_age() -> None:
    now = 100.0
    one, other = (Admission(f"/a.B/{name}", MethodLimit(2, 2, 1), Readings(4, 1.0), lambda: now) for name in ("C", "A"))
    calls = RunningCalls()
    calls.add(one)
    calls.add(other)
    assert calls.figures() == ()
    with one.place():
        now = 107.0
        with one.place(), other.place():
            now = 108.0
            assert calls.figures() == (MethodCalls("/a.B/A", 1, 1.0), MethodCalls("/a.B/C", 2, 8.0))
    assert calls.figures() == ()

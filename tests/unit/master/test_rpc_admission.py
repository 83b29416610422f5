"""Who may go on when there are too many; in steps of a clock of the test's own."""

from __future__ import annotations

import threading

import pytest

from proto.log_rate import RateLimit
from proto.rpc_admission import Admission, Full, Readings
from proto.rpc_limits import MethodLimit
from tests.support.wait import until


def test_calls_beyond_the_limit_are_refused_until_one_ends() -> None:
    admission = Admission("/a.B/C", MethodLimit(2, 2, 1), Readings(4, 1.0))
    assert admission.admit()
    assert admission.admit()
    assert not admission.admit()
    admission.release()
    assert admission.admit()


def test_an_unfinished_request_gives_way_to_a_new_call_of_its_method() -> None:
    now = 100.0
    readings = Readings(4, 1.0, lambda: now)
    admission, other = (Admission(name, MethodLimit(1, 1, 1), readings) for name in ("/a.B/C", "/a.B/D"))
    cancelled: list[str] = []
    assert admission.admit() and other.admit()
    message = readings.enter("/a.B/C", lambda: cancelled.append("C"))
    readings.enter("/a.B/D", lambda: cancelled.append("D"))
    assert not admission.admit(), "it has only just begun"
    now += 1
    assert admission.admit()
    assert cancelled == ["C"]
    readings.leave(message)
    assert not admission.admit(), "none is left to give way"


def test_a_message_that_has_come_is_not_cancelled() -> None:
    now = 100.0
    readings = Readings(1, 1.0, lambda: now)
    readings.received(readings.enter("/a.B/C", lambda: pytest.fail("cancelled")))
    now += 1000
    assert not readings.evict("/a.B/C")


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
    admission.connect("one")
    admission.connect("one")
    admission.connect("two")
    with pytest.raises(Full):
        admission.connect("one")
    admission.disconnect("one")
    admission.connect("one")


def test_of_many_lines_one_is_due_and_the_others_are_counted() -> None:
    now = 100.0
    limit = RateLimit(10.0, lambda: now)
    assert limit.left_out("a") == 0
    assert limit.left_out("a") is None
    assert limit.left_out("a") is None
    assert limit.left_out("b") == 0
    now += 10
    assert limit.left_out("a") == 2

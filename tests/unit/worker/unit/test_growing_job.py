"""Jobs that begin with the slots that are free: which tasks run, and how a failure of one ends the others."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.task_runner import TaskBody, TaskDone, TaskFailed, TaskOutcome
from shardmerge.worker.unit import growing_job
from shardmerge.worker.unit.growing_job import GrowingJob
from tests.support.task_runners import Threads
from tests.support.wait import until

_LOST = errors.worker.SPARK_TASK_LOST(job="j", reason="killed")


class _Body(TaskBody):
    def __init__(self, work: Callable[[int], TaskOutcome]) -> None:
        self._work = work

    def __call__(self, index: int) -> TaskOutcome:
        return self._work(index)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing_job, "_LOOK_SECONDS", 0.02)


def test_each_task_runs_once_and_a_later_one_finishes_its_work() -> None:
    """The first tasks end before the later one, which still works: the job waits for it."""
    runner, over, begun = Threads(3), threading.Event(), list[int]()
    other = threading.Thread(target=runner.run, args=("other", 1, _Body(lambda _: _wait(over)), StopSignal()))
    other.start()
    until(lambda: runner.free_slots == 2, "the other job runs")
    later_works, later_ends = threading.Event(), threading.Event()

    def work(index: int) -> TaskOutcome:
        begun.append(index)
        if index == 2:
            later_works.set()
            return _wait(later_ends)
        return _wait(later_works)

    job = GrowingJob(runner, lambda: runner.free_slots, "j", 3, _Body(work), StopSignal(), _no_failure)
    outcomes: list[TaskOutcome] = []
    running = threading.Thread(target=lambda: outcomes.extend(job.run()))
    running.start()
    until(lambda: job.missing == 1, "two tasks run")
    over.set()
    other.join()
    until(lambda: runner.free_slots == 2, "the first tasks have ended, the later one works")
    assert running.is_alive()
    later_ends.set()
    running.join(60)
    assert sorted(begun) == [0, 1, 2]
    assert outcomes == [TaskDone()] * 3
    assert runner.free_slots == 3


def test_the_failure_of_a_later_task_lets_the_first_ones_end() -> None:
    runner, ends = Threads(2), threading.Event()
    free = [1]
    failures: list[ShardmergeError] = []

    def failed(error: ShardmergeError) -> None:
        failures.append(error)
        ends.set()

    def work(index: int) -> TaskOutcome:
        free[0] = 1
        return TaskFailed(_LOST) if index else _wait(ends)

    job = GrowingJob(runner, lambda: free[0], "j", 2, _Body(work), StopSignal(), failed)
    assert job.run() == [TaskDone(), TaskFailed(_LOST)]
    assert failures == [_LOST]


def test_without_a_slot_nothing_begins() -> None:
    failures: list[ShardmergeError] = []
    job = GrowingJob(Threads(0), lambda: 0, "j", 4, _Body(lambda _: TaskDone()), StopSignal(), failures.append)
    with pytest.raises(ShardmergeError) as caught:
        job.run()
    assert caught.value.spec is errors.worker.NO_SLOTS
    assert [error.spec for error in failures] == [errors.worker.NO_SLOTS]


def test_fewer_tasks_begin_when_another_job_was_faster() -> None:
    begun: list[int] = []
    runner = Threads(2)
    seen = iter([4, 2])

    def work(index: int) -> TaskOutcome:
        begun.append(index)
        return TaskDone()

    job = GrowingJob(runner, lambda: next(seen, 0), "j", 4, _Body(work), StopSignal(), _no_failure)
    assert job.run() == [TaskDone()] * 2
    assert sorted(begun) == [0, 1]


def _wait(event: threading.Event) -> TaskOutcome:
    assert event.wait(60)
    return TaskDone()


def _no_failure(error: ShardmergeError) -> None:
    raise AssertionError(error)

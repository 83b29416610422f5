"""Runs tasks that need not all run at once: it begins with the slots that are free, and adds more later.

Only tasks that take their work from a queue run so, like chunk readers: none of them waits for another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.task_runner import TaskBody, TaskFailed, TaskOutcome, TaskRunner

log = get_logger()

_LOOK_SECONDS = 1.0
"""One task is added at a time: the next look sees the slot that it has taken."""


class LaterTask(TaskBody):
    """The body of a job whose only task has number ``index`` of all."""

    def __init__(self, body: TaskBody, index: int) -> None:
        self._body, self._index = body, index

    def __call__(self, index: int) -> TaskOutcome:
        return self._body(self._index)

    def failed(self, index: int, error: ShardmergeError) -> None:
        self._body.failed(self._index, error)


class GrowingJob:
    """Up to ``most`` tasks of ``body``, numbered from 0; :meth:`run` is called once.

    ``free_slots``: how many more slots of ``runner`` they may take now.
    ``stop``: see :meth:`TaskRunner.run`. ``on_failure`` is called with the error of a task that has failed or was lost:
    it lets the others end.
    """

    def __init__(
        self,
        runner: TaskRunner,
        free_slots: Callable[[], int],
        name: str,
        most: int,
        body: TaskBody,
        stop: StopSignal,
        on_failure: Callable[[ShardmergeError], None],
    ) -> None:
        self._runner, self._free_slots = runner, free_slots
        self._name, self._most, self._body = name, most, body
        self._stop, self._on_failure = stop, on_failure
        self._lock = threading.Lock()
        self._later: list[TaskOutcome] = []
        self._first_ended = threading.Event()
        self._running = 0

    @property
    def missing(self) -> int:
        """How many tasks wait for a slot; 0 once the first have ended."""
        running = self._running
        return self._most - running if running and not self._first_ended.is_set() else 0

    def run(self) -> list[TaskOutcome]:
        """Run the tasks until all have ended; the outcomes of those that began. Raises NO_SLOTS when not one slot is
        free, and what the runner raises."""
        threads: list[threading.Thread] = []
        grower = threading.Thread(target=self._grow, args=(threads,), name="more-tasks", daemon=True)
        try:
            first = self._run_first(grower)
            for outcome in first:
                self._note(outcome)
        except ShardmergeError as error:
            self._on_failure(error)
            raise
        finally:
            self._first_ended.set()
            if grower.ident is not None:
                grower.join()
            for thread in threads:
                thread.join()
        return [*first, *self._later]

    def _run_first(self, grower: threading.Thread) -> list[TaskOutcome]:
        while True:
            count = self._running = max(1, min(self._most, self._free_slots()))
            try:
                if count < self._most and grower.ident is None:
                    log.info("begins with the slots that are free", job=self._name, tasks=count, wanted=self._most)
                    grower.start()
                return self._runner.run(self._name, count, self._body, self._stop)
            except ShardmergeError as error:
                # Another job was faster; nothing has begun.
                if error.spec is not errors.worker.NO_SLOTS or count == 1:
                    raise

    def _grow(self, threads: list[threading.Thread]) -> None:
        while not self._first_ended.wait(_LOOK_SECONDS) and not self._stop.is_set:
            if self._running < self._most and self._free_slots() > 0:
                thread = threading.Thread(target=self._run_later, args=(self._running,), daemon=True)
                self._running += 1
                threads.append(thread)
                thread.start()

    def _run_later(self, index: int) -> None:
        body = LaterTask(self._body, index)
        while not self._first_ended.is_set():
            try:
                outcomes = self._runner.run(f"{self._name} {index}", 1, body, self._stop)
            except ShardmergeError as error:
                if error.spec is errors.worker.NO_SLOTS:  # another job was faster
                    self._first_ended.wait(_LOOK_SECONDS)
                    continue
                outcomes = [TaskFailed(error)]
            for outcome in outcomes:
                self._note(outcome)
            with self._lock:
                self._later += outcomes
            return

    def _note(self, outcome: TaskOutcome) -> None:
        if isinstance(outcome, TaskFailed):
            self._on_failure(outcome.error)

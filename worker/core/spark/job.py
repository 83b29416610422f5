"""One job of Spark in a thread of its own, which can be interrupted, and which reports how many of its tasks run."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pyspark import SparkContext

T = TypeVar("T")

_LOOKS = 10
_LOOK_SECONDS = 0.2
_MOST_TASKS = 1000


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A task that has failed. ``text``: Spark's description of the error."""

    host: str
    text: str


class Job(threading.Thread, Generic[T]):
    """Runs ``collect``, which starts one job of Spark and waits for its result. A thread of its own, because tags and
    groups are thread-local.

    ``result``: None while it runs, and if it failed: then ``error`` is why.
    """

    def __init__(
        self,
        spark: SparkContext,
        name: str,
        collect: Callable[[SparkContext], T],
        *,
        is_grouped: bool,
    ) -> None:
        """``is_grouped``: whether :attr:`running_tasks` and :meth:`failed_tasks` are used."""
        super().__init__(name=f"spark-{name}", daemon=True)
        self._spark, self._label, self._collect = spark, name, collect
        self._tag = f"shardmerge-{uuid.uuid4().hex}"
        self._is_grouped = is_grouped
        self._done = threading.Event()
        self.result: T | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._spark.addJobTag(self._tag)
            if self._is_grouped:
                self._spark.setJobGroup(self._tag, self._label)
            self.result = self._collect(self._spark)
        except Exception as error:  # noqa: BLE001 - Py4J, PySpark and socket errors alike end the job
            self.error = error
        finally:
            self._done.set()

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for its end; whether it has ended."""
        return self._done.wait(seconds)

    def interrupt(self) -> None:
        """Let Spark end its tasks."""
        self._spark.cancelJobsWithTag(self._tag)

    @property
    def running_tasks(self) -> int:
        """How many of its tasks run now, as far as Spark's driver knows."""
        tracker = self._spark.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in self._stages()]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)

    def failed_tasks(self) -> list[TaskFailure]:
        """The tasks of the failed job that have ended with an error. Spark's driver learns of them soon afterwards."""
        store = self._spark._jsc.sc().statusStore()
        for _ in range(_LOOKS):
            found: list[TaskFailure] = []
            for stage in self._stages():
                tasks = store.taskList(stage, 0, _MOST_TASKS)
                for number in range(tasks.length()):
                    task = tasks.apply(number)
                    if task.errorMessage().isDefined():
                        found.append(TaskFailure(task.host(), task.errorMessage().get()))
            if found:
                return found
            time.sleep(_LOOK_SECONDS)
        return []

    def _stages(self) -> list[int]:
        tracker = self._spark.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._tag)]
        return [stage for job in jobs if job is not None for stage in job.stageIds]

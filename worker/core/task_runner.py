"""What runs the tasks of a subtask: lanes, chunk readers and comparisons, each in a Python process of its own.

A worker's configuration can choose only Spark (:class:`shardmerge.worker.core.spark.runner.SparkRunner`). Whatever
implements :class:`TaskRunner` runs each task in another process than the worker's, passes no credentials to it (a task
fetches them from the worker by gRPC), and reports a task whose process was killed as SPARK_TASK_LOST.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.stop_signal import StopSignal


@dataclass(frozen=True, slots=True)
class TaskDone:
    """The body has nothing left to do."""


@dataclass(frozen=True, slots=True)
class TaskStopped:
    """The body has stopped as requested."""


@dataclass(frozen=True, slots=True)
class TaskFailed:
    error: ShardmergeError


TaskOutcome = TaskDone | TaskStopped | TaskFailed


class TaskBody(ABC):
    """Runs inside a task's process; must pickle by reference (an object of a module-level class)."""

    @abstractmethod
    def __call__(self, index: int) -> TaskOutcome:
        """The work of task ``index``. Any exception becomes TaskFailed, see :func:`guarded`."""

    def failed(self, index: int, error: ShardmergeError) -> None:  # noqa: B027 - not every body reports failures
        """Report to the driver at once that task ``index`` ended with ``error``; does nothing by default.

        The outcome itself arrives only when every task of the job has ended, and the others keep running.
        """


@dataclass(frozen=True, slots=True)
class JvmHeap:
    """The heap of the JVM of Spark's driver, in bytes. ``used``: objects, those too that the next collection removes;
    ``committed``: taken from the system; ``limit``: the most that it may take."""

    used: int
    committed: int
    limit: int


class TaskRunner(Protocol):
    """Runs task bodies in the slots of one worker."""

    @property
    def is_local(self) -> bool:
        """Whether its tasks run on this machine, as children of this process."""
        ...

    @property
    def lost(self) -> bool:
        """Whether no task can run in this process any more: it must restart."""
        ...

    @property
    def total_slots(self) -> int:
        """How many tasks can run at once."""
        ...

    @property
    def free_slots(self) -> int:
        """How many slots are free now."""
        ...

    @property
    def executor_slots(self) -> int | None:
        """How many slots the executors of a cluster have now, as last seen; None if its tasks run on this machine."""
        ...

    @property
    def jvm_pid(self) -> int | None:
        """The process id of the JVM of Spark's driver; None if there is none, or it has ended."""
        ...

    @property
    def ui_url(self) -> str:
        """Address of Spark's UI; "": it is off."""
        ...

    def heap(self) -> JvmHeap | None:
        """The heap of the JVM of Spark's driver; None if there is no such JVM."""
        ...

    def run(self, name: str, count: int, body: TaskBody, stop: StopSignal) -> list[TaskOutcome]:
        """Run ``body(0) … body(count - 1)`` in parallel; the outcomes in that order.

        ``stop`` does not reach the tasks by itself (their stream informs them); tasks that do not end within the drain
        budget after it was set are ended, and their outcome is TaskStopped. A task that was lost gives TaskFailed.
        Raises NO_SLOTS when the tasks cannot all run at once.
        """
        ...

    def check(self) -> None:
        """Notice a loss that happened while no task was running; sets :attr:`lost`."""
        ...

    def stop(self) -> None:
        """End the tasks and all processes that were started for them."""
        ...


class NoTasks(TaskRunner):
    """What a worker has until its Spark is ready: no slot."""

    @property
    def is_local(self) -> bool:
        return True

    @property
    def lost(self) -> bool:
        return False

    @property
    def total_slots(self) -> int:
        return 0

    @property
    def free_slots(self) -> int:
        return 0

    @property
    def executor_slots(self) -> int | None:
        return None

    @property
    def jvm_pid(self) -> int | None:
        return None

    @property
    def ui_url(self) -> str:
        return ""

    def heap(self) -> JvmHeap | None:
        return None

    def run(self, name: str, count: int, body: TaskBody, stop: StopSignal) -> list[TaskOutcome]:
        raise errors.worker.NO_SLOTS(job=name, needed=count, free=0, total=0)

    def check(self) -> None:
        """There is nothing to lose."""

    def stop(self) -> None:
        """There is nothing to end."""


def guarded(name: str, body: TaskBody, index: int) -> TaskOutcome:
    """The outcome of ``body(index)``, a task of job ``name``.

    An exception that is not of the catalogue is a bug: it becomes INTERNAL, its traceback goes to standard error.
    """
    try:
        return body(index)
    except ShardmergeError as error:
        found = error
    except Exception as error:  # noqa: BLE001 - report a bug by its name instead of "lost"
        traceback.print_exc()
        where = f"Spark task {index} of {name}"
        found = errors.worker.INTERNAL(kind=type(error).__name__, where=where, reason=error)
    try:
        body.failed(index, found)
    except Exception:  # noqa: BLE001 - the task's own error matters more than the failed report
        traceback.print_exc()
    return TaskFailed(found)

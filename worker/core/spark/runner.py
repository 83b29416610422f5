"""The Spark driver of a worker: runs long-lived Python tasks as jobs.

A lane or a chunk reader is one Spark task that lives until its work ends. Its rows never go through Spark, so a job is
one `mapPartitions` of an RDD of task numbers: that needs neither a session of Spark SQL, which takes seconds of the
JVM's time, nor Arrow. Only that and tags are used, so the same worker runs on local, standalone, YARN or Kubernetes
masters.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import RDD, SparkConf, SparkContext, cloudpickle
from pyspark.errors import PySparkException

from shardmerge.proto import errors, networks
from shardmerge.proto.config.daemon.spark import MASTER, is_local
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.tls.process import of_process, use_fresh
from shardmerge.worker.core import inflation
from shardmerge.worker.core.spark.build import own_versions
from shardmerge.worker.core.spark.executors import Executors
from shardmerge.worker.core.spark.failures import JVM_ERRORS, difference, first_line
from shardmerge.worker.core.spark.job import Job, TaskFailure
from shardmerge.worker.core.spark.jvm import BegunJvm
from shardmerge.worker.core.spark.launch import attach, connecting, start_jvm
from shardmerge.worker.core.spark.settings import slots
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.task_runner import (
    JvmHeap,
    TaskBody,
    TaskDone,
    TaskFailed,
    TaskOutcome,
    TaskRunner,
    TaskStopped,
    guarded,
)

log = get_logger()

_POLL_SECONDS = 0.02
_LOOK_SECONDS = 0.25
_EVERY_SLOT_SECONDS = 60.0


class SlotsFailed(Exception):
    """Tasks in all slots have failed. ``tasks``: those of which an error is known."""

    def __init__(self, reason: str, tasks: Sequence[TaskFailure] = ()) -> None:
        super().__init__(reason)
        self.tasks = tuple(tasks)


class _Nothing(TaskBody):
    """Ends at once."""

    def __call__(self, index: int) -> TaskOutcome:
        return TaskDone()


def begin_scripts(settings: Mapping[str, str], folder: Path) -> None:
    """Let Spark's own scripts start this process's JVM, and wait until it has. ``folder``: for the file with its
    settings. Raises SPARK_START_FAILED."""
    try:
        start_jvm(settings, folder)
    except Exception as error:  # as in the constructor of the runner
        raise errors.worker.SPARK_START_FAILED(reason=first_line(error)) from error


class SparkRunner(TaskRunner):
    """Owns the context of Spark and its slots. One per worker process. It starts no process of this machine by itself,
    so it may be made while gRPC threads run."""

    def __init__(
        self,
        merged: Mapping[str, str],
        jvm: BegunJvm | None,
        drain_seconds: float = 10.0,
    ) -> None:
        """Start Spark with the settings ``merged``, made by ``settings.effective``, in ``jvm``; None: in the JVM of
        :func:`begin_scripts`. With a cluster it takes until this has started executors.

        Raises SPARK_START_FAILED, SPARK_NO_EXECUTOR and SPARK_SLOTS_MISSING.
        """
        self._drain_seconds = drain_seconds
        self._used_slots = 0
        self._lock = threading.Lock()
        self._lost = threading.Event()
        self._executors: Executors | None = None
        self._versions: Mapping[str, str] | None = None
        try:
            if jvm is not None:
                attach(jvm)
            with connecting(merged[MASTER]):
                self._spark = SparkContext.getOrCreate(SparkConf().setAll(list(merged.items())))
            _without_rest(self._spark)
            promised = slots(merged)
            if is_local(merged[MASTER]):
                self._total_slots = promised or os.cpu_count() or 1
            else:
                self._versions = own_versions()
                self._executors = Executors(self._spark, merged[MASTER], promised, self._warm_up)
                self._total_slots = self._executors.wait()
        except ShardmergeError:
            raise
        except Exception as error:  # pyspark raises RuntimeError, OSError or Py4J errors here
            raise errors.worker.SPARK_START_FAILED(reason=first_line(error)) from error
        self._ui_url = _ui_url(self._spark)

    @property
    def is_local(self) -> bool:
        """Whether its tasks run on this machine, under its own JVM."""
        return self._executors is None

    @property
    def lost(self) -> bool:
        """Whether the JVM has ended, or its cluster has removed it: no job can run in this process any more."""
        return self._lost.is_set()

    @property
    def total_slots(self) -> int:
        """How many tasks can run at once."""
        return self._total_slots

    @property
    def free_slots(self) -> int:
        """How many slots are free now."""
        with self._lock:
            return self._total_slots - self._used_slots

    @property
    def executor_slots(self) -> int | None:
        """How many slots the executors of a cluster have now, as last seen; None for Spark within this process."""
        return None if self._executors is None else self._executors.slots

    @property
    def jvm_pid(self) -> int | None:
        """The process id of the JVM of Spark's driver; None if it has ended or belongs to another process."""
        process = getattr(getattr(self._spark, "_gateway", None), "proc", None)
        return None if process is None or process.poll() is not None else int(process.pid)

    def heap(self) -> JvmHeap | None:
        """The heap of the JVM of Spark's driver. It waits for the JVM: four calls, on a connection of the calling
        thread, for which no job waits. None: the JVM has ended, or runs in another process (Spark Connect)."""
        if self._jvm_gone():
            return None
        with suppress(*JVM_ERRORS, PySparkException, AttributeError):
            runtime: Any = self._spark._jvm.java.lang.Runtime.getRuntime()  # pyright: ignore[reportOptionalMemberAccess]
            committed = int(runtime.totalMemory())
            return JvmHeap(committed - int(runtime.freeMemory()), committed, int(runtime.maxMemory()))
        return None

    @property
    def ui_url(self) -> str:
        """Address of Spark's UI, "" when it is off or the session is remote. Without a question to the JVM: it is also
        known when the JVM is dead."""
        return self._ui_url

    def run(self, name: str, count: int, body: TaskBody, stop: StopSignal) -> list[TaskOutcome]:
        """Run ``body(0) … body(count - 1)`` in parallel; the outcomes in that order.

        ``stop`` does not reach the tasks by itself (their stream informs them); when it
        is set and they do not end within the drain budget, Spark interrupts the job. A job that Spark
        lost gives TaskFailed for every index. Raises NO_SLOTS when the tasks cannot all run at once.
        """
        self._take_slots(name, count)
        try:
            return self._run(name, count, body, stop)
        finally:
            with self._lock:
                self._used_slots -= count

    def in_every_slot(self, name: str, function: Callable[[Iterator[int]], Iterator[Any]]) -> list[Any]:
        """What ``function`` yields in each of the slots, all of which are to be free: Spark starts one task in each, so
        that there is at least one on each executor. Raises :class:`SlotsFailed`.

        Classes of ``function``'s module are sent by value.
        """
        module = sys.modules[type(function).__module__]
        count = self._total_slots

        def collect(spark: SparkContext) -> list[Any]:
            cloudpickle.register_pickle_by_value(module)
            try:
                # Without a barrier of Spark: for it the JVM of an executor makes a socket in its folder for temporary
                # files, whose path is too long for a socket on YARN. All slots are free: each gets one task.
                return _numbers(spark, count).mapPartitions(function).collect()
            finally:
                cloudpickle.unregister_pickle_by_value(module)

        job = Job(self._spark, name, collect, is_grouped=True)
        job.start()
        if not job.wait(_EVERY_SLOT_SECONDS):
            self._interrupt(job)
            raise SlotsFailed(f"they have not ended after {_EVERY_SLOT_SECONDS:g} s")
        if job.error is not None:
            tasks: list[TaskFailure] = []
            with suppress(*JVM_ERRORS):
                tasks = job.failed_tasks()
            raise SlotsFailed(first_line(job.error), tasks) from job.error
        return job.result or []

    def _warm_up(self, count: int) -> None:
        """Run an empty task in every free slot; ``count``: how many slots there are. An executor that has registered
        later starts its Python process with the first task, which takes seconds: a lane must not wait for that."""
        with self._lock:
            free = count - self._used_slots
        if free <= 0:
            return
        outcomes = self._run("warm-up", free, _Nothing(), StopSignal())
        failed = next((outcome for outcome in outcomes if isinstance(outcome, TaskFailed)), None)
        if failed is None:
            log.info("executors are ready for further lanes", slots=free)
        elif not failed.error.spec.retryable:
            log.warning("an executor cannot run tasks", error=str(failed.error), workaround=failed.error.workaround)

    def _run(self, name: str, count: int, body: TaskBody, stop: StopSignal) -> list[TaskOutcome]:
        executors = self._executors
        if executors is not None and (error := executors.shortage(self._used_slots)) is not None:
            return [TaskFailed(error)] * count
        job = Job(
            self._spark,
            name,
            lambda spark: _numbers(spark, count).mapPartitions(PartitionBody(name, body, self._versions)).collect(),
            is_grouped=executors is not None,
        )
        job.start()
        error = self._wait(job, name, count, stop)
        if job.result is not None:
            return job.result
        if error is not None:
            return [TaskFailed(error)] * count
        if stop.is_set and not self._is_gone():
            return [TaskStopped()] * count
        reason = first_line(job.error) if job.error is not None else "interrupted"
        if self._is_gone():
            self._lost.set()
            return [TaskFailed(errors.worker.SPARK_LOST(reason=reason))] * count
        return [TaskFailed(errors.worker.SPARK_TASK_LOST(job=name, reason=reason))] * count

    def _wait(self, job: Job[list[TaskOutcome]], name: str, count: int, stop: StopSignal) -> ShardmergeError | None:
        """Wait until the job has ended, or was interrupted: because it did not drain, because none of its tasks runs
        any more, or because the cluster has no slots for it, which is the error that is returned."""
        stopped_at: float | None = None
        look_at = time.monotonic() + _LOOK_SECONDS
        idle_looks = 0
        while not job.wait(_POLL_SECONDS):
            now = time.monotonic()
            if stop.is_set and stopped_at is None:
                stopped_at = now
            if stopped_at is not None and now - stopped_at > self._drain_seconds:
                log.warning("interrupting Spark job that did not drain", job=name)
                self._interrupt(job)
                return None
            if self._executors is None or now < look_at:
                continue
            look_at = now + _LOOK_SECONDS
            if stopped_at is None:
                error = self._executors.shortage(self._used_slots)
                if error is not None and self._running(job) < count:
                    self._interrupt(job)
                    return error
            else:
                # What is left would wait for another executor, only to be stopped there.
                idle_looks = 0 if self._running(job) else idle_looks + 1
                if idle_looks > 1:
                    self._interrupt(job)
                    return None
        return None

    def _interrupt(self, job: Job[Any]) -> None:
        with suppress(*JVM_ERRORS):  # when the JVM has ended, the job ends by itself
            job.interrupt()
        job.wait(self._drain_seconds)

    @staticmethod
    def _running(job: Job[list[TaskOutcome]]) -> int:
        try:
            return job.running_tasks
        except JVM_ERRORS:  # when the JVM has ended, the job ends by itself
            return sys.maxsize

    def _take_slots(self, name: str, count: int) -> None:
        # Tasks are long-lived: one that waits for a slot would wait for ever, so a shortage is an error.
        with self._lock:
            free = self._total_slots - self._used_slots
            if count > free:
                raise errors.worker.NO_SLOTS(job=name, needed=count, free=free, total=self._total_slots)
            self._used_slots += count

    def _jvm_gone(self) -> bool:
        process = getattr(getattr(self._spark, "_gateway", None), "proc", None)
        return process is not None and process.poll() is not None

    def _is_gone(self) -> bool:
        """Whether no job can run any more: the JVM has ended, or the cluster has removed this driver."""
        if self._jvm_gone():
            return True
        if self._executors is None:
            return False
        with suppress(*JVM_ERRORS):  # the JVM is ending
            self._executors.look()
        return self._executors.is_stopped

    def check(self) -> None:
        """Notice a JVM that died while no job was running; sets :attr:`lost`."""
        if self._jvm_gone() or (self._executors is not None and self._executors.is_stopped):
            self._lost.set()

    def stop(self) -> None:
        """End Spark; ends the JVM's Python processes too."""
        process = getattr(getattr(self._spark, "_gateway", None), "proc", None)
        if not self._jvm_gone():
            self._stop_session()
        if process is not None:
            # The gateway JVM ends when its standard input does.
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(self._drain_seconds)
            except Exception:  # noqa: BLE001 - no orphaned JVM may remain
                process.kill()
                process.wait()  # the folder it writes to is removed next

    def _stop_session(self) -> None:
        if self._executors is None:
            self._spark.stop()
            return
        # A cluster may not answer: then its executors end because the JVM ends.
        stopping = threading.Thread(target=self._spark.stop, name="spark-stop", daemon=True)
        stopping.start()
        stopping.join(self._drain_seconds)


def _ui_url(spark: SparkContext) -> str:
    try:
        return spark.uiWebUrl or ""
    except (PySparkException, AttributeError):
        return ""


def _numbers(spark: SparkContext, count: int) -> RDD[int]:
    """The numbers of ``count`` tasks, one in each partition."""
    return spark.parallelize(range(count), count)


class PartitionBody:
    """Adapts a body to mapPartitions: the number of one task in, its outcome out."""

    def __init__(self, name: str, body: TaskBody, versions: Mapping[str, str] | None = None) -> None:
        """``versions``: those of the worker, if its executors may have others; None: they have the same."""
        self._name, self._body, self._versions = name, body, versions
        self._tls = of_process()
        self._networks = networks.of_process()
        self._most_inflated = inflation.of_process()

    def __call__(self, numbers: Iterator[int]) -> Iterator[TaskOutcome]:
        # The executors get the paths, never the contents of the files: these must exist there as on the worker's
        # machine. An error in them ends the Spark job, because without TLS no lane can report it to its worker.
        use_fresh(self._tls)
        networks.use(self._networks)
        inflation.use(self._most_inflated)
        for index in numbers:
            differs = None if self._versions is None else difference(platform.node(), own_versions(), self._versions)
            yield guarded(self._name, self._body, index) if differs is None else TaskFailed(differs)


def _without_rest(spark: SparkContext) -> None:
    """Remove the REST interface from Spark's web page, if the page is on: the interface shows thread dumps regardless
    of the settings (org.apache.spark.status.api.v1.AbstractApplicationResource.threadDump)."""
    page: Any = spark._jsc.sc().ui()
    if page.isDefined():
        page.get().detachHandler("/api")

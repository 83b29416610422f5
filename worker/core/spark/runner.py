"""The Spark driver of a worker: runs long-lived Python tasks as jobs of the DataFrame API.

A lane or a chunk reader is one Spark task that lives until its work ends. Only `mapInArrow` and tags
are used, so the same worker runs on local, standalone, YARN or Kubernetes masters.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from shardmerge.proto import errors, networks
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.tls.process import of_process, use_fresh
from shardmerge.worker.core.spark.launch import start_jvm
from shardmerge.worker.core.spark.settings import effective, slots, ui_address
from shardmerge.worker.core.stop_signal import StopSignal

log = get_logger()

_LOCAL_IP = "SPARK_LOCAL_IP"
_POLL_SECONDS = 0.02
_RESULT_SCHEMA = "index int, outcome binary"


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
    """Runs inside a Spark Python process; must pickle by reference (an object of a module-level class)."""

    @abstractmethod
    def __call__(self, index: int) -> TaskOutcome:
        """The work of task ``index``. Any exception becomes TaskFailed, see :func:`guarded`."""

    def failed(self, index: int, error: ShardmergeError) -> None:  # noqa: B027 - not every body reports failures
        """Report to the driver at once that task ``index`` ended with ``error``; does nothing by default.

        The outcome itself arrives only when every task of the job has ended, and the others keep running.
        """


class SparkRunner:
    """Owns the SparkSession and its slots. One per worker process, started before any gRPC object."""

    def __init__(self, settings: Mapping[str, str], drain_seconds: float = 10.0, scratch: Path | None = None) -> None:
        """Start Spark; 4–8 s on a quiet machine. Raises SPARK_START_FAILED, and what :func:`effective` raises.

        ``scratch``: folder for the JVM's files; None: the folder for temporary files.
        """
        merged = effective(settings, scratch)
        # By default Spark's Python workers use `python3` from PATH, but they need this environment.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ[_LOCAL_IP] = ui_address(merged, os.environ.get(_LOCAL_IP, ""), only_tls=of_process() is not None)
        try:
            start_jvm(merged, scratch)
            builder = SparkSession.builder
            for key, value in merged.items():
                builder = builder.config(key, value)
            self._spark = builder.getOrCreate()
            _without_rest(self._spark)
        except Exception as error:  # pyspark raises RuntimeError, OSError or Py4J errors here
            raise errors.worker.SPARK_START_FAILED(reason=_first_line(error)) from error
        self._ui_url = _ui_url(self._spark)
        self._drain_seconds = drain_seconds
        self._total_slots = slots(merged) or os.cpu_count() or 1
        self._used_slots = 0
        self._lock = threading.Lock()
        self._lost = threading.Event()

    @property
    def lost(self) -> bool:
        """Whether the JVM has ended: no job can run in this process any more."""
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

    def _run(self, name: str, count: int, body: TaskBody, stop: StopSignal) -> list[TaskOutcome]:
        tag = f"shardmerge-{uuid.uuid4().hex}"
        job = _Job(self._spark, tag, name, count, body)
        job.start()
        deadline: float | None = None
        waited = 0.0
        while not job.wait(_POLL_SECONDS):
            if not stop.is_set:
                continue
            waited += _POLL_SECONDS
            if deadline is None:
                deadline = waited + self._drain_seconds
            elif waited > deadline:
                log.warning("interrupting Spark job that did not drain", job=name)
                self._spark.interruptTag(tag)
                job.wait(self._drain_seconds)
                break
        if job.outcomes is not None:
            return job.outcomes
        if stop.is_set and not self._jvm_gone():
            return [TaskStopped()] * count
        reason = _first_line(job.error) if job.error is not None else "interrupted"
        if self._jvm_gone():
            self._lost.set()
            return [TaskFailed(errors.worker.SPARK_LOST(reason=reason))] * count
        return [TaskFailed(errors.worker.SPARK_TASK_LOST(job=name, reason=reason))] * count

    def _take_slots(self, name: str, count: int) -> None:
        # Tasks are long-lived: one that waits for a slot would wait for ever, so a shortage is an error.
        with self._lock:
            free = self._total_slots - self._used_slots
            if count > free:
                raise errors.worker.NO_SLOTS(job=name, needed=count, free=free, total=self._total_slots)
            self._used_slots += count

    def _jvm_gone(self) -> bool:
        process = getattr(getattr(self._spark.sparkContext, "_gateway", None), "proc", None)
        return process is not None and process.poll() is not None

    def check(self) -> None:
        """Notice a JVM that died while no job was running; sets :attr:`lost`."""
        if self._jvm_gone():
            self._lost.set()

    def stop(self) -> None:
        """End Spark; ends the JVM's Python processes too."""
        process = getattr(getattr(self._spark.sparkContext, "_gateway", None), "proc", None)
        if not self._jvm_gone():
            self._spark.stop()
        if process is not None:
            # The gateway JVM ends when its standard input does.
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(self._drain_seconds)
            except Exception:  # noqa: BLE001 - no orphaned JVM may remain
                process.kill()
                process.wait()  # the folder it writes to is removed next


def _ui_url(spark: SparkSession) -> str:
    try:
        return spark.sparkContext.uiWebUrl or ""
    except (PySparkException, AttributeError):
        return ""


class _Job(threading.Thread):
    """One collect() in a thread of its own: tags are thread-local."""

    def __init__(self, spark: SparkSession, tag: str, name: str, count: int, body: TaskBody) -> None:
        super().__init__(name=f"spark-{name}", daemon=True)
        self._spark, self._tag, self._label, self._count, self._body = spark, tag, name, count, body
        self._done = threading.Event()
        self.outcomes: list[TaskOutcome] | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._spark.addTag(self._tag)
            rows = (
                self._spark.range(0, self._count, 1, self._count)
                .mapInArrow(ArrowBody(self._label, self._body), _RESULT_SCHEMA)
                .collect()
            )
            found = {row["index"]: pickle.loads(bytes(row["outcome"])) for row in rows}  # noqa: S301 - our own tasks
            self.outcomes = [found[index] for index in range(self._count)]
        except Exception as error:  # noqa: BLE001 - Py4J, PySpark and socket errors alike end the job
            self.error = error
        finally:
            self._done.set()

    def wait(self, seconds: float) -> bool:
        return self._done.wait(seconds)


class ArrowBody:
    """Adapts a body to mapInArrow: one input row per task, one result row per task."""

    def __init__(self, name: str, body: TaskBody) -> None:
        self._name, self._body = name, body
        self._tls = of_process()
        self._networks = networks.of_process()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The executors get the paths, never the contents of the files: these must exist there as on the worker's
        # machine. An error in them ends the Spark job, because without TLS no lane can report it to its worker.
        use_fresh(self._tls)
        networks.use(self._networks)
        for batch in batches:
            for index in batch.column(0).to_pylist():
                outcome = guarded(self._name, self._body, index)
                yield pa.RecordBatch.from_arrays(
                    [pa.array([index], pa.int32()), pa.array([pickle.dumps(outcome)], pa.binary())],
                    names=["index", "outcome"],
                )


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


def _without_rest(spark: SparkSession) -> None:
    """Remove the REST interface from Spark's web page, if the page is on: the interface shows thread dumps regardless
    of the settings (org.apache.spark.status.api.v1.AbstractApplicationResource.threadDump)."""
    page: Any = spark._jsparkSession.sparkContext().ui()
    if page.isDefined():
        page.get().detachHandler("/api")


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    # Spark reports the exception that ended a Python process as the text of its traceback.
    coded = f"{ShardmergeError.__module__}.{ShardmergeError.__qualname__}: "
    for line in text.splitlines():
        if line.startswith(coded):
            return line.removeprefix(coded)
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"

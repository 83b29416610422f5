"""Runs a worker's tasks without a JVM.

:class:`Threads` runs them in this process, :class:`ProcessRunner` in processes of their own. Both implement
:class:`shardmerge.worker.core.task_runner.TaskRunner`. No configuration of a worker can choose them.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import connection, forkserver, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any, cast

import psutil
from pyspark import cloudpickle

from shardmerge.proto import errors, networks
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.tls.process import of_process, use_fresh
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.task_runner import (
    NoTasks,
    TaskBody,
    TaskFailed,
    TaskOutcome,
    TaskStopped,
    guarded,
)

_POLL_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1
FORK_SERVER = "multiprocessing.forkserver"
"""Part of the command line of the process that forks the tasks."""
PRELOADED = (
    "pandas",
    "pyspark.cloudpickle",
    "shardmerge.worker.replicate.lane.lane",
    "shardmerge.worker.snapshot.reader.chunk_reader",
    "shardmerge.worker.verify.compare.task",
    "tests.support.task_runners",
)
"""What the parent of the processes imports once."""


class LocalRunner(NoTasks):
    """Slots on this machine, without a JVM."""

    def __init__(self, slots: int = 64) -> None:
        self._slots = slots
        self._used = 0
        self._lock = threading.Lock()

    @property
    def total_slots(self) -> int:
        return self._slots

    @property
    def free_slots(self) -> int:
        return self._slots - self._used

    def run(self, name: str, count: int, body: TaskBody, stop: StopSignal) -> list[TaskOutcome]:
        with self._lock:
            free = self.free_slots
            if count > free:
                raise errors.worker.NO_SLOTS(job=name, needed=count, free=free, total=self._slots)
            self._used += count
        try:
            return self._run(name, count, body, stop)
        finally:
            with self._lock:
                self._used -= count

    def _run(self, name: str, count: int, body: TaskBody, stop: StopSignal) -> list[TaskOutcome]:
        raise NotImplementedError


class Threads(LocalRunner):
    """Runs task bodies in threads of this process. They cannot be killed."""

    def _run(self, name: str, count: int, body: TaskBody, stop: StopSignal) -> list[TaskOutcome]:
        outcomes: dict[int, TaskOutcome] = {}
        broken: list[BaseException] = []

        def one(index: int) -> None:
            try:
                outcomes[index] = guarded(name, body, index)
            except BaseException as error:  # noqa: BLE001 - raised below
                broken.append(error)

        threads = [threading.Thread(target=one, args=(index,), name=f"{name}-{index}") for index in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if broken:
            raise broken[0]
        return [outcomes[index] for index in range(count)]


class ProcessRunner(LocalRunner):
    """Runs each task in a process of its own, which may be killed. The processes are forked by one that has imported
    all they need, as Spark's are (worker/core/spark/python_daemon.py), and end with the process that made them."""

    def __init__(self, slots: int = 64, drain_seconds: float = 10.0) -> None:
        super().__init__(slots)
        self._drain_seconds = drain_seconds
        self._made = get_context("forkserver")
        self._made.set_forkserver_preload(list(PRELOADED))
        forkserver.ensure_running()
        server = cast("Any", forkserver)._forkserver
        # Not by its command line: it has this process's own until it executes its program.
        self._parent = psutil.Process(server._forkserver_pid)
        # Python would start another one for the next process. A JVM that is lost stays so until the worker starts anew.
        server.ensure_running = self._require_parent
        self.processes: list[ForkServerProcess] = []
        """Of the newest job."""

    @property
    def lost(self) -> bool:
        # Not by its state: a process is a zombie while its threads end, and Python takes it for alive until then.
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, self._parent.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def stop(self) -> None:
        with suppress(psutil.Error):
            self._parent.kill()

    def kill(self, index: int) -> None:
        """kill -9 the process of a task of the newest job, and wait for its end."""
        process = self.processes[index]
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()

    def _run(self, name: str, count: int, body: TaskBody, stop: StopSignal) -> list[TaskOutcome]:
        work = cloudpickle.dumps((name, body, of_process(), networks.of_process(), dict(os.environ)))
        ends: list[Connection] = []
        processes: list[ForkServerProcess] = []
        try:
            for index in range(count):
                mine, its = self._made.Pipe(duplex=False)
                process = self._made.Process(target=run_task, args=(work, index, its), daemon=True)
                process.start()
                its.close()
                ends.append(mine)
                processes.append(process)
            self.processes = processes
            return self._outcomes(name, ends, stop)
        finally:
            for process, end in zip(processes, ends, strict=True):
                process.kill()
                process.join()
                end.close()

    def _outcomes(self, name: str, ends: Sequence[Connection], stop: StopSignal) -> list[TaskOutcome]:
        """Wait for the outcomes. As with Spark, the loss of one task ends the others."""
        found: dict[int, TaskOutcome] = {}
        stopped_at: float | None = None
        while len(found) < len(ends):
            waiting = {end: index for index, end in enumerate(ends) if index not in found}
            for end in connection.wait(list(waiting), _POLL_SECONDS):
                assert isinstance(end, Connection)
                try:
                    found[waiting[end]] = pickle.loads(end.recv_bytes())
                except EOFError:
                    return [TaskFailed(self._loss(name))] * len(ends)
            if stop.is_set and stopped_at is None:
                stopped_at = time.monotonic()
            if stopped_at is not None and time.monotonic() - stopped_at > self._drain_seconds:
                return [TaskStopped()] * len(ends)
        return [found[index] for index in range(len(ends))]

    def _require_parent(self) -> None:
        if self.lost:
            raise _parent_lost()

    def _loss(self, name: str) -> ShardmergeError:
        if self.lost:
            return _parent_lost()
        return errors.worker.SPARK_TASK_LOST(job=name, reason="its process has ended")


def _parent_lost() -> ShardmergeError:
    return errors.worker.SPARK_LOST(reason="the process that forks the tasks has ended")


def run_task(work: bytes, index: int, end: Connection) -> None:
    """Run one task in this process, which was made for it; send its outcome through ``end``."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_with_reader, args=(end.fileno(),), name="end-with-worker", daemon=True).start()
    name, body, tls, allowed, environment = pickle.loads(work)
    os.environ.clear()
    os.environ.update(environment)
    use_fresh(tls)
    networks.use(allowed)
    end.send_bytes(pickle.dumps(guarded(name, body, index)))


def _end_with_reader(descriptor: int) -> None:
    """End this process when the worker, which reads from the pipe, has ended or been killed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    os._exit(1)

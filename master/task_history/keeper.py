"""Samples the tasks' lag and rate, and trims the history, in a thread of the leading master.

It asks each worker for its status once in the sampling interval, all tasks in one call, and lists the keys of the
history once in ten minutes. Its failures are logged once in ten minutes and change nothing else. A sample that cannot
be stored does not keep it from trimming: a full etcd accepts removals only.
"""

from __future__ import annotations

import time

from shardmerge.master.state import State
from shardmerge.master.store import Leadership, Store
from shardmerge.master.task_history.block_store import BlockStore
from shardmerge.master.task_history.blocks import is_sampled
from shardmerge.master.task_history.bounds import BLOCKS, ENTRIES, stored_blocks, stored_entries, to_remove
from shardmerge.master.task_history.readings import Reading, reading_of, sample_of
from shardmerge.master.workers.client import Workers
from shardmerge.proto import errors, etcd_keys, worker_pb2
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd
from shardmerge.proto.process.periodic import LoopThread, Rounds, repeat

_LOOK_SECONDS = 5.0
_TRIM_SECONDS = 600.0
_TRIM_AGAIN_SECONDS = 10.0
"""After a pass that left records: workers that are newer than the former leader, which did not trim, may have written
many."""
_REMOVED_AT_ONCE = 50
MOST_REMOVED = 5_000
"""Records that a pass removes."""
_STATE_SECONDS = 60.0


class HistoryKeeper:
    """``days``: age at which the history ends. ``interval``: seconds between two samples of a task."""

    def __init__(
        self, etcd: Etcd, store: Store, leadership: Leadership, workers: Workers, days: int, interval: int
    ) -> None:
        self._etcd = etcd
        self._store = store
        self._leadership = leadership
        self._workers = workers
        self._days = days
        self._interval = interval
        self._blocks = BlockStore(etcd, leadership, interval)
        self._readings: dict[str, tuple[float, dict[str, Reading]]] = {}  # by task, and when they were taken
        self._trim_at = 0.0
        self._rounds = Rounds(
            "the history of tasks cannot be kept", expected=(errors.master.NOT_LEADER, errors.master.NO_LEADER)
        )
        seconds = min(_LOOK_SECONDS, interval)
        self._thread = LoopThread("task-history-keeper", lambda stop: repeat(self._look, seconds, stop))
        self.start, self.end = self._thread.start, self._thread.end

    def _look(self) -> None:
        if not self._leadership.leads:
            self._forget()
            return
        if not self._rounds.is_done(lambda: self.sample(time.time())):
            self._forget()
        if time.monotonic() >= self._trim_at:
            self._trim_at = time.monotonic() + _TRIM_SECONDS
            self._rounds.is_done(self._trim)

    def _trim(self) -> None:
        if not self.trim(time.time()):
            self._trim_at = time.monotonic() + _TRIM_AGAIN_SECONDS

    def _forget(self) -> None:
        self._blocks.forget()
        self._readings.clear()

    def sample(self, now: float) -> None:
        """Take a sample of each task that has none in this interval. A new task has its first one within seconds."""
        last = self._store.last_read
        if last is None or time.monotonic() - last.at > _STATE_SECONDS:
            return  # this master has just become the leader, and its loops have not read the records yet
        state = last.state
        tasks = {task for task, _ in state.subtasks}
        self._blocks.keep_only(frozenset(tasks))
        self._readings = {task: known for task, known in self._readings.items() if task in tasks}
        due = {task for task in tasks if not is_sampled(self._blocks.current(task, now), now, self._interval)}
        if not due:
            return
        statuses = self._statuses(sorted({source for task, source in state.subtasks if task in due}), state)
        self._blocks.add({task: self._sample(task, state, statuses, now) for task in sorted(due)}, now)

    def _sample(
        self, task: str, state: State, statuses: dict[tuple[str, str], worker_pb2.SubTaskStatus], now: float
    ) -> pb.HistorySample:
        at, before = self._readings.get(task, (now, {}))
        readings = [reading_of(source, statuses.get((task, source))) for source in state.sources_of(task)]
        self._readings[task] = now, {one.source: one for one in readings}
        return sample_of(readings, before, now, now - at)

    def _statuses(self, sources: list[str], state: State) -> dict[tuple[str, str], worker_pb2.SubTaskStatus]:
        """By task and source; without those of workers that do not answer."""
        answers = self._workers.for_each(sources, lambda source: self._status(source, state))
        return {
            (subtask.name, source): subtask
            for source, answer in zip(sources, answers, strict=True)
            for subtask in answer
        }

    def _status(self, source: str, state: State) -> list[worker_pb2.SubTaskStatus]:
        worker = state.worker_of(source)
        if worker is None:
            return []
        try:
            return list(self._workers.status(worker).subtasks)
        except ShardmergeError:
            return []

    def trim(self, now: float) -> bool:
        """Remove what is too old or too much, then thin samples; False: more is left for a later call. Raises
        NOT_LEADER, NO_LEADER and errors of etcd; a later call continues."""
        # Before anything is written: a full etcd refuses that.
        entries = stored_entries(self._etcd.keys(etcd_keys.HISTORY_ENTRIES))
        blocks = stored_blocks(self._etcd.keys(etcd_keys.HISTORY_SAMPLES))
        removable = [*to_remove(entries, now, self._days, ENTRIES), *to_remove(blocks, now, self._days, BLOCKS)]
        for begin in range(0, min(len(removable), MOST_REMOVED), _REMOVED_AT_ONCE):
            if self._thread.is_stopping:
                return False
            self._blocks.remove(removable[begin : min(begin + _REMOVED_AT_ONCE, MOST_REMOVED)])
        self._blocks.thin(self._etcd.keys(etcd_keys.HISTORY_SAMPLES), now)
        return len(removable) <= MOST_REMOVED

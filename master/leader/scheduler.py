"""Brings the bindings to what the placement decides, whenever the records change."""

from __future__ import annotations

import time

from shardmerge.master.leader.counts import LeaderCounts
from shardmerge.master.leader.loop import LeaderLoop
from shardmerge.master.placement import after, place, violations
from shardmerge.master.store import Leadership, Store, addresses
from shardmerge.master.task_history.steps import WorkerChanges, placement_events
from shardmerge.master.workers.client import Workers
from shardmerge.proto import errors
from shardmerge.proto.etcd import Etcd
from shardmerge.proto.http.loops import LoopAges
from shardmerge.proto.log import get_logger
from shardmerge.proto.task_history.event import History


class Scheduler:
    def __init__(
        self,
        etcd: Etcd,
        store: Store,
        leadership: Leadership,
        workers: Workers,
        counts: LeaderCounts,
        loops: LoopAges,
        history: History,
    ) -> None:
        self._history = history
        self._watch = WorkerChanges()
        self._store = store
        self._counts = counts
        self._workers = workers
        self._loop = LeaderLoop("placement", etcd, leadership, self.reconcile, self._watch.forget, loops)

    def start(self) -> None:
        self._loop.start()

    def end(self) -> None:
        self._loop.end()

    def reconcile(self) -> None:
        """Place once."""
        with self._store.deciding() as state:
            for event in self._watch.observe(state, time.time()):
                self._history.add(event)
            sources, workers, bindings = state.enabled(), frozenset(state.workers), state.bindings()
            steps = place(sources, workers, bindings)
            broken = violations(sources, workers, after(bindings, steps))
            if broken:
                raise errors.master.BAD_PLACEMENT(reason="; ".join(broken))
            for step in steps:
                self._store.place(step, state)
                self._counts.placed(step)
                get_logger().info("placement", step=str(step))
                for event in placement_events(step, state, time.time()):
                    self._history.add(event)
        self._workers.keep_only(frozenset(addresses(state).values()))

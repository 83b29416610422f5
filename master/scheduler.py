"""Whenever the records change, bring the bindings to what the placement says."""

from __future__ import annotations

from master.leader_loop import LeaderLoop
from master.placement import after, place, violations
from master.store import Leadership, Store, addresses
from master.workers import Workers
from proto import errors
from proto.etcd import Etcd
from proto.log import get_logger


class Scheduler:
    def __init__(self, etcd: Etcd, store: Store, leadership: Leadership, workers: Workers) -> None:
        self._store = store
        self._workers = workers
        self._loop = LeaderLoop("placement", etcd, leadership, self.reconcile)

    def start(self) -> None:
        self._loop.start()

    def end(self) -> None:
        self._loop.end()

    def reconcile(self) -> None:
        """Place once."""
        with self._store.deciding() as state:
            sources, workers, bindings = state.enabled(), frozenset(state.workers), state.bindings()
            steps = place(sources, workers, bindings)
            broken = violations(sources, workers, after(bindings, steps))
            if broken:
                raise errors.master.BAD_PLACEMENT(reason="; ".join(broken))
            for step in steps:
                self._store.place(step, state)
                get_logger().info("placement", step=str(step))
        self._workers.keep_only(frozenset(addresses(state).values()))

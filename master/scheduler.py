"""The leader's loop: whenever the records change, bring the bindings to what the placement says."""

from __future__ import annotations

import threading

from master.placement import after, place, violations
from master.store import Leadership, Store, addresses
from master.workers import Workers
from proto import errors, keys
from proto.errors import ShardmergeError
from proto.etcd import Etcd
from proto.log import get_logger

# Also the delay after which a master that has just become the leader looks for the first time.
_RESYNC_SECONDS = 1.0


class Scheduler:
    def __init__(self, etcd: Etcd, store: Store, leadership: Leadership, workers: Workers) -> None:
        self._etcd = etcd
        self._store = store
        self._leadership = leadership
        self._workers = workers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for _ in self._etcd.watch(keys.PREFIX, 0, self._stop, _RESYNC_SECONDS):
            if not self._leadership.leads:
                continue
            try:
                self.reconcile()
            except ShardmergeError as error:
                # The next change or tick tries again: nothing was half done.
                get_logger().warning("placement", error=str(error))

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

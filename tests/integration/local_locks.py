"""The sharding-DDL locks of one source, with the master's decisions and without its processes."""

from __future__ import annotations

import itertools
import threading
import time

from shardmerge.master.ddl_lock.records import Target, report_of, to_lock, to_record
from shardmerge.master.ddl_lock.resolver import Close, Nothing, Wait, resolve, violations
from shardmerge.master.ddl_lock.situation import Situation
from shardmerge.proto import state_pb2
from shardmerge.worker.core.table_plan import TargetTable


class LocalLocks:
    """See :class:`shardmerge.worker.ddl.locks.lock_client.LockClient`. It outlives the runs of its subtask."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._version = 0
        self._generations = itertools.count(1)
        self._locks: dict[Target, state_pb2.LockRecord] = {}
        self.record = state_pb2.ShardRecord()
        self._sources: frozenset[str] = frozenset()

    def publish(self, task: str, source: str, record: state_pb2.ShardRecord) -> None:
        with self._changed:
            self.record = record
            self._sources = frozenset({source})
            for one in record.targets:
                self._decide(Target(task, one.schema, one.table), source)
            self._notify()

    def wake(self) -> None:
        with self._changed:
            self._notify()

    def locks(self, task: str, seen: int, seconds: float) -> tuple[int, tuple[state_pb2.LockRecord, ...]]:
        with self._changed:
            self._changed.wait_for(lambda: self._version != seen, max(seconds, 0.0))
            return self._version, tuple(self._locks.values())

    def current_lock(self, task: str, target: TargetTable) -> state_pb2.LockRecord | None:
        with self._changed:
            return self._locks.get(Target(task, *target.names))

    def sources(self, task: str) -> frozenset[str]:
        with self._changed:
            return self._sources

    def parked(self) -> set[str]:
        """Return the names of the tables that wait at a lock."""
        with self._changed:
            return {table.table for one in self.record.targets for table in one.tables if table.HasField("parked")}

    def _notify(self) -> None:
        self._version += 1
        self._changed.notify_all()

    def _decide(self, target: Target, source: str) -> None:
        while True:
            known = self._locks.get(target)
            report = report_of(target, source, self.record)
            seen = Situation({source: report}, None if known is None else to_lock(known))
            step = resolve(seen, time.time(), f"g{next(self._generations)}")
            assert not violations(seen, step)
            match step:
                case Nothing() | Wait():
                    return
                case Close():
                    del self._locks[target]
                case _:
                    self._locks[target] = to_record(target, step.lock)

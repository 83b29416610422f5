"""A worker's side of the sharding-DDL locks in etcd: what its subtasks tell, what the master has decided."""

from __future__ import annotations

import threading
from typing import Protocol

from proto import errors, keys, state_pb2
from proto.etcd import Etcd, KeyIs, Put, Snapshot

Lock = state_pb2.LockRecord


class ShardDesk(Protocol):
    """Thread-safe."""

    def publish(self, task: str, source: str, record: state_pb2.ShardRecord) -> None:
        """Tell of the source's shard tables. Raises FENCED when the subtask has another epoch, ETCD_UNAVAILABLE."""
        ...

    def locks(self, task: str, seen: int, seconds: float) -> tuple[int, tuple[Lock, ...]]:
        """The task's locks and their state's number; waits up to ``seconds`` for another state than ``seen``."""
        ...


class EtcdShardDesk:
    """See :class:`ShardDesk`. :meth:`see` is called with every reading of the records."""

    def __init__(self, etcd: Etcd) -> None:
        self._etcd = etcd
        self._changed = threading.Condition()
        self._numbers: dict[str, int] = {}
        self._locks: dict[str, tuple[Lock, ...]] = {}

    def see(self, snapshot: Snapshot) -> None:
        """The locks of this reading are those that count."""
        found: dict[str, list[Lock]] = {}
        for record in snapshot.records:
            if record.key.startswith(keys.LOCKS):
                lock = keys.decode(Lock, record.value, record.key)
                found.setdefault(lock.task, []).append(lock)
        locks = {task: tuple(items) for task, items in found.items()}
        with self._changed:
            changed = [task for task in locks.keys() | self._locks.keys() if locks.get(task) != self._locks.get(task)]
            self._locks = locks
            for task in changed:
                self._numbers[task] = self._numbers.get(task, 0) + 1
            if changed:
                self._changed.notify_all()

    def publish(self, task: str, source: str, record: state_pb2.ShardRecord) -> None:
        result = self._etcd.txn(
            # The epoch is the revision that wrote its record.
            [KeyIs(keys.epoch(task, source), record.epoch)],
            [Put(keys.shard(task, source), keys.encode(record))],
        )
        if not result.ok:
            raise errors.replicate.FENCED(task=task, source=source, epoch=record.epoch)

    def locks(self, task: str, seen: int, seconds: float) -> tuple[int, tuple[Lock, ...]]:
        with self._changed:
            self._changed.wait_for(lambda: self._numbers.get(task, 0) != seen, seconds)
            return self._numbers.get(task, 0), self._locks.get(task, ())

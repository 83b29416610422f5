"""The sharding-DDL locks in etcd: the subtasks of this worker read them and publish their records through it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shardmerge.proto import errors, etcd_keys, state_pb2
from shardmerge.proto.etcd import Etcd, KeyIs, Put, RecordSnapshot
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.locks.lock_client import Lock


class EtcdLockClient:
    """A :class:`shardmerge.worker.ddl.locks.lock_client.LockClient`. :meth:`update` is called with every snapshot of
    the records."""

    def __init__(self, etcd: Etcd, revision_of: Callable[[str, str, int], int | None]) -> None:
        """``revision_of``: (task, source, epoch) → the revision of the epoch record, None: of another epoch."""
        self._etcd = etcd
        self._revision_of = revision_of
        self._changed = threading.Condition()
        self._numbers: dict[str, int] = {}
        self._locks: dict[str, tuple[Lock, ...]] = {}

    def update(self, snapshot: RecordSnapshot) -> None:
        """Replace the known locks by those of this snapshot."""
        found: dict[str, list[Lock]] = {}
        for record in snapshot.records:
            if record.key.startswith(etcd_keys.LOCKS):
                lock = etcd_keys.decode(Lock, record.value, record.key)
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
        revision = self._revision_of(task, source, record.epoch)
        if (
            revision is None
            or not self._etcd.txn(
                [KeyIs(etcd_keys.epoch(task, source), revision)],
                [Put(etcd_keys.shard(task, source), etcd_keys.encode(record))],
            ).ok
        ):
            raise errors.replicate.FENCED(task=task, source=source, epoch=record.epoch)

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def locks(self, task: str, seen: int, seconds: float) -> tuple[int, tuple[Lock, ...]]:
        with self._changed:
            if self._numbers.get(task, 0) == seen and seconds > 0:
                self._changed.wait(seconds)
            return self._numbers.get(task, 0), self._locks.get(task, ())

    def current_lock(self, task: str, target: TargetTable) -> Lock | None:
        key = etcd_keys.lock(task, *target.names)
        record = self._etcd.get(key)
        return etcd_keys.decode(Lock, record.value, key) if record is not None else None

    def sources(self, task: str) -> frozenset[str]:
        found = self._etcd.get_prefix(etcd_keys.shards(task))
        return frozenset(etcd_keys.names(record.key, etcd_keys.SHARDS)[1] for record in found.records)

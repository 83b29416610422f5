"""The interface to the sharding-DDL locks: a subtask publishes its shard tables and reads the locks of its task."""

from __future__ import annotations

from typing import Protocol

from shardmerge.proto import state_pb2
from shardmerge.worker.core.table_plan import TargetTable

Lock = state_pb2.LockRecord


class LockClient(Protocol):
    """Thread-safe."""

    def publish(self, task: str, source: str, record: state_pb2.ShardRecord) -> None:
        """Publish the source's shard tables. Raises FENCED when the subtask has another epoch, ETCD_UNAVAILABLE."""
        ...

    def wake(self) -> None:
        """End the waits of :meth:`locks`."""
        ...

    def locks(self, task: str, seen: int, seconds: float) -> tuple[int, tuple[Lock, ...]]:
        """The version of the task's locks and the locks; waits up to ``seconds`` for another version than ``seen``
        or for :meth:`wake`."""
        ...

    def current_lock(self, task: str, target: TargetTable) -> Lock | None:
        """The target's lock, read after everything that was published. Raises ETCD_UNAVAILABLE."""
        ...

    def sources(self, task: str) -> frozenset[str]:
        """The sources that have published their shard tables and are still in the task, read after everything that was
        published. Raises ETCD_UNAVAILABLE."""
        ...

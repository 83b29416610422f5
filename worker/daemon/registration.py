"""Registers the worker in etcd: its record and others under a lease, and fencing tokens acquired while it holds one."""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from shardmerge.proto import errors, etcd_keys, state_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Condition, Delete, Etcd, KeyIs, KeyPresent, Lease, Put
from shardmerge.proto.log import get_logger

log = get_logger()


@dataclass(frozen=True, slots=True)
class _Held:
    lease: Lease
    revision: int  # of the worker's record


@dataclass(frozen=True, slots=True)
class Written:
    """The ``revision`` that wrote a record, and :meth:`Registration.revision` at that time."""

    revision: int
    registered: int


class Registration:
    """Owns the record ``worker/<name>``. A newer process of the same name takes it over."""

    def __init__(self, etcd: Etcd, name: str, address: str, ttl: float, settings: str = "") -> None:
        self._etcd = etcd
        self.name = name
        self._ttl = ttl
        self.incarnation = uuid.uuid4().hex
        self._record = state_pb2.WorkerRecord(
            name=name, address=address, incarnation=self.incarnation, settings=settings
        )
        self._lock = threading.Lock()
        self._held: _Held | None = None

    @property
    def alive(self) -> bool:
        """Whether the lease certainly holds; without it nothing may run."""
        held = self._held
        return held is not None and held.lease.alive

    @property
    def lease_left(self) -> float:
        """Seconds until the lease ends unless it is renewed; 0 without one."""
        held = self._held
        return 0.0 if held is None else held.lease.remaining

    def lost_event(self) -> threading.Event | None:
        held = self._held
        return None if held is None else held.lease.lost

    def lease_seconds(self) -> int:
        """The longest time that a record under the lease outlives this process. Raises LEASE_LOST."""
        return math.ceil(self._held_or_raise().lease.ttl)

    def revision(self) -> int:
        """Identifies the current registration: the revision of the worker's record. Raises LEASE_LOST."""
        return self._held_or_raise().revision

    def register(self) -> None:
        """Take a lease and put the record. Raises ETCD_UNAVAILABLE."""
        with self._lock:
            if self.alive:
                return
            lease = self._etcd.lease(self._ttl)
            try:
                revision = self._etcd.put(etcd_keys.worker(self.name), etcd_keys.encode(self._record), lease.id)
            except ShardmergeError:
                lease.abandon()
                raise
            self._held = _Held(lease, revision)
        log.info("registered", worker=self.name, incarnation=self.incarnation)

    def superseded(self) -> bool:
        """Whether another process of this name has registered since. Raises ETCD_UNAVAILABLE."""
        found = self._etcd.get(etcd_keys.worker(self.name))
        if found is None:
            return False
        return etcd_keys.decode(state_pb2.WorkerRecord, found.value, found.key).incarnation != self.incarnation

    def target_of(self, task: str, source: str) -> str:
        """Implement Epochs. Raises ETCD_UNAVAILABLE."""
        key = etcd_keys.epoch(task, source)
        record = self._etcd.get(key)
        return "" if record is None else etcd_keys.decode(state_pb2.EpochRecord, record.value, key).target

    def acquire(self, task: str, source: str, target: str = "") -> int:
        """A fencing token: the revision that writes the subtask's epoch record, so it always increases.

        Only while this process holds its registration and the source is bound to it. Raises
        NOT_BOUND, LEASE_LOST, ETCD_UNAVAILABLE.
        """
        held = self._held_or_raise()
        bound = self._etcd.get(etcd_keys.bound(source))
        if bound is None or etcd_keys.decode(state_pb2.BindingRecord, bound.value, bound.key).worker != self.name:
            raise errors.worker.NOT_BOUND(source=source, worker=self.name)
        target = target or self.target_of(task, source)
        record = state_pb2.EpochRecord(worker=self.name, incarnation=self.incarnation, target=target)
        answer = self._etcd.txn(
            [
                KeyIs(etcd_keys.worker(self.name), held.revision),
                KeyIs(etcd_keys.bound(source), bound.mod_revision),
                KeyPresent(etcd_keys.subtask(task, source)),
            ],
            [Put(etcd_keys.epoch(task, source), etcd_keys.encode(record))],
        )
        if not answer.ok:
            raise errors.worker.NOT_BOUND(source=source, worker=self.name)
        return answer.revision

    def put(
        self, key: str, value: bytes, conditions: Sequence[Condition], deletes: Sequence[Delete] = ()
    ) -> Written | None:
        """Write a record under this worker's lease, and delete others; None when a condition does not hold.

        Only while this process holds its registration. Raises LEASE_LOST, ETCD_UNAVAILABLE.
        """
        held = self._held_or_raise()
        place = etcd_keys.worker(self.name)
        answer = self._etcd.txn([KeyIs(place, held.revision), *conditions], [Put(key, value, held.lease.id), *deletes])
        if answer.ok:
            return Written(answer.revision, held.revision)
        found = self._etcd.get(place)
        if found is None or found.mod_revision != held.revision:
            raise errors.worker.LEASE_LOST(worker=self.name)
        return None

    def _held_or_raise(self) -> _Held:
        held = self._held
        if held is None or not held.lease.alive:
            raise errors.worker.LEASE_LOST(worker=self.name)
        return held

    def resign(self) -> None:
        """Revoke the lease, so that the master need not wait until it expires."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            held.lease.revoke()

"""Registers the worker in etcd: its record and others under a lease, and fencing tokens acquired while it holds one.

An epoch is the etcd revision that wrote the subtask's epoch record, plus a base that etcd holds for all subtasks. So
epochs are in the order in which etcd has confirmed the runs. The base is 0 until etcd loses data (its disk is lost, or
an older snapshot is restored): then revisions begin below the epochs that the targets have recorded. The first run that
finds this raises the base to the target's epoch, so that each epoch from then on is above it.
"""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from shardmerge.proto import errors, etcd_keys, state_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Condition, Delete, Etcd, KeyAbsent, KeyIs, KeyPresent, Lease, Put
from shardmerge.proto.log import get_logger

log = get_logger()


@dataclass(frozen=True, slots=True)
class _Held:
    lease: Lease
    revision: int  # of the worker's record


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """The ``revision`` that wrote a record, and :meth:`Registration.revision` at that time."""

    revision: int
    registered: int


@dataclass(frozen=True, slots=True)
class _Acquired:
    """An epoch, and the ``revision`` that wrote its record."""

    epoch: int
    revision: int


@dataclass(frozen=True, slots=True)
class _Base:
    """What is added to a revision to make an epoch. ``as_read``: holds while it has not changed."""

    value: int
    as_read: KeyIs | KeyAbsent


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
        self._announced: Lease | None = None
        self._held: _Held | None = None
        self._acquired: dict[tuple[str, str], _Acquired] = {}

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

    def announce(self) -> None:
        """Take a lease and record that this worker starts. If etcd does not answer, only the log reports that."""
        try:
            lease = self._etcd.lease(self._ttl)
            self._announced = lease
            self._etcd.put(etcd_keys.starting(self.name), etcd_keys.encode(self._record), lease.id)
        except ShardmergeError as error:
            log.warning("the start is not announced", error=str(error))

    def register(self) -> None:
        """Put the record, under the lease of :meth:`announce` if it holds. Raises ETCD_UNAVAILABLE."""
        with self._lock:
            if self.alive:
                return
            announced, self._announced = self._announced, None
            lease = announced if announced is not None and announced.alive else self._etcd.lease(self._ttl)
            try:
                answer = self._etcd.txn(
                    [],
                    [
                        Put(etcd_keys.worker(self.name), etcd_keys.encode(self._record), lease.id),
                        Delete(etcd_keys.starting(self.name)),
                    ],
                )
            except ShardmergeError:
                lease.abandon()
                raise
            self._held = _Held(lease, answer.revision)
        log.info("registered", worker=self.name, incarnation=self.incarnation)

    def lose(self) -> None:
        """Give up the lease without a call to etcd, whose records are not those that this process has written."""
        held = self._held
        if held is not None:
            held.lease.abandon()
            held.lease.lost.set()

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

    def acquire(self, task: str, source: str, above: int, target: str = "") -> int:
        """A fencing token: implement Epochs.

        Only while this process holds its registration and the source is bound to it. The write of the epoch record has
        the condition that the base is as read: no epoch is below one that etcd has confirmed before. Raises NOT_BOUND,
        LEASE_LOST, ETCD_UNAVAILABLE.
        """
        held = self._held_or_raise()
        bound = self._etcd.get(etcd_keys.bound(source))
        if bound is None or etcd_keys.decode(state_pb2.BindingRecord, bound.value, bound.key).worker != self.name:
            raise errors.worker.NOT_BOUND(source=source, worker=self.name)
        target = target or self.target_of(task, source)
        record = state_pb2.EpochRecord(worker=self.name, incarnation=self.incarnation, target=target)
        while True:
            base = self._base_above(above)
            answer = self._etcd.txn(
                [
                    base.as_read,
                    KeyIs(etcd_keys.worker(self.name), held.revision),
                    KeyIs(etcd_keys.bound(source), bound.mod_revision),
                    KeyPresent(etcd_keys.subtask(task, source)),
                ],
                [Put(etcd_keys.epoch(task, source), etcd_keys.encode(record))],
            )
            if answer.ok:
                acquired = _Acquired(base.value + answer.revision, answer.revision)
                self._acquired[task, source] = acquired
                return acquired.epoch
            if self._read_base()[0] == base:
                raise errors.worker.NOT_BOUND(source=source, worker=self.name)

    def rise_above(self, epoch: int) -> None:
        """Make all epochs from now on higher than ``epoch``: implement Epochs. Raises LEASE_LOST, ETCD_UNAVAILABLE."""
        self._base_above(epoch)

    def revision_of(self, task: str, source: str, epoch: int) -> int | None:
        """The revision of the subtask's epoch record, if ``epoch`` is the last one that this process has acquired."""
        acquired = self._acquired.get((task, source))
        return acquired.revision if acquired is not None and acquired.epoch == epoch else None

    def _base_above(self, epoch: int) -> _Base:
        """The base with which the next write is an epoch above ``epoch``."""
        while True:
            base, revision = self._read_base()
            if base.value + revision >= epoch:
                return base
            log.warning("etcd has lost data: epochs continue above the target's", epoch=epoch, revision=revision)
            record = etcd_keys.encode(state_pb2.EpochBaseRecord(base=epoch))
            registered = KeyIs(etcd_keys.worker(self.name), self._held_or_raise().revision)
            answer = self._etcd.txn([base.as_read, registered], [Put(etcd_keys.EPOCH_BASE, record)])
            if not answer.ok and self._read_base()[0] == base:
                raise errors.worker.LEASE_LOST(worker=self.name)

    def _read_base(self) -> tuple[_Base, int]:
        """The base, and the revision of this read."""
        key = etcd_keys.EPOCH_BASE
        found = self._etcd.get_prefix(key)
        for record in found.records:
            if record.key == key:
                value = etcd_keys.decode(state_pb2.EpochBaseRecord, record.value, key).base
                return _Base(value, KeyIs(key, record.mod_revision)), found.revision
        return _Base(0, KeyAbsent(key)), found.revision

    def put(
        self, key: str, value: bytes, conditions: Sequence[Condition], deletes: Sequence[Delete] = ()
    ) -> WrittenRecord | None:
        """Write a record under this worker's lease, and delete others; None when a condition does not hold.

        Only while this process holds its registration. Raises LEASE_LOST, ETCD_UNAVAILABLE.
        """
        held = self._held_or_raise()
        place = etcd_keys.worker(self.name)
        answer = self._etcd.txn([KeyIs(place, held.revision), *conditions], [Put(key, value, held.lease.id), *deletes])
        if answer.ok:
            return WrittenRecord(answer.revision, held.revision)
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
            announced, held = self._announced, self._held
            self._announced = self._held = None
        for lease in (announced, None if held is None else held.lease):
            if lease is not None:
                lease.revoke()

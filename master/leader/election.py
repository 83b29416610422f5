"""Membership and leadership of one master: two records under one lease."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from shardmerge.master.leader.counts import LeaderCounts
from shardmerge.proto import errors, etcd_keys
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Delete, Etcd, KeyAbsent, KeyIs, Lease, Put, Record
from shardmerge.proto.http.loops import LoopAges
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import LoopThread, repeat

_PAUSE_AFTER_FAILURE_SECONDS = 0.5
_LOOP = "election"


@dataclass(frozen=True, slots=True)
class _Lead:
    """The lease that holds the leader record, and the record's revision."""

    lease: Lease
    revision: int


def _always() -> None:
    pass


class Election:
    """Keeps the master a member of the cluster and, whenever no other master leads, its leader, until :meth:`end`.

    Start it when the gRPC server answers: the record directs others to its address.
    """

    def __init__(
        self,
        etcd: Etcd,
        name: str,
        address: str,
        ttl: float,
        settings: str = "",
        fit: Callable[[], None] = _always,
        loops: LoopAges | None = None,
        counts: LeaderCounts | None = None,
    ) -> None:
        """``fit``: raises why this master must not be a member, whenever it joins or would lead. ``loops``, ``counts``:
        for probes and metrics."""
        self._loops = loops if loops is not None else LoopAges()
        self._counts = counts if counts is not None else LeaderCounts()
        self._member: Lease | None = None
        self._etcd = etcd
        self._fit = fit
        self._unfit: ShardmergeError | None = None
        self._name = name
        self._address = address
        self._ttl = ttl
        self._settings = settings
        self._lead: _Lead | None = None
        self._thread = LoopThread("election", self._run)
        # A record of the same name and address was left by an earlier process of this master: take it over at once
        # instead of waiting for its lease to end. Once only: two masters configured alike would otherwise take it from
        # each other for ever.
        self._may_take_over = True
        # Leases this process has had: a record under one of them is its own too. etcd may have been unreachable for so
        # long that the lease counts as lost here and still exists there.
        self._leases: set[int] = set()
        self._stepped_down = threading.Event()

    @property
    def leads(self) -> bool:
        """Whether this master leads now, by the lease's clock. Only :meth:`condition` makes a write safe."""
        lead = self._lead
        return lead is not None and lead.lease.alive

    @property
    def is_member(self) -> bool:
        """Whether this master is a member of the cluster now, by the lease's clock."""
        lease = self._member
        return lease is not None and lease.alive

    @property
    def lease_left(self) -> float:
        """Seconds until the member's lease ends unless it is renewed; 0 without one."""
        lease = self._member
        return 0.0 if lease is None else lease.remaining

    def condition(self) -> KeyIs:
        """Holds in etcd while this master leads. Raises NOT_LEADER with the leader's address, or NO_LEADER."""
        lead = self._lead
        if lead is not None and lead.lease.alive:
            return KeyIs(etcd_keys.LEADER, lead.revision)
        raise self._refusal(self._etcd.get(etcd_keys.LEADER))

    def confirm(self) -> None:
        """Ask etcd; raises like :meth:`condition` when another master has the leader record by now."""
        lead = self._lead
        record = self._etcd.get(etcd_keys.LEADER)
        if lead is None or record is None or record.mod_revision != lead.revision:
            raise self._refusal(record)

    def step_down(self) -> None:
        """Do not lead until :meth:`run_again` or the next start; the election thread deletes the leader record."""
        self._stepped_down.set()
        self._lead = None

    def run_again(self) -> None:
        self._stepped_down.clear()

    def _refusal(self, record: Record | None) -> ShardmergeError:
        if record is None and self._unfit is not None:
            return self._unfit
        if record is None:
            return errors.master.NO_LEADER(master=self._name)
        leader = etcd_keys.decode(pb.LeaderRecord, record.value, record.key)
        if leader.name == self._name:  # an earlier process's record, or this one's before it has noticed
            return errors.master.NO_LEADER(master=self._name)
        return errors.master.NOT_LEADER(master=self._name, leader=leader.name, address=leader.address)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Delete both records, so that another master leads at once."""
        self._thread.end()

    def _run(self, stop: threading.Event) -> None:
        repeat(lambda: self._hold_lease(stop), 0.0, stop)
        self._loops.ended(_LOOP)

    def _hold_lease(self, stop: threading.Event) -> float:
        """Request a lease and serve while it lasts; returns the pause before the next one."""
        log = get_logger(master=self._name)
        self._loops.begins(_LOOP)
        try:
            lease = self._etcd.lease(self._ttl)
        except ShardmergeError as error:
            log.warning("cannot join", error=str(error))
            return _PAUSE_AFTER_FAILURE_SECONDS
        self._leases.add(lease.id)
        try:
            self._serve(lease, stop)
        finally:
            self._lead = self._member = None
            if stop.is_set():
                lease.revoke()
            else:
                lease.abandon()
                log.warning("lease lost; joining again", lease=f"{lease.id:x}")
        return 0.0

    def _serve(self, lease: Lease, stop: threading.Event) -> None:
        """Be a member and run for leader until the lease is lost or the master ends."""
        log = get_logger(master=self._name)
        ended = _Either(stop, lease.lost)
        member = False
        for _ in self._etcd.watch(etcd_keys.LEADER, 0, ended, resync_seconds=max(0.5, self._ttl / 5)):
            self._loops.begins(_LOOP)
            try:
                member = member or self._join(lease)
                if member:
                    self._member = lease
                    self._campaign(lease)
            except ShardmergeError as error:
                log.warning("election", error=str(error))

    def _join(self, lease: Lease) -> bool:
        """Write the member record; False while another process holds the name. Raises the error that keeps it from
        joining."""
        self._check_fit()
        key = etcd_keys.master(self._name)
        record = self._etcd.get(key)
        if record is not None:
            other = etcd_keys.decode(pb.MasterRecord, record.value, key)
            if other.address != self._address and record.lease not in self._leases:
                taken = errors.master.NAME_TAKEN(kind="master", name=self._name, address=other.address)
                get_logger(master=self._name).warning("cannot join", error=str(taken))
                return False
        condition = KeyIs(key, record.mod_revision) if record else KeyAbsent(key)
        value = etcd_keys.encode(pb.MasterRecord(name=self._name, address=self._address, settings=self._settings))
        return self._etcd.txn([condition], [Put(key, value, lease.id)]).ok

    def _check_fit(self) -> None:
        try:
            self._fit()
        except ShardmergeError as error:
            self._unfit = None if error.spec.retryable else error
            raise
        self._unfit = None

    def _campaign(self, lease: Lease) -> None:
        record = self._etcd.get(etcd_keys.LEADER)
        if self._stepped_down.is_set():
            self._lead = None
            if record is not None and record.lease in self._leases:
                self._etcd.txn([KeyIs(etcd_keys.LEADER, record.mod_revision)], [Delete(etcd_keys.LEADER)])
            return
        if record is not None and record.lease == lease.id:
            self._set_lead(lease, record.mod_revision)
            return
        if self._lead is not None:
            get_logger(master=self._name).warning("no longer the leader")
            self._lead = None
        if record is None:
            condition = KeyAbsent(etcd_keys.LEADER)
        elif record.lease in self._leases or (self._may_take_over and self._is_mine(record)):
            condition = KeyIs(etcd_keys.LEADER, record.mod_revision)
        else:
            self._may_take_over = False
            return
        self._check_fit()
        value = etcd_keys.encode(pb.LeaderRecord(name=self._name, address=self._address))
        result = self._etcd.txn([condition], [Put(etcd_keys.LEADER, value, lease.id)])
        if result.ok:
            self._set_lead(lease, result.revision)

    def _set_lead(self, lease: Lease, revision: int) -> None:
        self._may_take_over = False
        if self._lead is None or self._lead.revision != revision:
            self._lead = _Lead(lease, revision)
            self._counts.leads()
            get_logger(master=self._name).info("leader", revision=revision)

    def _is_mine(self, record: Record) -> bool:
        leader = etcd_keys.decode(pb.LeaderRecord, record.value, record.key)
        return (leader.name, leader.address) == (self._name, self._address)


class _Either:
    """Stopped when one of two events is set."""

    def __init__(self, one: threading.Event, other: threading.Event) -> None:
        self._one = one
        self._other = other

    def wait(self, seconds: float, /) -> bool:
        return self._one.is_set() or self._other.wait(seconds)

"""Measures in the background: the master's certificates, and the clocks and warnings of workers.

Only the leader calls workers: each value exists once in the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardmerge.master.leader.election import Election
from shardmerge.master.store import Store
from shardmerge.master.workers.client import Workers
from shardmerge.master.workers.clocks import status_and_clock
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.process.periodic import LoopThread, Rounds, repeat
from shardmerge.proto.state_pb2 import WorkerRecord
from shardmerge.proto.tls.model import TlsFiles
from shardmerge.proto.tls.process import of_process
from shardmerge.proto.warnings.certificates import CertificateEnd, CertificateEnds, files_of_daemon
from shardmerge.proto.warnings.clocks import ClockDifference
from shardmerge.proto.worker_pb2 import StatusWarning

_SECONDS = 1.0
_CERTIFICATE_SECONDS = 5.0
_WORKER_SECONDS = 10.0
_NEW_WORKER_SECONDS = 2.0
_ANSWER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """What a worker has last answered. ``clock``: None: it is of an earlier version."""

    clock: ClockDifference | None
    warnings: tuple[StatusWarning, ...]


_NONE: Mapping[str, WorkerSeen] = {}


class MasterWatch:
    """A thread. ``etcd``: the files for etcd, None for plain text."""

    def __init__(self, election: Election, store: Store, workers: Workers, etcd: TlsFiles | None) -> None:
        self._election, self._store, self._workers, self._etcd = election, store, workers, etcd
        self._ends = CertificateEnds()
        self._certificates: tuple[CertificateEnd, ...] = ()
        self._seen = _NONE
        self._rounds = Rounds("certificates or workers cannot be watched")
        self._certificates_at = self._workers_at = 0.0
        self._thread = LoopThread("master-watch", lambda stop: repeat(self._round, _SECONDS, stop))
        self.start = self._thread.start

    def stop(self) -> None:
        """End it without waiting: it may wait for a worker."""
        self._thread.end(0)

    @property
    def certificates(self) -> tuple[CertificateEnd, ...]:
        """When this master's own end."""
        return self._certificates

    @property
    def workers(self) -> Mapping[str, WorkerSeen]:
        """By worker; those that have answered in the last round. Empty unless this master leads."""
        return self._seen

    def _round(self) -> None:
        now = time.monotonic()
        if now - self._certificates_at >= _CERTIFICATE_SECONDS:
            self._certificates_at = now
            self._rounds.is_done(self._read_certificates)
        if not self._election.leads:
            self._seen, self._workers_at = _NONE, 0.0
            return
        # A worker that is new is called soon, one that does not answer not each second.
        pause = _WORKER_SECONDS if self._live() == frozenset(self._seen) else _NEW_WORKER_SECONDS
        if now - self._workers_at >= pause:
            self._workers_at = now
            if not self._rounds.is_done(self._look):
                self._seen = _NONE

    def _read_certificates(self) -> None:
        tls = of_process()
        files = files_of_daemon(None if tls is None else tls.files, self._etcd)
        self._certificates = self._ends.read(files)

    def _records(self) -> Sequence[WorkerRecord]:
        last = self._store.last_read
        return [] if last is None else [entry.value for _, entry in sorted(last.state.workers.items())]

    def _live(self) -> frozenset[str]:
        return frozenset(worker.name for worker in self._records())

    def _look(self) -> None:
        records = self._records()
        answers = self._workers.for_each(records, self._ask)
        self._seen = {record.name: seen for record, seen in zip(records, answers, strict=True) if seen is not None}

    def _ask(self, worker: WorkerRecord) -> WorkerSeen | None:
        try:
            answer, clock = status_and_clock(self._workers, worker, seconds=_ANSWER_SECONDS)
        except ShardmergeError:
            return None
        return WorkerSeen(clock, tuple(answer.warnings))

"""Takes the picture of a master's memory for its metrics, and decides whether it is ready."""

from __future__ import annotations

import threading
import time
from importlib.metadata import version

from shardmerge.master.leader.counts import LeaderCounts
from shardmerge.master.leader.election import Election
from shardmerge.master.metrics.collect import MasterFigures, master_samples
from shardmerge.master.store import Store
from shardmerge.master.watch import MasterWatch
from shardmerge.proto.http.loops import LoopAges
from shardmerge.proto.http.probes import Probes, Readiness
from shardmerge.proto.metrics import own_both
from shardmerge.proto.metrics.family import Sample
from shardmerge.proto.metrics.process import ProcessReader
from shardmerge.proto.rpc.call_counts import CallCounts

_DAEMON = "dm-master"


class MasterProbes:
    """What the HTTP endpoint of a master answers from. Thread-safe; no method waits for etcd."""

    def __init__(
        self,
        election: Election,
        store: Store,
        counts: LeaderCounts,
        loops: LoopAges,
        ending: threading.Event,
        calls: CallCounts,
        watch: MasterWatch,
    ) -> None:
        self._election = election
        self._store = store
        self._counts = counts
        self._loops = loops
        self._ending = ending
        self._calls = calls
        self._watch = watch
        self._version = version("shardmerge")
        self._process = ProcessReader(_DAEMON, self._version)

    def probes(self) -> Probes:
        return Probes(
            _DAEMON,
            self._version,
            self._samples,
            self._loops.ages,
            self.readiness,
            roles=("master", "leader"),
            leads=lambda: self._election.leads and not self._ending.is_set(),
        )

    def readiness(self, role: str) -> Readiness:
        """Whether the master answers commands; for the role leader also whether it decides."""
        checks = {
            "the daemon is ending": self._ending.is_set(),
            "not a member: no lease in etcd": not self._election.is_member,
            "not the leader": role == "leader" and not self._election.leads,
        }
        return Readiness(tuple(phrase for phrase, is_missing in checks.items() if is_missing))

    def _samples(self) -> list[Sample]:
        began = time.monotonic()
        found = list(master_samples(self._figures()))
        return [*found, own_both.COLLECT_SECONDS.sample(time.monotonic() - began)]

    def _figures(self) -> MasterFigures:
        leads, last = self._election.leads, self._store.last_read
        is_ready = self.readiness("").is_ready
        return MasterFigures(
            time.time(),
            self._process.read(self._election.lease_left, self._loops.ages(), is_ready=is_ready),
            leads,
            self._counts.figures(),
            last.state if last is not None and leads else None,
            0.0 if last is None else time.monotonic() - last.at,
            self._calls.figures(),
            self._watch.certificates,
            {name: seen.clock for name, seen in self._watch.workers.items() if seen.clock is not None},
        )

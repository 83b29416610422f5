"""Causes random faults of the processes of a soak, one after the other. The supervisor restarts dead processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

import psutil
import pymysql

from tests.soak.arena import RESTART_SECONDS, Arena
from tests.support.daemon import Daemon
from tests.support.database import Database
from tests.support.server import Server

# Shorter and longer than a worker's lease (10 s): in the second case other workers take over from a frozen process.
_FROZEN_SECONDS = (1.0, 3.0, 6.0, 15.0)
# Less than the target's timeout for a silent lane (30 s); otherwise the target would end the connection of the lane.
_ZOMBIE_SECONDS = 25.0
_ZOMBIE_FEED_SECONDS = 2.0
_ZOMBIE_LIFE_SECONDS = 3.0
_DEAD_SECONDS = (RESTART_SECONDS, RESTART_SECONDS, 6.0, 15.0)


class Faults:
    """Causes faults of a victim drawn from ``rng``. Each method returns a text about the fault, "" when there was no
    victim: a dead process is not killed again.

    ``over``: set when the soak ends, so that nothing stays frozen for longer.
    """

    def __init__(self, arena: Arena, rng: Random, over: threading.Event) -> None:
        self._arena = arena
        self._rng = rng
        self._over = over

    # -- victims

    def _worker(self) -> Daemon | None:
        workers = [worker for worker in self._arena.cluster.workers if worker.alive]
        return self._rng.choice(workers) if workers else None

    def _lane(self) -> tuple[Daemon, int] | None:
        """Return a working Spark task process: one with a connection to the target."""
        port = self._arena.target.port
        workers = list(self._arena.cluster.workers)
        self._rng.shuffle(workers)
        for worker in workers:
            if worker.alive:
                busy = [pid for pid in worker.spark_task_pids() if _talks_to(pid, port)]
                if busy:
                    return worker, self._rng.choice(busy)
        return None

    # -- faults

    def kill_lane(self) -> str:
        found = self._lane()
        if found is None:
            return ""
        worker, pid = found
        _send(pid, signal.SIGKILL)
        return f"lane process {pid} of {worker.name}"

    def freeze_lane(self) -> str:
        found = self._lane()
        if found is None:
            return ""
        worker, pid = found
        _send(pid, signal.SIGSTOP)
        return f"lane process {pid} of {worker.name} {self._wait_frozen(lambda: _send(pid, signal.SIGCONT))}"

    def zombie_lanes(self) -> str:
        """Kill worker and JVM while their lanes are frozen: these wake up when other lanes have taken over.

        Such a lane must not commit what it still holds in memory (I3).
        """
        found = self._lane()
        if found is None:
            return ""
        worker, _ = found
        before = self._arena.epochs()
        jvm = worker.jvm_pid()
        lanes = worker.spark_task_pids()
        left = [process.pid for process in worker.session() if process.pid not in (worker.pid, jvm)]
        for pid in left:
            _send(pid, signal.SIGSTOP)
        # Changes continue to arrive at their connections: the lanes will read them when they wake up.
        self._over.wait(_ZOMBIE_FEED_SECONDS)
        worker.kill()
        _send(jvm, signal.SIGKILL)
        over = time.monotonic() + _ZOMBIE_SECONDS
        while time.monotonic() < over and self._arena.epochs() <= before and not self._over.wait(0.5):
            pass
        taken = "after others took over" if self._arena.epochs() > before else "before anybody took over"
        # The lanes alone at first: their parent, when it wakes up, ends them.
        for pid in lanes:
            _send(pid, signal.SIGCONT)
        self._over.wait(_ZOMBIE_LIFE_SECONDS)
        for pid in left:
            _send(pid, signal.SIGCONT)
        return f"{len(lanes)} lane processes of {worker.name} hung and came back {taken}"

    def kill_worker(self) -> str:
        """Kill the worker and all its processes, as if its machine had failed."""
        worker = self._worker()
        if worker is None:
            return ""
        down = self._stay_dead(worker.name)
        worker.kill_all()
        return f"{worker.name} and all it had started, down {down:.0f} s"

    def kill_worker_alone(self) -> str:
        """Kill the worker alone: its JVM and lanes must notice that by themselves, while the next process starts in
        parallel."""
        worker = self._worker()
        if worker is None:
            return ""
        worker.kill()
        return f"{worker.name} alone"

    def kill_jvm(self) -> str:
        worker = self._worker()
        try:
            pid = worker.jvm_pid() if worker is not None else 0
        except AssertionError:
            pid = 0
        if worker is None or not pid:
            return ""
        _send(pid, signal.SIGKILL)
        return f"JVM {pid} of {worker.name}"

    def freeze_worker(self) -> str:
        worker = self._worker()
        if worker is None:
            return ""
        worker.freeze()
        return f"{worker.name} {self._wait_frozen(worker.thaw)}"

    def kill_target(self) -> str:
        return self._kill("target", self._arena.target)

    def kill_source(self) -> str:
        source = self._rng.choice(self._arena.sources)
        return self._kill(source.name, source.server)

    def freeze_target(self) -> str:
        return self._freeze("target", self._arena.target)

    def freeze_source(self) -> str:
        source = self._rng.choice(self._arena.sources)
        return self._freeze(source.name, source.server)

    def cut_target(self) -> str:
        """End every connection at the target, also in the middle of a transaction."""
        return self._cut("target", self._arena.target)

    def cut_source(self) -> str:
        source = self._rng.choice(self._arena.sources)
        return self._cut(source.name, source.server)

    def kill_etcd(self) -> str:
        return self._kill("etcd", self._arena.cluster.etcd)

    def kill_master(self) -> str:
        masters = [master for master in self._arena.cluster.masters if master.alive]
        if not masters:
            return ""
        master = self._rng.choice(masters)
        down = self._stay_dead(master.name)
        master.kill_all()
        return f"{master.name}, down {down:.0f} s"

    # -- helpers

    def _kill(self, name: str, server: Server) -> str:
        if not server.is_running:
            return ""
        down = self._stay_dead(name)
        server.kill()
        return f"{name}, down {down:.0f} s"

    def _cut(self, name: str, server: Database) -> str:
        count = 0
        # The server may be down, or going down.
        with suppress(pymysql.MySQLError, AssertionError):
            for thread in server.threads():
                if thread.user == server.user:
                    server.kill_thread(thread.id)
                    count += 1
        return f"{count} connections of {name} ended" if count else ""

    def _stay_dead(self, name: str) -> float:
        seconds = self._rng.choice(_DEAD_SECONDS)
        self._arena.supervisor.stay_dead(name, seconds)
        return seconds

    def _freeze(self, name: str, server: Server) -> str:
        if not server.is_running:
            return ""
        server.signal(signal.SIGSTOP)
        return f"{name} {self._wait_frozen(lambda: server.signal(signal.SIGCONT))}"

    def _wait_frozen(self, thaw: Callable[[], object]) -> str:
        seconds = self._rng.choice(_FROZEN_SECONDS)
        self._over.wait(seconds)
        thaw()
        return f"frozen for {seconds:.0f} s"


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault. ``share``: how often it is drawn, relative to the others."""

    name: str
    do: Callable[[Faults], str]
    share: int


FAULTS: tuple[Fault, ...] = (
    Fault("kill lane", Faults.kill_lane, 5),
    Fault("freeze lane", Faults.freeze_lane, 2),
    Fault("zombie lanes", Faults.zombie_lanes, 1),
    Fault("kill worker", Faults.kill_worker, 3),
    Fault("kill worker alone", Faults.kill_worker_alone, 2),
    Fault("kill JVM", Faults.kill_jvm, 2),
    Fault("freeze worker", Faults.freeze_worker, 2),
    Fault("kill target", Faults.kill_target, 4),
    Fault("cut target", Faults.cut_target, 2),
    Fault("freeze target", Faults.freeze_target, 2),
    Fault("kill source", Faults.kill_source, 4),
    Fault("cut source", Faults.cut_source, 1),
    Fault("freeze source", Faults.freeze_source, 1),
    Fault("kill etcd", Faults.kill_etcd, 2),
    Fault("kill master", Faults.kill_master, 2),
)

UNDER_THE_SNAPSHOT = tuple(
    fault for fault in FAULTS if fault.name in ("kill lane", "kill target", "kill source", "kill worker", "kill JVM")
)
"""Faults that can hit a snapshot that has just begun."""


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _talks_to(pid: int, port: int) -> bool:
    try:
        return any(
            connection.raddr and connection.raddr.port == port
            for connection in psutil.Process(pid).net_connections("tcp4")
        )
    except psutil.Error:
        return False

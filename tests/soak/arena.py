"""Runs all processes of a soak, and the supervisor that restarts those that have died."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pymysql

from tests.soak.merge import META, Source
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.server import Server
from tests.support.tidb import TiDB

FLAVORS: dict[str, Callable[[Path, int, tuple[str, ...]], Database]] = {"mariadb": MariaDB, "mysql": MySQL}

TARGETS = {**FLAVORS, "tidb": TiDB}
"""TiDB writes no binlog, so it is a target only. Its JSON has another order of members than MySQL's, which the judge
does not accept: use MariaDB's sources, whose JSON is text."""

RESTART_SECONDS = 2.0
"""How long a dead process stays down: RestartSec of deploy/systemd."""

_LOOK_SECONDS = 0.25
_OFTEN = "--max-binlog-size=16M"  # causes rotations during the soak
# By source: the different ways in which a server may write its binlog.
_SOURCE_OPTIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "mariadb": ((_OFTEN,), (_OFTEN, "--log-bin-compress=ON", "--log-bin-compress-min-len=64")),
    "mysql": (
        (_OFTEN, "--binlog-row-value-options=PARTIAL_JSON"),
        (_OFTEN, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"),
    ),
}


@dataclass(slots=True)
class _Kept:
    """A supervised process. ``pause``: seconds it stays down the next time; ``kills``: how often it was killed."""

    name: str
    alive: Callable[[], bool]
    start: Callable[[], object]
    pause: float = RESTART_SECONDS
    kills: int = 0


class Supervisor:
    """Restarts processes that have ended, as an init system does; one thread per supervised process."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.restarts = 0
        self._say = say
        self._kept: dict[str, _Kept] = {}
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._failures: list[str] = []

    def keep(self, name: str, alive: Callable[[], bool], start: Callable[[], object]) -> None:
        self._kept[name] = _Kept(name, alive, start)

    def run(self) -> None:
        for kept in self._kept.values():
            thread = threading.Thread(target=self._watch, args=(kept,), name=f"keep-{kept.name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stay_dead(self, name: str, seconds: float) -> None:
        """Let the process stay down for this long, once; call it before the kill."""
        kept = self._kept[name]
        kept.pause = seconds
        kept.kills += 1

    @property
    def all_alive(self) -> bool:
        return all(kept.alive() for kept in self._kept.values())

    @property
    def failure(self) -> str | None:
        """Return the error of a process that could not be started."""
        return self._failures[0] if self._failures else None

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, kept: _Kept) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            if kept.alive():
                continue
            pause, kept.pause = kept.pause, RESTART_SECONDS
            if self._stop.wait(pause):
                return
            began, kills = time.monotonic(), kept.kills
            try:
                kept.start()
            except AssertionError as error:
                if kept.kills != kills:
                    continue  # the next fault has killed it while it was starting
                self._failures.append(f"{kept.name} does not start: {error}")
                return
            with self._lock:
                self.restarts += 1
            self._say(f"supervisor: {kept.name} started again in {time.monotonic() - began:.1f} s")


class Arena:
    """Two sources, a target, etcd, a master and workers with their files in ``directory``."""

    def __init__(self, directory: Path, source: str, target: str, workers: int, say: Callable[[str], None]) -> None:
        self.sources = tuple(
            Source(
                number, f"mysql-{number:02d}", FLAVORS[source](directory / f"source-{number}", 100 + number, options)
            )
            for number, options in enumerate(_SOURCE_OPTIONS[source], 1)
        )
        self.target = TARGETS[target](directory / "target", 201, ())
        self.cluster = Cluster(directory / "cluster", workers=workers)
        self.supervisor = Supervisor(say)
        for source_ in self.sources:
            self._keep(source_.name, source_.server)
        self._keep("target", self.target)
        self._keep("etcd", self.cluster.etcd)
        for daemon in self.cluster.daemons:
            self._keep_daemon(daemon)

    def _keep(self, name: str, server: Server) -> None:
        self.supervisor.keep(name, lambda: server.is_running, server.start)

    def _keep_daemon(self, daemon: Daemon) -> None:
        self.supervisor.keep(daemon.name, lambda: daemon.alive, lambda: daemon.start(wait=False))

    @property
    def servers(self) -> Sequence[Database]:
        return (*(source.server for source in self.sources), self.target)

    def epochs(self) -> int:
        """Return the newest epoch that a subtask has taken at the target; 0 when it cannot be read."""
        try:
            [(epoch,)] = self.target.query(f"SELECT COALESCE(MAX(epoch), 0) FROM `{META}`.subtask")
        except pymysql.MySQLError:
            return 0
        assert isinstance(epoch, int)
        return epoch

    def start(self) -> None:
        for server in self.servers:
            server.start()
        self.cluster.start()
        for source in self.sources:
            self.cluster.create_source(source.name, source.server)

    def stop(self) -> None:
        self.supervisor.stop()
        self.cluster.stop()
        for server in self.servers:
            server.stop()

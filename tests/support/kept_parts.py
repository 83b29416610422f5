"""Defines the parts of the kept world (tests/support/kept_world.py), servers and a cluster, and how each is reset.

- A reset server has no schemas, accounts and connections of the loan any more, and a new binlog. It is replaced when a
  global variable or a table of the schema `mysql` has changed.
- A reset cluster has no tasks, sources and relay logs any more; its logs are empty. It is replaced when etcd or its
  configuration files differ from their first state, and when a source file of the program has changed.
"""

from __future__ import annotations

import os
import shutil
import signal
from abc import ABC, abstractmethod
from pathlib import Path
from urllib.parse import unquote

import pymysql
from pymysql.constants import ER

from shardmerge.proto import etcd_keys
from tests.support.cluster import Cluster
from tests.support.daemon import ROOT, Daemon
from tests.support.database import Database, Thread
from tests.support.loan import Json
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.server import Server
from tests.support.wait import until

CLUSTER, SPARK_CLUSTER = "cluster", "spark-cluster"

_WORKERS, _MASTERS = 2, 1
_CHANGING_VARIABLES = frozenset({"server_id", "timestamp", "rand_seed1", "rand_seed2"})
_CHANGING_TABLES = ("gtid_", "innodb_", "general_log", "slow_log", "transaction_registry")
_SERVERS_OWN = frozenset({"mysql", "sys", "information_schema", "performance_schema"})
_SYSTEM_USERS = frozenset({"system user", "event_scheduler"})
_LASTING_KEYS = (etcd_keys.LEADER, etcd_keys.SECRET_KEY, etcd_keys.MASTERS)


def source_stamp() -> int:
    """Return a number that differs when a source or compiled file of the program has changed."""
    found: list[tuple[str, int, int]] = []
    for top in ("worker", "master", "proto", "ctl"):
        for folder, subfolders, names in os.walk(ROOT / top):
            subfolders[:] = [name for name in subfolders if name != "__pycache__"]
            for name in names:
                if name.endswith((".py", ".so", ".yaml")):
                    status = Path(folder, name).stat()
                    found.append((f"{folder}/{name}", status.st_mtime_ns, status.st_size))
    return hash(tuple(sorted(found)))


class Part(ABC):
    """One server or cluster of the world."""

    kind: str

    @property
    @abstractmethod
    def facts(self) -> Json:
        """Return what a test process must know to use the part."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def processes(self) -> list[Server | Daemon]: ...

    @abstractmethod
    def make_as_new(self) -> str:
        """Remove what a loan has left; return what cannot be removed, "" for nothing."""

    @abstractmethod
    def remove(self) -> None:
        """End the part and remove its files."""

    def fits(self, wishes: Json) -> bool:
        """Return whether the part meets the wishes of a test."""
        return True

    @abstractmethod
    def prepare(self, wishes: Json) -> None:
        """Prepare the part for one loan."""

    @property
    def is_outdated(self) -> bool:
        """Return whether the part runs other source files than the current ones."""
        return False

    def lives(self) -> bool:
        return all(one.exit_code is None for one in self.processes())

    def exit_code(self, pid: int) -> int | None:
        return self._process(pid).exit_code

    def signal(self, pid: int, number: int) -> None:
        self._process(pid).signal(signal.Signals(number))

    def _process(self, pid: int) -> Server | Daemon:
        return next(one for one in self.processes() if one.pid == pid)


class ServerPart(Part):
    """A MariaDB or MySQL with the default options."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._server: Database = MariaDB(folder, 1) if kind == "mariadb" else MySQL(folder, 1)
        self._accounts: set[tuple[object, ...]] = set()
        self._baseline: dict[str, object] = {}

    def start(self) -> None:
        self._server.start()
        self._accounts = self._now_accounts()
        self._empty()
        self._baseline = self._now()

    @property
    def facts(self) -> Json:
        server = self._server
        return {"directory": str(server.directory), "port": server.port, "process": server.pid}

    def processes(self) -> list[Server | Daemon]:
        return [self._server]

    def prepare(self, wishes: Json) -> None:
        # The first event of a binlog file holds this id too.
        self._server.execute(f"SET GLOBAL server_id = {int(wishes['server_id'])}", *self._new_binlog())

    def make_as_new(self) -> str:
        try:
            self._empty()
        except pymysql.MySQLError as error:
            if error.args[0] != ER.DB_DROP_RMDIR:
                raise
            return f"a test has written a file, which no statement removes: {error.args[1]}"
        return _difference(self._baseline, self._now())

    def remove(self) -> None:
        self._server.kill()
        shutil.rmtree(self._server.directory, ignore_errors=True)

    def _empty(self) -> None:
        server = self._server
        for thread in self._test_threads():
            server.kill_thread(thread.id)
        # A killed statement continues for a moment: it may create or drop a database.
        until(lambda: not self._test_threads(), "the connections of the test have ended", 60)
        schemas = [str(schema) for (schema,) in server.query("SHOW DATABASES") if schema not in _SERVERS_OWN]
        # Foreign keys may refer to tables of other databases.
        server.execute("SET foreign_key_checks = 0", *(f"DROP DATABASE {_quoted(schema)}" for schema in schemas))
        for user, host in self._now_accounts() - self._accounts:
            server.execute(f"DROP USER '{user}'@'{host}'")
        server.execute(*self._new_binlog())
        os.truncate(server.directory / "server.log", 0)

    def _test_threads(self) -> list[Thread]:
        return [
            thread
            for thread in self._server.threads()
            if thread.user not in _SYSTEM_USERS and thread.statement != "SHOW FULL PROCESSLIST"
        ]

    def _new_binlog(self) -> tuple[str, ...]:
        if self.kind == "mysql":
            return ("RESET BINARY LOGS AND GTIDS",)
        return ("RESET MASTER", "SET GLOBAL gtid_slave_pos = ''")

    def _now_accounts(self) -> set[tuple[object, ...]]:
        return set(self._server.query("SELECT User, Host FROM mysql.user"))

    def _now(self) -> dict[str, object]:
        """Return all that a test can change for a whole server, except schemas and the binlog."""
        server = self._server
        found: dict[str, object] = {
            str(name): value
            for name, value in server.query("SHOW GLOBAL VARIABLES")
            if name not in _CHANGING_VARIABLES and not str(name).startswith("gtid_")
        }
        for (table,) in server.query(
            "SELECT TABLE_NAME FROM information_schema.TABLES "
            "WHERE TABLE_SCHEMA = 'mysql' AND TABLE_TYPE = 'BASE TABLE' ORDER BY TABLE_NAME"
        ):
            if not str(table).startswith(_CHANGING_TABLES):
                found[f"mysql.{table}"] = server.query(f"CHECKSUM TABLE mysql.`{table}`")[0][1]
        found["replica"] = server.query("SHOW REPLICA STATUS")
        return found


class ClusterPart(Part):
    """etcd, a master and two workers, with Spark or without a JVM."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._cluster = Cluster(folder, workers=_WORKERS, masters=_MASTERS, spark=kind == SPARK_CLUSTER)
        self._stamp = 0
        self._files: dict[str, object] = {}

    def start(self) -> None:
        self._stamp = source_stamp()
        self._cluster.start()
        self._files = self._now_files()

    @property
    def facts(self) -> Json:
        return self._cluster.facts

    def processes(self) -> list[Server | Daemon]:
        return [self._cluster.etcd, *self._cluster.daemons]

    @property
    def is_outdated(self) -> bool:
        return source_stamp() != self._stamp

    def fits(self, wishes: Json) -> bool:
        return (wishes["workers"], wishes["masters"]) == (_WORKERS, _MASTERS)

    def prepare(self, wishes: Json) -> None:
        pass

    def make_as_new(self) -> str:
        cluster = self._cluster
        cluster.hooks.release_all()
        for task in self._names(etcd_keys.TASKS):
            cluster.dmctl("stop-task", task, check=False)
        for source in self._names(etcd_keys.SOURCES):
            cluster.dmctl("operate-source", "stop", source, check=False)
        workers = {etcd_keys.worker(worker.name) for worker in cluster.workers}

        def is_empty() -> bool:
            left = {key for key in self._keys() if not key.startswith(_LASTING_KEYS)}
            return left == workers

        until(is_empty, "no task and no source is left", 60)
        self._remove_files()
        return _difference(self._files, self._now_files())

    def remove(self) -> None:
        self._cluster.stop()
        shutil.rmtree(self._cluster.directory, ignore_errors=True)

    def _keys(self) -> list[str]:
        with self._cluster.etcd.client() as client:
            return [record.key for record in client.get_prefix(etcd_keys.PREFIX).records]

    def _names(self, prefix: str) -> list[str]:
        return [unquote(key.removeprefix(prefix)) for key in self._keys() if key.startswith(prefix)]

    def _now_files(self) -> dict[str, object]:
        """Return the files of the top level, and the contents of the configuration files."""
        files = (path for path in self._cluster.directory.iterdir() if path.is_file())
        return {str(path): path.read_bytes() if path.suffix == ".yaml" else b"" for path in files}

    def _remove_files(self) -> None:
        cluster = self._cluster
        # A worker keeps the relay log of a source that does not exist any more.
        for folder in cluster.directory.glob("worker-*-relay/*"):
            shutil.rmtree(folder)
        for path in [*cluster.directory.iterdir(), *cluster.hooks.directory.iterdir()]:
            if str(path) not in self._files and path.is_file():
                path.unlink()
        for daemon in cluster.daemons:
            os.truncate(daemon.log, 0)
        os.truncate(cluster.etcd.directory / "server.log", 0)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _difference(before: dict[str, object], now: dict[str, object]) -> str:
    changed = (key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    return ", ".join(f"{key}: {before.get(key)} -> {now.get(key)}" for key in sorted(changed))[:400]

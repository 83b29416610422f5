"""Runs a whole shardmerge cluster: etcd, masters and workers as real processes, controlled by the real dmctl."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from shardmerge.proto import errors
from shardmerge.proto.files.durable_file import private_folder, private_text
from shardmerge.proto.tls.model import TlsFiles
from shardmerge.worker.target.members.member_cache import CHECK_VARIABLE
from tests.support.daemon import Daemon, Setting, own_state
from tests.support.database import KEY_RETRIEVAL, Database
from tests.support.dmctl import dmctl
from tests.support.etcd import Etcd
from tests.support.hooks import Hooks
from tests.support.loan import LentProcess, Loan, borrow
from tests.support.wait import until

Json = dict[str, Any]

_UNHEARD = tuple(f"[{spec.code} {spec.name}]" for spec in (errors.ctl.MASTER_UNREACHABLE, errors.master.NO_LEADER))


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a dmctl command: exit code, its JSON ({} when it printed none), all text for messages."""

    code: int
    json: Json
    text: str


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of `dmctl compare`: its answer and the lines of its report."""

    answer: Answer
    lines: list[Json]

    def total(self, name: str) -> int:
        """Return the sum over all tables of: rows, missing, extra, different, unjudged, repaired or unnamed."""
        assert "tables" in self.answer.json, self.answer.text
        return sum(int(str(table[name])) for table in cast("list[Json]", self.answer.json["tables"]))

    @property
    def rows(self) -> int:
        return self.total("rows")


@dataclass(frozen=True, slots=True)
class SubTask:
    """One subtask as `dmctl query-status <task>` shows it. ``errors``: (code, message)."""

    source: str
    worker: str
    stage: str
    unit: str
    synced: bool
    position: tuple[int, int]
    errors: tuple[tuple[int, str], ...]
    raw: Json


class Cluster:
    """etcd, ``masters`` dm-masters and ``workers`` dm-workers, with their files in ``directory``.

    ``worker_settings``: further keys of the workers' configuration files. ``environment``: for all daemons and dmctl.
    ``tls``: for all of them, and for etcd. ``spark``: whether the workers are those that users start; else their tasks
    are processes without a JVM, which start in a fraction of the time; None: as :attr:`spark_by_default`. No process
    runs before :meth:`start` or after :meth:`stop`.

    A cluster without any of these arguments may be borrowed (tests/support/loan.py), if it is started before a file or
    hook is prepared for it: then ``directory`` is a different one after the start.
    """

    spark_by_default: ClassVar[bool] = True
    """Set by tests/conftest.py for each test: tests with the marker ``spark`` have Spark."""

    def __init__(
        self,
        directory: Path,
        *,
        workers: int = 2,
        masters: int = 1,
        worker_settings: Mapping[str, Setting] | None = None,
        master_settings: Mapping[str, Setting] | None = None,
        environment: Mapping[str, str] | None = None,
        tls: TlsFiles | None = None,
        spark: bool | None = None,
    ) -> None:
        self.directory = directory
        private_folder(directory)
        # A Unix socket's path must be short, and that of a test's folder is long.
        self._runtime = Path(tempfile.mkdtemp(prefix="sm-"))
        self.hooks = Hooks(directory / "hooks")
        self.etcd = Etcd(directory / "etcd", tls=tls, private=self._runtime)
        self.tls = tls
        self.spark = self.spark_by_default if spark is None else spark
        self._is_plain = not (worker_settings or master_settings or environment or tls)
        self._loan: Loan | None = None
        self._sources_of: dict[str, frozenset[str]] = {}
        self._environment = {
            **self._own_environment(),
            "PYTHONUNBUFFERED": "1",
            # The workers compare each answer of their caches with the records.
            CHECK_VARIABLE: "1",
            **(environment or {}),
        }
        self._further = {"master": master_settings or {}, "worker": worker_settings or {}}
        self.masters = [self._daemon("master", f"master-{n}") for n in range(1, masters + 1)]
        self.workers = [self._daemon("worker", f"worker-{n}") for n in range(1, workers + 1)]

    def _own_environment(self) -> dict[str, str]:
        return {**self.hooks.environment, **own_state(self.directory), "XDG_RUNTIME_DIR": str(self._runtime)}

    def _daemon(self, kind: str, name: str) -> Daemon:
        return Daemon(kind, name, self.directory, self._settings(kind, name), self._environment, spark=self.spark)

    def _settings(self, kind: str, name: str) -> dict[str, Setting]:
        settings: dict[str, Setting] = {"log-format": "text", **_tls_keys(self.tls), "etcd": [self.etcd.endpoint]}
        if kind == "worker":
            settings |= {"relay-dir": str(self.directory / f"{name}-relay"), "spark": {"master": "local[16]"}}
        return {**settings, **self._further[kind]}

    def socket(self, master: Daemon) -> str:
        """Return the address of a master's Unix socket, for dmctl's --master-addr."""
        return f"unix:{self._runtime}/shardmerge/{master.name}.sock"

    @property
    def daemons(self) -> list[Daemon]:
        return [*self.masters, *self.workers]

    # -- start and end

    def start(self) -> Cluster:
        """Start all processes; return when every daemon answers and the leader knows every worker."""
        if self._borrow():
            return self
        self.etcd.start()
        for daemon in self.daemons:
            daemon.start(wait=False)
        for daemon in self.daemons:
            daemon.wait_until_ready()
        self.wait_for_workers(self.workers)
        return self

    def _borrow(self) -> bool:
        """Use the cluster of the kept world, which is like a newly started one; return whether that succeeded."""
        if not self._is_plain or list(self.directory.rglob("*")) != [self.hooks.directory]:
            return False
        self._loan = loan = borrow(
            "spark-cluster" if self.spark else "cluster", workers=len(self.workers), masters=len(self.masters)
        )
        if loan is None:
            return False
        shutil.rmtree(self._runtime)
        self.directory, self._runtime = loan.directory, Path(loan.facts["runtime"])
        self.hooks.directory = self.directory / "hooks"
        self._environment.update(self._own_environment())
        etcd = _object(loan.facts["etcd"])
        self.etcd.adopt(
            self.directory / "etcd", self._runtime, int(etcd["peer_port"]), LentProcess(loan, int(etcd["process"]))
        )
        for daemon, facts in zip(self.daemons, _objects(loan.facts["daemons"]), strict=True):
            settings = self._settings(daemon.kind, daemon.name)
            daemon.adopt(
                str(facts["address"]),
                str(facts["http"]),
                self.directory,
                settings,
                LentProcess(loan, int(facts["process"])),
            )
        return True

    @property
    def facts(self) -> Json:
        """Return what a test process must know to borrow the cluster."""
        return {
            "directory": str(self.directory),
            "runtime": str(self._runtime),
            "etcd": {"peer_port": self.etcd.peer_port, "process": self.etcd.pid},
            "daemons": [
                {"address": daemon.address, "http": daemon.http, "process": daemon.pid} for daemon in self.daemons
            ],
        }

    def stop(self) -> None:
        """End the cluster for good. A borrowed cluster that was not disturbed is returned in its current state."""
        if self._loan is None:
            self._stop_all()
            return
        if self._loan.taken:
            self._stop_all()
        self._loan.end()
        self._loan = None

    def _stop_all(self) -> None:
        self.hooks.release_all()
        for daemon in reversed(self.daemons):
            daemon.stop()
        self.etcd.stop()
        shutil.rmtree(self._runtime, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def worker_of(self, source: str) -> Daemon:
        """Return the worker that ``source`` is bound to now. Repeats the question until there is an answer: a master or
        etcd may just have been killed."""

        def bound() -> Daemon | None:
            members = _objects(self.dmctl("list-member", "--worker", check=False).json.get("workers"))
            names = [member["name"] for member in members if member["source"] == source]
            return next((worker for worker in self.workers if worker.name in names), None)

        return until(bound, f"a worker is bound to {source}", every=0.2)

    def wait_for_workers(self, workers: Sequence[Daemon], seconds: float = 300.0) -> None:
        """Wait until the leader lists all of ``workers`` as alive; AssertionError when one has ended."""
        names = {worker.name for worker in workers}

        def all_there() -> bool:
            for worker in workers:
                worker.check_alive()
            answer = self.dmctl("list-member", "--worker", check=False)
            members = _objects(answer.json.get("workers"))
            return names <= {str(member["name"]) for member in members if member["stage"] != "offline"}

        until(all_there, f"workers {sorted(names)} are members", seconds, every=0.2)

    def wait_bound(self, sources: Sequence[str], seconds: float = 300.0) -> None:
        """Wait until every one of ``sources`` is bound to a live worker."""

        def all_bound() -> bool:
            answer = self.dmctl("list-member", "--worker", check=False)
            members = _objects(answer.json.get("workers"))
            return set(sources) <= {str(member["source"]) for member in members if member["stage"] == "bound"}

        until(all_bound, f"sources {sorted(sources)} are bound", seconds, every=0.2)

    # -- dmctl

    def dmctl(
        self,
        *arguments: str,
        check: bool = True,
        seconds: float = 400.0,
        tls: TlsFiles | None = None,
        typed: str = "",
    ) -> Answer:
        """Run dmctl with JSON output; with ``check`` any result but success is an AssertionError.

        ``tls``: a certificate that differs from the cluster's. ``typed``: the input. The command is repeated when the
        masters are alive and slower than dmctl's timeout for a connection or an election: then the command was not
        sent, or was refused unread.
        """

        def heard() -> Answer | None:
            answer = self._dmctl(arguments, seconds, tls or self.tls, typed)
            unheard = answer.code != 0 and any(word in answer.text for word in _UNHEARD)
            return None if unheard and self._can_hear() else answer

        answer = until(heard, f"a master hears dmctl {' '.join(arguments)}")
        if check and (answer.code != 0 or answer.json.get("result") is not True):
            raise AssertionError(answer.text)
        return answer

    def _can_hear(self) -> bool:
        return self.etcd.is_running and all(master.alive for master in self.masters)

    def _dmctl(self, arguments: Sequence[str], seconds: float, tls: TlsFiles | None, typed: str) -> Answer:
        addresses = ",".join(master.address for master in self.masters)
        secured = [f"--{key}={path}" for key, path in _tls_keys(tls).items()]
        words = ["--master-addr", addresses, "--output", "json", *secured, *arguments]
        key = {"SHARDMERGE_SECRET_KEY": str(self.masters[0].key)}
        ended = dmctl(words, {**os.environ, **self._environment, **key}, seconds, typed)
        text = f"dmctl {' '.join(arguments)} → {ended.returncode}\n{ended.stdout}{ended.stderr}"
        try:
            parsed: object = json.loads(ended.stdout)
        except json.JSONDecodeError:
            parsed = {}
        return Answer(ended.returncode, _object(parsed), text)

    def compare(self, task: str, *options: str, check: bool = True, replicates: bool = True) -> Compared:
        """Run `dmctl compare`; with ``check`` any result but "no differences" is an AssertionError.

        With ``replicates`` the command is repeated while the answer cannot cover a subtask: its run has not started its
        lanes yet, or has just been started anew.
        """
        path = self.directory / f"{task}.compared.jsonl"
        between = [f"[{spec.code} " for spec in (errors.compare.NOT_REPLICATING, errors.compare.RELAY_CHANGED)]

        def compared() -> Answer | None:
            path.unlink(missing_ok=True)
            answer = self.dmctl("compare", task, "--report", str(path), *options, check=False)
            unsaid = replicates and answer.code != 0 and any(code in answer.text for code in between)
            return None if unsaid else answer

        answer = until(compared, f"{task} can be compared")
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
        if check and answer.code != 0:
            raise AssertionError("\n".join((answer.text, *map(str, lines[:10]))))
        return Compared(answer, lines)

    def write(self, name: str, text: str) -> str:
        """Write a configuration file into the cluster's directory; return its path."""
        path = self.directory / name
        with private_text(path) as file:
            file.write(text)
        return str(path)

    def create_source(self, source_id: str, server: Database, *, user: str | None = None, extra: str = "") -> None:
        """Run `dmctl operate-source create` for ``server``; ``extra``: further lines of the file."""
        self.dmctl(
            "operate-source", "create", self.write(f"{source_id}.yaml", source_yaml(source_id, server, user) + extra)
        )

    def start_task(self, text: str, *options: str) -> None:
        """Run `dmctl start-task` with a task file of this text; its name is taken from the text."""
        match = re.search(r"^name:\s*\"?([\w-]+)", text, re.MULTILINE)
        assert match, "the task has no name"
        self._sources_of[match.group(1)] = frozenset(re.findall(r"\bsource-id:\s*\"?([\w-]+)", text))
        self.dmctl("start-task", self.write(f"{match.group(1)}.task.yaml", text), *options)

    # -- status

    def subtasks(self, task: str) -> dict[str, SubTask]:
        """Return the subtasks by source; {} while the leader cannot answer."""
        answer = self.dmctl("query-status", task, check=False)
        found: dict[str, SubTask] = {}
        for entry in _objects(answer.json.get("sources")):
            for raw in _objects(entry.get("subTaskStatus")):
                subtask = _subtask(_object(entry.get("sourceStatus")), raw)
                found[subtask.source] = subtask
        return found

    def wait_subtasks(
        self, task: str, condition: Callable[[SubTask], bool], what: str, seconds: float = 300.0
    ) -> dict[str, SubTask]:
        """Wait until ``condition`` holds for the subtasks of ``task`` at all of its sources. It does not hold for a
        subtask without a status (its worker is starting)."""
        last: dict[str, SubTask] = {}

        def holds() -> dict[str, SubTask] | None:
            nonlocal last
            last = self.subtasks(task)
            everyone = bool(last) and last.keys() >= self._sources_of.get(task, frozenset())
            return last if everyone and all(condition(subtask) for subtask in last.values()) else None

        try:
            return until(holds, f"every subtask of {task} {what}", seconds, every=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps([sub.raw for sub in last.values()], indent=1)}") from None

    def wait_replicating(self, task: str, seconds: float = 400.0) -> dict[str, SubTask]:
        """Wait until the snapshot of every subtask is done."""
        return self.wait_subtasks(
            task, lambda sub: sub.unit == "Sync" and sub.stage == "Running", "replicates", seconds
        )

    def relay_status(self, source: str) -> Json | None:
        """Return the status of the source's relay log; None while there is none: its worker is starting, or has
        stopped."""
        answer = self.dmctl("query-status", "-s", source, check=False)
        found = [_object(one.get("sourceStatus")) for one in _objects(answer.json.get("sources"))]
        return _object(found[0].get("relayStatus")) or None if found else None

    def wait_joined(self, task: str, seconds: float = 300.0) -> dict[str, SubTask]:
        """Wait until every subtask replicates and no tables are joining it. A run that has just begun does not report
        yet whether tables join."""
        return self.wait_subtasks(
            task,
            lambda sub: sub.unit == "Sync" and sub.stage == "Running" and not sub.raw.get("join"),
            "has no joining tables any more",
            seconds,
        )

    def wait_paused(self, task: str, seconds: float = 300.0) -> dict[str, SubTask]:
        return self.wait_subtasks(task, lambda sub: sub.stage == "Paused", "is paused", seconds)

    def wait_caught_up(self, task: str, sources: Mapping[str, Database], seconds: float = 400.0) -> None:
        """Wait until every subtask has applied all that its source's binlog holds now.

        Call it when all writers have stopped. It compares positions and does not rely on the status "synced" alone.
        """
        ends = {source: binlog_end(server) for source, server in sources.items()}
        self.wait_subtasks(
            task,
            lambda sub: sub.unit == "Sync" and sub.synced and sub.position >= ends[sub.source],
            f"has applied up to {ends}",
            seconds,
        )


def _tls_keys(tls: TlsFiles | None) -> dict[str, str]:
    return {} if tls is None else {"ssl-ca": tls.ca, "ssl-cert": tls.cert, "ssl-key": tls.key}


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _objects(value: object) -> list[Json]:
    return cast("list[Json]", value) if isinstance(value, list) else []


def _subtask(source_status: Json, raw: Json) -> SubTask:
    sync = _object(raw.get("sync"))
    result = _object(raw.get("result"))
    return SubTask(
        source=str(source_status.get("source", "")),
        worker=str(source_status.get("worker", "")),
        stage=str(raw.get("stage", "")),
        unit=str(raw.get("unit", "")),
        synced=bool(sync.get("synced", False)),
        position=parse_position(str(sync.get("syncerBinlog", ""))),
        errors=tuple(
            (int(error.get("code", 0)), str(error.get("message", ""))) for error in _objects(result.get("errors"))
        ),
        raw=raw,
    )


def parse_position(text: str) -> tuple[int, int]:
    """Return ``"(mysql-bin.000003, 2022)"`` as (3, 2022), comparable within one server; (0, 0) for no position."""
    match = re.search(r"\.(\d+),\s*(\d+)\)", text)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def binlog_end(server: Database) -> tuple[int, int]:
    """Return where the server's binlog ends now, in the form of :func:`parse_position`."""
    file, position = server.binlog_end()
    return parse_position(f"({file}, {position})")


def source_yaml(source_id: str, server: Database, user: str | None = None, password: str = "") -> str:
    """Return the text of a source file. ``user``, ``password``: used in place of the server's own ones."""
    if user is None:
        user, password = server.user, server.password
    return (
        f"source-id: {source_id}\n"
        "from:\n"
        f"  host: {server.host}\n"
        f"  port: {server.port}\n"
        f"  user: {user}\n"
        f'  password: "{password}"\n'
    ) + (f"  {KEY_RETRIEVAL}\n" if server.takes_key else "")

"""Runs one of the project's daemons as a real process: start, kill -9, freeze, thaw, restart, inspect."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from shardmerge.proto import secret
from shardmerge.proto.files.durable_file import private_text
from tests.support import identity
from tests.support.loan import LentProcess
from tests.support.ports import free_port
from tests.support.sessions import of_sessions
from tests.support.task_runners import FORK_SERVER
from tests.support.wait import until

ROOT = Path(__file__).resolve().parents[2]

# The values that a daemon's configuration file may hold.
Setting = str | int | Sequence[str] | Mapping[str, str]


def own_state(directory: Path) -> dict[str, str]:
    """Return an environment with which a daemon writes nothing to the folders of the user who runs the tests."""
    return {"XDG_STATE_HOME": str(directory / "state"), "XDG_RUNTIME_DIR": ""}


def command(name: str) -> str:
    """Return the path of one of the project's commands in the environment that runs the tests."""
    return str(Path(sys.executable).parent / name)


class Daemon:
    """``dm-<kind> --config <name>.yaml`` in a session of its own; ``kind`` is master or worker.

    The configuration file, the log and the default key are in ``directory``. ``address``, and ``http`` of its HTTP
    endpoint, are chosen once, so that a restarted daemon has the same addresses. There is no Unix socket unless
    ``environment`` or ``settings`` ask for it.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        directory: Path,
        settings: Mapping[str, Setting],
        environment: Mapping[str, str],
        *,
        spark: bool = True,
    ) -> None:
        """``spark``: whether a worker is the one that users start; else its tasks are processes without a JVM."""
        self.name = name
        self.kind = kind
        self.address = f"127.0.0.1:{free_port()}"
        self.http = f"127.0.0.1:{free_port()}"
        self.config = directory / f"{name}.yaml"
        self.log = directory / f"{name}.log"
        self._settings = settings
        self._environment = environment
        self._command = [command(f"dm-{kind}")]
        if kind == "worker" and not spark:
            self._command = [sys.executable, "-m", "tests.support.worker_without_jvm"]
        self.folder = ROOT
        """The working directory of the process."""
        self._process: subprocess.Popen[bytes] | LentProcess | None = None
        self._log_begin = 0

    @property
    def key(self) -> Path:
        """The file of the cluster's key, as the daemon was configured first."""
        if configured := self._settings.get("secret-key-path"):
            return Path(str(configured))
        state = {**own_state(self.config.parent), **self._environment}["XDG_STATE_HOME"]
        return Path(state) / "shardmerge" / "secret.key"

    @property
    def metrics_token(self) -> str:
        """The token of Prometheus, while there is no TLS."""
        return secret.load_key(str(self.key)).metrics_tokens[0]

    def write_config(self, **changes: Setting) -> None:
        """Write the file anew, with ``changes`` (underscores replace hyphens); the daemon reads it at its next
        start."""
        settings: dict[str, Setting] = {
            "name": self.name,
            f"{self.kind}-addr": self.address,
            "advertise-addr": self.address,
            "http-addr": self.http,
            **self._settings,
            **{key.replace("_", "-"): value for key, value in changes.items()},
        }
        with private_text(self.config) as file:
            file.write(to_yaml(settings))

    def adopt(
        self, address: str, http: str, directory: Path, settings: Mapping[str, Setting], process: LentProcess
    ) -> None:
        """Represent this running daemon from now on; its environment is the same mapping as before."""
        self.address, self.http, self._settings, self._process = address, http, settings, process
        self.config = directory / self.config.name
        self.log = directory / self.log.name
        identity.know(self.key)

    def start(self, *, wait: bool = True) -> Daemon:
        """Start it; with ``wait`` return when its port answers (for a worker: when Spark runs too)."""
        if not self.config.exists():
            self.write_config()
        identity.know(self.key)
        with private_text(self.log, append=True) as log:
            self._log_begin = log.tell()
            self._process = subprocess.Popen(
                [*self._command, "--config", str(self.config)],
                cwd=self.folder,
                env={**os.environ, **own_state(self.config.parent), **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if wait:
            self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        until(self._is_ready, f"{self.name} answers on {self.address} (see {self.log})", 400)

    def check_alive(self) -> None:
        """Raise AssertionError with the log's last lines when the daemon has ended."""
        if not self.alive:
            raise AssertionError(f"{self.name} ended: {self.last_lines()}")

    def _is_ready(self) -> bool:
        self.check_alive()
        if self.kind == "worker" and b"Spark is ready" not in self.log.read_bytes()[self._log_begin :]:
            return False
        host, port = self.address.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        return True

    def last_lines(self, count: int = 15) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([str(self.log), *lines[-count:]])

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Return the exit code; None while the daemon runs."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    # -- ways to end and to disturb the daemon

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the daemon alone."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9 of the daemon alone; the processes that it had started must notice its end by themselves."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def kill_jvm(self) -> None:
        """kill -9 of the JVM; return when the worker, which restarts in place, is ready again: what is lost while it
        starts ends it."""
        pid = self.pid
        self._log_begin = self.log.stat().st_size
        os.kill(self.jvm_pid(), signal.SIGKILL)
        self.wait_until_ready()
        assert self.pid == pid

    def kill_all(self) -> None:
        """kill -9 of the daemon and all processes that it has started: as if the machine had failed."""
        for process in self.session():
            _signal(process, signal.SIGKILL)
        self._reap()

    def freeze(self) -> None:
        """Send SIGSTOP to the daemon and all processes that it has started: as if the machine had hung."""
        for process in self.session():
            _signal(process, signal.SIGSTOP)

    def thaw(self) -> None:
        for process in self.session():
            _signal(process, signal.SIGCONT)

    def terminate(self, seconds: float = 300.0) -> int:
        """Send SIGTERM, the clean way; return the exit code. AssertionError when the daemon does not end."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} did not end {seconds:.0f} s after SIGTERM: {self.last_lines()}"
            ) from None

    def restart(self, *, wait: bool = True) -> Daemon:
        """kill -9, then start with the same name and address."""
        self.kill_all()
        return self.start(wait=wait)

    def stop(self) -> None:
        """End the daemon in any state; no process that it started remains."""
        if self._process is None:
            return
        self.thaw()
        if self.alive:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self.kill_all()

    def _reap(self) -> None:
        assert self._process is not None
        self._process.wait(300)

    # -- the processes that it has started

    def session(self) -> list[psutil.Process]:
        """Return the living processes of the daemon's session: itself, the JVM, Spark's Python processes.

        The session outlives the daemon, so that orphans are found too.
        """
        return of_sessions({self.pid})

    def jvm_pid(self) -> int:
        """Return the process id of the JVM of the Spark driver (in local mode also of the executor); without Spark that
        of the process that forks the tasks. The worker restarts in place when it is killed."""
        for process in self.session():
            # A task that was forked has the same command line.
            if _name(process) == "java" or (_has_argument(process, FORK_SERVER) and _parent(process) == self.pid):
                return process.pid
        raise AssertionError(f"{self.name} has no JVM: {self.last_lines()}")

    def spark_task_pids(self) -> list[int]:
        """Return the ids of the processes of tasks, with Spark busy or idle: children of
        `shardmerge.worker.core.spark.python_daemon` or, without Spark, of the process that forks them."""
        forked = [process for process in self.session() if _forks(process)]
        parents = {process.pid for process in forked}
        return sorted(process.pid for process in forked if _parent(process) in parents)


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def _forks(process: psutil.Process) -> bool:
    return _has_argument(process, "shardmerge.worker.core.spark.python_daemon") or _has_argument(process, FORK_SERVER)


def _has_argument(process: psutil.Process, text: str) -> bool:
    try:
        return any(text in argument for argument in process.cmdline())
    except psutil.Error:
        return False


def _parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.Error:
        return 0


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def to_yaml(settings: Mapping[str, Setting]) -> str:
    """Return a flat configuration as YAML; scalars are JSON, which YAML contains."""
    lines: list[str] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            lines.append(f"{key}:")
            lines.extend(f"  {name}: {json.dumps(inner)}" for name, inner in value.items())
        elif isinstance(value, str | int):
            lines.append(f"{key}: {json.dumps(value)}")
        else:
            lines.append(f"{key}:")
            lines.extend(f"  - {json.dumps(item)}" for item in value)
    return "\n".join(lines) + "\n"

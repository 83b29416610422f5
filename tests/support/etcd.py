"""A real etcd on free loopback ports, killed and brought back by the test."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from proto.errors import ShardmergeError
from proto.etcd import Etcd as Client
from tests.support.ports import free_port
from tests.support.wait import until


class Etcd:
    """One member, one directory, the same ports for its whole life. ``endpoint`` is "127.0.0.1:port"."""

    def __init__(self, directory: Path, options: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.options = options
        self.port = free_port()
        self.peer_port = free_port()
        self.endpoint = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Etcd:
        """Start and wait until it answers; after :meth:`kill` on the same data and ports."""
        self.directory.mkdir(parents=True, exist_ok=True)
        peer = f"http://127.0.0.1:{self.peer_port}"
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "etcd",
                    "--name=test",
                    f"--data-dir={self.directory / 'data'}",
                    f"--listen-client-urls=http://{self.endpoint}",
                    f"--advertise-client-urls=http://{self.endpoint}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster=test={peer}",
                    "--logger=zap",
                    "--log-level=warn",
                    *self.options,
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(self._answers, f"etcd on {self.endpoint} answers (see {self.directory}/server.log)", 120)
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"etcd ended: see {self.directory}/server.log")
        with self.client(timeout=1.0) as client:
            try:
                client.get("/")
            except ShardmergeError:
                return False
        return True

    def client(self, timeout: float = 5.0) -> Client:
        return Client((self.endpoint,), timeout)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP makes an etcd that is there and silent, SIGCONT ends it."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9 and wait for the end."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def ensure_running(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.start()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

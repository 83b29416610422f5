"""Runs a real etcd on free loopback ports, which the test can kill and restart."""

from __future__ import annotations

from pathlib import Path

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd as Client
from shardmerge.proto.tls.model import TlsFiles
from tests.support.loan import LentProcess
from tests.support.ports import free_port
from tests.support.server import Server


class Etcd(Server):
    """One member with one directory and the same ports for its whole life. ``endpoint`` is "127.0.0.1:port".

    ``tls``: its certificate, and the authority whose certificates clients must present; None: plain text.
    """

    def __init__(self, directory: Path, options: tuple[str, ...] = (), tls: TlsFiles | None = None) -> None:
        super().__init__(directory)
        self.options = options
        self.tls = tls
        self.port = free_port()
        self.peer_port = free_port()
        self.endpoint = f"127.0.0.1:{self.port}"

    def start(self) -> Etcd:
        """Start and wait until it answers; after :meth:`Server.kill` with the same data and ports."""
        self.directory.mkdir(parents=True, exist_ok=True)
        scheme = "http" if self.tls is None else "https"
        peer = f"http://127.0.0.1:{self.peer_port}"
        self._launch(
            f"etcd on {self.endpoint}",
            [
                "etcd",
                "--name=test",
                f"--data-dir={self.directory / 'data'}",
                f"--listen-client-urls={scheme}://{self.endpoint}",
                f"--advertise-client-urls={scheme}://{self.endpoint}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=test={peer}",
                "--logger=zap",
                "--log-level=warn",
                *self._tls_options(),
                *self.options,
            ],
        )
        return self

    def adopt(self, directory: Path, port: int, peer_port: int, process: LentProcess) -> None:
        """Represent this running etcd from now on."""
        self.directory, self.port, self.peer_port, self._process = directory, port, peer_port, process
        self.endpoint = f"127.0.0.1:{port}"

    def _answers(self) -> bool:
        with self.client(timeout=1.0) as client:
            try:
                client.get("/")
            except ShardmergeError:
                return False
        return True

    def client(self, timeout: float = 60.0) -> Client:
        return Client((self.endpoint,), timeout, self.tls)

    def _tls_options(self) -> list[str]:
        if self.tls is None:
            return []
        return [
            f"--cert-file={self.tls.cert}",
            f"--key-file={self.tls.key}",
            f"--trusted-ca-file={self.tls.ca}",
            "--client-cert-auth",
        ]

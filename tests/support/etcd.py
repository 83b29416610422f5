"""A real etcd on free loopback ports, killed and brought back by the test."""

from __future__ import annotations

from pathlib import Path

from proto.errors import ShardmergeError
from proto.etcd import Etcd as Client
from proto.tls.model import TlsFiles
from tests.support.ports import free_port
from tests.support.server import Server


class Etcd(Server):
    """One member, one directory, the same ports for its whole life. ``endpoint`` is "127.0.0.1:port".

    ``tls``: its certificate, and whose callers must show; None: plain text.
    """

    def __init__(self, directory: Path, options: tuple[str, ...] = (), tls: TlsFiles | None = None) -> None:
        super().__init__(directory)
        self.options = options
        self.tls = tls
        self.port = free_port()
        self.peer_port = free_port()
        self.endpoint = f"127.0.0.1:{self.port}"

    def start(self) -> Etcd:
        """Start and wait until it answers; after :meth:`Server.kill` on the same data and ports."""
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

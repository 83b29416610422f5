"""Runs a real etcd at a Unix socket, or a free port, which the test can kill and restart."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd as Client
from shardmerge.proto.tls.model import TlsFiles
from tests.support.loan import LentProcess
from tests.support.ports import free_port
from tests.support.server import Server


class Etcd(Server):
    """One member with one directory and the same address for its whole life: a Unix socket in a folder of mode 0700,
    ``endpoint`` is "unix:path"; or with ``tls`` or ``host`` a port, ``endpoint`` is "host:port".

    ``tls``: its certificate, and the authority whose certificates clients must present; None: plain text. ``host``:
    the address to listen at. ``private``: the folder of the socket, whose path must be short; None: one of its own.
    """

    def __init__(
        self,
        directory: Path,
        options: tuple[str, ...] = (),
        tls: TlsFiles | None = None,
        *,
        host: str = "",
        private: Path | None = None,
    ) -> None:
        super().__init__(directory)
        self.options = options
        self.tls = tls
        self.peer_port = free_port()
        self._own_folder: Path | None = None
        if tls is not None or host:
            self.private = None
            self.endpoint = f"{host or '127.0.0.1'}:{free_port()}"
            return
        if private is None:
            # The folder of a run is removed at its end.
            private = self._own_folder = Path(
                tempfile.mkdtemp(prefix="sm-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
            )
        self._listen_in(private)

    def _listen_in(self, private: Path) -> None:
        # etcd takes the socket's path from host and port, relative to its working directory.
        self.private = private
        self.endpoint = f"unix:{private / 'etcd:0'}"

    def start(self) -> Etcd:
        """Start and wait until it answers; after :meth:`Server.kill` with the same data and address."""
        self.directory.mkdir(parents=True, exist_ok=True)
        scheme = "http" if self.tls is None else "https"
        url = f"{scheme}://{self.endpoint}" if self.private is None else "unix://etcd:0"
        if self.private is not None:
            self.private.mkdir(mode=0o700, exist_ok=True)  # stop() has removed its own
            for name in ("etcd:0", "peer:0"):
                (self.private / name).unlink(missing_ok=True)  # of one that was killed
        # Who reaches the port of the peers can write, too.
        peer = f"http://127.0.0.1:{self.peer_port}" if self.private is None else "unix://peer:0"
        self._launch(
            f"etcd on {self.endpoint}",
            [
                "etcd",
                "--name=test",
                f"--data-dir={self.directory / 'data'}",
                f"--listen-client-urls={url}",
                f"--advertise-client-urls={url}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=test={peer}",
                "--logger=zap",
                "--log-level=warn",
                *self._tls_options(),
                *self.options,
            ],
            self.private,
        )
        return self

    def adopt(self, directory: Path, private: Path, peer_port: int, process: LentProcess) -> None:
        """Represent this running etcd, whose socket is in ``private``, from now on."""
        self.directory, self.peer_port, self._process = directory, peer_port, process
        self._listen_in(private)

    def stop(self) -> None:
        super().stop()
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)

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

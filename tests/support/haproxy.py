"""Runs an HAProxy that forwards TCP connections to the first of several servers that answers."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support.database import Database
from tests.support.ports import free_port
from tests.support.server import Server

_CONFIGURATION = """\
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen target
    bind 127.0.0.1:{port}
    default-server inter 300ms fall 1 rise 1 on-marked-down shutdown-sessions
"""


class HAProxy(Server):
    """The HAProxy of the system's packages. ``servers``: the first is used while it answers, then the next one."""

    def __init__(self, directory: Path, servers: Sequence[Database]) -> None:
        super().__init__(directory)
        self.port = free_port()
        self._servers = servers

    def start(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [
            f"    server s{number} 127.0.0.1:{server.port} check{' backup' if number else ''}\n"
            for number, server in enumerate(self._servers)
        ]
        file = self.directory / "haproxy.cfg"
        file.write_text(_CONFIGURATION.format(port=self.port) + "".join(lines), encoding="utf-8")
        self._launch(f"HAProxy on port {self.port}", ["haproxy", "-db", "-f", str(file)])
        return self

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

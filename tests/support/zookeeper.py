"""Runs a real ZooKeeper server on loopback, from the jars of pyspark: masters of Spark elect one of them through it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Self

import pyspark

from tests.support.ports import free_port
from tests.support.server import Server

_JARS = Path(pyspark.__file__).parent / "jars"


class ZooKeeper(Server):
    """One server with its data in ``directory``."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.port = free_port()

    def start(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._launch(
            "ZooKeeper",
            [
                "java",
                *("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *("-Dzookeeper.admin.enableServer=false", "-Dzookeeper.clientPortAddress=127.0.0.1"),
                *("-cp", f"{_JARS}/*", "org.apache.zookeeper.server.ZooKeeperServerMain"),
                *(str(self.port), str(self.directory / "data")),
            ],
        )
        return self

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

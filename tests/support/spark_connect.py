"""Runs a Spark Connect server from pyspark's jars, as a real process, and a proxy in front of it that ends TLS."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from shardmerge.proto.files.durable_file import private_folder, private_text
from shardmerge.proto.tls.model import TlsFiles
from tests.support.ports import free_port
from tests.support.server import Server
from tests.support.wait import until

TOKEN = "the-bearer-of-this-may-connect"
_HOME = Path(pyspark.__file__).parent
_PROXY = """\
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen connect
    bind 127.0.0.1:{port} ssl crt {certificate} alpn h2
    server spark 127.0.0.1:{server}
"""


@dataclass(slots=True)
class SparkConnect:
    """A Spark Connect server with ``local[2]`` that writes an event log. Its files are in ``directory``."""

    directory: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.directory / "connect.log"

    @property
    def events(self) -> Path:
        return self.directory / "events"

    def start(self) -> SparkConnect:
        private_folder(self.events)
        settings = {
            "spark.master": "local[2]",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.connect.authenticate.token": TOKEN,
            "spark.pyspark.python": sys.executable,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": str(self.events),
            "spark.log.level": "INFO",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
        }
        with private_text(self.directory / "connect.conf") as file:
            file.writelines(f"{key} {value}\n" for key, value in settings.items())
        with private_text(self.log) as log:
            self.process = subprocess.Popen(
                [
                    *(str(_HOME / "bin" / "spark-submit"), "--properties-file", str(self.directory / "connect.conf")),
                    *(
                        "--driver-java-options",
                        f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.io.tmpdir={self.directory}",
                    ),
                    *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
                ],
                cwd=self.directory,
                env={**os.environ, "SPARK_HOME": str(_HOME), "SPARK_LOCAL_DIRS": str(self.directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(self._answers, f"Spark Connect answers: see {self.log}", 120)
        return self

    def stop(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, 9)
            self.process.wait(60)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"Spark Connect has ended: see {self.log}"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class TlsProxy(Server):
    """An HAProxy that ends TLS and forwards to ``port``."""

    def __init__(self, directory: Path, files: TlsFiles, port: int) -> None:
        super().__init__(directory)
        self.port = free_port()
        self._files, self._server = files, port

    def start(self) -> TlsProxy:
        private_folder(self.directory)
        certificate = self.directory / "certificate-and-key.pem"
        with private_text(certificate) as file:
            file.writelines(Path(path).read_text(encoding="ascii") for path in (self._files.cert, self._files.key))
        configuration = self.directory / "haproxy.cfg"
        text = _PROXY.format(port=self.port, certificate=certificate, server=self._server)
        configuration.write_text(text, encoding="utf-8")
        self._launch(f"HAProxy on port {self.port}", ["haproxy", "-db", "-f", str(configuration)])
        return self

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

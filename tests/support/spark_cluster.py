"""Runs a standalone Spark cluster: Spark's own master and workers from pyspark's jars, as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from shardmerge.proto.files.durable_file import private_folder, private_text
from tests.support.ports import free_port
from tests.support.wait import until

SECRET = "the-secret-of-the-spark-cluster"
_HOME = Path(pyspark.__file__).parent
_CLASSES = "org.apache.spark.deploy"
_MEMORY = "4g"


@dataclass(slots=True)
class SparkNode:
    """One process of the cluster, and its log."""

    name: str
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of executors that this worker has started."""
        return [each for each in _children(self.pid) if _says(each, "CoarseGrainedExecutorBackend")]

    def python_processes(self) -> list[psutil.Process]:
        """Return the Python processes of its executors, also those whose executor has ended."""
        return [each for each in _session(self.pid) if _says(each, "python_daemon")]

    def last_lines(self, count: int = 15) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([str(self.log), *lines[-count:]])


@dataclass(slots=True)
class SparkCluster:
    """A master and workers with ``cores`` each, all at ``host``; their files and the executors' are in ``directory``.

    ``environments``: further environment variables of each worker, which its executors inherit. ``prefix``: the command
    that starts each process, e.g. in a namespace. ``home``: the folder of Spark.
    """

    directory: Path
    cores: Sequence[int] = (4, 4)
    host: str = "127.0.0.1"
    environments: Sequence[Mapping[str, str]] = ()
    prefix: Sequence[str] = ()
    home: Path = _HOME
    port: int = field(default_factory=free_port)
    nodes: list[SparkNode] = field(default_factory=list[SparkNode])

    @property
    def url(self) -> str:
        return f"spark://{self.host}:{self.port}"

    @property
    def workers(self) -> list[SparkNode]:
        return self.nodes[1:]

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of a dm-worker that uses all cores."""
        return {
            "master": self.url,
            "spark.authenticate.secret": SECRET,
            "spark.cores.max": str(sum(self.cores)),
            "spark.executor.memory": "512m",
        }

    def start(self) -> SparkCluster:
        private_folder(self.directory)
        with private_text(self.directory / "spark.conf") as file:
            file.write(
                f"spark.authenticate true\nspark.authenticate.secret {SECRET}\nspark.network.crypto.enabled true\n"
                "spark.master.rest.enabled false\n"
            )
        self._start("master", "master.Master", ["--port", str(self.port)], {})
        for number, cores in enumerate(self.cores):
            self.add_worker(cores, self.environments[number] if number < len(self.environments) else {})
        for worker in self.workers:
            until(
                lambda worker=worker: b"Successfully registered with master" in worker.log.read_bytes(),
                f"{worker.name} registers: {worker.last_lines()}",
                120,
            )
        return self

    def add_worker(self, cores: int, environment: Mapping[str, str]) -> SparkNode:
        """Start one more worker; it registers soon."""
        name = f"spark-worker-{len(self.nodes)}"
        work = self.directory / name
        options = ["--cores", str(cores), "--memory", _MEMORY, "--work-dir", str(work), self.url]
        return self._start(name, "worker.Worker", options, environment)

    def end(self, node: SparkNode) -> None:
        """kill -9 of a master or worker with all of its executors: as if the machine had failed."""
        for process in _session(node.pid):
            _kill(process)
        assert node.process is not None
        node.process.wait(60)
        self.nodes.remove(node)

    def stop(self) -> None:
        """End all processes, those of executors included."""
        for node in list(self.nodes):
            self.end(node)

    def _start(self, name: str, kind: str, options: Sequence[str], environment: Mapping[str, str]) -> SparkNode:
        node = SparkNode(name, self.directory / f"{name}.log")
        java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java"
        with private_text(node.log) as log:
            node.process = subprocess.Popen(
                [
                    *self.prefix,
                    str(java),
                    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", f"{self.home}/jars/*"),
                    "--add-opens=java.base/java.nio=ALL-UNNAMED",
                    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
                    f"{_CLASSES}.{kind}",
                    *("--host", self.host, "--webui-port", "0"),
                    *("--properties-file", str(self.directory / "spark.conf")),
                    *options,
                ],
                cwd=self.directory,
                env={
                    **os.environ,
                    "SPARK_HOME": str(self.home),
                    "SPARK_SCALA_VERSION": "2.13",
                    "SPARK_LOCAL_IP": self.host,
                    # A process that is killed leaves its temporary files; executors inherit both.
                    "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={self.directory}",
                    "SPARK_LOCAL_DIRS": str(self.directory),
                    **environment,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.nodes.append(node)
        return node


def kill(process: psutil.Process) -> None:
    """kill -9 of one process."""
    process.send_signal(signal.SIGKILL)


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.Error:
        return


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def _session(pid: int) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue
    return found


def _says(process: psutil.Process, text: str) -> bool:
    try:
        return any(text in word for word in process.cmdline())
    except psutil.Error:
        return False

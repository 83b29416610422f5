"""Runs a standalone Spark cluster: Spark's own master and workers from pyspark's jars, as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from shardmerge.proto.files.durable_file import private_folder, private_text
from tests.support.ports import free_port
from tests.support.sessions import of_sessions
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
    command: Sequence[str]
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    sessions: set[int] = field(default_factory=set[int])

    @property
    def is_master(self) -> bool:
        return self.name.startswith("master")

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of executors that this worker has started."""
        return [each for each in self.session() if _says(each, "CoarseGrainedExecutorBackend")]

    def python_processes(self) -> list[psutil.Process]:
        """Return the Python processes of its executors, also those whose executor has ended."""
        return [each for each in self.session() if _says(each, "python_daemon")]

    def session(self) -> list[psutil.Process]:
        """Return the living processes of all of its starts: itself, its executors and their Python processes."""
        return of_sessions(self.sessions)

    def freeze(self) -> None:
        """SIGSTOP of the worker, its executors and their Python processes: as if the machine had hung."""
        for process in self.session():
            _signal(process, signal.SIGSTOP)

    def thaw(self) -> None:
        for process in self.session():
            _signal(process, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9 of the master or worker alone: executors notice it by themselves."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def terminate(self) -> None:
        """SIGTERM, the clean way to stop it."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(60)

    def wait_registered(self) -> None:
        """Wait until the worker is a member of the cluster."""
        self.wait_logged("Successfully registered with master")

    def has_logged(self, text: str) -> bool:
        return text in self.log.read_text(encoding="utf-8", errors="replace")

    def wait_logged(self, text: str, count: int = 1) -> None:
        """Wait until it has logged ``text``, ``count`` times since its first start."""
        until(lambda: self.log.read_text(errors="replace").count(text) >= count, f"{text}: {self.last_lines()}", 120)

    def last_lines(self, count: int = 15) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([str(self.log), *lines[-count:]])


@dataclass(slots=True)
class SparkCluster:
    """Masters and workers with ``cores`` each, all at ``host``; their files and the executors' are in ``directory``.

    ``environments``: further environment variables of each worker, which its executors inherit. ``prefix``: the command
    that starts each process, e.g. in a network namespace. ``masters``: their number. ``conf``: further settings of
    masters and workers. ``home``: the folder of Spark.
    """

    directory: Path
    cores: Sequence[int] = (4, 4)
    host: str = "127.0.0.1"
    environments: Sequence[Mapping[str, str]] = ()
    prefix: Sequence[str] = ()
    home: Path = _HOME
    masters: int = 1
    conf: Mapping[str, str] = field(default_factory=dict[str, str])
    ports: Sequence[int] = ()
    nodes: list[SparkNode] = field(default_factory=list[SparkNode])

    @property
    def url(self) -> str:
        return "spark://" + ",".join(f"{self.host}:{port}" for port in self.ports)

    @property
    def workers(self) -> list[SparkNode]:
        return [each for each in self.nodes if not each.is_master]

    @property
    def masters_running(self) -> list[SparkNode]:
        return [each for each in self.nodes if each.is_master and each.is_running]

    def python_processes(self) -> list[psutil.Process]:
        """Return the Python processes of all executors."""
        return [process for node in self.workers for process in node.python_processes()]

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
            file.writelines(f"{key} {value}\n" for key, value in self.conf.items())
        self.ports = tuple(free_port() for _ in range(self.masters))
        for number, port in enumerate(self.ports, 1):
            name = "master" if self.masters == 1 else f"master-{number}"
            self._start(name, "master.Master", ["--port", str(port)], {}, self.host, self.prefix)
        for number, cores in enumerate(self.cores):
            self.add_worker(cores, self.environments[number] if number < len(self.environments) else {})
        for worker in self.workers:
            worker.wait_registered()
        return self

    def add_worker(
        self, cores: int, environment: Mapping[str, str], host: str = "", prefix: Sequence[str] = ()
    ) -> SparkNode:
        """Start one more worker; it registers soon. ``host``, ``prefix``: those of the cluster unless set."""
        name = f"spark-worker-{len(self.nodes)}"
        work = environment.get("SPARK_WORKER_DIR", str(self.directory / name))
        options = ["--cores", str(cores), "--memory", _MEMORY, "--work-dir", work, self.url]
        return self._start(name, "worker.Worker", options, environment, host or self.host, prefix or self.prefix)

    def start_again(self, node: SparkNode) -> None:
        """Start a node that has ended, with the same address."""
        _launch(node, self.directory)

    def end(self, node: SparkNode) -> None:
        """kill -9 of a master or worker with all of its executors: as if the machine had failed."""
        for process in node.session():
            _signal(process, signal.SIGKILL)
        assert node.process is not None
        node.process.wait(60)
        self.nodes.remove(node)

    def stop(self) -> None:
        """End all processes, those of executors included."""
        for node in list(self.nodes):
            self.end(node)

    def _start(
        self,
        name: str,
        kind: str,
        options: Sequence[str],
        environment: Mapping[str, str],
        host: str,
        prefix: Sequence[str],
    ) -> SparkNode:
        java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java"
        node = SparkNode(
            name,
            self.directory / f"{name}.log",
            [
                *prefix,
                str(java),
                *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", f"{self.home}/jars/*"),
                "--add-opens=java.base/java.nio=ALL-UNNAMED",
                "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
                f"{_CLASSES}.{kind}",
                *("--host", host, "--webui-port", "0"),
                *("--properties-file", str(self.directory / "spark.conf")),
                *options,
            ],
            {
                "SPARK_HOME": str(self.home),
                "SPARK_SCALA_VERSION": "2.13",
                "SPARK_LOCAL_IP": host,
                # A process that is killed leaves its temporary files; executors inherit both.
                "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={self.directory}",
                "SPARK_LOCAL_DIRS": str(self.directory),
                **environment,
            },
        )
        _launch(node, self.directory)
        self.nodes.append(node)
        return node


def _launch(node: SparkNode, directory: Path) -> None:
    with private_text(node.log, append=True) as log:
        node.process = subprocess.Popen(
            node.command,
            cwd=directory,
            env={**os.environ, **node.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    node.sessions.add(node.process.pid)


def kill(process: psutil.Process) -> None:
    """kill -9 of one process."""
    process.send_signal(signal.SIGKILL)


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.Error):
        process.send_signal(number)


def _says(process: psutil.Process, text: str) -> bool:
    try:
        return any(text in word for word in process.cmdline())
    except psutil.Error:
        return False

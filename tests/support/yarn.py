"""Runs a real YARN on loopback: a ResourceManager and NodeManagers, each a process that a test can disturb.

The file system is the machine's own (``file:///``): no HDFS runs. Source of the settings: Hadoop's documentation,
"yarn-default.xml" and "ResourceManager Restart".
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Self
from xml.sax.saxutils import escape

import psutil
import pyspark

from tests.support.daemon import ROOT
from tests.support.ports import free_port
from tests.support.server import Server
from tests.support.sessions import processes
from tests.support.wait import until

_SERVER = "org.apache.hadoop.yarn.server"
_JARS = Path(pyspark.__file__).parent / "jars"
_OF_SPARK = (
    "hadoop-client-api-*.jar",
    "hadoop-client-runtime-*.jar",
    "slf4j-api-*.jar",
    "jcl-over-*.jar",
    "log4j-*.jar",
)
_MEMORY_MB = 6144


class _HadoopServer(Server):
    """One server of YARN, with its configuration in ``directory/conf``. The ports stay the same after a restart."""

    def __init__(
        self, directory: Path, main_class: str, settings: Mapping[str, str], queues: Sequence[str] = ("default",)
    ) -> None:
        super().__init__(directory)
        self._main_class = main_class
        self._settings = settings
        self._queues = queues

    def start(self) -> Self:
        conf = write_conf(self.directory / "conf", self._settings, self._queues)
        places = (str(conf), f"{_provided()}/*", *(str(jar) for name in _OF_SPARK for jar in sorted(_JARS.glob(name))))
        self._launch(
            self._main_class.rsplit(".", 1)[1],
            [
                "java",
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                f"-Dhadoop.log.dir={self.directory}",
                f"-Dhadoop.tmp.dir={self.directory}/tmp",
                "-cp",
                ":".join(places),
                self._main_class,
            ],
        )
        return self

    def _answers(self) -> bool:
        return True


class ResourceManager(_HadoopServer):
    """The ResourceManager; it continues its applications after a kill."""

    def __init__(self, directory: Path, settings: Mapping[str, str], page: int, queues: Sequence[str]) -> None:
        super().__init__(directory, f"{_SERVER}.resourcemanager.ResourceManager", settings, queues)
        self._page = page

    def _answers(self) -> bool:
        return self.request("info") is not None

    def request(self, path: str) -> dict[str, object] | None:
        """Return an answer of the REST interface (Hadoop's documentation, "ResourceManager REST APIs"); None while
        there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/ws/v1/cluster/{path}", timeout=10) as answer:
                return json.loads(answer.read())
        except OSError:
            return None


class NodeManager(_HadoopServer):
    """A NodeManager: it runs containers, which are processes of this machine."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        super().__init__(directory, f"{_SERVER}.nodemanager.NodeManager", settings)


class Yarn:
    """A ResourceManager and ``nodes`` NodeManagers. ``cores``: virtual cores of each node. ``queues``: with equal
    shares; each may use what the others leave, and gives it back by preemption."""

    def __init__(
        self, directory: Path, *, nodes: int = 1, cores: int = 32, queues: Sequence[str] = ("default",)
    ) -> None:
        self._directory = directory
        self._settings = _of_resource_manager(directory, page := free_port())
        self.resource_manager = ResourceManager(directory / "resource-manager", self._settings, page, queues)
        self.nodes = tuple(
            NodeManager(
                directory / f"node-{number}",
                {**self._settings, **_of_node_manager(directory / f"node-{number}", cores)},
            )
            for number in range(1, nodes + 1)
        )

    @property
    def environment(self) -> dict[str, str]:
        """Return what a program needs to find this YARN."""
        return {"HADOOP_CONF_DIR": str(write_conf(self._directory / "client", self._settings))}

    def start(self) -> Yarn:
        self.resource_manager.start()
        for node in self.nodes:
            node.start()
        self.wait_for_nodes()
        return self

    def wait_for_nodes(self) -> None:
        """Wait until every node that runs is registered."""
        count = sum(node.is_running for node in self.nodes)
        until(lambda: self._running_nodes() >= count, f"{count} nodes of YARN are registered")

    def _running_nodes(self) -> int:
        answer = self.resource_manager.request("nodes?states=RUNNING") or {}
        return str(answer).count("'state': 'RUNNING'")

    def applications(self) -> int:
        """Return how many applications have not ended."""
        answer = self.resource_manager.request("apps?states=NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING")
        assert answer is not None
        return str(answer).count("'applicationType':")

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of the executors of all nodes."""
        return self._containers("YarnCoarseGrainedExecutorBackend")

    def containers(self) -> list[psutil.Process]:
        """Return all processes that run in containers."""
        return self._containers("")

    def _containers(self, word: str) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for process in processes():
            try:
                is_ours = str(self._directory) in process.environ().get("PWD", "") + process.cwd()
                if is_ours and process.name() != "bash" and word in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return [process for process in found if process.pid not in self._servers()]

    def _servers(self) -> set[int]:
        return {server.pid for server in (self.resource_manager, *self.nodes) if server.is_running}

    def stop(self) -> None:
        for server in (*self.nodes, self.resource_manager):
            server.shut_down()
        for process in self.containers():
            process.kill()

    def __enter__(self) -> Yarn:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def spark_settings(*, executors: int = 2, cores: int = 8) -> dict[str, str]:
    """Return the settings of a worker that runs its tasks on YARN."""
    return {
        "master": "yarn",
        "spark.executor.instances": str(executors),
        "spark.executor.cores": str(cores),
        "spark.executor.memory": "480m",
        # The Python processes of lanes and chunk readers are part of the container.
        "spark.executor.memoryOverhead": "2200m",
        "spark.yarn.am.memory": "480m",
        # Without it Spark copies all its jars into the file system at each start.
        "spark.yarn.jars": f"local:{_JARS}/*",
    }


def write_conf(folder: Path, settings: Mapping[str, str], queues: Sequence[str] = ("default",)) -> Path:
    """Write Hadoop's configuration files; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    scheduler = {
        "yarn.scheduler.capacity.root.queues": ",".join(queues),
        **{f"yarn.scheduler.capacity.root.{queue}.capacity": f"{100 / len(queues):g}" for queue in queues},
        **{f"yarn.scheduler.capacity.root.{queue}.maximum-capacity": "100" for queue in queues},
        **{f"yarn.scheduler.capacity.root.{queue}.user-limit-factor": "10" for queue in queues},
        "yarn.scheduler.capacity.maximum-am-resource-percent": "0.5",
    }
    for name, values in (
        ("core-site", {"fs.defaultFS": "file:///"}),
        ("yarn-site", settings),
        ("capacity-scheduler", scheduler),
    ):
        lines = (
            f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>\n"
            for key, value in values.items()
        )
        (folder / f"{name}.xml").write_text(f"<configuration>\n{''.join(lines)}</configuration>\n", encoding="utf-8")
    return folder


def _of_resource_manager(directory: Path, page: int) -> dict[str, str]:
    prefix = "yarn.resourcemanager"
    return {
        f"{prefix}.hostname": "127.0.0.1",
        f"{prefix}.bind-host": "127.0.0.1",
        **{
            f"{prefix}.{name}": f"127.0.0.1:{free_port()}"
            for name in ("address", "scheduler.address", "resource-tracker.address", "admin.address")
        },
        f"{prefix}.webapp.address": f"127.0.0.1:{page}",
        f"{prefix}.recovery.enabled": "true",
        f"{prefix}.store.class": f"{_SERVER}.resourcemanager.recovery.FileSystemRMStateStore",
        f"{prefix}.fs.state-store.uri": (directory / "state").as_uri(),
        "yarn.scheduler.minimum-allocation-mb": "256",
        "yarn.scheduler.maximum-allocation-vcores": "64",
        "yarn.application.classpath": "",
        f"{prefix}.scheduler.monitor.enable": "true",
        f"{prefix}.monitor.capacity.preemption.monitoring_interval": "1000",
        f"{prefix}.monitor.capacity.preemption.max_wait_before_kill": "2000",
        f"{prefix}.monitor.capacity.preemption.total_preemption_per_round": "1.0",
        f"{prefix}.monitor.capacity.preemption.natural_termination_factor": "1.0",
    }


def _of_node_manager(directory: Path, cores: int) -> dict[str, str]:
    prefix = "yarn.nodemanager"
    return {
        f"{prefix}.hostname": "127.0.0.1",
        **{
            f"{prefix}.{name}": f"127.0.0.1:{free_port()}"
            for name in ("address", "localizer.address", "webapp.address")
        },
        f"{prefix}.local-dirs": str(directory / "local"),
        f"{prefix}.log-dirs": str(directory / "logs"),
        f"{prefix}.resource.memory-mb": str(_MEMORY_MB),
        f"{prefix}.resource.cpu-vcores": str(cores),
        f"{prefix}.vmem-check-enabled": "false",
        f"{prefix}.disk-health-checker.enable": "false",
        f"{prefix}.delete.debug-delay-sec": "3600",
    }


@cache
def _provided() -> Path:
    """Return the folder with Hadoop's jars; download them if they are not there yet."""
    script = ROOT / "tests" / "support" / "hadoop" / "provide.sh"
    found: subprocess.CompletedProcess[str] = subprocess.run(
        ["bash", str(script)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(found.stdout.strip())

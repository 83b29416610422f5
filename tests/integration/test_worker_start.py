"""Tests that a dm-worker or dm-master that gets a signal during its start ends soon and cleans up."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from grpc import insecure_channel
from grpc_health.v1 import health_pb2

from shardmerge.master.commands.cluster.members import FREE, STARTING, list_members
from shardmerge.master.state import parse
from shardmerge.proto import etcd_keys
from shardmerge.proto.config.daemon.spark import SECRET_KEY
from shardmerge.proto.master_pb2 import ListMemberRequest
from shardmerge.worker.core.spark.settings import LOG_LEVEL
from tests.support.daemon import Daemon
from tests.support.etcd import Etcd
from tests.support.hooks import Hooks
from tests.support.ports import free_port
from tests.support.wait import until

pytestmark = pytest.mark.spark

_IS_IN_JVM = (b"service 'sparkDriver'", b"Setting Spark log level")
"""Texts that Spark logs in its JVM before it connects to its cluster, at the level INFO: in a JVM that the worker has
started, and in one of Spark's scripts."""
_SOON_SECONDS = 45.0
"""Spark gives up a cluster after 60 s and more; on a quiet machine the end takes less than 3."""


@dataclass(frozen=True, slots=True)
class Rig:
    folder: Path
    etcd: Etcd
    hooks: Hooks
    daemons: list[Daemon]

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def begin(
        self,
        kind: str = "worker",
        spark_master: str = "local[4]",
        etcd: str = "",
        *,
        spark: bool = True,
        spark_level: str = "INFO",
        **more: int,
    ) -> Daemon:
        """Start a daemon and return at once. ``spark``: a worker has a JVM."""
        settings: dict[str, object] = {"etcd": [etcd or self.etcd.endpoint], "log-format": "text"}
        if kind == "worker":
            level = {LOG_LEVEL: spark_level} if spark_level else {}
            settings |= {
                "relay-dir": str(self.folder / "relay"),
                "spark": {"master": spark_master, SECRET_KEY: "canary", **level},
            }
        settings |= {key.replace("_", "-"): value for key, value in more.items()}
        environment = {"TMPDIR": str(self.temporary), "PYTHONUNBUFFERED": "1", **self.hooks.environment}
        made = Daemon(kind, f"{kind}-1", self.folder, settings, environment, spark=spark)  # pyright: ignore[reportArgumentType]
        self.daemons.append(made)
        return made.start(wait=False)

    def end(self, daemon: Daemon, number: signal.Signals = signal.SIGTERM) -> None:
        """End the daemon: it must end soon and leave no process."""
        began = time.monotonic()
        daemon.signal(number)
        until(lambda: not daemon.alive, f"it ends: {daemon.last_lines()}", 300)
        took = time.monotonic() - began
        assert daemon.terminate() == 0, daemon.last_lines()
        assert took < _SOON_SECONDS, took
        self.nothing_is_left(daemon)

    def nothing_is_left(self, daemon: Daemon) -> None:
        assert daemon.session() == []
        left = [path for path in self.temporary.rglob("*") if path.is_file() and path.suffix != ".lock"]
        assert left == []
        assert [path for path in self.temporary.glob("*/*") if path.is_dir()] == []
        said = daemon.log.read_text()
        assert "Traceback" not in said, said
        self.etcd.ensure_running()
        with self.etcd.client() as client:
            assert client.get_prefix("/").records == ()


@pytest.fixture
def rig(tmp_path_factory: pytest.TempPathFactory, watch_logs: Callable[[Path], None]) -> Iterator[Rig]:
    # The folder of a test has its name: too long for a socket's path.
    folder = tmp_path_factory.mktemp("start")
    watch_logs(folder)
    (folder / "tmp").mkdir()
    made = Rig(folder, Etcd(folder / "etcd").start(), Hooks(folder / "hooks"), [])
    try:
        yield made
    finally:
        made.hooks.release_all()
        for daemon in made.daemons:
            daemon.stop()
        made.etcd.stop()


def _has_jvm(daemon: Daemon) -> bool:
    try:
        return daemon.jvm_pid() > 0
    except AssertionError:
        daemon.check_alive()
        return False


def _members(rig: Rig) -> dict[str, str]:
    with rig.etcd.client() as client:
        answer = list_members(ListMemberRequest(worker=True), parse(client.get_prefix(etcd_keys.PREFIX)))
    return {worker.name: worker.stage for worker in answer.workers}


def _says(daemon: Daemon, *words: bytes) -> bool:
    """Whether the log has one of the texts."""
    daemon.check_alive()
    logged = daemon.log.read_bytes()
    return any(text in logged for text in words)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_before_the_jvm_is_there(rig: Rig, number: signal.Signals) -> None:
    rig.hooks.hold("spark.starting")
    worker = rig.begin(drain_seconds=1)
    rig.hooks.reached("spark.starting")
    rig.end(worker, number)


def test_while_the_jvm_starts(rig: Rig) -> None:
    worker = rig.begin()
    until(lambda: _has_jvm(worker), "the JVM is there")
    rig.end(worker)
    assert b"registered" not in worker.log.read_bytes()


def test_while_spark_starts_in_its_jvm(rig: Rig) -> None:
    worker = rig.begin()
    until(lambda: _says(worker, *_IS_IN_JVM), "Spark starts in its JVM")
    rig.end(worker)
    assert b"registered" not in worker.log.read_bytes()


@pytest.mark.turns
def test_a_worker_is_listed_before_spark_is_ready(rig: Rig) -> None:
    rig.hooks.hold("spark.connecting")
    worker = rig.begin()
    rig.hooks.reached("spark.connecting")
    assert _members(rig) == {"worker-1": STARTING}
    with insecure_channel(worker.address) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        assert check(health_pb2.HealthCheckRequest(), timeout=60).status == health_pb2.HealthCheckResponse.NOT_SERVING
    rig.hooks.release("spark.connecting")
    until(lambda: _says(worker, b"registered"), "it is registered")
    assert _members(rig) == {"worker-1": FREE}
    rig.end(worker)


@pytest.mark.turns
def test_spark_master_at_which_no_process_listens(rig: Rig) -> None:
    worker = rig.begin(spark_master=f"spark://127.0.0.1:{free_port()}")
    until(lambda: _says(worker, *_IS_IN_JVM), "Spark looks for its master")
    rig.end(worker)


def test_a_second_signal_ends_the_start_at_once(rig: Rig) -> None:
    rig.hooks.hold("spark.starting")
    worker = rig.begin(drain_seconds=600)
    rig.hooks.reached("spark.starting")
    size = worker.log.stat().st_size
    worker.signal(signal.SIGTERM)
    until(lambda: b"stopped while starting" in worker.log.read_bytes()[size:], "it has noticed the first")
    worker.signal(signal.SIGTERM)
    until(lambda: not worker.alive, "the second signal ends it", 60)
    assert worker.session() == []


@pytest.mark.turns
@pytest.mark.parametrize("kind", ["worker", "master"])
def test_etcd_does_not_answer(rig: Rig, kind: str) -> None:
    os.kill(rig.etcd.pid, signal.SIGSTOP)
    try:
        daemon = rig.begin(kind, spark=False)
        until(lambda: _says(daemon, b"listening"), "it listens")
        daemon.signal(signal.SIGTERM)
        until(lambda: not daemon.alive, f"it ends: {daemon.last_lines()}", _SOON_SECONDS)
    finally:
        os.kill(rig.etcd.pid, signal.SIGCONT)
    assert daemon.terminate() == 0
    assert daemon.session() == []


@pytest.mark.turns
@pytest.mark.parametrize("kind", ["worker", "master"])
def test_etcd_is_away(rig: Rig, kind: str) -> None:
    daemon = rig.begin(kind, etcd=f"127.0.0.1:{free_port()}", spark=False)
    until(lambda: _says(daemon, b"listening"), "it listens")
    rig.end(daemon)


@pytest.mark.turns
def test_spark_writes_nothing_into_the_log(rig: Rig) -> None:
    worker = rig.begin(spark_level="")
    until(lambda: _says(worker, b"registered"), "it is registered")
    lines = worker.log.read_text().splitlines()
    assert [line for line in lines if "program=dm-worker" not in line] == []
    assert ["Spark is starting" in line or "Spark is ready" in line for line in lines].count(True) == 2
    rig.end(worker)


@pytest.mark.turns
def test_a_worker_that_runs_is_drained_by_sigint(rig: Rig) -> None:
    worker = rig.begin()
    until(lambda: _says(worker, b"registered"), "it is registered")
    rig.end(worker, signal.SIGINT)
    assert b"draining" in worker.log.read_bytes()


@pytest.mark.turns
def test_a_start_that_fails_leaves_nothing(rig: Rig) -> None:
    worker = rig.begin(spark_master="local[2,x]")
    until(lambda: not worker.alive, "it gives up")
    assert worker.terminate() == 1
    assert "what to do:" in worker.log.read_text()
    rig.nothing_is_left(worker)

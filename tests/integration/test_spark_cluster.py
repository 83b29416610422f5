"""Tests a dm-worker whose lanes run on a standalone Spark cluster: a merge, lost executors, starts that are refused.

Figures in docs/how-to/spark-cluster.md come from the lines that begin with "measured:".
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import shardmerge
from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon
from tests.support.database import Database
from tests.support.etcd import Etcd
from tests.support.mariadb import MariaDB
from tests.support.ports import free_port
from tests.support.spark_cluster import SparkCluster, SparkNode, kill
from tests.support.wait import until
from tests.support.world import Family
from tests.support.writer import Writer

_RECOVERY_SECONDS = 5.0
"""A lost executor, with slots left on another one: from the kill until rows are applied again."""
_REFUSED_SECONDS = 30.0
_MARKS = 16


@pytest.fixture
def make_spark(tmp_path: Path, watch_logs: Callable[[Path], None]) -> Iterator[Callable[..., SparkCluster]]:
    """``make_spark(**arguments of SparkCluster)``: a started cluster, ended after the test."""
    made: list[SparkCluster] = []

    def make(**arguments: object) -> SparkCluster:
        folder = tmp_path / f"spark-{len(made) + 1}"
        cluster = SparkCluster(folder, **arguments)  # pyright: ignore[reportArgumentType]
        watch_logs(folder)
        made.append(cluster)
        return cluster.start()

    yield make
    for cluster in made:
        cluster.stop()


@dataclass(frozen=True, slots=True)
class Starts:
    """Starts single workers, with an etcd."""

    folder: Path
    etcd: Etcd
    daemons: list[Daemon]

    def begin(
        self, settings: Mapping[str, str], address: str = "", listens: str = "", environment: Mapping[str, str] = {}
    ) -> Daemon:
        """Start a worker with these settings of Spark, and return at once. ``address``: the advertised one;
        ``listens``: where it listens, if that is another one."""
        made = Daemon(
            "worker",
            f"worker-{len(self.daemons) + 1}",
            self.folder,
            {
                "etcd": [self.etcd.endpoint],
                "log-format": "text",
                "relay-dir": str(self.folder / "relay"),
                "spark": dict(settings),
                "insecure": "true",
                "drain-seconds": 5,
            },
            {"PYTHONUNBUFFERED": "1", **environment},
        )
        if address:
            made.address = address
            made.write_config(worker_addr=listens or address)
        self.daemons.append(made)
        return made.start(wait=False)


@pytest.fixture
def starts(tmp_path: Path, watch_logs: Callable[[Path], None]) -> Iterator[Starts]:
    watch_logs(tmp_path)
    made = Starts(tmp_path, Etcd(tmp_path / "etcd").start(), [])
    try:
        yield made
    finally:
        for daemon in made.daemons:
            daemon.stop()
        made.etcd.stop()


def _refuses(worker: Daemon, spec: ErrorSpec, began: float) -> str:
    """Wait until the worker has ended because of ``spec``; return its log."""
    until(lambda: not worker.alive, f"it refuses to start: {worker.last_lines()}", 120)
    took = time.monotonic() - began
    text = worker.log.read_text()
    assert f"[{spec.code} {spec.name}]" in text, text
    assert worker.exit_code not in (0, None)
    assert "what to do:" in text
    assert "Traceback" not in text
    assert worker.session() == []
    print(f"measured: refused with {spec.code} after {took:.1f} s")
    assert took < _REFUSED_SECONDS or _is_slow(), took
    return text


def _is_slow() -> bool:
    """Return whether others use this machine: then durations say nothing."""
    return os.getloadavg()[0] > 2 * (os.cpu_count() or 1)


def _marks(family: Family, text: str) -> None:
    """Insert rows of every lane at the first source."""
    with family.sources[0][1].connect() as link, link.cursor() as cursor:
        for number in range(_MARKS):
            cursor.execute(
                f"INSERT INTO {family.name}_01.order_01 (customer, amount, state, note, token, created) "
                "VALUES ('mark', 1, 'new', %s, '', '2026-01-01')",
                (f"{text} {number}",),
            )
        link.commit()


def _applied(family: Family, text: str) -> bool:
    with family.target.connect() as link, link.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {family.name}.orders WHERE note LIKE '{text} %'")
        return cursor.fetchall()[0][0] == _MARKS


def _apply_again(family: Family, text: str, seconds: float, began: float) -> float:
    """Return the seconds from ``began`` until rows that are inserted now have been applied, by every lane."""
    _marks(family, text)
    until(lambda: _applied(family, text), f"{text}: rows are applied again", seconds, every=0.02)
    return time.monotonic() - began


def _has_lanes(node: SparkNode, target: Database) -> bool:
    """Return whether lanes run on the node: processes that are connected to the target."""
    return any(
        each.raddr and each.raddr.port == target.port
        for process in node.python_processes()
        for each in process.net_connections(kind="tcp")
    )


def _lose_executor(merge: Merge, text: str) -> float:
    """Kill an executor with lanes; return the seconds until every lane applies again."""
    node = until(
        lambda: next((each for each in merge.spark.workers if _has_lanes(each, merge.family.target)), None),
        "an executor has lanes",
        60,
    )
    [executor] = node.executors()
    lanes = [each for each in node.python_processes() if each.ppid() != executor.pid]
    began = time.monotonic()
    kill(executor)
    until(lambda: not any(each.is_running() for each in lanes), "the lanes of the executor end with it", 60, every=0.01)
    took = _apply_again(merge.family, text, 120, began)
    print(f"measured: rows are applied {took:.1f} s after the loss of one of two executors")
    return took


def _lane_processes(spark: SparkCluster) -> set[int]:
    return {process.pid for node in spark.workers for process in node.python_processes()}


@dataclass(frozen=True, slots=True)
class Merge:
    """A running merge whose lanes run on ``spark``."""

    spark: SparkCluster
    cluster: Cluster
    family: Family
    source: MariaDB

    @property
    def worker(self) -> Daemon:
        return self.cluster.workers[0]

    def judge(self) -> None:
        self.cluster.wait_caught_up(self.family.name, {"mysql-01": self.source})
        verdict = self.family.verdict()
        assert verdict.differences == 0, verdict
        assert verdict.rows > 0


@pytest.fixture
def make_merge(
    make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster]
) -> Callable[[SparkCluster], Merge]:
    def make(spark: SparkCluster) -> Merge:
        source, target = make_server("source"), make_server("target")
        cluster = make_cluster(workers=1, worker_settings={"spark": spark.settings})
        cluster.create_source("mysql-01", source)
        return Merge(spark, cluster, Family("spread", (("mysql-01", source),), target), source)

    return make


def test_a_merge_whose_executor_is_killed(
    make_spark: Callable[..., SparkCluster], make_merge: Callable[[SparkCluster], Merge]
) -> None:
    spark = make_spark(cores=(4, 4))
    merge = make_merge(spark)
    shards = merge.family.create(300)
    with Writer(shards, seed=7, pause_seconds=0.05) as writer:
        merge.cluster.start_task(merge.family.task())
        merge.cluster.wait_replicating("spread")
        writer.go_on()
        _lose_executor(merge, "again")
        writer.stop()
    merge.judge()
    # Nothing remains on the executors' machines when the worker has ended.
    assert merge.worker.terminate() == 0
    until(lambda: not _lane_processes(spark), "the Python processes have ended", 60)
    assert not any(node.executors() for node in spark.workers)


def test_a_signal_while_no_executor_is_there(make_spark: Callable[..., SparkCluster], starts: Starts) -> None:
    spark = make_spark(cores=())
    worker = starts.begin({**spark.settings, "spark.cores.max": "4"})
    until(lambda: "Registered app" in spark.nodes[0].log.read_text(), "the driver is registered", 120)
    began = time.monotonic()
    worker.signal(signal.SIGTERM)
    until(lambda: not worker.alive, f"it ends: {worker.last_lines()}", 60)
    print(f"measured: ended {time.monotonic() - began:.1f} s after the signal")
    assert worker.exit_code == 0
    assert worker.session() == []
    assert "Traceback" not in worker.log.read_text()
    until(lambda: "Removing app" in spark.nodes[0].log.read_text(), "the Spark master has removed the driver", 60)


@pytest.mark.grid
def test_no_executor(make_spark: Callable[..., SparkCluster], starts: Starts) -> None:
    spark = make_spark(cores=())
    began = time.monotonic()
    text = _refuses(starts.begin({**spark.settings, "spark.cores.max": "4"}), errors.worker.SPARK_NO_EXECUTOR, began)
    assert "the cluster has no worker" in text


@pytest.mark.grid
def test_fewer_slots_than_promised(make_spark: Callable[..., SparkCluster], starts: Starts) -> None:
    spark = make_spark(cores=(4,))
    began = time.monotonic()
    text = _refuses(starts.begin({**spark.settings, "spark.cores.max": "5"}), errors.worker.SPARK_SLOTS_MISSING, began)
    assert f"{spark.url} provides 4 Spark slots, and 5 are needed; the cluster has 1 worker with 4 cores" in text


@pytest.mark.grid
def test_a_spark_master_that_does_not_answer(starts: Starts) -> None:
    began = time.monotonic()
    master = f"spark://127.0.0.1:{free_port()}"
    worker = starts.begin({"master": master, "spark.authenticate.secret": "s"})
    text = _refuses(worker, errors.worker.SPARK_START_FAILED, began)
    assert f"{master} has not accepted the worker within 20 s" in text
    assert "Connection refused" in text


@pytest.mark.grid
def test_another_build_on_an_executor(make_spark: Callable[..., SparkCluster], starts: Starts, tmp_path: Path) -> None:
    other = _other_build(tmp_path / "other")
    spark = make_spark(cores=(2, 2), environments=({}, {"PYTHONPATH": str(other)}))
    began = time.monotonic()
    text = _refuses(starts.begin(spark.settings), errors.worker.SPARK_VERSIONS_DIFFER, began)
    assert "shardmerge is 0.1.0 (sources " in text


@pytest.mark.grid
def test_no_build_on_an_executor(make_spark: Callable[..., SparkCluster], starts: Starts, tmp_path: Path) -> None:
    empty = tmp_path / "empty" / "shardmerge"
    empty.mkdir(parents=True)
    (empty / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'shardmerge'\")\n")
    spark = make_spark(cores=(2,), environments=({"PYTHONPATH": str(empty.parent)},))
    began = time.monotonic()
    text = _refuses(starts.begin(spark.settings), errors.worker.SPARK_VERSIONS_DIFFER, began)
    assert "shardmerge is not installed on the executor's host 127.0.0.1, and 0.1.0 (sources " in text


def _other_build(folder: Path) -> Path:
    """Make a folder for PYTHONPATH with this build, of which one source differs."""
    package = folder / "shardmerge"
    package.mkdir(parents=True)
    here = Path(shardmerge.__file__).parent
    (package / "__init__.py").write_text("")
    for part in ("proto", "worker"):
        shutil.copytree(here / part, package / part, ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    changed = package / "worker" / "core" / "stream.py"
    changed.write_text(changed.read_text() + "# an earlier build\n")
    return folder


@pytest.mark.grid
def test_an_address_that_executors_do_not_reach(make_spark: Callable[..., SparkCluster], starts: Starts) -> None:
    spark = make_spark(cores=(2, 2))
    address, listens = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    text = _refuses(starts.begin(spark.settings, address, listens), errors.worker.SPARK_CANNOT_REACH_WORKER, began)
    assert f"cannot reach the worker at {address}: [60801 peer-unreachable]" in text
    with starts.etcd.client() as client:
        assert client.get_prefix("/").records == ()


@pytest.fixture
def other_machine() -> Iterator[tuple[str, str, str]]:
    """Provide a network namespace: its name, the address of this machine there, and its own address."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root and the command ip")
    name, here, there = f"sm{os.getpid()}", "10.213.7.1", "10.213.7.2"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    ip("netns", "add", name)
    try:
        ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
        ip("addr", "add", f"{here}/24", "dev", f"{name}a")
        ip("link", "set", f"{name}a", "up")
        ip("-n", name, "addr", "add", f"{there}/24", "dev", f"{name}b")
        ip("-n", name, "link", "set", f"{name}b", "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield name, here, there
    finally:
        ip("netns", "del", name)


@pytest.mark.grid
def test_executors_on_another_machine(
    make_spark: Callable[..., SparkCluster], starts: Starts, other_machine: tuple[str, str, str]
) -> None:
    name, here, there = other_machine
    spark = make_spark(cores=(2,), host=there, prefix=("ip", "netns", "exec", name))
    # Without any setting of Spark's addresses, executors reach driver and worker.
    worker = starts.begin(spark.settings, f"{here}:{free_port()}")
    until(lambda: "registered" in _log(worker), f"it has registered: {worker.last_lines()}", 120)
    assert worker.terminate() == 0
    # At loopback it would wait for ever.
    began = time.monotonic()
    worker = starts.begin(spark.settings, f"127.0.0.1:{free_port()}")
    _refuses(worker, errors.worker.SPARK_WORKER_ON_LOOPBACK, began)
    # Executors reach the driver, and not the worker.
    began = time.monotonic()
    worker = starts.begin(spark.settings, f"{here}:{free_port()}", f"127.0.0.1:{free_port()}")
    text = _refuses(worker, errors.worker.SPARK_CANNOT_REACH_WORKER, began)
    assert f"cannot reach the worker at {here}:" in text


def _log(worker: Daemon) -> str:
    worker.check_alive()
    return worker.log.read_text()


@pytest.mark.grid
def test_recovery_times(make_spark: Callable[..., SparkCluster], make_merge: Callable[[SparkCluster], Merge]) -> None:
    """An executor, the whole machine of an executor, the worker, and all executors, one after the other, under load."""
    spark = make_spark(cores=(6, 6))
    merge = make_merge(spark)
    shards = merge.family.create(500)
    with Writer(shards, seed=8, pause_seconds=0.05) as writer:
        merge.cluster.start_task(merge.family.task())
        merge.cluster.wait_replicating("spread")
        for number in range(3):
            writer.go_on()
            took = _lose_executor(merge, f"executor{number}")
            assert took <= _RECOVERY_SECONDS or _is_slow(), took
            _wait_slots(merge.worker, number + 1)

        began = time.monotonic()
        for node in spark.workers:
            for executor in node.executors():
                kill(executor)
        until(lambda: not _lane_processes(spark), "the lanes have ended", 60, every=0.01)
        took = _apply_again(merge.family, "executors", 120, began)
        print(f"measured: rows are applied {took:.1f} s after the loss of all executors")

        merge.worker.kill_all()
        began = time.monotonic()
        until(lambda: not _lane_processes(spark), "the Python processes have ended", 60)
        print(f"measured: no Python process {time.monotonic() - began:.1f} s after the loss of the worker")
        began = time.monotonic()
        merge.worker.start(wait=False)
        took = _apply_again(merge.family, "worker", 200, began)
        print(f"measured: rows are applied {took:.1f} s after the start of a worker that was killed")

        # The cluster loses all of its workers: the status says so, and the merge continues with another worker.
        lost = list(spark.workers)
        for node in lost:
            spark.end(node)
        [sub] = merge.cluster.wait_subtasks("spread", lambda sub: bool(sub.errors), "shows the error", 120).values()
        until(lambda: errors.worker.SPARK_NO_EXECUTOR.code in _codes(merge.cluster), "the status names the reason", 120)
        assert sub.raw["sync"].get("unknown")
        began = time.monotonic()
        spark.add_worker(12, {})
        took = _apply_again(merge.family, "cluster", 200, began)
        print(f"measured: rows are applied {took:.1f} s after the start of another Spark worker")
        writer.stop()
    merge.judge()


def _codes(cluster: Cluster) -> set[int]:
    return {code for sub in cluster.subtasks("spread").values() for code, _ in sub.errors}


def _wait_slots(worker: Daemon, lost: int) -> None:
    """Wait until executors that follow the ``lost`` ones are ready: their Python processes run."""
    until(lambda: worker.log.read_text().count("executors are ready") >= lost, "all slots are ready", 120)

"""Tests a dm-worker whose lanes run on a standalone Spark cluster: a merge, lost executors, starts that are refused.

Figures in docs/how-to/spark-cluster.md come from the lines that begin with "measured:".
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import shardmerge
from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec
from tests.support.daemon import Daemon
from tests.support.etcd import Etcd
from tests.support.other_machine import OtherMachine
from tests.support.ports import free_port
from tests.support.spark_cluster import SparkCluster, kill
from tests.support.spark_merge import SparkMerge, is_slow, lane_processes
from tests.support.wait import until
from tests.support.writer import Writer

pytestmark = [pytest.mark.spark, pytest.mark.clusters, pytest.mark.turns]

_RECOVERY_SECONDS = 5.0
"""A lost executor, with slots left on another one: from the kill until rows are applied again."""
_REFUSED_SECONDS = 75.0


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
    assert took < _REFUSED_SECONDS or is_slow(), took
    return text


def test_a_merge_whose_lane_and_executor_are_killed(
    make_spark: Callable[..., SparkCluster], make_merge: Callable[[SparkCluster], SparkMerge]
) -> None:
    merge = make_merge(make_spark(cores=(4, 4)))
    shards = merge.family.create(300)
    with Writer(shards, seed=7, pause_seconds=0.05) as writer:
        merge.start()
        writer.go_on()
        merge.lose_lane("lane")
        writer.go_on()
        merge.lose_executor("again")
        writer.stop()
    merge.end()


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
    assert f"{master} has not accepted the worker within 40 s" in text
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


@pytest.mark.grid
def test_executors_on_another_machine(
    make_spark: Callable[..., SparkCluster], starts: Starts, other_machine: OtherMachine
) -> None:
    here, there = other_machine.here, other_machine.there
    spark = make_spark(cores=(2,), host=there, prefix=other_machine.prefix)
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
def test_recovery_times(
    make_spark: Callable[..., SparkCluster], make_merge: Callable[[SparkCluster], SparkMerge]
) -> None:
    """An executor, the whole machine of an executor, the worker, and all executors, one after the other, under load."""
    spark = make_spark(cores=(6, 6))
    merge = make_merge(spark)
    shards = merge.family.create(500)
    with Writer(shards, seed=8, pause_seconds=0.05) as writer:
        merge.start()
        for number in range(3):
            writer.go_on()
            before = merge.ready_lines()
            took = merge.lose_executor(f"executor{number}")
            assert took <= _RECOVERY_SECONDS or is_slow(), took
            merge.wait_slots(before)

        began = time.monotonic()
        for node in spark.workers:
            for executor in node.executors():
                kill(executor)
        until(lambda: not lane_processes(spark), "the lanes have ended", 60, every=0.01)
        took = merge.applies_again("executors", began)
        print(f"measured: rows are applied {took:.1f} s after the loss of all executors")

        merge.worker.kill_all()
        began = time.monotonic()
        until(lambda: not lane_processes(spark), "the Python processes have ended", 60)
        print(f"measured: no Python process {time.monotonic() - began:.1f} s after the loss of the worker")
        began = time.monotonic()
        merge.worker.start(wait=False)
        took = merge.applies_again("worker", began)
        print(f"measured: rows are applied {took:.1f} s after the start of a worker that was killed")

        # The cluster loses all of its workers: the status says so, and the merge continues with another worker.
        lost = list(spark.workers)
        for node in lost:
            spark.end(node)
        [sub] = merge.cluster.wait_subtasks("spread", lambda sub: bool(sub.errors), "shows the error", 120).values()
        until(lambda: errors.worker.SPARK_NO_EXECUTOR.code in merge.codes(), "the status names the reason", 120)
        assert sub.raw["sync"].get("unknown")
        began = time.monotonic()
        spark.add_worker(12, {})
        took = merge.applies_again("cluster", began)
        print(f"measured: rows are applied {took:.1f} s after the start of another Spark worker")
        writer.stop()
    merge.end()

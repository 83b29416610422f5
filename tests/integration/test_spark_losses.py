"""Tests a merge whose lanes run on a Spark cluster that loses executors, masters, workers, disks or networks.

It needs Spark clusters of its own, so `bash tests/run.sh clusters` runs it. Figures in docs/how-to/spark-cluster.md
come from the lines that begin with "measured:".
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.cluster import Cluster
from tests.support.disk import fill, small_disk
from tests.support.mariadb import MariaDB
from tests.support.other_machine import OtherMachine
from tests.support.ports import free_port
from tests.support.spark_cluster import SparkCluster, SparkNode, kill
from tests.support.spark_merge import SparkMerge, is_alive, is_slow
from tests.support.wait import until
from tests.support.world import Family
from tests.support.writer import Writer
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.grid, pytest.mark.spark, pytest.mark.clusters]

MakeSpark = Callable[..., SparkCluster]
MakeMerge = Callable[..., SparkMerge]

_SHORT_FREEZE_SECONDS = 5.0
_SILENT_SECONDS = 40.0
"""An executor that is silent, with slots left on another one: Spark's time-out, and the target's one for a transaction
that a frozen lane has begun."""

_AT_ONCE_SECONDS = 5.0
"""A loss that Spark reports, with slots left on another executor."""
_LANE_SECONDS = 1.0
"""A lane's Python process, with free slots: so long do the other lanes stop."""
_SEPARATE_SECONDS = 6.0
"""A loss so long after the one before is repaired without a pause."""
_START_SECONDS = 40.0
"""A restart of the worker: a new JVM, executors, and the check of their environment."""
_ACTIVE = "New state: ALIVE"
_SOON = {"spark.worker.timeout": "20"}


@contextmanager
def _writes(merge: SparkMerge, seed: int) -> Generator[Writer]:
    """Replicate under writes; afterwards compare, end the worker, and check that no process remains."""
    shards = merge.family.create(300)
    with Writer(shards, seed=seed, pause_seconds=0.05) as writer:
        merge.start()
        writer.go_on()
        yield writer
        writer.stop()
    merge.end()


def _measured(took: float, what: str, most: float) -> None:
    print(f"measured: rows are applied {took:.1f} s after {what}")
    assert took <= most or is_slow(), (what, took)


def _end(processes: list[psutil.Process], what: str, seconds: float = 60) -> None:
    until(lambda: not any(map(is_alive, processes)), what, seconds)


def _pass(seconds: float) -> None:
    began = time.monotonic()
    until(lambda: time.monotonic() - began >= seconds, "time passes")


def test_an_executor_that_freezes(make_spark: MakeSpark, make_merge: MakeMerge) -> None:
    """Its machine hangs with Spark's worker, the executor and its Python processes, and continues when others have
    replaced its lanes."""
    merge = make_merge(make_spark(cores=(6, 6)))
    with _writes(merge, 21) as writer:
        node = merge.node_with_lanes()
        runs, processes = merge.runs(), node.session()
        node.freeze()
        _pass(_SHORT_FREEZE_SECONDS)
        node.thaw()
        merge.applies_again("short", time.monotonic())
        assert merge.runs() == runs, merge.worker.last_lines(30)
        assert all(map(is_alive, processes))

        writer.go_on()
        executors = [*node.executors(), *node.python_processes()]
        began = time.monotonic()
        node.freeze()
        _measured(merge.applies_again("frozen", began), "an executor with its machine has frozen", _SILENT_SECONDS)
        writer.go_on()
        began = time.monotonic()
        node.thaw()
        _end(executors, "the executor and its lanes end when they continue")
        print(f"measured: no process of the executor {time.monotonic() - began:.1f} s after it continues")
        merge.applies_again("thawed", time.monotonic())


def test_an_executor_that_is_cut_off(
    make_spark: MakeSpark, other_machine: OtherMachine, tmp_path: Path, watch_logs: Callable[[Path], None]
) -> None:
    """All packets between its machine and this one are lost, without an answer. It comes back when others have
    replaced its lanes."""
    spark = make_spark(cores=(6,), host=other_machine.here, conf=_SOON)
    node = spark.add_worker(6, {}, other_machine.there, other_machine.prefix)
    node.wait_registered()
    with _spread_merge(spark, other_machine.here, tmp_path, watch_logs) as merge, _writes(merge, 22) as writer:
        until(lambda: _lanes_from(merge, other_machine.there), "lanes run on the other machine", 60)
        executors = [*node.executors(), *node.python_processes()]
        began = time.monotonic()
        other_machine.cut_off()
        _measured(merge.applies_again("cut", began), "the network of an executor is cut", _SILENT_SECONDS)
        _end(executors, "the executor and its lanes end by themselves", 120)
        print(f"measured: no process of the executor {time.monotonic() - began:.1f} s after the cut")
        writer.go_on()
        before = merge.ready_lines()
        other_machine.connect()
        began = time.monotonic()
        merge.wait_slots(before)
        print(f"measured: all slots are ready {time.monotonic() - began:.1f} s after the network is there again")
        merge.applies_again("connected", time.monotonic())


def _lanes_from(merge: SparkMerge, address: str) -> bool:
    found = merge.family.target.query(
        f"SELECT COUNT(*) FROM information_schema.processlist WHERE host LIKE '{address}:%'"
    )
    return bool(found[0][0])


@contextmanager
def _spread_merge(
    spark: SparkCluster, here: str, folder: Path, watch_logs: Callable[[Path], None]
) -> Generator[SparkMerge]:
    """Provide a merge whose servers and worker are at address ``here`` of this machine."""
    with ExitStack() as started:
        servers: list[MariaDB] = []
        for name in ("source", "target"):
            server = MariaDB(folder / name, 101 + len(servers), ("--bind-address=*",)).start()
            started.callback(server.stop)
            server.execute(f"CREATE USER root@'{here[: here.rindex('.')]}.%'")
            server.execute(f"GRANT ALL ON *.* TO root@'{here[: here.rindex('.')]}.%' WITH GRANT OPTION")
            server.host = here
            servers.append(server)
        insecure = {"insecure": "true"}
        cluster = Cluster(
            folder / "cluster",
            workers=1,
            worker_settings={"spark": spark.settings | {"spark.cores.max": "12"}, **insecure},
            master_settings=insecure,
        )
        watch_logs(cluster.directory)
        started.callback(cluster.stop)
        cluster.workers[0].address = f"{here}:{free_port()}"
        cluster.start()
        cluster.create_source("mysql-01", servers[0])
        yield SparkMerge(spark, cluster, Family("spread", (("mysql-01", servers[0]),), servers[1]), servers[0])


def test_an_executor_that_is_decommissioned(make_spark: MakeSpark, make_merge: MakeMerge) -> None:
    """Spark starts no further tasks on it, and its lanes continue. When the task is paused and resumed they leave it,
    and it ends. One whose machine ends earlier is lost as any other."""
    enabled = {"spark.decommission.enabled": "true"}
    merge = make_merge(make_spark(cores=(6, 6), conf=enabled), enabled)
    with _writes(merge, 23) as writer:
        node = _decommission(merge)
        runs, processes = merge.runs(), [*node.executors(), *node.python_processes()]
        _pass(5.0)
        merge.applies_again("later", time.monotonic())
        assert merge.runs() == runs
        assert all(map(is_alive, processes))
        merge.cluster.dmctl("pause-task", "spread")
        merge.cluster.wait_paused("spread")
        began = time.monotonic()
        merge.cluster.dmctl("resume-task", "spread")
        _measured(merge.applies_again("resumed", began), "resume-task, without the decommissioned executor", 10.0)
        _end(processes, "the executor without lanes ends by itself")
        print(f"measured: no process of the decommissioned executor {time.monotonic() - began:.1f} s later")
        merge.spark.end(node)
        writer.go_on()

        before = merge.ready_lines()
        merge.spark.add_worker(6, {})
        merge.wait_slots(before)
        node = _decommission(merge)
        processes = node.session()
        began = time.monotonic()
        merge.spark.end(node)
        _measured(merge.applies_again("gone", began), "the end of a decommissioned executor", _AT_ONCE_SECONDS)
        _end(processes, "its processes end")


def _decommission(merge: SparkMerge) -> SparkNode:
    """Decommission a Spark worker whose executor has lanes."""
    node = merge.node_with_lanes()
    assert node.process is not None
    node.process.send_signal(signal.SIGPWR)
    node.wait_logged("Decommission worker")
    return node


def test_lost_processes(make_spark: MakeSpark, make_merge: MakeMerge) -> None:
    """The Python process of a lane, the driver's JVM, and a Spark worker that is restarted: one after the other."""
    merge = make_merge(make_spark(cores=(6, 6)))
    with _writes(merge, 24) as writer:
        for number in range(3):
            _pass(_SEPARATE_SECONDS)
            took = merge.lose_lane(f"lane{number}")
            assert took <= _LANE_SECONDS or is_slow(), took
            writer.go_on()

        processes = list(merge.spark.python_processes())
        began = time.monotonic()
        os.kill(merge.worker.jvm_pid(), signal.SIGKILL)
        _end(processes, "the executors' Python processes end with the driver")
        print(f"measured: no Python process {time.monotonic() - began:.1f} s after the loss of the driver's JVM")
        _measured(merge.applies_again("driver", began), "the loss of the driver's JVM", _START_SECONDS)
        writer.go_on()

        node, before = merge.node_with_lanes(), merge.ready_lines()
        processes = node.session()
        began = time.monotonic()
        node.kill()
        _measured(merge.applies_again("worker", began), "the kill of a Spark worker's process", _AT_ONCE_SECONDS)
        _end(processes, "its executor and the lanes end with it")
        merge.spark.start_again(node)
        merge.wait_slots(before)
        writer.go_on()

        node, before = merge.node_with_lanes(), merge.ready_lines()
        processes = node.session()
        began = time.monotonic()
        node.terminate()
        _measured(merge.applies_again("stopped", began), "the stop of a Spark worker", _AT_ONCE_SECONDS)
        _end(processes, "its executor and the lanes end with it")
        merge.spark.start_again(node)
        merge.wait_slots(before)


@pytest.mark.parametrize("mode", ["FILESYSTEM", "NONE"])
def test_a_restarted_spark_master(make_spark: MakeSpark, make_merge: MakeMerge, tmp_path: Path, mode: str) -> None:
    """With its records Spark's master continues the application. Without, dm-worker restarts itself if the master does
    not know it any more."""
    conf = {"spark.deploy.recoveryMode": mode, "spark.deploy.recoveryDirectory": str(tmp_path)}
    merge = make_merge(make_spark(cores=(6, 6), conf=conf if mode == "FILESYSTEM" else {}))
    with _writes(merge, 25) as writer:
        [master] = merge.spark.masters_running
        runs, registrations = merge.runs(), merge.registrations()
        began = time.monotonic()
        master.kill()
        _measured(merge.applies_again("without", began), "the loss of Spark's master", _AT_ONCE_SECONDS)
        assert merge.runs() == runs
        merge.spark.start_again(master)
        began = time.monotonic()
        if mode == "FILESYSTEM":
            master.wait_logged("Recovery complete")
            _pass(_SEPARATE_SECONDS)
            merge.applies_again("back", time.monotonic())
            assert (merge.runs(), merge.registrations()) == (runs, registrations), merge.worker.last_lines()
        else:
            until(lambda: merge.registrations() > registrations, "the worker registers again", 120)
            _measured(merge.applies_again("back", began), "the start of a master without its records", _START_SECONDS)
        writer.go_on()
        # The cluster works as before: a lost executor is replaced.
        before = merge.ready_lines()
        merge.lose_executor("executor")
        merge.wait_slots(before)


def test_two_spark_masters(make_spark: MakeSpark, make_merge: MakeMerge, tmp_path: Path) -> None:
    """The active master ends, and the other one takes over: workers and applications register there."""
    with ExitStack() as started:
        zookeeper = ZooKeeper(tmp_path / "zookeeper").start()
        started.callback(zookeeper.shut_down)
        conf = {
            "spark.deploy.recoveryMode": "ZOOKEEPER",
            "spark.deploy.zookeeper.url": f"127.0.0.1:{zookeeper.port}",
        }
        merge = make_merge(make_spark(cores=(6, 6), masters=2, conf=conf))
        with _writes(merge, 26) as writer:
            [active] = [each for each in merge.spark.masters_running if each.has_logged(_ACTIVE)]
            [other] = [each for each in merge.spark.masters_running if each is not active]
            runs = merge.runs()
            began = time.monotonic()
            active.kill()
            _measured(merge.applies_again("without", began), "the loss of the active Spark master", _AT_ONCE_SECONDS)
            assert merge.runs() == runs
            # Without a master there is no replacement; the lanes use the slots that are left.
            before = merge.ready_lines()
            merge.lose_executor("between")
            other.wait_logged("Recovery complete")
            print(f"measured: the other master is active {time.monotonic() - began:.1f} s after the loss")
            merge.wait_slots(before)
            print(f"measured: all slots are ready {time.monotonic() - began:.1f} s after the loss")
            writer.go_on()
            before = merge.ready_lines()
            merge.lose_executor("after")
            merge.wait_slots(before)


def test_a_full_disk_of_an_executor(make_spark: MakeSpark, make_merge: MakeMerge, tmp_path: Path) -> None:
    """The disk of one Spark worker, with its local directory and the logs of its executors, is full: lanes that run
    there continue, and no executor starts there until it has space again."""
    with small_disk(tmp_path / "small", 16) as disk:
        environment = {"SPARK_LOCAL_DIRS": str(disk), "SPARK_WORKER_DIR": str(disk / "work")}
        merge = make_merge(make_spark(cores=(6, 6), environments=(environment, {})))
        with _writes(merge, 27) as writer:
            full = merge.spark.workers[0]
            ballast = fill(disk, 0)
            runs = merge.runs()
            writer.go_on()
            _pass(_SEPARATE_SECONDS)
            merge.applies_again("full", time.monotonic())
            assert merge.runs() == runs

            before = merge.ready_lines()
            [executor] = full.executors()
            began = time.monotonic()
            kill(executor)
            _measured(
                merge.applies_again("executor", began), "the loss of an executor with a full disk", _AT_ONCE_SECONDS
            )
            _pass(_SEPARATE_SECONDS)
            assert merge.ready_lines() == before
            began = time.monotonic()
            ballast.unlink()
            merge.wait_slots(before)
            print(f"measured: all slots are ready {time.monotonic() - began:.1f} s after the disk has space again")

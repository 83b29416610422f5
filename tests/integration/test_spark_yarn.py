"""Tests a worker whose Spark runs on YARN: a merge under writes with kills of what YARN runs, and the worker's end.

It needs a YARN of its own, so `bash tests/run.sh clusters` runs it: it does not belong to the whole suite.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.support.cluster import Cluster
from tests.support.mariadb import MariaDB
from tests.support.spark_merge import is_alive
from tests.support.wait import until
from tests.support.world import Family
from tests.support.writer import Writer
from tests.support.yarn import Yarn, spark_settings

pytestmark = [pytest.mark.grid, pytest.mark.spark, pytest.mark.clusters]

_OTHER = """\
import json
import sys
from pyspark.sql import SparkSession

builder = SparkSession.builder
for key, value in json.loads(sys.argv[1]).items():
    builder = builder.config(key if key.startswith("spark.") else f"spark.{key}", value)
spark = builder.getOrCreate()
sys.stdin.read()
spark.stop()
"""

_PROBES = 64
"""Rows that are spread over all lanes."""


@pytest.fixture
def yarn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yarn]:
    with Yarn(tmp_path / "yarn", nodes=2) as started:
        for name, value in started.environment.items():
            monkeypatch.setenv(name, value)
        yield started


def test_kills_of_what_yarn_runs(
    yarn: Yarn, make_server: Callable[..., MariaDB], make_cluster: Callable[..., Cluster]
) -> None:
    source, target = make_server("source"), make_server("target")
    cluster = make_cluster(workers=1, worker_settings={"spark": spark_settings()})
    [worker] = cluster.workers
    cluster.create_source("mysql-01", source)
    family = Family("yarn", (("mysql-01", source),), target)
    shards = family.create(500)
    with Writer(shards, seed=31) as writer:
        cluster.start_task(family.task())
        cluster.wait_replicating("yarn")
        writer.go_on()
        assert len(yarn.executors()) == 2
        assert yarn.applications() == 1

        for name, disturb in _DISTURBANCES.items():
            disturb(yarn, target)
            begun = time.monotonic()
            _wait_for_new_rows(source, target)
            print(f"{name}: changes are applied again after {time.monotonic() - begun:.1f} s")
            cluster.wait_replicating("yarn")
            writer.go_on()

        # The worker fails as a machine does; its application must end, and the next one continues.
        worker.kill_all()
        worker.start(wait=False)
        begun = time.monotonic()
        worker.wait_until_ready()
        cluster.wait_replicating("yarn")
        _wait_for_new_rows(source, target)
        print(f"worker killed: changes are applied again after {time.monotonic() - begun:.1f} s")
        until(lambda: yarn.applications() == 1, "the killed worker's application ends", 120)
    cluster.wait_caught_up("yarn", {"mysql-01": source})
    verdict = family.verdict()
    assert verdict.differences == 0, verdict

    assert worker.terminate() == 0
    until(lambda: not yarn.applications(), "the stopped worker's application ends", 60)
    until(lambda: not yarn.containers(), "no process of the worker remains in a container", 60)


def test_preempted_executors(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_server: Callable[..., MariaDB],
    make_cluster: Callable[..., Cluster],
) -> None:
    """An application of another queue needs its share: YARN ends executors of the worker. The lanes continue in the
    slots that are left, and the worker has all of its executors again when the other application has ended."""
    with Yarn(tmp_path / "yarn", nodes=2, queues=("lanes", "others")) as yarn:
        for name, value in yarn.environment.items():
            monkeypatch.setenv(name, value)
        source, target = make_server("source"), make_server("target")
        settings = {**spark_settings(executors=3, cores=4), "spark.yarn.queue": "lanes"}
        cluster = make_cluster(workers=1, worker_settings={"spark": settings})
        [worker] = cluster.workers
        cluster.create_source("mysql-01", source)
        family = Family("yarn", (("mysql-01", source),), target)
        shards = family.create(300)
        with Writer(shards, seed=32, pause_seconds=0.05) as writer:
            # On each executor at least one; they fit into the executor that is left.
            cluster.start_task(family.task(extra="replicate:\n  lanes: 4\n"))
            cluster.wait_replicating("yarn")
            writer.go_on()
            executors = yarn.executors()
            assert len(executors) == 3
            with _other_application():
                until(lambda: not all(map(is_alive, executors)), "an executor of the worker is preempted", 120)
                begun = time.monotonic()
                _wait_for_new_rows(source, target)
                print(f"measured: rows are applied {time.monotonic() - begun:.1f} s after a preemption")
                assert any(map(is_alive, executors))
                writer.go_on()
                _wait_for_new_rows(source, target)
            until(lambda: len(yarn.executors()) == 3, "the worker has all executors again", 120)
            writer.go_on()
        cluster.wait_caught_up("yarn", {"mysql-01": source})
        verdict = family.verdict()
        assert verdict.differences == 0, verdict
        assert worker.terminate() == 0
        until(lambda: not yarn.containers(), "no process of the worker remains in a container", 60)


@contextmanager
def _other_application() -> Generator[None]:
    """Run an application of another queue that needs the whole share of its queue."""
    settings = {**spark_settings(executors=2, cores=1), "spark.yarn.queue": "others", "spark.ui.enabled": "false"}
    process = subprocess.Popen([sys.executable, "-c", _OTHER, json.dumps(settings)], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def _kill_executor(yarn: Yarn, target: MariaDB) -> None:
    """Kill the executor that runs a lane."""
    [lane, *_] = _lanes(yarn, target)
    [executor] = [one for one in yarn.executors() if one in lane.parents()]
    _kill(executor)


def _kill_executors(yarn: Yarn, target: MariaDB) -> None:
    for executor in yarn.executors():
        _kill(executor)


def _kill_lane(yarn: Yarn, target: MariaDB) -> None:
    [lane, *_] = _lanes(yarn, target)
    _kill(lane)


def _restart_node(yarn: Yarn, target: MariaDB) -> None:
    """Restart the NodeManager of a lane, which ends its containers."""
    [lane, *_] = _lanes(yarn, target)
    [node] = [one for one in yarn.nodes if str(one.directory) in lane.cwd()]
    node.shut_down()
    node.start()
    yarn.wait_for_nodes()


def _restart_resource_manager(yarn: Yarn, target: MariaDB) -> None:
    yarn.resource_manager.kill()
    yarn.resource_manager.start()
    yarn.wait_for_nodes()


_DISTURBANCES: dict[str, Callable[[Yarn, MariaDB], None]] = {
    "executor of a lane killed": _kill_executor,
    "all executors killed": _kill_executors,
    "lane killed": _kill_lane,
    "NodeManager of a lane restarted": _restart_node,
    "ResourceManager killed and restarted": _restart_resource_manager,
}


def _lanes(yarn: Yarn, target: MariaDB) -> list[psutil.Process]:
    """Return the Python processes in containers that are connected to the target and to the worker."""

    def found() -> list[psutil.Process]:
        return [one for one in yarn.containers() if one.name().startswith("python") and _is_lane(one, target)]

    return until(found, "a lane is connected to the target")


def _is_lane(process: psutil.Process, target: MariaDB) -> bool:
    with suppress(psutil.Error):
        ports = {each.raddr.port for each in process.net_connections(kind="tcp") if each.raddr}
        # A chunk reader that has ended leaves a process with a connection to neither.
        return target.port in ports and len(ports) > 1
    return False


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()


def _wait_for_new_rows(source: MariaDB, target: MariaDB) -> None:
    """Wait until the target has rows of every lane that were inserted at the source after the begin of this call."""
    name = f"probe {time.monotonic_ns()}"
    rows = ", ".join(f"('{name}', {number}, 'new', '', '2026-01-01')" for number in range(_PROBES))
    source.execute(f"INSERT INTO yarn_01.order_01 (customer, amount, state, token, created) VALUES {rows}")
    question = f"SELECT COUNT(*) FROM yarn.orders WHERE customer = '{name}'"
    until(lambda: target.query(question) == [(_PROBES,)], "the target has the new rows")

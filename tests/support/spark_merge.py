"""Runs a merge whose lanes run on a Spark cluster: losses are caused, and recovery times measured and printed."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from tests.support.cluster import Cluster
from tests.support.daemon import Daemon
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.spark_cluster import SparkCluster, SparkNode, kill
from tests.support.wait import until
from tests.support.world import Family

_MARKS = 16


@dataclass(frozen=True, slots=True)
class SparkMerge:
    """A running merge of one source whose lanes run on ``spark``."""

    spark: SparkCluster
    cluster: Cluster
    family: Family
    source: MariaDB

    @property
    def worker(self) -> Daemon:
        return self.cluster.workers[0]

    def start(self) -> None:
        """Start the task; return when it replicates."""
        self.cluster.start_task(self.family.task())
        self.cluster.wait_replicating(self.family.name)

    def applies_again(self, text: str, began: float, seconds: float = 200.0) -> float:
        """Return the seconds from ``began`` until rows that are inserted now have been applied, by every lane."""
        self._insert_marks(text)
        until(lambda: self._has_marks(text), f"{text}: rows are applied again", seconds, every=0.02)
        return time.monotonic() - began

    def node_with_lanes(self) -> SparkNode:
        return until(
            lambda: next((each for each in self.spark.workers if has_lanes(each, self.family.target)), None),
            "an executor has lanes",
            60,
        )

    def has_lanes(self, node: SparkNode) -> bool:
        return has_lanes(node, self.family.target)

    def lose_executor(self, text: str) -> float:
        """Kill an executor with lanes; return the seconds until every lane applies again."""
        node = self.node_with_lanes()
        [executor] = node.executors()
        lanes = [each for each in node.python_processes() if each.ppid() != executor.pid]
        began = time.monotonic()
        kill(executor)
        until(lambda: not any(map(is_alive, lanes)), "the lanes of the executor end with it", 60, every=0.01)
        took = self.applies_again(text, began)
        print(f"measured: rows are applied {took:.1f} s after the loss of one of two executors")
        return took

    def lose_lane(self, text: str) -> float:
        """Kill the Python process of one lane; return the seconds until every lane applies again."""
        node = self.node_with_lanes()
        lane = lanes_of(node.python_processes(), self.family.target)[0]
        began = time.monotonic()
        kill(lane)
        took = self.applies_again(text, began)
        print(f"measured: rows are applied {took:.1f} s after the loss of the Python process of one lane")
        return took

    def wait_slots(self, before: int) -> None:
        """Wait until executors have started their Python processes since the log had ``before`` such lines."""
        until(lambda: self.ready_lines() > before, f"all slots are ready: {self.worker.last_lines()}", 180)

    def ready_lines(self) -> int:
        return self.worker.log.read_text(errors="replace").count("executors are ready")

    def runs(self) -> int:
        """Return how many runs of the task have begun: each has an epoch of its own."""
        return self.worker.log.read_text(errors="replace").count("epoch acquired")

    def registrations(self) -> int:
        """Return how often the worker has registered: it restarts itself in place without another process."""
        return self.worker.log.read_text(errors="replace").count("] registered ")

    def codes(self) -> set[int]:
        return {code for sub in self.cluster.subtasks(self.family.name).values() for code, _ in sub.errors}

    def judge(self) -> None:
        """Compare target and source by the judge, which shares no code with the product."""
        self.cluster.wait_caught_up(self.family.name, {"mysql-01": self.source})
        verdict = self.family.verdict()
        assert verdict.differences == 0, verdict
        assert verdict.rows > 0

    def end(self) -> None:
        """Judge, end the worker, and check that none of its processes remains on the executors' machines."""
        self.judge()
        assert self.worker.terminate() == 0
        until(lambda: not lane_processes(self.spark), "the Python processes have ended", 60)
        until(lambda: not any(node.executors() for node in self.spark.workers), "the executors have ended", 60)

    def _insert_marks(self, text: str) -> None:
        """Insert rows of every lane at the source."""
        with self.source.connect() as link, link.cursor() as cursor:
            for number in range(_MARKS):
                cursor.execute(
                    f"INSERT INTO {self.family.name}_01.order_01 (customer, amount, state, note, token, created) "
                    "VALUES ('mark', 1, 'new', %s, '', '2026-01-01')",
                    (f"{text} {number}",),
                )
            link.commit()

    def _has_marks(self, text: str) -> bool:
        with self.family.target.connect() as link, link.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*) FROM {self.family.name}.orders WHERE note LIKE '{text} %'")
            return cursor.fetchall()[0][0] == _MARKS


def has_lanes(node: SparkNode, target: Database) -> bool:
    """Return whether lanes run on the node: processes that are connected to the target."""
    return bool(lanes_of(node.python_processes(), target))


def lanes_of(processes: Sequence[psutil.Process], target: Database) -> list[psutil.Process]:
    """Return the processes that are connected to the target."""
    return [each for each in processes if any(port == target.port for port in _remote_ports(each))]


def lane_processes(spark: SparkCluster) -> set[int]:
    return {process.pid for process in spark.python_processes()}


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def is_slow() -> bool:
    """Return whether others use this machine: then durations say nothing."""
    return os.getloadavg()[0] > 2 * (os.cpu_count() or 1)


def _remote_ports(process: psutil.Process) -> list[int]:
    try:
        return [each.raddr.port for each in process.net_connections(kind="tcp") if each.raddr]
    except psutil.Error:
        return []

"""Takes the picture of a worker's memory for its metrics, and decides whether it is ready."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version

import psutil

from shardmerge.proto.config.daemon.model import WorkerFile
from shardmerge.proto.http.loops import LoopAges
from shardmerge.proto.http.probes import Probes, Readiness
from shardmerge.proto.metrics import own_both
from shardmerge.proto.metrics.family import Sample
from shardmerge.proto.metrics.process import ProcessReader
from shardmerge.proto.metrics.tables import PerTable, Shares
from shardmerge.worker.core.task_runner import TaskRunner
from shardmerge.worker.daemon.forecast.figures import WorkerForecast
from shardmerge.worker.daemon.metrics.collect import table_shares, worker_samples
from shardmerge.worker.daemon.metrics.figures import CompareFigures, SparkFigures, WorkerFigures
from shardmerge.worker.daemon.registration import Registration
from shardmerge.worker.daemon.restarts import restarts_so_far
from shardmerge.worker.daemon.source.source_runner import SourceRunner

_DAEMON = "dm-worker"


class WorkerProbes:
    """What the HTTP endpoint of a worker answers from. Thread-safe; no method waits for a server."""

    def __init__(
        self,
        config: WorkerFile,
        registration: Registration,
        spark: Callable[[], TaskRunner],
        loops: LoopAges,
        stop: threading.Event,
        forecast: Callable[[], WorkerForecast],
    ) -> None:
        self._name = config.name
        self._per_table = PerTable(config.metrics_per_table)
        self._shares: Shares = {}
        self._shares_lock = threading.Lock()
        self._registration = registration
        self._spark = spark
        self._loops = loops
        self._stop = stop
        self._forecast = forecast
        self._version = version("shardmerge")
        self._process = ProcessReader(_DAEMON, self._version)

    def probes(self, runner: Callable[[], SourceRunner | None], comparisons: Callable[[str], CompareFigures]) -> Probes:
        """``runner``: of the bound source; ``comparisons``: of a task."""
        return Probes(
            _DAEMON,
            self._version,
            lambda: self._samples(runner(), comparisons),
            self._loops.ages,
            self.readiness,
            roles=("worker",),
        )

    def readiness(self, role: str) -> Readiness:
        """Whether the worker can hold a source; ``role``: worker or "", which mean the same."""
        checks = {
            "the daemon is ending": self._stop.is_set(),
            "no lease in etcd": not self._registration.alive,
            "the Spark driver does not run": self._spark().lost,
        }
        return Readiness(tuple(phrase for phrase, is_missing in checks.items() if is_missing))

    def _samples(self, runner: SourceRunner | None, comparisons: Callable[[str], CompareFigures]) -> list[Sample]:
        began = time.monotonic()
        figures = self._figures(runner, comparisons)
        with self._shares_lock:
            shares = self._shares = table_shares(figures, self._shares, self._per_table)
        found = list(worker_samples(figures, shares))
        return [*found, own_both.COLLECT_SECONDS.sample(time.monotonic() - began)]

    def _figures(self, runner: SourceRunner | None, comparisons: Callable[[str], CompareFigures]) -> WorkerFigures:
        is_ready = self.readiness("").is_ready
        return WorkerFigures(
            self._name,
            time.monotonic(),
            self._process.read(self._registration.lease_left, self._loops.ages(), is_ready=is_ready),
            self._registration.alive,
            self._spark_figures(),
            None if runner is None else runner.figures(comparisons),
            self._forecast(),
        )

    def _spark_figures(self) -> SparkFigures:
        spark, resident = self._spark(), None
        pid = spark.jvm_pid
        if pid is not None:
            with suppress(psutil.Error):
                resident = psutil.Process(pid).memory_info().rss
        return SparkFigures(
            spark.total_slots, spark.free_slots, not spark.lost, spark.executor_slots, resident, restarts_so_far()
        )

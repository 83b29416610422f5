"""Measures the worker itself in the background: the heap of its JVM, and when certificates end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from shardmerge.proto.process.rounds import Rounds
from shardmerge.proto.warnings.certificates import CertificateEnds, CertificateFile
from shardmerge.worker.core.task_runner import JvmHeap
from shardmerge.worker.daemon.forecast.figures import NOTHING_MEASURED, WorkerForecast

_SECONDS = 5.0
_OLD_SECONDS = 60.0


class WorkerWatch:
    """A thread. ``heap``: reads it from the JVM, and may wait for that. ``certificates``: those that the worker uses
    now."""

    def __init__(
        self, heap: Callable[[], JvmHeap | None], certificates: Callable[[], Iterable[CertificateFile]]
    ) -> None:
        self._heap = heap
        self._certificates = certificates
        self._ends = CertificateEnds()
        self._forecast = NOTHING_MEASURED
        self._measured_at = time.monotonic()
        self._stop = threading.Event()
        self._rounds = Rounds("the worker cannot be measured")
        self._thread = threading.Thread(target=self._run, name="worker-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End it without waiting: the JVM may not answer any more."""
        self._stop.set()

    def current(self) -> WorkerForecast:
        """The newest measurement; never waits. A heap that has not been read for a minute is not known."""
        forecast = self._forecast
        if time.monotonic() - self._measured_at > _OLD_SECONDS:
            return WorkerForecast(None, forecast.certificates)
        return forecast

    def _run(self) -> None:
        while not self._stop.is_set():
            self._rounds.is_done(self._measure)
            self._stop.wait(_SECONDS)

    def _measure(self) -> None:
        certificates = self._ends.read(self._certificates())
        self._forecast = WorkerForecast(self._forecast.heap, certificates)
        self._forecast = WorkerForecast(self._heap(), certificates)
        self._measured_at = time.monotonic()

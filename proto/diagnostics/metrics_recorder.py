"""Fills the window of metrics: a separate thread takes a sample every 30 seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from shardmerge.proto.diagnostics.metrics_window import INTERVAL_SECONDS, KeptSample, MetricsWindow, packed
from shardmerge.proto.log import get_logger
from shardmerge.proto.log_rate_limit import RateLimit
from shardmerge.proto.metrics.exposition import exposition
from shardmerge.proto.metrics.family import Sample
from shardmerge.proto.process.periodic import repeat

_LOG_SECONDS = 600.0
_PAUSES = 200.0
"""A sample that takes long is taken less often: it uses one 200th of a processor at most."""


class MetricsRecorder:
    """Takes samples from the daemon's memory, as /metrics does: no server is asked. Thread-safe."""

    def __init__(
        self, samples: Callable[[], Sequence[Sample]], window: MetricsWindow, interval: float = INTERVAL_SECONDS
    ) -> None:
        self._collect = samples
        self._window = window
        self._interval = interval
        self._log_limit = RateLimit(_LOG_SECONDS)
        self._last_seconds = 0.0

    def start(self, stop: threading.Event) -> None:
        """Take samples until ``stop``, in a thread that does not keep the process from ending."""
        threading.Thread(target=self._follow, args=(stop,), name="metrics-window", daemon=True).start()

    def samples(self) -> tuple[KeptSample, ...]:
        """The kept samples, and one of now."""
        kept = self._window.samples()
        return (*kept, KeptSample(time.time(), packed(exposition(self._collect()))))

    @property
    def last_seconds(self) -> float:
        """How long the last sample of the window took; 0: there was none."""
        return self._last_seconds

    def _follow(self, stop: threading.Event) -> None:
        repeat(self._add, self._interval, stop)

    def _add(self) -> float:
        """Add a sample to the window, and return the pause before the next one."""
        try:
            began = time.monotonic()
            self._window.add(time.time(), exposition(self._collect()))
            self._last_seconds = time.monotonic() - began
        except Exception as error:  # noqa: BLE001 - the log has the first one of its kind
            if self._log_limit.left_out(type(error)) is not None:
                get_logger().exception("metrics not kept")
        return max(self._interval, _PAUSES * self._last_seconds)

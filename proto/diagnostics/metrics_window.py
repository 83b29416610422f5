"""Keeps the metrics of the last minutes in memory, compressed, in a bounded number of samples and bytes.

A separate thread takes a sample every 30 seconds.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardmerge.proto.log import get_logger
from shardmerge.proto.log_rate_limit import RateLimit
from shardmerge.proto.metrics.exposition import exposition
from shardmerge.proto.metrics.family import Sample
from shardmerge.proto.process.periodic import repeat

SECONDS = 20 * 60.0
INTERVAL_SECONDS = 30.0
MOST_BYTES = 4 << 20
_LEVEL = 6
_LOG_SECONDS = 600.0
_PAUSES = 200.0
"""A sample that takes long is taken less often: it uses one 200th of a processor at most."""


@dataclass(frozen=True, slots=True)
class KeptSample:
    """``at``: Unix seconds; ``packed``: the text, compressed with zlib."""

    at: float
    packed: bytes


def packed(text: bytes) -> bytes:
    """The compressed text of one sample."""
    return zlib.compress(text, _LEVEL)


class MetricsWindow:
    """Thread-safe. The samples of the last ``seconds``, one for each ``interval``, of ``most_bytes`` together: the
    oldest ones are dropped first."""

    def __init__(
        self, seconds: float = SECONDS, interval: float = INTERVAL_SECONDS, most_bytes: int = MOST_BYTES
    ) -> None:
        self._seconds, self._most_bytes = seconds, most_bytes
        self._most_samples = int(seconds / interval)
        self._lock = threading.Lock()
        self._samples: deque[KeptSample] = deque()
        self._bytes = 0

    def add(self, at: float, text: bytes) -> None:
        """Add the newest sample. One that is larger than all bytes is not kept."""
        sample = KeptSample(at, packed(text))
        with self._lock:
            self._samples.append(sample)
            self._bytes += len(sample.packed)
            while self._samples and self._is_over(at):
                self._bytes -= len(self._samples.popleft().packed)

    def samples(self) -> tuple[KeptSample, ...]:
        """The kept samples, the oldest first."""
        with self._lock:
            return tuple(self._samples)

    @property
    def bytes(self) -> int:
        """What the samples take, compressed."""
        return self._bytes

    def _is_over(self, now: float) -> bool:
        # A clock that was set back makes samples of the future: they leave by their number.
        return (
            len(self._samples) > self._most_samples
            or self._bytes > self._most_bytes
            or self._samples[0].at < now - self._seconds
        )


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

"""Keeps the metrics of the last minutes in memory, compressed, in a bounded number of samples and bytes."""

from __future__ import annotations

import threading
import zlib
from collections import deque
from dataclasses import dataclass

SECONDS = 20 * 60.0
INTERVAL_SECONDS = 30.0
MOST_BYTES = 4 << 20
_LEVEL = 6


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

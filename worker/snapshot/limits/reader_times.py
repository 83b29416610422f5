"""Adds up what the readers of a snapshot spend their time on: reads, writes, waits for a limit or for work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

CAUSES = ("read", "write", "throttle", "wait")
"""``read``: chunks at the source, and everything that is none of the others; ``write``: statements at the target;
``throttle``: chunks are planned, and a limit of the task lets none of them begin; ``wait``: no chunk is planned, and
more will be."""


@dataclass(frozen=True, slots=True)
class ReaderSeconds:
    """Seconds of all readers together, by cause, since the copy began."""

    by_cause: Mapping[str, float] = field(default_factory=dict[str, float])

    def since(self, before: ReaderSeconds) -> dict[str, float]:
        """What was added since ``before``; all of it if another copy has begun meanwhile."""
        found = {cause: value - before.by_cause.get(cause, 0.0) for cause, value in self.by_cause.items()}
        return dict(self.by_cause) if any(value < 0 for value in found.values()) else found


NO_SECONDS = ReaderSeconds()


def _ignore(cause: str, seconds: float) -> None:
    """Where no subtask adds up the time of its copies."""


class ReaderTotal:
    """The time of all readers of a subtask's copies, in all of its runs. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = dict.fromkeys(CAUSES, 0.0)

    def add(self, cause: str, seconds: float) -> None:
        with self._lock:
            self._seconds[cause] += seconds

    def read(self) -> dict[str, float]:
        with self._lock:
            return dict(self._seconds)


class ReaderTimes:
    """The time of one copy's readers. Thread-safe. Readers report the work on their present chunk as sums since its
    begin."""

    def __init__(self, also: Callable[[str, float], None] = _ignore) -> None:
        """``also``: called with the cause and the seconds that are added; it never waits."""
        self._also = also
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = dict.fromkeys(CAUSES, 0.0)
        self._present: dict[int, tuple[float, float]] = {}

    def begins(self, reader: int) -> None:
        """The reader begins a chunk."""
        with self._lock:
            self._present.pop(reader, None)

    def worked(self, reader: int, seconds: float, writing: float) -> None:
        """The reader has worked on its chunk for ``seconds`` so far, of them ``writing`` in the present attempt."""
        with self._lock:
            before = self._present.get(reader, (0.0, 0.0))
            if seconds < before[0]:
                before = (0.0, 0.0)
            elif writing < before[1]:
                before = (before[0], 0.0)
            self._present[reader] = seconds, writing
            written = max(0.0, writing - before[1])
            self._add("write", written)
            self._add("read", max(0.0, seconds - before[0] - written))

    def throttled(self, seconds: float) -> None:
        """A reader has waited for a limit."""
        with self._lock:
            self._add("throttle", seconds)

    def waited(self, seconds: float) -> None:
        """A reader has waited for a chunk to be planned."""
        with self._lock:
            self._add("wait", seconds)

    def _add(self, cause: str, seconds: float) -> None:
        self._seconds[cause] += seconds
        self._also(cause, seconds)

    def read(self) -> ReaderSeconds:
        with self._lock:
            return ReaderSeconds(dict(self._seconds))

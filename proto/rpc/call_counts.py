"""Counts the calls of a server by method and status, for metrics."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc


@dataclass(frozen=True, slots=True)
class CallFigures:
    """Since the process started. ``calls``: by method and name of the status; ``seconds``: by method."""

    calls: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])


NO_CALLS = CallFigures()


class CallCounts:
    """Thread-safe. Only methods that the server has are counted, so their number is bounded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[str, float] = {}

    def answered(self, method: str, status: grpc.StatusCode, seconds: float) -> None:
        """``method``: with its service, such as "/shardmerge.v1.Master/StartTask"."""
        name = method.rpartition("/")[2]
        with self._lock:
            self._calls[name, status.name] += 1
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def figures(self) -> CallFigures:
        with self._lock:
            return CallFigures(dict(self._calls), dict(self._seconds))

"""Counts what the leader does, for metrics."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from shardmerge.master.placement import Bind, Step


@dataclass(frozen=True, slots=True)
class LeaderFigures:
    """Since the process started. ``placements``: by kind; ``lock_errors``: by task."""

    terms: int = 0
    placements: Mapping[str, int] = field(default_factory=dict[str, int])
    lock_errors: Mapping[str, int] = field(default_factory=dict[str, int])


class LeaderCounts:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._terms = 0
        self._placements: Counter[str] = Counter()
        self._lock_errors: Counter[str] = Counter()

    def leads(self) -> None:
        """The master has become the leader."""
        with self._lock:
            self._terms += 1

    def placed(self, step: Step) -> None:
        """A step of the placement is stored."""
        with self._lock:
            self._placements[_kind(step)] += 1

    def lock_failed(self, task: str) -> None:
        """The lock of a sharding DDL of ``task`` could not be moved."""
        with self._lock:
            self._lock_errors[task] += 1

    def figures(self) -> LeaderFigures:
        with self._lock:
            return LeaderFigures(self._terms, dict(self._placements), dict(self._lock_errors))


def _kind(step: Step) -> str:
    if not isinstance(step, Bind):
        return "unbind"
    return "rebind" if step.before else "bind"

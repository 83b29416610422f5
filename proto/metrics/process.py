"""Reads what both daemons export about their process, and makes samples of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import psutil

from shardmerge.proto.metrics import own_both
from shardmerge.proto.metrics.family import Family, Sample

_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """``cpu_percent``: of one core, over at least the last second. ``lease_left``: seconds; 0 without a lease."""

    daemon: str
    version: str
    started_at: float = 0.0
    cpu_seconds: float = 0.0
    cpu_percent: float = 0.0
    resident_bytes: int = 0
    open_files: int = 0
    most_files: int = 0
    threads: int = 0
    lease_left: float = 0.0
    is_ready: bool = False
    loop_ages: Mapping[str, float] = field(default_factory=dict[str, float])


class ProcessReader:
    """Thread-safe."""

    def __init__(self, daemon: str, version: str) -> None:
        self._daemon, self._version = daemon, version
        self._process = psutil.Process()
        self._started_at = self._process.create_time()
        self._lock = threading.Lock()
        self._before = time.monotonic(), self._cpu_seconds()
        self._cpu_percent = 0.0

    def read(self, lease_left: float, loop_ages: Mapping[str, float], *, is_ready: bool) -> ProcessFigures:
        with self._process.oneshot():
            now, used = time.monotonic(), self._cpu_seconds()
            with self._lock:
                since, before = self._before
                # Of two readers at nearly the same time the second one would measure only the first one's work.
                if now - since >= _LEAST_SECONDS:
                    self._before = now, used
                    self._cpu_percent = 100 * (used - before) / (now - since)
                cpu_percent = self._cpu_percent
            return ProcessFigures(
                self._daemon,
                self._version,
                self._started_at,
                used,
                cpu_percent,
                self._process.memory_info().rss,
                self._process.num_fds(),
                self._process.rlimit(psutil.RLIMIT_NOFILE)[0],
                self._process.num_threads(),
                lease_left,
                is_ready,
                loop_ages,
            )

    def _cpu_seconds(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system


def process_samples(figures: ProcessFigures, cpu_usage: Family) -> Iterator[Sample]:
    """The samples of a process. Pure. ``cpu_usage``: DM's metric of the daemon."""
    yield own_both.BUILD.sample(1, daemon=figures.daemon, version=figures.version)
    for loop, age in figures.loop_ages.items():
        yield own_both.LOOP_AGE.sample(age, loop=loop)
    yield own_both.LEASE_LEFT.sample(figures.lease_left)
    yield own_both.READY.sample(figures.is_ready)
    yield own_both.START_TIME.sample(figures.started_at)
    yield own_both.CPU_SECONDS.sample(figures.cpu_seconds)
    yield cpu_usage.sample(figures.cpu_percent)
    yield own_both.RESIDENT.sample(figures.resident_bytes)
    yield own_both.OPEN_FILES.sample(figures.open_files)
    yield own_both.MAX_FILES.sample(figures.most_files)
    yield own_both.THREADS.sample(figures.threads)

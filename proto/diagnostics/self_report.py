"""What one daemon reports about itself: the answer to the RPC Diagnostics of dm-master and dm-worker.

Stacks of threads have names and frames, no values.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import FrameType

from shardmerge.proto import diagnostics_pb2 as pb
from shardmerge.proto.diagnostics.host import host_facts, package_versions
from shardmerge.proto.diagnostics.log_event import shown_frame
from shardmerge.proto.diagnostics.metrics_window import MetricsRecorder, MetricsWindow
from shardmerge.proto.diagnostics.recent_lines import OF_PROCESS, RecentLines
from shardmerge.proto.escaped_text import escaped
from shardmerge.proto.http.probes import Probes
from shardmerge.proto.rpc.admission import RunningCalls

_MOST_THREADS = 1000
_MOST_FRAMES = 60
_MOST_NAMES = 20
_MOST_CHARS = 512 << 10


def _none() -> Sequence[pb.SeenServer]:
    return ()


class SelfReport:
    """Thread-safe. Reads the memory of the process only: no server is asked, and no file of the daemon is read."""

    def __init__(
        self,
        name: str,
        probes: Probes,
        calls: RunningCalls,
        servers: Callable[[], Sequence[pb.SeenServer]] = _none,
        programs: Callable[[], dict[str, str]] = dict,
        lines: RecentLines = OF_PROCESS,
    ) -> None:
        """``servers``: database servers; ``programs``: versions in addition to those of packages."""
        self._name = name
        self._probes = probes
        self._calls = calls
        self._servers = servers
        self._programs = programs
        self._lines = lines
        self._recorder = MetricsRecorder(probes.samples, MetricsWindow())

    def start(self, stop: threading.Event) -> None:
        """Keep the metrics of the last minutes until ``stop``."""
        self._recorder.start(stop)

    def report(self) -> pb.DaemonDiagnostics:
        lines = self._lines.lines()
        return pb.DaemonDiagnostics(
            daemon=self._probes.daemon,
            name=self._name,
            at=time.time(),
            versions={**package_versions(), **self._programs()},
            host=host_facts(),
            not_ready=self._probes.readiness("").missing,
            log=pb.KeptLines(first=lines.first, last=lines.last, dropped=lines.dropped),
            metrics=[pb.KeptMetrics(at=each.at, packed=each.packed) for each in self._recorder.samples()],
            metrics_seconds=self._recorder.last_seconds,
            stacks=text_of_stacks(thread_stacks()),
            loops=[pb.LoopAge(loop=loop, seconds=age) for loop, age in self._probes.loop_ages().items()],
            calls=[
                pb.RunningCalls(method=each.method, running=each.running, oldest_seconds=each.oldest_seconds)
                for each in self._calls.figures()
            ],
            servers=self._servers(),
        )


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """``frames``: the innermost first."""

    name: str
    frames: tuple[str, ...]


def thread_stacks() -> list[ThreadStack]:
    """The stacks of the threads of this process that run Python, by name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = [
        ThreadStack(escaped(names.get(ident, f"thread {ident}"), 100), _frames(frame))
        for ident, frame in list(sys._current_frames().items())[:_MOST_THREADS]  # pyright: ignore[reportPrivateUsage]
    ]
    return sorted(found, key=lambda stack: stack.name)


def text_of_stacks(stacks: Iterable[ThreadStack]) -> str:
    """Equal stacks once, with the names of their threads. Pure."""
    names: dict[tuple[str, ...], list[str]] = {}
    for stack in stacks:
        names.setdefault(stack.frames, []).append(stack.name)
    parts: list[str] = []
    for frames, threads in names.items():
        more = len(threads) - _MOST_NAMES
        head = ", ".join(threads[:_MOST_NAMES]) + (f", and {more} more" if more > 0 else "")
        parts.append("\n".join([f"{head}:", *(f"  {frame}" for frame in frames)]))
    text = "\n\n".join(parts) + "\n"
    return text if len(text) <= _MOST_CHARS else text[:_MOST_CHARS] + "\n(cut)\n"


def _frames(frame: FrameType | None) -> tuple[str, ...]:
    found: list[str] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        found.append(shown_frame(frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)

"""What one daemon reports about itself: the answer to the RPC Diagnostics of dm-master and dm-worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from shardmerge.proto import diagnostics_pb2 as pb
from shardmerge.proto.diagnostics.host import host_facts, package_versions
from shardmerge.proto.diagnostics.metrics_recorder import MetricsRecorder
from shardmerge.proto.diagnostics.metrics_window import MetricsWindow
from shardmerge.proto.diagnostics.recent_lines import OF_PROCESS, RecentLines
from shardmerge.proto.diagnostics.stacks import text_of, thread_stacks
from shardmerge.proto.http.probes import Probes
from shardmerge.proto.rpc.admission import RunningCalls


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
            stacks=text_of(thread_stacks()),
            loops=[pb.LoopAge(loop=loop, seconds=age) for loop, age in self._probes.loop_ages().items()],
            calls=[
                pb.RunningCalls(method=each.method, running=each.running, oldest_seconds=each.oldest_seconds)
                for each in self._calls.figures()
            ],
            servers=self._servers(),
        )

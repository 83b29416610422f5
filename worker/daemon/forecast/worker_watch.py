"""Measures the worker itself in the background: the heap of its JVM, and when certificates end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from shardmerge.proto import config_pb2
from shardmerge.proto.config.secrets.endpoint_secrets import CA, CERT, opened
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.process.periodic import CLOCK, Clock, LoopThread, Rounds, Stop, repeat
from shardmerge.proto.warnings.certificates import CertificateEnds, CertificateFile, Use
from shardmerge.worker.core.task_runner import JvmHeap
from shardmerge.worker.daemon.forecast.figures import NOTHING_MEASURED, WorkerForecast

_SECONDS = 5.0
_OLD_SECONDS = 60.0


class WorkerWatch:
    """A thread. ``heap``: reads it from the JVM, and may wait for that. ``certificates``: those that the worker uses
    now."""

    def __init__(
        self,
        heap: Callable[[], JvmHeap | None],
        certificates: Callable[[], Iterable[CertificateFile]],
        clock: Clock = CLOCK,
    ) -> None:
        self._heap = heap
        self._certificates = certificates
        self._ends = CertificateEnds()
        self._forecast = NOTHING_MEASURED
        self._clock = clock
        self._measured_at = clock.now()
        self._rounds = Rounds("the worker cannot be measured")
        self._thread = LoopThread("worker-watch", self.run)
        self.start = self._thread.start

    def stop(self) -> None:
        """End it without waiting: the JVM may not answer any more."""
        self._thread.end(0)

    def current(self) -> WorkerForecast:
        """The newest measurement; never waits. A heap that has not been read for a minute is not known."""
        forecast = self._forecast
        if self._clock.now() - self._measured_at > _OLD_SECONDS:
            return WorkerForecast(None, forecast.certificates)
        return forecast

    def run(self, stop: Stop) -> None:
        """Measure until ``stop``, in this thread."""
        repeat(self._round, _SECONDS, stop, first=0.0, clock=self._clock)

    def _round(self) -> None:
        self._rounds.is_done(self._measure)

    def _measure(self) -> None:
        certificates = self._ends.read(self._certificates())
        self._forecast = WorkerForecast(self._forecast.heap, certificates)
        self._forecast = WorkerForecast(self._heap(), certificates)
        self._measured_at = self._clock.now()


def files_of_source(
    source: config_pb2.SourceConfig, tasks: Mapping[str, config_pb2.SubTaskConfig]
) -> tuple[CertificateFile, ...]:
    """The certificates that a source's configuration and those of its tasks name.

    A text that cannot be decrypted is left out: the connection reports it. No key is decrypted."""
    found = list(_of_endpoint(getattr(source, "from"), Use.SOURCE, f"source {source.source_id}"))
    for task, config in sorted(tasks.items()):
        found += _of_endpoint(config.target, Use.TARGET, f"the target of task {task}")
    return tuple(found)


def _of_endpoint(endpoint: config_pb2.Endpoint, use: Use, whose: str) -> Iterator[CertificateFile]:
    authority = Use(f"{use.value}-ca")
    for kind, path, what in ((authority, endpoint.tls.ca, CA), (use, endpoint.tls.cert, CERT)):
        text = _plain(endpoint, what)
        if text:  # it is used in place of the file
            yield CertificateFile(kind, whose, content=text)
        elif path:
            yield CertificateFile(kind, whose, path)


def _plain(endpoint: config_pb2.Endpoint, what: str) -> str:
    try:
        return opened(endpoint, what)
    except ShardmergeError:
        return ""

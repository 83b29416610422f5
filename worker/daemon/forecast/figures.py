"""What was measured of a worker and its source, as status answers and metrics read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.warnings.certificates import CertificateEnd
from shardmerge.proto.warnings.clocks import ClockDifference
from shardmerge.worker.core.task_runner import JvmHeap
from shardmerge.worker.daemon.forecast.binlog_expiry import BinlogExpiry, ExpiryUnknown
from shardmerge.worker.daemon.forecast.pause import PauseForecast, PauseUnknown, to_proto
from shardmerge.worker.daemon.forecast.relay_disk import RelayDisk

_NOT_YET = "nothing has been measured in the last minute"


@dataclass(frozen=True, slots=True)
class SourceForecast:
    """``at``: Unix seconds at which it was measured. ``source_clock``: compared with the worker's; None: not known.
    ``disk``: None if the disk does not answer."""

    at: float = 0.0
    expiry: BinlogExpiry = field(default_factory=lambda: ExpiryUnknown(_NOT_YET))
    disk: RelayDisk | None = None
    task_pause: PauseForecast = field(default_factory=lambda: PauseUnknown(_NOT_YET))
    relay_pause: PauseForecast = field(default_factory=lambda: PauseUnknown(_NOT_YET))
    source_clock: ClockDifference | None = None
    target_clocks: Mapping[str, ClockDifference] = field(default_factory=dict[str, ClockDifference])
    """By task."""

    def add_pauses(self, status: pb.RelayStatus, source: str) -> None:
        status.task_pause.CopyFrom(to_proto(self.task_pause, source, self.at))
        status.relay_pause.CopyFrom(to_proto(self.relay_pause, source, self.at))


NO_FORECAST = SourceForecast()


@dataclass(frozen=True, slots=True)
class WorkerForecast:
    """``heap``: None: not known. ``certificates``: those that the worker uses, for its source and its tasks too."""

    heap: JvmHeap | None = None
    certificates: tuple[CertificateEnd, ...] = ()


NOTHING_MEASURED = WorkerForecast()

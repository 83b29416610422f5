"""The warnings of a worker and its source, from what was measured. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shardmerge.proto.warnings import kinds
from shardmerge.proto.warnings.certificates import certificate_warnings
from shardmerge.proto.warnings.clocks import clock_warning
from shardmerge.proto.warnings.readable import duration, moment, size
from shardmerge.proto.worker_pb2 import StatusWarning
from shardmerge.worker.daemon.forecast.binlog_expiry import Expiry
from shardmerge.worker.daemon.forecast.figures import SourceForecast, WorkerForecast

_KEEP = (
    "Let the relay fetch again: `dmctl resume-relay -s {source}` if it is paused; otherwise correct the relay's error "
    "and, for each task that is paused, `dmctl resume-task <task> -s {source}`. Or keep the binlog longer at the "
    "source: SHOW GLOBAL VARIABLES LIKE '%expire_logs%' (0: the age has no limit, leave it), then SET GLOBAL to a "
    "larger value than the present one (a smaller one deletes binlog), and raise max_binlog_total_size where it is "
    "set; docs/runbooks/DM_binlog_expiring.md."
)
_ROOM = (
    "Find the task that keeps the relay log (a paused one, or one that lags) and let it continue, or make room on "
    "the disk; docs/runbooks/DM_relay_disk_full_soon.md."
)


def warnings_of(worker: WorkerForecast, source: str, forecast: SourceForecast, now: float) -> Iterator[StatusWarning]:
    """``source``: "" while the worker has none. ``now``: Unix seconds."""
    if source:
        yield from source_warnings(source, forecast)
    yield from certificate_warnings(worker.certificates, now)


def source_warnings(source: str, forecast: SourceForecast) -> Iterator[StatusWarning]:
    expiry = forecast.expiry
    if isinstance(expiry, Expiry) and expiry.is_near and expiry.due is not None:
        due = forecast.at + expiry.due
        message = (
            f"source {source} may delete binlog that is not fetched at {moment(due)}, in {duration(expiry.due)}: it "
            f"keeps its binlog for {duration(expiry.kept)}"
        )
        yield StatusWarning(
            name=kinds.BINLOG_EXPIRING, message=message, workaround=_KEEP.format(source=source), due=due
        )
    disk = forecast.disk
    if disk is not None and disk.is_near and disk.full_in is not None and disk.shrinking is not None:
        due = forecast.at + disk.full_in
        message = (
            f"the disk of the relay log of {source} is full at {moment(due)}, in {duration(disk.full_in)}: "
            f"{size(disk.room)} are left, and {size(disk.shrinking.per_second)}/s were written in the last "
            f"{duration(disk.shrinking.seconds)}"
        )
        yield StatusWarning(name=kinds.RELAY_DISK_FILLING, message=message, workaround=_ROOM, due=due)
    clocks = {**forecast.target_clocks, "": forecast.source_clock}
    for clock in {each: None for each in clocks.values() if each is not None}:
        warning = clock_warning(clock)
        if warning is not None:
            yield warning

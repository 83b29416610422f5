"""The overview of one subtask for `dmctl top`: the figures of its status without lanes and tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from shardmerge.proto import common_pb2, worker_pb2
from shardmerge.proto import diagnose_pb2 as pb
from shardmerge.worker.daemon.metrics.subtasks import lag_of


def overview(
    status: worker_pb2.SubTaskStatus,
    seconds: Mapping[str, float],
    throttle: str = "",
    silent_seconds: float | None = None,
) -> pb.SubTaskOverview:
    """``seconds``: of the lanes, by cause; ``throttle``: see CopyUse in proto/diagnose.proto; ``silent_seconds``: since
    an event or a heartbeat of the source last arrived, None: none has."""
    found = pb.SubTaskOverview(
        task=status.name, stage=status.stage, unit=status.unit, waiting_for=status.waiting_for, throttle=throttle
    )
    found.seconds.update(seconds)
    for error in status.result.errors:
        found.error.CopyFrom(common_pb2.ErrorDetail(code=error.code, name=error.name, retryable=error.retryable))
    match status.WhichOneof("status"):
        case "load":
            _copy(found, status.load)
        case "sync":
            _replication(found, status.sync, silent_seconds)
        case _:
            pass
    return found


def _copy(found: pb.SubTaskOverview, load: worker_pb2.LoadStatus) -> None:
    found.share = float(load.progress.removesuffix(" %") or 0) / 100
    found.eta_seconds = load.eta_seconds
    found.recent_rps = round(load.rows_per_second)


def _replication(found: pb.SubTaskOverview, sync: worker_pb2.SyncStatus, silent_seconds: float | None) -> None:
    found.synced = sync.synced
    found.recent_rps = sync.recent_rps
    found.held_keys = sync.held_keys
    found.unknown = sync.unknown
    found.bytes_behind = sync.bytes_behind
    lag = lag_of(sync, silent_seconds)
    if lag is not None:
        found.lag_seconds = lag[1]

"""Checks whether a configured start time and end are possible, without regard to the subtask's records."""

from __future__ import annotations

from collections.abc import Iterator

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.replicate.bounds import configured_bounds
from shardmerge.worker.replicate.bounds.start_point import parse_past_time
from shardmerge.worker.verify.precheck.findings import Checklist, failed
from shardmerge.worker.verify.precheck.source.server import ConnectedSource


def check_ends(checklist: Checklist, view: ConnectedSource, subtask: config.SubTaskConfig) -> None:
    """Find times that are invalid or in the future, and GTIDs that the source does not have."""
    if subtask.HasField("start_at") or subtask.HasField("stop_at"):
        checklist.run("meta_position", lambda: _ends(view, subtask))


def _ends(view: ConnectedSource, subtask: config.SubTaskConfig) -> Iterator[pb.CheckResult]:
    try:
        if subtask.start_at.WhichOneof("at") == "time":
            parse_past_time(view.session, subtask.start_at.time, view.source_id)
        configured_bounds.resolve_stop(subtask, view.session, view.info, None)
    except ShardmergeError as error:
        yield failed("meta_position", view.source_id, error)

"""Whether a start time and an end can be what they say; where the records stand is not looked at."""

from __future__ import annotations

from collections.abc import Iterator

from proto import config_pb2 as config
from proto import worker_pb2 as pb
from proto.errors import ShardmergeError
from worker import ends
from worker.check.findings import Checklist, failed
from worker.check.source import SourceView
from worker.start_at import past_moment


def check_ends(checklist: Checklist, view: SourceView, subtask: config.SubTaskConfig) -> None:
    """Times that are none or lie in the future, GTIDs that the source does not have."""
    if subtask.HasField("start_at") or subtask.HasField("stop_at"):
        checklist.run("meta_position", lambda: _ends(view, subtask))


def _ends(view: SourceView, subtask: config.SubTaskConfig) -> Iterator[pb.CheckResult]:
    try:
        if subtask.start_at.WhichOneof("at") == "time":
            past_moment(view.session, subtask.start_at.time, view.source_id)
        ends.understood(subtask, view.session, view.info, None)
    except ShardmergeError as error:
        yield failed("meta_position", view.source_id, error)

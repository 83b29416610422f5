"""What the checks over several sources share: the worker to ask about a source, and results, also without an answer."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError


@dataclass(frozen=True, slots=True)
class PlacedSubtask:
    """A subtask, its source, and the worker that has it."""

    subtask: config.SubTaskConfig
    source: config.SourceConfig
    worker: state_pb.WorkerRecord


@dataclass(frozen=True, slots=True)
class CheckItem:
    """An item of the pre-check. ``description``: what it checks, as a phrase."""

    name: str
    description: str

    def found(self, source: str, error: ShardmergeError, state: pb.CheckState) -> pb.CheckResult:
        return pb.CheckResult(
            name=self.name,
            desc=self.description,
            state=state,
            source=source,
            error_msg=error.message,
            instruction=error.workaround,
            code=error.code,
        )

    def unasked(self, source: str, error: ShardmergeError) -> pb.CheckResult:
        """The warning for a source that cannot be asked because of ``error``."""
        broken = errors.check.CHECK_BROKEN(server=f"source {source}", reason=str(error), way_out=error.workaround)
        return self.found(source, broken, pb.CHECK_STATE_WARN)

"""rules, schema: asks workers how a task's rules apply to the tables of its sources, and which target tables result.
Nothing is decided or stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import grpc

from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.workers.client import Workers
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.config.task.task_file import parse_task
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.proto.worker_pb2_grpc import WorkerStub

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class RulesCommand:
    """``seconds``: longest wait for a worker."""

    store: Store
    workers: Workers
    seconds: float

    def explain(self, request: pb.ExplainRulesRequest) -> pb.ExplainRulesResponse:
        """The answer of each source; each succeeds or fails by itself. Raises what :func:`wanted_subtasks` raises."""
        state = self.store.read()
        parts = self.workers.for_each(
            wanted_subtasks(request, state), lambda subtask: self._one(subtask, request, state)
        )
        bad = next((one.msg for one in parts if not one.result), "")
        return pb.ExplainRulesResponse(result=not bad, msg=bad, sources=parts)

    def _one(self, subtask: config.SubTaskConfig, request: pb.ExplainRulesRequest, state: State) -> pb.SourceRules:
        part = pb.SourceRules(result=True, source=subtask.source_id)
        answer = self._ask(lambda stub: stub.ExplainRules, part, subtask, request, state)
        if answer is None:
            return part
        part.tables.extend(answer.tables)
        if answer.HasField("unseen"):
            part.msg = f"this answer is from the rules alone, as the source did not answer: {answer.unseen.message}"
        refused = [table.error for table in answer.tables if table.HasField("error")]
        if answer.HasField("error"):
            refused.append(answer.error)
        if refused:
            part.result, part.msg = False, refused[0].message
            part.error.CopyFrom(refused[0])
        return part

    def show_targets(self, request: pb.ExplainRulesRequest) -> pb.ShowTargetsResponse:
        """The target tables of each source's shard tables; each source succeeds or fails by itself. Raises what
        :func:`wanted_subtasks` raises."""
        state = self.store.read()
        parts = self.workers.for_each(
            wanted_subtasks(request, state), lambda subtask: self._targets(subtask, request, state)
        )
        bad = next((one.msg for one in parts if not one.result), "")
        return pb.ShowTargetsResponse(result=not bad, msg=bad, sources=parts)

    def _targets(
        self, subtask: config.SubTaskConfig, request: pb.ExplainRulesRequest, state: State
    ) -> pb.SourceTargets:
        part = pb.SourceTargets(result=True, source=subtask.source_id)
        answer = self._ask(lambda stub: stub.ShowTargets, part, subtask, request, state)
        if answer is None:
            return part
        part.targets.extend(answer.targets)
        refused = next((target.error for target in answer.targets if target.HasField("error")), None)
        if refused is not None:
            part.result, part.msg = False, refused.message
            part.error.CopyFrom(refused)
        return part

    def _ask(
        self,
        method: Callable[[WorkerStub], grpc.UnaryUnaryMultiCallable[worker_pb2.WorkerExplainRulesRequest, _Answer]],
        part: pb.SourceRules | pb.SourceTargets,
        subtask: config.SubTaskConfig,
        request: pb.ExplainRulesRequest,
        state: State,
    ) -> _Answer | None:
        """Ask a worker for the tables of one source, and note the worker in ``part``; None: ``part`` has the error."""
        source = subtask.source_id
        try:
            if source not in state.sources:
                raise errors.master.SOURCE_UNKNOWN(source=source)
            worker = state.holder_or_any(source)
            part.worker = worker.name
            asked = worker_pb2.WorkerExplainRulesRequest(
                source=state.sources[source].value.config, subtask=subtask, tables=request.tables
            )
            return self.workers.call(worker, method, asked, self.seconds)
        except ShardmergeError as error:
            part.result, part.msg = False, str(error)
            part.error.CopyFrom(error_to_proto(error))
            return None


def wanted_subtasks(request: pb.ExplainRulesRequest, state: State) -> tuple[config.SubTaskConfig, ...]:
    """The subtasks whose rules to explain: of the file, or of the task as it runs. Pure.

    Raises BAD_REQUEST, TASK_UNKNOWN, SOURCE_NOT_IN_TASK, SUBTASK_UNKNOWN, and what reading the file raises.
    """
    if bool(request.task) == request.HasField("file"):
        raise errors.master.BAD_REQUEST(reason="rules: name a task, or give its file")
    if request.HasField("file"):
        file = parse_task(request.file.content, request.file.name)
        for source in request.sources:
            if source not in file.source_ids:
                raise errors.master.SOURCE_NOT_IN_TASK(task=file.name, source=source)
        subtasks = file.to_subtasks()
    else:
        selected = state.selected_sources(request.task, request.sources)
        return tuple(state.subtasks[request.task, source].value.config for source in selected)
    return tuple(one for one in subtasks if not request.sources or one.source_id in request.sources)

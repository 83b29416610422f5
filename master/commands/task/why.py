"""why and top: what tasks spend their time on. Nothing is stored."""

from __future__ import annotations

import time
from dataclasses import dataclass

from shardmerge.master.commands.task.ddl_locks import DdlLockCommands
from shardmerge.master.ddl_lock.source_waits import waits_of
from shardmerge.master.diagnosis.conclude import conclude, source_use, unknown_facts
from shardmerge.master.diagnosis.view import SourceView
from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.workers.client import Workers
from shardmerge.proto import common_pb2, errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_to_proto

_MORE_SECONDS = 15.0
"""A worker may take this much longer than it measures: its target answers slowly."""

_LONGEST_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class WhyCommand:
    store: Store
    workers: Workers
    locks: DdlLockCommands

    def diagnose(self, request: pb.DiagnoseRequest) -> pb.DiagnoseResponse:
        """Raises TASK_UNKNOWN, SUBTASK_UNKNOWN; a source that cannot be asked is a finding, and its result is false."""
        began, state = time.monotonic(), self.store.read()
        wanted = state.selected_sources(request.task, request.sources)
        seconds = min(request.seconds, _LONGEST_SECONDS)
        views = self.workers.for_each(wanted, lambda source: self._view(request.task, source, seconds, state))
        locks = self.locks.show(pb.ShowDDLLocksRequest(task=request.task, sources=request.sources)).locks
        answer = pb.DiagnoseResponse(
            task=request.task,
            seconds=max((view.use.seconds for view in views), default=time.monotonic() - began),
            findings=[each.to_proto() for each in conclude(views, locks)],
            uses=[use for view in views if (use := source_use(view)) is not None],
            unknown=unknown_facts(views),
            sources=[_result(view) for view in views],
        )
        answer.result = all(part.result for part in answer.sources)
        answer.msg = next((part.msg for part in answer.sources if not part.result), "")
        return answer

    def _view(self, task: str, source: str, seconds: float, state: State) -> SourceView:
        record = state.subtasks[task, source].value
        known = state.sources.get(source)
        is_disabled = source not in state.enabled()
        answer: worker_pb2.WorkerDiagnoseResponse | None = None
        failure: common_pb2.ErrorDetail | None = None
        try:
            if is_disabled:
                raise errors.master.SOURCE_DISABLED(source=source)
            holder = state.holder_of(source)
            request = worker_pb2.WorkerDiagnoseRequest(task=task, source=source, seconds=seconds)
            answer = self.workers.call(holder, lambda stub: stub.Diagnose, request, seconds + _MORE_SECONDS)
        except ShardmergeError as error:
            failure = error_to_proto(error)
        return SourceView(
            task,
            source,
            state.bound_name(source),
            failure,
            answer,
            record.config,
            is_paused=record.expected == common_pb2.STAGE_PAUSED,
            is_disabled=is_disabled,
            is_bound=state.worker_of(source) is not None,
            relay_paused=known is not None and known.value.relay_paused,
        )

    def overview(self, request: pb.OverviewRequest) -> pb.OverviewResponse:
        """Every task at every source: one call of each worker. Raises SOURCE_UNKNOWN."""
        state = self.store.read()
        for source in request.sources:
            if source not in state.sources:
                raise errors.master.SOURCE_UNKNOWN(source=source)
        sources = sorted({source for _, source in state.subtasks if not request.sources or source in request.sources})
        parts = self.workers.for_each(sources, lambda source: self._overview(source, state))
        return pb.OverviewResponse(result=True, sources=[each for part in parts for each in part])

    def _overview(self, source: str, state: State) -> list[pb.SourceOverview]:
        """The tasks of one source."""
        tasks, worker = state.tasks_of(source), state.bound_name(source)
        try:
            if source not in state.enabled():
                raise errors.master.SOURCE_DISABLED(source=source)
            holder = state.holder_of(source)
            answer = self.workers.overview(holder)
        except ShardmergeError as error:
            detail = error_to_proto(error)
            return [pb.SourceOverview(task=task, source=source, worker=worker, error=detail) for task in tasks]
        known = {one.task: one for one in answer.subtasks}
        found: list[pb.SourceOverview] = []
        for task in tasks:
            part = pb.SourceOverview(task=task, source=source, worker=worker)
            if answer.HasField("source_error"):
                part.error.CopyFrom(answer.source_error)
            if task in known:
                part.subtask.CopyFrom(known[task])
            part.locks.extend(wait.target.lock_id for wait in waits_of(task, source, state))
            found.append(part)
        return found


def _result(view: SourceView) -> pb.SourceResult:
    if view.failure is None:
        return pb.SourceResult(result=True, source=view.source, worker=view.worker)
    return pb.SourceResult(
        result=False, msg=view.failure.message, source=view.source, worker=view.worker, error=view.failure
    )

"""query-status: a line per task, or every subtask of a task or of sources."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardmerge.master.ddl_lock.records import Target
from shardmerge.master.ddl_lock.report import Conflict, conflicts_in
from shardmerge.master.ddl_lock.source_waits import add_waits, waits_of
from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.workers.client import Workers
from shardmerge.master.workers.clocks import status_and_clock
from shardmerge.proto import common_pb2, errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import worker_pb2 as worker
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_from_proto, error_to_proto
from shardmerge.proto.warnings.clocks import clock_warning

_NOT_STARTED = "the worker has not started it yet"


@dataclass(frozen=True, slots=True)
class StatusCommand:
    store: Store
    workers: Workers

    def query(self, request: pb.QueryStatusRequest) -> pb.QueryStatusResponse:
        """Raises ``errors.master.TASK_UNKNOWN``; a worker that does not answer is reported per source."""
        state = self.store.read()
        wanted = tuple(dict.fromkeys(request.sources))
        if not request.name and not wanted:
            return pb.QueryStatusResponse(result=True, tasks=self._summaries(state))
        present = state.sources_of(request.name)
        if request.name and not present:
            raise errors.master.TASK_UNKNOWN(task=request.name)
        sources = wanted or present
        conflicts = conflicts_in(state)
        answers = self.workers.for_each(sources, lambda source: self._source(source, request.name, state, conflicts))
        return pb.QueryStatusResponse(result=True, sources=answers)

    def _summaries(self, state: State) -> list[pb.TaskSummary]:
        sources = sorted({source for _, source in state.subtasks})
        conflicts = conflicts_in(state)
        found = self.workers.for_each(sources, lambda source: self._source(source, "", state, conflicts))
        answers = dict(zip(sources, found, strict=True))
        tasks = sorted({task for task, _ in state.subtasks})
        return [_summary(task, {source: answers[source] for source in state.sources_of(task)}) for task in tasks]

    def _source(self, source: str, task: str, state: State, conflicts: Mapping[Target, Conflict]) -> pb.SourceSubTasks:
        """One source's subtasks (of one task; "" for all)."""
        about = pb.SourceStatus(source=source, worker=state.bound_name(source))
        tasks = state.tasks_of(source)
        try:
            if source not in state.sources:
                raise errors.master.SOURCE_UNKNOWN(source=source)
            if task and task not in tasks:
                raise errors.master.SUBTASK_UNKNOWN(task=task, source=source)
            if source not in state.enabled():
                raise errors.master.SOURCE_DISABLED(source=source)
            holder = state.holder_of(source)
            answer, clock = status_and_clock(self.workers, holder, task)
        except ShardmergeError as error:
            return pb.SourceSubTasks(result=False, msg=str(error), source_status=about, error=error_to_proto(error))
        if answer.HasField("relay"):
            about.relay_status.CopyFrom(answer.relay)
        if answer.HasField("source_error"):
            about.result.CopyFrom(answer.source_error)
        about.warnings.extend(answer.warnings)
        warning = None if clock is None else clock_warning(clock)
        about.warnings.extend([] if warning is None else [warning])
        subtasks = _subtasks((task,) if task else tasks, answer)
        for subtask in subtasks:
            add_waits(subtask, waits_of(subtask.name, source, state), conflicts)
        return pb.SourceSubTasks(result=True, source_status=about, sub_task_status=subtasks)


def _summary(task: str, answers: Mapping[str, pb.SourceSubTasks]) -> pb.TaskSummary:
    """``answers``: by source."""
    found = list(answers.values())
    return pb.TaskSummary(
        task_name=task, task_status=task_status(task, found), sources=answers.keys(), warnings=task_warnings(found)
    )


def _subtasks(tasks: Sequence[str], answer: worker.WorkerStatusResponse) -> list[worker.SubTaskStatus]:
    """The worker's subtasks, and the ones that it should have and does not report yet."""
    named = {one.name: one for one in answer.subtasks}
    reason = f": {error_from_proto(answer.source_error)}" if answer.HasField("source_error") else ""
    waiting = _NOT_STARTED + reason
    new = [
        worker.SubTaskStatus(name=task, stage=common_pb2.STAGE_NEW, waiting_for=waiting)
        for task in tasks
        if task not in named
    ]
    return [*(named[task] for task in tasks if task in named), *new]


def task_status(task: str, answers: Sequence[pb.SourceSubTasks]) -> str:
    """One phrase for a task from its sources' answers: the worst that is true of any of them. Pure.

    The phrases are those of DM's query-status without a task name (its manual, "TiDB Data Migration Query Status",
    "Task status").
    """
    if any(not answer.result for answer in answers):
        return f"Error - Some worker cannot be asked. Please run `query-status {task}` to get more details."
    subtasks = [one for answer in answers for one in answer.sub_task_status if one.name == task]
    if any(_is_failed(one) for one in subtasks):
        return f"Error - Some error occurred in subtask. Please run `query-status {task}` to get more details."
    running = any(one.stage == common_pb2.STAGE_RUNNING for one in subtasks)
    if running and any(answer.source_status.relay_status.HasField("result") for answer in answers):
        return f"Error - Some error occurred in relay. Please run `query-status {task}` to get more details."
    for stage, word in (
        (common_pb2.STAGE_PAUSED, "Paused"),
        (common_pb2.STAGE_RUNNING, "Running"),
        (common_pb2.STAGE_NEW, "New"),
        (common_pb2.STAGE_STOPPED, "Stopped"),
        (common_pb2.STAGE_FINISHED, "Finished"),
    ):
        if any(one.stage == stage for one in subtasks):
            return word
    return "New"


def task_warnings(answers: Sequence[pb.SourceSubTasks]) -> list[pb.TaskWarning]:
    """Of each kind the warning with the least time left, and how many others there are; bounded, however many sources
    the task has."""
    kinds: dict[str, list[pb.TaskWarning]] = {}
    for answer in answers:
        for warning in answer.source_status.warnings:
            found = pb.TaskWarning(source=answer.source_status.source, warning=warning)
            kinds.setdefault(warning.name, []).append(found)
    firsts: list[pb.TaskWarning] = []
    for found in kinds.values():
        first = min(found, key=_warning_urgency)
        first.others = len(found) - 1
        firsts.append(first)
    return sorted(firsts, key=_warning_urgency)


def _warning_urgency(found: pb.TaskWarning) -> tuple[float, str, str]:
    """By its time; those without one are last."""
    return (found.warning.due or math.inf, found.warning.name, found.source)


def _is_failed(subtask: worker.SubTaskStatus) -> bool:
    """Whether a person has to decide: an error has paused it, or its shard tables wait at different statements."""
    paused = subtask.stage == common_pb2.STAGE_PAUSED and len(subtask.result.errors) > 0
    return paused or any(group.HasField("conflict") for group in subtask.sync.unresolved_groups)

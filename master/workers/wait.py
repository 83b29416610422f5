"""Waits a bounded time until workers have done what was decided, and reports the result."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardmerge.master.state import State
from shardmerge.master.workers.client import Workers
from shardmerge.proto import common_pb2, errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import worker_pb2 as worker
from shardmerge.proto.common_pb2 import ErrorDetail, Stage
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_from_proto, error_to_proto

_FIRST_PAUSE_SECONDS = 0.05
_LAST_PAUSE_SECONDS = 0.5
# A source is bound again at once when a worker is free; a longer wait would be for an operator.
_UNBOUND_SECONDS = 3.0


class Goal(enum.Enum):
    """What was decided for a subtask, by the stage's name in answers."""

    RUNNING = "Running"
    PAUSED = "Paused"
    GONE = "Stopped"


EXPECTED = {Goal.PAUSED: common_pb2.STAGE_PAUSED, Goal.RUNNING: common_pb2.STAGE_RUNNING}
"""The stage in the record of a subtask; without a record nothing is to run."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The worker has done it."""


@dataclass(frozen=True, slots=True)
class SubtaskFailure:
    """The worker has tried; ``error`` is why the subtask stopped."""

    error: ErrorDetail


@dataclass(frozen=True, slots=True)
class NotYet:
    """Not done yet. ``seen``: a phrase for the answer if the time runs out."""

    seen: str


Judgement = Reached | SubtaskFailure | NotYet


def judge_subtask(goal: Goal, task: str, revision: int, status: worker.WorkerStatusResponse) -> Judgement:
    """Whether a worker's status shows that it acted on a decision of ``revision``. Pure."""
    if status.observed_revision < revision:
        return NotYet("the worker has not read the decision")
    subtask = next((one for one in status.subtasks if one.name == task), None)
    if subtask is None:
        return Reached() if goal is Goal.GONE else NotYet("not started by the worker")
    stage = subtask.stage
    seen = NotYet(Stage.Name(stage).removeprefix("STAGE_").capitalize())
    match goal:
        case Goal.GONE:
            return Reached() if stage == common_pb2.STAGE_STOPPED else seen
        case Goal.PAUSED:
            ended = (common_pb2.STAGE_PAUSED, common_pb2.STAGE_FINISHED, common_pb2.STAGE_STOPPED)
            return Reached() if stage in ended else seen
        case Goal.RUNNING:
            if stage in (common_pb2.STAGE_RUNNING, common_pb2.STAGE_FINISHED):
                return Reached()
            if stage == common_pb2.STAGE_PAUSED and subtask.result.errors:
                return SubtaskFailure(subtask.result.errors[0])
            return seen


def judge_decision(goal: Goal, task: str, source: str, revision: int, state: State) -> SubtaskFailure | None:
    """Whether a later decision than that of ``revision`` has replaced it: then no worker will act on it. Pure."""
    if state.revision < revision:
        return None
    entry = state.subtasks.get((task, source))
    expected = None if entry is None else entry.value.expected
    if expected == EXPECTED.get(goal):
        return None
    later = next((other for other in Goal if EXPECTED.get(other) == expected), goal)
    return SubtaskFailure(
        error_to_proto(errors.master.COMMAND_REPLACED(task=task, source=source, stage=goal.value, later=later.value))
    )


def judge_source(source: str, revision: int, status: worker.WorkerStatusResponse) -> Judgement:
    """Whether the worker holds ``source`` and its relay runs. Pure."""
    if status.source == source and status.HasField("source_error") and not status.HasField("relay"):
        return NotYet(str(error_from_proto(status.source_error)))
    if status.observed_revision < revision:
        return NotYet("the worker has not read the decision")
    if status.source != source:
        return NotYet(f"the worker holds {status.source or 'no source'}")
    if status.relay.HasField("result") and status.relay.stage == common_pb2.STAGE_PAUSED:
        return SubtaskFailure(status.relay.result)
    return Reached()


def judge_released(source: str, revision: int, status: worker.WorkerStatusResponse) -> Judgement:
    """Whether the worker has released ``source``; it may hold another one by now. Pure."""
    if status.observed_revision < revision:
        return NotYet("the worker has not read the decision")
    return NotYet("still held") if status.source == source else Reached()


@dataclass(frozen=True, slots=True)
class Waiter:
    """Polls workers until ``seconds`` have passed or ``stop`` is set (the master ends)."""

    read: Callable[[], State]
    workers: Workers
    seconds: float
    stop: threading.Event

    def subtasks(self, goal: Goal, pairs: Sequence[tuple[str, str]], revision: int) -> list[pb.SourceResult]:
        """One result per (task, source). Several tasks: ``msg`` names the task."""
        several = len({task for task, _ in pairs}) > 1
        return self.workers.for_each(
            pairs, lambda pair: self._subtask(goal, pair[0], pair[1], revision, several=several)
        )

    def wait_bound(self, sources: Sequence[str], revision: int) -> list[pb.SourceResult]:
        """Wait until each source's worker holds it and its relay runs."""
        return self.workers.for_each(sources, lambda source: self._wait_bound(source, revision))

    def wait_released(self, source: str, name: str, revision: int) -> pb.SourceResult:
        """Wait until worker ``name`` has released ``source``; a worker that is not alive holds nothing."""

        def judge(state: State) -> tuple[str, Judgement]:
            entry = state.workers.get(name)
            if entry is None:
                return name, Reached()
            return name, judge_released(source, revision, self.workers.status(entry.value))

        return self._until(source, judge, "that it has released the source")

    def _wait_bound(self, source: str, revision: int) -> pb.SourceResult:
        def judge(state: State) -> tuple[str, Judgement]:
            holder = state.worker_of(source)
            if holder is None:
                return "", NotYet("bound to no live worker")
            return holder.name, judge_source(source, revision, self.workers.status(holder))

        return self._until(source, judge, "that it reads the source")

    def _subtask(self, goal: Goal, task: str, source: str, revision: int, *, several: bool) -> pb.SourceResult:
        def judge(state: State) -> tuple[str, Judgement]:
            holder = state.worker_of(source)
            replaced = judge_decision(goal, task, source, revision, state)
            if replaced is not None:
                return holder.name if holder else "", replaced
            if holder is not None:
                return holder.name, judge_subtask(goal, task, revision, self.workers.status(holder, task))
            if goal is Goal.RUNNING:
                raise errors.master.SOURCE_UNBOUND(source=source)
            return "", Reached()  # nothing runs, and nothing will: a worker reads the records first

        result = self._until(source, judge, f"stage {goal.value} of task {task}")
        if several:
            result.msg = f"task {task}: {result.msg}" if result.msg else f"task {task}"
        return result

    def _until(self, source: str, judge: Callable[[State], tuple[str, Judgement]], what: str) -> pb.SourceResult:
        """``what``: a phrase for what the worker is to report."""
        begun = time.monotonic()
        deadline = begun + self.seconds
        pause = _FIRST_PAUSE_SECONDS
        name = ""
        seen = "nothing"
        failure: ShardmergeError | None = None
        while True:
            try:
                name, judgement = judge(self.read())
            except ShardmergeError as error:
                # A missing answer may still come: the worker restarts, or the source moves.
                failure = error
                if error.spec is errors.master.SOURCE_UNBOUND and time.monotonic() > begun + _UNBOUND_SECONDS:
                    break
            else:
                failure = None
                match judgement:
                    case Reached():
                        return pb.SourceResult(result=True, source=source, worker=name)
                    case SubtaskFailure():
                        return failed(source, name, error_from_proto(judgement.error))
                    case NotYet():
                        seen = judgement.seen
            if time.monotonic() + pause > deadline or self.stop.wait(pause):
                break
            pause = min(pause * 1.5, _LAST_PAUSE_SECONDS)
        if failure is None:
            who = f"worker {name}" if name else "a worker"
            failure = errors.master.STAGE_NOT_REACHED(
                source=source, who=who, what=what, seconds=f"{self.seconds:.0f}", seen=seen
            )
        return failed(source, name, failure)


def failed(source: str, name: str, error: ShardmergeError) -> pb.SourceResult:
    """One source's part of an answer that is false."""
    return pb.SourceResult(result=False, msg=str(error), source=source, worker=name, error=error_to_proto(error))

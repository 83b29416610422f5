"""start-task, check-task, stop-task, pause-task, resume-task."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardmerge.master.commands.task.forget_task import ForgetCommand, to_add
from shardmerge.master.precheck.precheck import Checks, check_subtasks
from shardmerge.master.state import State
from shardmerge.master.store import Store, merged_task
from shardmerge.master.workers.client import Workers
from shardmerge.master.workers.compose import all_with_source_settings
from shardmerge.master.workers.pause_limits import pause_limits
from shardmerge.master.workers.wait import EXPECTED, Goal, Waiter, failed
from shardmerge.proto import common_pb2, errors, worker_pb2
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto.config.secrets.sealed import as_comparable
from shardmerge.proto.config.task.task_file import TaskFile, parse_task, with_ends
from shardmerge.proto.errors import ShardmergeError

_Op = pb.OperateTaskRequest.Op

_PASSED = "pre-check is passed"

_DESCRIBE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Selection:
    """The subtasks of a task file to start: ``new`` have no record yet, ``running`` have one."""

    new: tuple[config.SubTaskConfig, ...]
    running: tuple[str, ...]


def select(file: TaskFile, wanted: Sequence[str], state: State) -> Selection:
    """Pick the subtasks to start; ``wanted`` empty: all of the file. Pure.

    Raises SOURCE_NOT_IN_TASK, SOURCE_UNKNOWN, SOURCE_DISABLED, TASK_EXISTS when every chosen source has the task
    already, TASK_DIFFERS when one that has it was started from another configuration: starting the rest would leave a
    task whose file is right for some sources only.
    """
    subtasks = all_with_source_settings(file.to_subtasks(), state)
    for source in wanted:
        if source not in file.source_ids:
            raise errors.master.SOURCE_NOT_IN_TASK(task=file.name, source=source)
    chosen = [one for one in subtasks if not wanted or one.source_id in wanted]
    for one in chosen:
        if one.source_id not in state.sources:
            raise errors.master.SOURCE_UNKNOWN(source=one.source_id)
        if one.source_id not in state.enabled():
            raise errors.master.SOURCE_DISABLED(source=one.source_id)
    new = tuple(one for one in chosen if (file.name, one.source_id) not in state.subtasks)
    running = tuple(one.source_id for one in chosen if one not in new)
    if not new:
        raise errors.master.TASK_EXISTS(task=file.name, sources=", ".join(running))
    differing = [
        one.source_id
        for one in subtasks
        if (record := state.subtasks.get((file.name, one.source_id)))
        and _differs(record.value.config, one, chosen=one in chosen)
    ]
    if differing:
        raise errors.master.TASK_DIFFERS(task=file.name, sources=", ".join(differing))
    return Selection(new, running)


def _differs(recorded: config.SubTaskConfig, wanted: config.SubTaskConfig, *, chosen: bool) -> bool:
    """``chosen``: the source is one of those to which a start and an end outside the file apply."""
    recorded, wanted = as_comparable(recorded), as_comparable(wanted)
    if chosen:
        return recorded != wanted
    both: list[config.SubTaskConfig] = []
    for one in (recorded, wanted):
        copy = config.SubTaskConfig()
        copy.CopyFrom(one)
        for name in ("start", "start_at", "stop_at"):
            copy.ClearField(name)
        both.append(copy)
    return both[0] != both[1]


@dataclass(frozen=True, slots=True)
class TaskCommands:
    store: Store
    workers: Workers
    waiter: Waiter
    check_seconds: float

    def check(self, request: pb.CheckTaskRequest) -> pb.CheckTaskResponse:
        """Every pre-check of every source of the file, as start-task makes them without --remove-meta; changes
        nothing."""
        file = with_ends(parse_task(request.file.content, request.file.name), request.start_time, request.stop_at)
        state = self.store.read()
        checks = check_subtasks(
            all_with_source_settings(file.to_subtasks(), state),
            state,
            self.workers,
            self.check_seconds,
            as_recorded=True,
            prove_keys=request.prove_keys,
        )
        verdict = _PASSED if not checks.failed else _refusal(file.name, checks)
        return pb.CheckTaskResponse(
            result=not checks.failed,
            msg="\n".join((verdict, *notes_for(file, file.source_ids))),
            check_result=checks.by_state,
        )

    def start(self, request: pb.StartTaskRequest) -> pb.StartTaskResponse:
        """Check, store, and wait until the workers run the task, or hold it if it begins paused."""
        goal = Goal.PAUSED if request.paused else Goal.RUNNING
        file = with_ends(parse_task(request.file.content, request.file.name), request.start_time, request.stop_at)
        with self.store.deciding() as state:
            selection = select(file, request.sources, state)
        checks = check_subtasks(
            selection.new,
            state,
            self.workers,
            self.check_seconds,
            as_recorded=not request.remove_meta,
            family=file.to_subtasks(),
        )
        if checks.failed:
            return pb.StartTaskResponse(
                result=False,
                msg=_refusal(file.name, checks),
                check_result=checks.failures_and_warnings(),
                checks_passed=checks.passed,
            )
        if request.check_only:
            return pb.StartTaskResponse(
                result=True, msg=_PASSED, check_result=checks.failures_and_warnings(), checks_passed=checks.passed
            )
        # The checks took time: select again from the current records.
        with self.store.deciding() as state:
            selection = select(file, request.sources, state)
            task = state_pb.TaskRecord(
                name=file.name,
                file_name=request.file.name,
                yaml=file.text,
                sources=[one.source_id for one in selection.new],
            )
            token = uuid.uuid4().hex if request.remove_meta else ""
            records = [
                state_pb.SubTaskRecord(config=one, expected=EXPECTED[goal], meta_token=token) for one in selection.new
            ]
            revision = self.store.add_subtasks(merged_task(task, state), records, state)
        pairs = [(file.name, one.source_id) for one in selection.new]
        results = self.waiter.subtasks(goal, pairs, revision)
        results += [
            pb.SourceResult(result=True, msg="runs already", source=source, worker=state.bound_name(source))
            for source in selection.running
        ]
        return pb.StartTaskResponse(
            result=_all(results),
            msg="\n".join((*_first_message(results), *notes_for(file, [one.source_id for one in selection.new]))),
            sources=results,
            check_result=checks.failures_and_warnings(),
            checks_passed=checks.passed,
        )

    def operate(self, request: pb.OperateTaskRequest) -> pb.OperateTaskResponse:
        """Stop, pause or resume one task (on some of its sources), or all tasks of some sources."""
        goals = {
            pb.OperateTaskRequest.OP_STOP: Goal.GONE,
            pb.OperateTaskRequest.OP_PAUSE: Goal.PAUSED,
            pb.OperateTaskRequest.OP_RESUME: Goal.RUNNING,
        }
        goal = goals.get(request.op)
        if goal is None:
            raise errors.master.BAD_REQUEST(reason="operate-task: which operation?")
        if request.remove_meta:
            if goal is not Goal.GONE:
                raise errors.master.BAD_REQUEST(reason="only stop-task removes the records of a task")
            return ForgetCommand(self.store, self.workers, self.waiter).forget(request)
        with self.store.deciding() as state:
            pairs, refused = _pairs(request, state)
            stopped = _with_dropped_indexes(pairs, state) if goal is Goal.GONE else []
            revision = self._decide(goal, pairs, state) if pairs else state.revision
        results = [*self.waiter.subtasks(goal, pairs, revision), *refused]
        lacking = [line for subtask in stopped for line in self._lacking_indexes(subtask)]
        return pb.OperateTaskResponse(
            result=_all(results),
            msg="\n".join((*_first_message(results), *lacking)),
            op=_Op.Name(request.op).removeprefix("OP_").capitalize(),
            sources=results,
            pause_limits=self._pause_limits(results) if goal is Goal.PAUSED else (),
        )

    def _pause_limits(self, results: Sequence[pb.SourceResult]) -> list[worker_pb2.PauseLimit]:
        """How long the paused subtasks may stay paused, for each source."""
        sources = tuple(dict.fromkeys(one.source for one in results if one.result))
        return pause_limits(sources, self.store.read, self.workers, lambda relay: relay.task_pause)

    def _lacking_indexes(self, subtask: config.SubTaskConfig) -> Iterator[str]:
        """Which indexes of existing tables a stopped task leaves out, until it is started again."""
        try:
            worker = self.store.read().holder_or_any(subtask.source_id)
            request = worker_pb2.WorkerForgetTaskRequest(subtask=subtask)
            found = list(to_add(self.workers.call(worker, lambda stub: stub.ForgetTask, request, _DESCRIBE_SECONDS)))
        except ShardmergeError as error:
            found = [f"Whether target tables lack indexes that the load deferred is not known: {error}"]
        if found:
            yield from found
            yield f"Or start the task {subtask.task} again: it adds them when the load is complete."

    def _decide(self, goal: Goal, pairs: Sequence[tuple[str, str]], state: State) -> int:
        match goal:
            case Goal.GONE:
                return self.store.drop_subtasks(pairs, state)
            case Goal.PAUSED:
                return self.store.expect(common_pb2.STAGE_PAUSED, pairs, state)
            case Goal.RUNNING:
                return self.store.expect(common_pb2.STAGE_RUNNING, pairs, state)


def _with_dropped_indexes(pairs: Sequence[tuple[str, str]], state: State) -> list[config.SubTaskConfig]:
    """One subtask of each task that may have dropped indexes of existing tables."""
    subtasks = {task: state.subtasks[task, source].value.config for task, source in pairs}
    return [one for one in subtasks.values() if one.load.defer_existing]


def _pairs(request: pb.OperateTaskRequest, state: State) -> tuple[list[tuple[str, str]], list[pb.SourceResult]]:
    """The subtasks (task, source) that a request names, and an answer for each source that has none."""
    wanted = sorted(set(request.sources))
    if not request.name:
        if not wanted:
            raise errors.master.BAD_REQUEST(reason="name a task, or a source with -s")
        unknown = [source for source in wanted if source not in state.sources]
        pairs = [(task, source) for source in wanted for task in state.tasks_of(source)]
        return pairs, [failed(one, "", errors.master.SOURCE_UNKNOWN(source=one)) for one in unknown]
    present = state.known_sources(request.name)
    missing = [source for source in wanted if source not in present]
    return (
        [(request.name, source) for source in present if not wanted or source in wanted],
        [failed(one, "", errors.master.SUBTASK_UNKNOWN(task=request.name, source=one)) for one in missing],
    )


def notes_for(file: TaskFile, sources: Sequence[str]) -> tuple[str, ...]:
    """Those of the file, and those about the first start of ``sources``."""
    return (*file.notes, *(note for source, note in file.start_notes if source in sources))


def _refusal(task: str, checks: Checks) -> str:
    return str(errors.master.PRECHECK_FAILED(task=task, count=checks.failed))


def _all(results: Sequence[pb.SourceResult]) -> bool:
    return all(one.result for one in results)


def _first_message(results: Sequence[pb.SourceResult]) -> tuple[str, ...]:
    return next(((one.msg,) for one in results if not one.result), ())

"""stop-task --remove-meta: stops a task on all of its sources, and lets a worker remove its records at the target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.workers.client import FORGET_SECONDS, Workers
from shardmerge.master.workers.wait import Goal, Waiter
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.config.task.task_file import parse_task
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.listed_names import listed
from shardmerge.proto.log import get_logger

_NAMED = 5
_LOOK_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class ForgetCommand:
    store: Store
    workers: Workers
    waiter: Waiter

    def forget(self, request: pb.OperateTaskRequest) -> pb.OperateTaskResponse:
        """Stop the task and remove its records. A task that is stopped already needs its file.

        The records go in one transaction, under the epoch of the revision at which the task was gone: a process of an
        earlier run cannot take over any more, and the records of a later start stay. Raises RECORDS_OF_SOME_SOURCES,
        TASK_UNKNOWN, NO_WORKER, RECORDS_NOT_REMOVED, errors of the file, and before anything is stopped those of the
        target.
        """
        name = request.name
        if request.sources or not name:
            raise self._of_some_sources(request)
        state = self.store.read()
        self._ask(state, _any_subtask(request, state), 0)
        with self.store.deciding() as state:
            subtask = _any_subtask(request, state)
            pairs = [(name, source) for source in state.sources_of(name)]
            revision = self.store.drop_subtasks(pairs, state) if pairs else state.revision
            epoch = state.epoch_at(revision)
        results = self.waiter.subtasks(Goal.GONE, pairs, revision)
        for one in results:
            if not one.result:
                raise errors.master.RECORDS_NOT_REMOVED(task=name, reason=one.msg)
        try:
            removed = self._ask(self.store.read(), subtask, epoch)
        except ShardmergeError as error:
            raise errors.master.RECORDS_NOT_REMOVED(task=name, reason=error) from error
        return pb.OperateTaskResponse(
            result=True,
            msg="\n".join(consequences(name, removed)),
            op="Stop",
            sources=results,
            remaining=removed.remaining,
        )

    def _of_some_sources(self, request: pb.OperateTaskRequest) -> ShardmergeError:
        """The refusal, with a way out that was checked for the task's sources as far as their workers answer."""
        names = {"task": request.name} if request.name else {}
        error = errors.master.RECORDS_OF_SOME_SOURCES(
            **names, **({"source": ",".join(request.sources)} if request.sources else {})
        )
        state = self.store.read()
        for subtask in _subtasks(request, state):
            asked = worker_pb2.WorkerForgetTaskRequest(subtask=subtask, only_mixed=True)
            try:
                worker = state.holder_or_any(subtask.source_id)
                answer = self.workers.call(worker, lambda stub: stub.ForgetTask, asked, _LOOK_SECONDS)
            except ShardmergeError as why:
                get_logger().warning("cannot look whose rows are at the target", task=subtask.task, error=str(why))
                continue
            if answer.mixed_rows:
                return error.of_mixed_rows(subtask.task, subtask.source_id, answer.mixed_rows, answer.mixed_targets)
        return error

    def _ask(self, state: State, subtask: config.SubTaskConfig, epoch: int) -> worker_pb2.WorkerForgetTaskResponse:
        worker = state.holder_or_any(subtask.source_id)
        asked = worker_pb2.WorkerForgetTaskRequest(subtask=subtask, epoch=epoch)
        return self.workers.call(worker, lambda stub: stub.ForgetTask, asked, FORGET_SECONDS)


def _subtasks(request: pb.OperateTaskRequest, state: State) -> Iterator[config.SubTaskConfig]:
    """The subtasks that the request names: as they run, or as in the file of a task that is stopped."""
    tasks = [request.name] if request.name else sorted({task for task, _ in state.subtasks})
    for task in tasks:
        for source in state.sources_of(task):
            if not request.sources or source in request.sources:
                yield state.subtasks[task, source].value.config
    if request.HasField("file") and not state.sources_of(request.name):
        found = parse_task(request.file.content, request.file.name).to_subtasks()
        yield from (each for each in found if not request.sources or each.source_id in request.sources)


def _any_subtask(request: pb.OperateTaskRequest, state: State) -> config.SubTaskConfig:
    """A subtask of the task: as it runs, or as in the file of a task that is stopped. All have the same target."""
    present = state.sources_of(request.name)
    if present:
        return state.subtasks[request.name, present[0]].value.config
    if not request.HasField("file"):
        raise errors.master.TASK_UNKNOWN(task=request.name)
    file = parse_task(request.file.content, request.file.name)
    if file.name != request.name:
        raise errors.master.BAD_REQUEST(reason=f"the file is that of task {file.name}, not of {request.name}")
    return file.to_subtasks()[0]


def consequences(task: str, removed: worker_pb2.WorkerForgetTaskResponse) -> Iterator[str]:
    """What stays, and what follows for the next start, one sentence or two per line. Pure."""
    if not removed.sources:
        yield f"The target has no records of task {task}."
    else:
        yield f"The records of task {task} at the target are removed: source(s) {_listed(removed.sources)}."
    if removed.held_keys:
        yield (
            f"The changes of {removed.held_keys} key(s) were held in quarantine. These are removed, too: the rows that "
            "stay do not have them."
        )
    if not removed.remaining:
        yield "No target table has rows of it: start-task copies the history anew."
        yield from to_add(removed)
        return
    tables = _listed([one.target for one in removed.remaining])
    yield (
        f"The rows of {len(removed.remaining)} target table(s) stay: {tables}. start-task begins with an empty "
        "history. With task-mode all or full it is refused with 12037 (target-table-not-empty) until they are empty; "
        "safe-mode makes that a warning, and the copy stops at the first key that exists. With another column mapping "
        "it cannot recognize the old rows. With task-mode incremental it continues on them from the position in its "
        "file."
    )
    shared = [one.target for one in removed.remaining if one.is_shared]
    if shared:
        yield f"Another task has rows in {_listed(shared)}: emptying it would remove them, too."
    lacking = [one.target for one in removed.remaining if one.lacks_indexes]
    if lacking:
        yield f"The copy had not added all indexes of {_listed(lacking)}: the next start of a task on it adds them."
    yield from to_add(removed)


def to_add(described: worker_pb2.WorkerForgetTaskResponse) -> Iterator[str]:
    """The statements that add the indexes that target tables lack. Pure."""
    if described.add_indexes:
        yield "Indexes that the load had deferred are missing. These statements add them, at the target:"
        yield from (f"{statement};" for statement in described.add_indexes)


def _listed(names: Sequence[str]) -> str:
    return listed(names, _NAMED)

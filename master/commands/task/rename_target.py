"""update-task --rename-target: renames a target table in place of copying its history into a new one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from google.protobuf import json_format

from shardmerge.master.commands.task.update import (
    UpdateCommand,
    Wanted,
    add_results,
    answer_of,
    flat,
    select,
    task_record,
)
from shardmerge.master.ddl_lock.records import open_locks
from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.workers.client import FORGET_SECONDS, Workers
from shardmerge.master.workers.wait import Goal, Waiter
from shardmerge.proto import common_pb2, errors, failpoints, worker_pb2
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto.config.secrets.sealed import as_comparable
from shardmerge.proto.config.task.task_file import parse_task
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.worker_pb2 import TableChange

_ROUTES = "routes"


@dataclass(frozen=True, slots=True)
class RenameCommand:
    updates: UpdateCommand
    store: Store
    workers: Workers
    waiter: Waiter

    def rename(self, request: pb.UpdateTaskRequest) -> pb.UpdateTaskResponse:
        """Check that the file does nothing but give one target table another name; unless it is a dry run, pause all
        subtasks, let a worker rename the table and move the records, store the file, and resume what ran.

        A process that is killed in between leaves the subtasks paused, or a record at the target that their next run
        settles. Raises RENAME_*, errors of the file and of the target.
        """
        file = parse_task(request.file.content, request.file.name)
        state = self.store.read()
        wanted = select(file, state)
        check_alone(wanted, state)
        parts = self.updates.preview(wanted, state)
        check_moves(file.name, parts)
        seen = self._ask(wanted, state, 0)
        self._check_versions(wanted, state)
        rename = pb.TargetRename(before=seen.before, after=seen.after, statement=seen.statement, mentions=seen.mentions)
        if request.dry_run or not all(part.result for part in parts):
            answer = answer_of(parts, file.notes, dry_run=request.dry_run)
            answer.rename.CopyFrom(rename)
            return answer
        with self.store.deciding() as now:
            wanted = select(file, now)
            check_alone(wanted, now)
            pairs = [(one.task, one.source_id) for one in wanted.subtasks]
            running = [pair for pair in pairs if now.subtasks[pair].value.expected == common_pb2.STAGE_RUNNING]
            revision = self.store.expect(common_pb2.STAGE_PAUSED, pairs, now)
            epoch = now.epoch_at(revision)
        try:
            for result in self.waiter.subtasks(Goal.PAUSED, pairs, revision):
                if not result.result:
                    raise _busy(file.name, f"source {result.source} is not paused: {result.msg}")
            failpoints.hit("rename_target.paused")
            self._ask(wanted, self.store.read(), epoch)
        except ShardmergeError:
            self._resume(running)
            raise
        failpoints.hit("rename_target.unpublished")
        with self.store.deciding() as now:
            wanted = select(file, now)
            records = [_record(one, now, runs=(one.task, one.source_id) in running) for one in wanted.subtasks]
            task = task_record(file, request.file.name, now)
            revision = self.store.update_subtasks(task, records, now, drop_shards=True)
        add_results(parts, {one.source: one for one in self.waiter.subtasks(Goal.RUNNING, running, revision)})
        answer = answer_of(parts, file.notes, dry_run=False)
        answer.rename.CopyFrom(rename)
        return answer

    def _ask(self, wanted: Wanted, state: State, epoch: int) -> worker_pb2.WorkerRenameTargetResponse:
        worker = state.holder_or_any(wanted.subtasks[0].source_id)
        request = worker_pb2.WorkerRenameTargetRequest(subtasks=wanted.subtasks, epoch=epoch)
        return self.workers.call(worker, lambda stub: stub.RenameTarget, request, FORGET_SECONDS)

    def _check_versions(self, wanted: Wanted, state: State) -> None:
        """Check that the workers of all sources know this command: their next runs have to. Raises their errors."""

        def ask(subtask: config.SubTaskConfig) -> None:
            worker = state.holder_or_any(subtask.source_id)
            request = worker_pb2.WorkerRenameTargetRequest(subtasks=[subtask])
            try:
                self.workers.call(worker, lambda stub: stub.RenameTarget, request, FORGET_SECONDS)
            except ShardmergeError as error:
                if error.spec is not errors.master.RENAME_NOTHING:  # no table of this source moves
                    raise

        self.workers.for_each(wanted.subtasks[1:], ask)

    def _resume(self, pairs: Sequence[tuple[str, str]]) -> None:
        with self.store.deciding() as now:
            left = [pair for pair in pairs if pair in now.subtasks]
            if left:
                self.store.expect(common_pb2.STAGE_RUNNING, left, now)


def check_moves(task: str, parts: Iterable[pb.SourceUpdate]) -> None:
    """Check that no table joins or leaves. Pure. Raises RENAME_NOT_ALONE."""
    for part in parts:
        for table in part.tables:
            if table.kind in (TableChange.JOINS, TableChange.LEAVES):
                word = "joins" if table.kind == TableChange.JOINS else "leaves"
                reason = f"{table.source_table} of source {part.source} {word}"
                raise errors.master.RENAME_NOT_ALONE(task=task, reason=reason)


def check_alone(wanted: Wanted, state: State) -> None:
    """Check that nothing but routes differ, for all sources of the task, and that no DDL is in progress. Pure. Raises
    RENAME_NOT_ALONE, RENAME_BUSY."""
    name = wanted.file.name
    if wanted.absent:
        reason = f"the task does not run on source(s) {', '.join(wanted.absent)} of the file yet"
        raise errors.master.RENAME_NOT_ALONE(task=name, reason=reason)
    for after in wanted.subtasks:
        before = state.subtasks[after.task, after.source_id].value.config
        keys = _other_keys(before, after)
        if keys:
            raise errors.master.RENAME_NOT_ALONE(task=name, reason=f"the file changes {', '.join(keys)}, too")
    locks = open_locks(name, state)
    if locks:
        raise _busy(name, f"shard tables wait at sharding DDLs: {', '.join(locks)}")


def _other_keys(before: config.SubTaskConfig, after: config.SubTaskConfig) -> list[str]:
    old, new = (flat(json_format.MessageToDict(as_comparable(one))) for one in (before, after))
    return sorted({key.split(".")[0] for key in old.keys() | new.keys() if old.get(key) != new.get(key)} - {_ROUTES})


def _busy(task: str, reason: str) -> ShardmergeError:
    return errors.master.RENAME_BUSY(task=task, reason=reason)


def _record(subtask: config.SubTaskConfig, state: State, *, runs: bool) -> state_pb.SubTaskRecord:
    """No table joins by this update, so it needs no token."""
    record = state_pb.SubTaskRecord()
    record.CopyFrom(state.subtasks[subtask.task, subtask.source_id].value)
    record.config.CopyFrom(subtask)
    if runs:
        record.expected = common_pb2.STAGE_RUNNING
    return record

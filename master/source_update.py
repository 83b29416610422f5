"""operate-source update: another file for a source whose tasks go on.

A source's configuration is one record, and its worker obeys that record as a whole: whoever is killed, either the file
before or the new one holds. Whatever can be wrong with the new one is asked before it is stored.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from master.checks import first_failure, flattened
from master.compose import composed
from master.ddl_lock_records import open_locks
from master.placement import free_workers
from master.source_changes import asks_the_source, check_changeable, check_password, moves_away, source_changes
from master.stages import Waiter, failed
from master.state import State
from master.store import Store
from master.workers import Workers
from proto import config_pb2 as config
from proto import errors, hooks
from proto import master_pb2 as pb
from proto import state_pb2 as state_pb
from proto import worker_pb2 as worker
from proto.config.source import SourceFile, parse_source_file
from proto.errors import ShardmergeError

_UNCHANGED = "the file says what is stored: nothing changes"
_UNBOUND = "the file is stored; the source is bound to no live worker"
_DISABLED = "the source is disabled: no worker holds it"
_WOULD = "would be changed so"
_HINT = "Mend it and give the command again."


def check_answer(answer: worker.CheckResponse, source: str) -> None:
    """Raises SOURCE_CHECK_FAILED with the first check that failed."""
    failure = first_failure(flattened(answer, source))
    if failure is not None:
        raise errors.master.SOURCE_CHECK_FAILED(
            source=source,
            reason=f"[{failure.code}] {failure.name}: {failure.error_msg}",
            instruction=failure.instruction or _HINT,
        )


@dataclass(frozen=True, slots=True)
class SourceUpdates:
    store: Store
    workers: Workers
    waiter: Waiter
    check_seconds: float

    def update(self, request: pb.OperateSourceRequest) -> tuple[list[pb.SourceResult], tuple[pb.SourceChange, ...]]:
        """All files are read before anything is stored; then each source stands for itself. Raises BAD_REQUEST."""
        if not request.files:
            raise errors.master.BAD_REQUEST(reason="operate-source update: give a source file")
        files = [parse_source_file(file.content, file.name) for file in request.files]
        if len({file.config.source_id for file in files}) < len(files):
            raise errors.master.BAD_REQUEST(reason="operate-source update: two of the files are for the same source")
        results: list[pb.SourceResult] = []
        changes: list[pb.SourceChange] = []
        for given, file in zip(request.files, files, strict=True):
            one = file.config
            holder = ""
            try:
                with self.store.deciding() as state:
                    holder = state.bound_name(one.source_id)
                    found = _found(file, state)
                changes += found
                results.append(self._one(given.name, file, found, state, dry_run=request.dry_run))
            except ShardmergeError as error:
                results.append(failed(one.source_id, holder, error))
        return results, tuple(changes)

    def _one(
        self,
        name: str,
        file: SourceFile,
        changes: Sequence[pb.SourceChange],
        state: State,
        *,
        dry_run: bool,
    ) -> pb.SourceResult:
        after = file.config
        source = after.source_id
        if not changes:
            return pb.SourceResult(result=True, msg=_UNCHANGED, source=source, worker=state.bound_name(source))
        if asks_the_source(changes, after):
            check_answer(self.workers.check_source(_asked(source, state), after, self.check_seconds), source)
        told = self._switch(after, state) if moves_away(changes) and state.tasks_of(source) else None
        proof = told.proof if told is not None else ""
        if dry_run:
            said = "; ".join(filter(None, (_WOULD, proof)))
            return pb.SourceResult(result=True, msg=said, source=source, worker=state.bound_name(source))
        hooks.reach("source.checked")
        with self.store.deciding() as now:
            _check_same(source, state, now)
            record = state_pb.SourceRecord()
            record.CopyFrom(now.sources[source].value)
            record.config.CopyFrom(after)
            record.file_name, record.yaml = name, file.text
            server = told.server if told is not None and not told.same_server else ""
            subtasks = _changed_subtasks(after, server, now)
            held = now.bound_name(source)
            taker = "" if held else next(iter(free_workers(frozenset(now.workers), now.bindings())), "")
            revision = self.store.update_source(record, subtasks, taker, now)
        hooks.reach("source.stored")
        if after.disabled:
            result = self.waiter.released(source, held, revision)
            result.msg = result.msg or _DISABLED
        elif (held or taker) in now.workers:
            [result] = self.waiter.taken_up([source], revision)
            result.msg = result.msg or proof
        else:
            result = pb.SourceResult(result=True, msg=_UNBOUND, source=source, worker=held)
        return result

    def _switch(self, after: config.SourceConfig, state: State) -> worker.CheckSwitchResponse:
        """Asks the worker at hand, which has the relay log, whether the tasks may go on at the other address."""
        source = after.source_id
        locks = [lock for task in state.tasks_of(source) for lock in open_locks(task, state)]
        if locks:
            raise errors.master.SOURCE_SWITCH_LOCKED(source=source, locks=", ".join(locks))
        holder = state.worker_of(source)
        if holder is None:
            raise errors.master.SOURCE_UNBOUND(source=source)
        subtasks = [state.subtasks[task, source].value.config for task in state.tasks_of(source)]
        request = worker.CheckSwitchRequest(source=after, subtasks=subtasks)
        return self.workers.check_switch(holder, request, self.check_seconds)


def _found(file: SourceFile, state: State) -> tuple[pb.SourceChange, ...]:
    """What the file changes. Raises SOURCE_UNKNOWN, SOURCE_UPDATE_FIXED, SOURCE_PASSWORD_NEEDED."""
    after = file.config
    entry = state.sources.get(after.source_id)
    if entry is None:
        raise errors.master.SOURCE_UNKNOWN(source=after.source_id)
    check_changeable(entry.value.config, after, state.tasks_of(after.source_id))
    check_password(entry.value.config, after, file.password)
    return source_changes(entry.value.config, after)


def _asked(source: str, state: State) -> state_pb.WorkerRecord:
    """The worker to try the new file: the one that holds the source, else any."""
    holder = state.worker_of(source)
    if holder is not None:
        return holder
    if not state.workers:
        raise errors.master.NO_WORKER(source=source)
    return state.workers[min(state.workers)].value


def _check_same(source: str, before: State, now: State) -> None:
    """The checks took their time: what they were made for must still be there. Raises SOURCE_UNKNOWN, CONFLICT."""
    if source not in now.sources:
        raise errors.master.SOURCE_UNKNOWN(source=source)
    if _standing(source, now) != _standing(source, before):
        raise errors.master.CONFLICT(what=f"source {source}")


def _standing(source: str, state: State) -> tuple[object, ...]:
    """What a check was made for: the file, who holds the source, its tasks and their last updates."""
    updates = [(task, state.subtasks[task, source].value.update_token) for task in state.tasks_of(source)]
    return state.sources[source].revision, state.bound_name(source), updates


def _changed_subtasks(after: config.SourceConfig, server: str, state: State) -> list[state_pb.SubTaskRecord]:
    """The source's subtasks as they are to be beside ``after``, those that change.

    ``server``: the one that is left for another, or "". Operator's words that name no server were meant for places of
    its binlog, and another server's binlog has places of the same names. Filters that the file has for every task come
    into force as those of update-task do: where the subtask stands when it has seen its new token.
    """
    changed: list[state_pb.SubTaskRecord] = []
    for task in state.tasks_of(after.source_id):
        before = state.subtasks[task, after.source_id].value
        record = state_pb.SubTaskRecord()
        record.CopyFrom(before)
        for op in record.binlog_ops if server else ():
            op.server = op.server or server
        record.config.CopyFrom(composed(before.config, after))
        if record.config != before.config:
            record.update_token = uuid.uuid4().hex
        if record != before:
            changed.append(record)
    return changed

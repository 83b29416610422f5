"""operate-source update: another file for a source whose tasks continue.

A source's configuration is one record, and its worker applies that record as a whole: whichever process is killed,
either the old or the new file is in force. The new file is checked completely before it is stored.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from shardmerge.master.commands.source.changes import (
    asks_the_source,
    check_changeable,
    check_password,
    moves_away,
    source_changes,
)
from shardmerge.master.ddl_lock.records import open_locks
from shardmerge.master.placement import free_workers
from shardmerge.master.precheck.precheck import flattened
from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.workers.client import Workers
from shardmerge.master.workers.compose import with_source_settings
from shardmerge.master.workers.wait import Waiter, failed
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors, failpoints
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto import worker_pb2 as worker
from shardmerge.proto.config.source import SourceFile, parse_source_file
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.source_checks import source_failure

_UNCHANGED = "the file equals the stored one: nothing changes"
_UNBOUND = "the file is stored; the source is bound to no live worker"
_DISABLED = "the source is disabled: no worker holds it"
_NEW_LOG = (
    "the file is stored; the relay log of the former server is not continued, the next start-task begins a new one"
)
OF_FORMER_LOG = frozenset(
    spec.code
    for spec in (
        errors.relay.SOURCE_LOG_GONE,
        errors.relay.SOURCE_CHANGED,
        errors.relay.SOURCE_LOG_RESET,
        errors.relay.SOURCE_GTIDS_GONE,
        errors.relay.SOURCE_LACKS_GTIDS,
    )
)
"""Of a relay log whose last transactions the source does not have."""
_DRY_RUN = "would change as listed"
_UNCHECKED = "the file is stored and not checked, for no worker is alive; the first free worker checks the source"


def check_answer(answer: worker.CheckResponse, source: str, *, is_new: bool = False) -> None:
    """Raises SOURCE_CHECK_FAILED with the first check that failed. ``is_new``: the source is not stored."""
    failure = source_failure(flattened(answer, source), source, is_new=is_new)
    if failure is not None:
        raise failure


@dataclass(frozen=True, slots=True)
class SourceUpdateCommand:
    store: Store
    workers: Workers
    waiter: Waiter
    check_seconds: float

    def update(self, request: pb.OperateSourceRequest) -> tuple[list[pb.SourceResult], tuple[pb.SourceChange, ...]]:
        """Read all files before anything is stored; then each source succeeds or fails by itself. Raises
        BAD_REQUEST."""
        if not request.files:
            raise errors.master.BAD_REQUEST(reason="operate-source update: give a source file")
        files = [parse_source_file(file.content, file.name) for file in request.files]
        if len({file.config.source_id for file in files}) < len(files):
            raise errors.master.BAD_REQUEST(reason="operate-source update: two of the files are for the same source")
        results: list[pb.SourceResult] = []
        changes: list[pb.SourceChange] = []
        for sent, file in zip(request.files, files, strict=True):
            one = file.config
            holder = ""
            try:
                with self.store.deciding() as state:
                    holder = state.bound_name(one.source_id)
                    found = _found(file, state)
                changes += found
                results.append(self._one(sent.name, file, found, state, dry_run=request.dry_run))
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
        asks = asks_the_source(changes, after)
        if asks and _can_be_checked(source, state):
            check_answer(self.workers.check_source(state.holder_or_any(source), after, self.check_seconds), source)
        switch = self._switch(after, state) if moves_away(changes) and state.tasks_of(source) else None
        proof = switch.proof if switch is not None else ""
        if dry_run:
            msg = "; ".join(filter(None, (_DRY_RUN, proof)))
            return pb.SourceResult(result=True, msg=msg, source=source, worker=state.bound_name(source))
        failpoints.hit("source.checked")
        with self.store.deciding() as now:
            _check_same(source, state, now)
            record = state_pb.SourceRecord()
            record.CopyFrom(now.sources[source].value)
            record.config.CopyFrom(after)
            record.file_name, record.yaml = name, file.text
            server = switch.server if switch is not None and not switch.same_server else ""
            subtasks = _changed_subtasks(after, server, now)
            held = now.bound_name(source)
            taker = "" if held else next(iter(free_workers(frozenset(now.workers), now.bindings())), "")
            revision = self.store.update_source(record, subtasks, taker, now)
        failpoints.hit("source.stored")
        if after.disabled:
            result = self.waiter.wait_released(source, held, revision)
            result.msg = result.msg or _DISABLED
        elif (held or taker) in now.workers:
            [result] = self.waiter.wait_bound([source], revision)
            result.msg = result.msg or proof
            if not state.tasks_of(source):
                result = without_former_log(result)
        else:
            msg = _UNBOUND if not asks or _can_be_checked(source, state) else _UNCHECKED
            result = pb.SourceResult(result=True, msg=msg, source=source, worker=held)
        return result

    def _switch(self, after: config.SourceConfig, state: State) -> worker.CheckSwitchResponse:
        """Ask the current worker, which has the relay log, whether the tasks may continue at the other address."""
        source = after.source_id
        locks = [lock for task in state.tasks_of(source) for lock in open_locks(task, state)]
        if locks:
            raise errors.master.SOURCE_SWITCH_LOCKED(source=source, locks=", ".join(locks))
        holder = state.holder_of(source)
        subtasks = [state.subtasks[task, source].value.config for task in state.tasks_of(source)]
        request = worker.CheckSwitchRequest(source=after, subtasks=subtasks)
        return self.workers.call(holder, lambda stub: stub.CheckSwitch, request, self.check_seconds)


def without_former_log(result: pb.SourceResult) -> pb.SourceResult:
    """The result for a source without tasks: that its relay log, which no task reads, cannot be continued at the new
    address does not make the update fail. Pure."""
    if result.result or result.error.code not in OF_FORMER_LOG:
        return result
    msg = f"{_NEW_LOG}: {result.msg}"
    return pb.SourceResult(result=True, msg=msg, source=result.source, worker=result.worker)


def _found(file: SourceFile, state: State) -> tuple[pb.SourceChange, ...]:
    """The file's changes. Raises SOURCE_UNKNOWN, SOURCE_UPDATE_FIXED, SOURCE_PASSWORD_NEEDED."""
    after = file.config
    entry = state.sources.get(after.source_id)
    if entry is None:
        raise errors.master.SOURCE_UNKNOWN(source=after.source_id)
    check_changeable(entry.value.config, after, state.tasks_of(after.source_id))
    check_password(entry.value.config, after, file.password)
    return source_changes(entry.value.config, after)


def _can_be_checked(source: str, state: State) -> bool:
    """Whether a worker is alive that can check the source. Without one, the file of a source that has no tasks is
    stored unchecked, as by operate-source create."""
    return bool(state.workers) or bool(state.tasks_of(source))


def _check_same(source: str, before: State, now: State) -> None:
    """Check that what the checks were made for is unchanged: they took time. Raises SOURCE_UNKNOWN, CONFLICT."""
    if source not in now.sources:
        raise errors.master.SOURCE_UNKNOWN(source=source)
    if _checked_state(source, now) != _checked_state(source, before):
        raise errors.master.CONFLICT(what=f"source {source}")


def _checked_state(source: str, state: State) -> tuple[object, ...]:
    """What the checks depend on: the file, the worker that holds the source, its tasks and their last updates."""
    updates = [(task, state.subtasks[task, source].value.update_token) for task in state.tasks_of(source)]
    return state.sources[source].revision, state.bound_name(source), updates


def _changed_subtasks(after: config.SourceConfig, server: str, state: State) -> list[state_pb.SubTaskRecord]:
    """The source's subtasks that change with the new file ``after``, as they are to be stored.

    ``server``: the server that the source leaves for another one, or "". Overrides without a server were meant for
    positions in its binlog, and another server's binlog has positions of the same names. The file's filters for every
    task take effect as with update-task: at the subtask's position when it has seen its new token.
    """
    changed: list[state_pb.SubTaskRecord] = []
    for task in state.tasks_of(after.source_id):
        before = state.subtasks[task, after.source_id].value
        record = state_pb.SubTaskRecord()
        record.CopyFrom(before)
        for op in record.binlog_ops if server else ():
            op.server = op.server or server
        record.config.CopyFrom(with_source_settings(before.config, after))
        if record.config != before.config:
            record.update_token = uuid.uuid4().hex
        if record != before:
            changed.append(record)
    return changed

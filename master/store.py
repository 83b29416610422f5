"""Reads and writes the records in etcd: one method per transaction, named after the decision it stores.

Every write carries the condition that this master's leader record is unchanged: a master that lost the
leadership without noticing writes nothing. RECORDS.md lists the transactions.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.message import Message

from shardmerge.master.ddl_lock.records import Target, to_record
from shardmerge.master.ddl_lock.resolver import Change, Close
from shardmerge.master.placement import Bind, Step, Unbind
from shardmerge.master.state import State, parse
from shardmerge.proto import common_pb2, errors, etcd_keys
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.etcd import Condition, Delete, DeletePrefix, Etcd, KeyAbsent, KeyIs, KeyPresent, Operation, Put
from shardmerge.proto.tracing.operation import present_operation


class Leadership(Protocol):
    """What the store needs of master/leader/election.py; both methods raise NOT_LEADER or NO_LEADER."""

    @property
    def leads(self) -> bool: ...
    def condition(self) -> Condition: ...
    def confirm(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LastRead:
    """The records as they were at time ``at``, of ``time.monotonic()``."""

    state: State
    at: float


class Store:
    def __init__(self, etcd: Etcd, leadership: Leadership) -> None:
        self._etcd = etcd
        self._leadership = leadership
        self._deciding = threading.Lock()
        self._last_read: LastRead | None = None

    def read(self) -> State:
        """All records, at one revision. Any master may read."""
        state = parse(self._etcd.get_prefix(etcd_keys.PREFIX))
        self._last_read = LastRead(state, time.monotonic())
        return state

    @property
    def last_read(self) -> LastRead | None:
        """What :meth:`read` has returned last, without a question to etcd; None: nothing yet."""
        return self._last_read

    @contextlib.contextmanager
    def deciding(self) -> Generator[State]:
        """The state to decide from; this process takes no other decision between this read and the write.

        Keep it short: no call to a worker inside.
        """
        self.check_leads()
        with self._deciding:
            yield self.read()

    def check_leads(self) -> None:
        """Raises NOT_LEADER or NO_LEADER at a master that does not lead."""
        self._leadership.condition()

    # --- transactions

    def place(self, step: Step, state: State) -> int:
        """Store one step of the placement; returns the revision."""
        key = etcd_keys.bound(step.source)
        bound = state.bounds.get(step.source)
        as_read = KeyIs(key, bound.revision) if bound else KeyAbsent(key)
        match step:
            case Bind():
                return self._commit(
                    f"the binding of source {step.source}",
                    [as_read, KeyPresent(etcd_keys.worker(step.worker)), KeyPresent(etcd_keys.source(step.source))],
                    [_binding(step.source, step.worker)],
                )
            case Unbind():
                return self._commit(f"the binding of source {step.source}", [as_read], [Delete(key)])

    def add_source(self, source: config.SourceConfig, worker: str, file_name: str = "", yaml: str = "") -> int:
        """Store a new source and bind it to a live, free ``worker`` ("": to none yet); returns the revision.

        ``file_name``, ``yaml``: its file, as the operator sent it.
        """
        record = pb.SourceRecord(config=source, file_name=file_name, yaml=yaml)
        key = etcd_keys.source(source.source_id)
        conditions: list[Condition] = [KeyAbsent(key), KeyAbsent(etcd_keys.bound(source.source_id))]
        operations: list[Operation] = [Put(key, etcd_keys.encode(record))]
        if worker:
            conditions.append(KeyPresent(etcd_keys.worker(worker)))
            operations.append(_binding(source.source_id, worker))
        return self._commit(f"source {source.source_id}", conditions, operations)

    def update_source(
        self, source: pb.SourceRecord, subtasks: Sequence[pb.SubTaskRecord], worker: str, state: State
    ) -> int:
        """Replace the existing record by ``source``, and existing subtasks by ``subtasks``; returns the revision.

        ``worker``: the worker to bind an unbound source to ("": none). A disabled source loses its binding.
        """
        source_id = source.config.source_id
        key, bound = etcd_keys.source(source_id), etcd_keys.bound(source_id)
        held = state.bounds.get(source_id)
        conditions: list[Condition] = [
            KeyIs(key, state.sources[source_id].revision),
            KeyIs(bound, held.revision) if held else KeyAbsent(bound),
        ]
        operations: list[Operation] = [Put(key, etcd_keys.encode(source))]
        for one in subtasks:
            pair = one.config.task, one.config.source_id
            conditions.append(KeyIs(etcd_keys.subtask(*pair), state.subtasks[pair].revision))
            operations.append(Put(etcd_keys.subtask(*pair), etcd_keys.encode(one)))
        operations += _command(one.config.task for one in subtasks)
        if source.config.disabled:
            operations.append(Delete(bound))
        elif worker:
            conditions.append(KeyPresent(etcd_keys.worker(worker)))
            operations.append(_binding(source_id, worker))
        return self._commit(f"source {source_id}", conditions, operations)

    def drop_source(self, source_id: str, state: State) -> int:
        """Delete a source with its binding; returns the revision."""
        return self._commit(
            f"source {source_id}",
            [KeyIs(etcd_keys.source(source_id), state.sources[source_id].revision)],
            [Delete(etcd_keys.source(source_id)), Delete(etcd_keys.bound(source_id))],
        )

    def add_subtasks(self, task: pb.TaskRecord, subtasks: Sequence[pb.SubTaskRecord], state: State) -> int:
        """Store new subtasks and the task that now covers them; returns the revision."""
        configs = [record.config for record in subtasks]
        return self._commit(
            f"task {task.name}",
            [
                self._task_as_read(task.name, state),
                *(KeyAbsent(etcd_keys.subtask(task.name, one.source_id)) for one in configs),
                *(KeyPresent(etcd_keys.source(one.source_id)) for one in configs),
            ],
            [
                Put(etcd_keys.task(task.name), etcd_keys.encode(task)),
                *_command([task.name]),
                *(Put(etcd_keys.subtask(task.name, one.config.source_id), etcd_keys.encode(one)) for one in subtasks),
            ],
        )

    def expect(self, stage: common_pb2.Stage, subtasks: Sequence[tuple[str, str]], state: State) -> int:
        """Set the expected stage of existing subtasks (task, source); returns the revision.

        A record whose stage is ``stage`` already is written again: the new revision makes the worker try again.
        """
        conditions: list[Condition] = []
        operations: list[Operation] = []
        for task, source in subtasks:
            entry = state.subtasks[task, source]
            record = pb.SubTaskRecord()
            record.CopyFrom(entry.value)
            record.expected = stage
            conditions.append(KeyIs(etcd_keys.subtask(task, source), entry.revision))
            operations.append(Put(etcd_keys.subtask(task, source), etcd_keys.encode(record)))
        operations += _command(task for task, _ in subtasks)
        return self._commit("a subtask", conditions, operations)

    def update_subtasks(
        self, task: pb.TaskRecord, subtasks: Sequence[pb.SubTaskRecord], state: State, *, drop_shards: bool = False
    ) -> int:
        """Replace the configurations of existing subtasks, and the task file with them; returns the revision.

        ``drop_shards``: delete their reports, which name target tables: until a source reports again, locks wait for
        it.
        """
        pairs = [(one.config.task, one.config.source_id) for one in subtasks]
        return self._commit(
            f"task {task.name}",
            [
                self._task_as_read(task.name, state),
                *(KeyIs(etcd_keys.subtask(*pair), state.subtasks[pair].revision) for pair in pairs),
            ],
            [
                Put(etcd_keys.task(task.name), etcd_keys.encode(task)),
                *_command([task.name]),
                *(
                    Put(etcd_keys.subtask(*pair), etcd_keys.encode(one))
                    for pair, one in zip(pairs, subtasks, strict=True)
                ),
                *(Delete(etcd_keys.shard(*pair)) for pair in pairs if drop_shards),
            ],
        )

    def record_binlog_op(self, subtask: pb.SubTaskRecord, state: State) -> int:
        """Store ``subtask`` with changed binlog overrides in place of the existing record; returns the revision."""
        pair = subtask.config.task, subtask.config.source_id
        key = etcd_keys.subtask(*pair)
        return self._commit(
            f"the subtask of task {pair[0]} on source {pair[1]}",
            [KeyIs(key, state.subtasks[pair].revision)],
            [Put(key, etcd_keys.encode(subtask)), *_command([pair[0]])],
        )

    def drop_subtasks(self, subtasks: Sequence[tuple[str, str]], state: State) -> int:
        """Delete subtasks (task, source) with what their workers wrote, and tasks that have no subtask left with all
        their records; returns the revision.
        """
        gone = set(subtasks)
        conditions: list[Condition] = [
            KeyIs(etcd_keys.subtask(*pair), state.subtasks[pair].revision) for pair in subtasks
        ]
        operations: list[Operation] = []
        for task in sorted({name for name, _ in subtasks}):
            conditions.append(self._task_as_read(task, state))
            left = [source for source in state.sources_of(task) if (task, source) not in gone]
            operations.append(_task_with(task, left, state))
            leaving = [source for name, source in subtasks if name == task]
            operations += [Delete(etcd_keys.subtask(task, source)) for source in leaving]
            if left:
                operations += [Delete(etcd_keys.epoch(task, source)) for source in leaving]
                operations += [Delete(etcd_keys.shard(task, source)) for source in leaving]
            else:
                operations += [DeletePrefix(of(task)) for of in (etcd_keys.epochs, etcd_keys.shards, etcd_keys.locks)]
                operations.append(Delete(etcd_keys.operation(task)))
        return self._commit("a task", conditions, operations)

    def seal(self, key: str, record: Message, revision: int) -> int:
        """Replace the record of ``revision`` by ``record``: the same, with its secrets in another form; returns the new
        revision."""
        return self._commit(f"record {key}", [KeyIs(key, revision)], [Put(key, etcd_keys.encode(record))])

    def note_key(self, ids: Sequence[str]) -> None:
        """Record that every secret is encrypted by the first of these keys, if the record names another one."""
        found = self._etcd.get(etcd_keys.SECRET_KEY)
        if found is None:
            self._commit(
                "the record of the key",
                [KeyAbsent(etcd_keys.SECRET_KEY)],
                [Put(etcd_keys.SECRET_KEY, etcd_keys.encode(pb.SecretKeyRecord(key_id=ids[0])))],
            )
            return
        known = etcd_keys.decode(pb.SecretKeyRecord, found.value, found.key).key_id
        if known != ids[0] and known in ids:
            self.seal(etcd_keys.SECRET_KEY, pb.SecretKeyRecord(key_id=ids[0]), found.mod_revision)

    def change_lock(self, target: Target, change: Change, state: State) -> int:
        """Open, move or delete the lock of ``target``; returns the revision.

        The write requires that no report that the change rests on has changed, and that none has appeared: if a source
        reports one more table, no statement runs without it.
        """
        key = etcd_keys.lock(target.task, target.schema, target.table)
        lock = state.locks.get(target.key)
        conditions: list[Condition] = [
            self._task_as_read(target.task, state),
            KeyIs(key, lock.revision) if lock else KeyAbsent(key),
        ]
        for source in state.sources_of(target.task):
            report = state.shards.get((target.task, source))
            shard = etcd_keys.shard(target.task, source)
            conditions.append(KeyIs(shard, report.revision) if report else KeyAbsent(shard))
        if isinstance(change, Close):
            return self._commit(f"lock {target.lock_id}", conditions, [Delete(key)])
        return self._commit(
            f"lock {target.lock_id}", conditions, [Put(key, etcd_keys.encode(to_record(target, change.lock)))]
        )

    def _task_as_read(self, task: str, state: State) -> Condition:
        entry = state.tasks.get(task)
        return KeyIs(etcd_keys.task(task), entry.revision) if entry else KeyAbsent(etcd_keys.task(task))

    def _commit(self, what: str, conditions: Sequence[Condition], operations: Sequence[Operation]) -> int:
        """Raises CONFLICT when a condition failed, NOT_LEADER or NO_LEADER when the failed one was the leadership."""
        result = self._etcd.txn([self._leadership.condition(), *conditions], operations)
        if not result.ok:
            self._leadership.confirm()
            raise errors.master.CONFLICT(what=what)
        return result.revision


def merged_task(task: pb.TaskRecord, state: State) -> pb.TaskRecord:
    """``task`` with the sources it covers already added."""
    record = pb.TaskRecord()
    record.CopyFrom(task)
    del record.sources[:]
    record.sources.extend(sorted({*task.sources, *state.sources_of(task.name)}))
    return record


def addresses(state: State) -> Mapping[str, str]:
    """Live workers' addresses by name."""
    return {name: entry.value.address for name, entry in state.workers.items()}


def _binding(source: str, worker: str) -> Put:
    return Put(etcd_keys.bound(source), etcd_keys.encode(pb.BindingRecord(source_id=source, worker=worker)))


def _command(tasks: Iterable[str]) -> list[Operation]:
    """The writes of the command that this thread carries out, as the last one of these tasks."""
    operation = present_operation()
    if operation is None:
        return []
    record = etcd_keys.encode(pb.OperationRecord(id=operation.id, span=operation.span))
    return [Put(etcd_keys.operation(task), record) for task in sorted(set(tasks))]


def _task_with(task: str, sources: Sequence[str], state: State) -> Operation:
    entry = state.tasks.get(task)
    if not sources or entry is None:
        return Delete(etcd_keys.task(task))
    record = pb.TaskRecord()
    record.CopyFrom(entry.value)
    del record.sources[:]
    record.sources.extend(sources)
    return Put(etcd_keys.task(task), etcd_keys.encode(record))

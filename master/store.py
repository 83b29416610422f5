"""Reads and writes of the records. One method per transaction, named after what it decides.

Every write carries the condition that this master's leader record is unchanged: a master that lost the
leadership without noticing writes nothing. RECORDS.md lists the transactions.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Mapping, Sequence
from typing import Protocol

from google.protobuf.message import Message

from master.ddl_lock import Change, Close
from master.ddl_lock_records import Target, to_record
from master.placement import Bind, Step, Unbind
from master.state import State, parse
from proto import common_pb2, errors, keys
from proto import config_pb2 as config
from proto import state_pb2 as pb
from proto.etcd import Condition, Delete, DeletePrefix, Etcd, KeyAbsent, KeyIs, KeyPresent, Operation, Put


class Leadership(Protocol):
    """master/election.py's side; both raise NOT_LEADER or NO_LEADER."""

    @property
    def leads(self) -> bool: ...
    def condition(self) -> Condition: ...
    def confirm(self) -> None: ...


class Store:
    def __init__(self, etcd: Etcd, leadership: Leadership) -> None:
        self._etcd = etcd
        self._leadership = leadership
        self._deciding = threading.Lock()

    def read(self) -> State:
        """Everything, of one revision. Any master may read."""
        return parse(self._etcd.get_prefix(keys.PREFIX))

    @contextlib.contextmanager
    def deciding(self) -> Generator[State]:
        """The state to decide from; no other decision of this process comes between it and the write.

        Keep it short: no call to a worker inside.
        """
        self._leadership.condition()
        with self._deciding:
            yield self.read()

    # --- transactions

    def place(self, step: Step, state: State) -> int:
        """Do one step of the placement; the revision."""
        key = keys.bound(step.source)
        bound = state.bounds.get(step.source)
        as_read = KeyIs(key, bound.revision) if bound else KeyAbsent(key)
        match step:
            case Bind():
                return self._commit(
                    f"the binding of source {step.source}",
                    [as_read, KeyPresent(keys.worker(step.worker)), KeyPresent(keys.source(step.source))],
                    [_binding(step.source, step.worker)],
                )
            case Unbind():
                return self._commit(f"the binding of source {step.source}", [as_read], [Delete(key)])

    def add_source(self, source: config.SourceConfig, worker: str, file_name: str = "", yaml: str = "") -> int:
        """Store a new source and bind it to a live, free ``worker`` ("": to none yet); the revision.

        ``file_name``, ``yaml``: of its file, as it was given.
        """
        record = pb.SourceRecord(config=source, file_name=file_name, yaml=yaml)
        key = keys.source(source.source_id)
        conditions: list[Condition] = [KeyAbsent(key), KeyAbsent(keys.bound(source.source_id))]
        operations: list[Operation] = [Put(key, keys.encode(record))]
        if worker:
            conditions.append(KeyPresent(keys.worker(worker)))
            operations.append(_binding(source.source_id, worker))
        return self._commit(f"source {source.source_id}", conditions, operations)

    def update_source(
        self, source: pb.SourceRecord, subtasks: Sequence[pb.SubTaskRecord], worker: str, state: State
    ) -> int:
        """Put ``source`` in the place of the existing record, and ``subtasks`` in that of existing ones; the revision.

        ``worker``: who is to hold an unbound source from now on ("": nobody). A disabled source loses its binding.
        """
        source_id = source.config.source_id
        key, bound = keys.source(source_id), keys.bound(source_id)
        held = state.bounds.get(source_id)
        conditions: list[Condition] = [
            KeyIs(key, state.sources[source_id].revision),
            KeyIs(bound, held.revision) if held else KeyAbsent(bound),
        ]
        operations: list[Operation] = [Put(key, keys.encode(source))]
        for one in subtasks:
            pair = one.config.task, one.config.source_id
            conditions.append(KeyIs(keys.subtask(*pair), state.subtasks[pair].revision))
            operations.append(Put(keys.subtask(*pair), keys.encode(one)))
        if source.config.disabled:
            operations.append(Delete(bound))
        elif worker:
            conditions.append(KeyPresent(keys.worker(worker)))
            operations.append(_binding(source_id, worker))
        return self._commit(f"source {source_id}", conditions, operations)

    def drop_source(self, source_id: str, state: State) -> int:
        """Delete a source with its binding; the revision."""
        return self._commit(
            f"source {source_id}",
            [KeyIs(keys.source(source_id), state.sources[source_id].revision)],
            [Delete(keys.source(source_id)), Delete(keys.bound(source_id))],
        )

    def add_subtasks(self, task: pb.TaskRecord, subtasks: Sequence[pb.SubTaskRecord], state: State) -> int:
        """Store new subtasks and the task that now covers them; the revision."""
        configs = [record.config for record in subtasks]
        return self._commit(
            f"task {task.name}",
            [
                self._task_as_read(task.name, state),
                *(KeyAbsent(keys.subtask(task.name, one.source_id)) for one in configs),
                *(KeyPresent(keys.source(one.source_id)) for one in configs),
            ],
            [
                Put(keys.task(task.name), keys.encode(task)),
                *(Put(keys.subtask(task.name, one.config.source_id), keys.encode(one)) for one in subtasks),
            ],
        )

    def expect(self, stage: common_pb2.Stage, subtasks: Sequence[tuple[str, str]], state: State) -> int:
        """Set the expected stage of existing subtasks (task, source); the revision.

        A record whose stage is ``stage`` already is written again: the new revision tells the worker to try
        anew.
        """
        conditions: list[Condition] = []
        operations: list[Operation] = []
        for task, source in subtasks:
            entry = state.subtasks[task, source]
            record = pb.SubTaskRecord()
            record.CopyFrom(entry.value)
            record.expected = stage
            conditions.append(KeyIs(keys.subtask(task, source), entry.revision))
            operations.append(Put(keys.subtask(task, source), keys.encode(record)))
        return self._commit("a subtask", conditions, operations)

    def update_subtasks(self, task: pb.TaskRecord, subtasks: Sequence[pb.SubTaskRecord], state: State) -> int:
        """Put other configurations in the place of existing subtasks', and the task file with them; the revision."""
        pairs = [(one.config.task, one.config.source_id) for one in subtasks]
        return self._commit(
            f"task {task.name}",
            [
                self._task_as_read(task.name, state),
                *(KeyIs(keys.subtask(*pair), state.subtasks[pair].revision) for pair in pairs),
            ],
            [
                Put(keys.task(task.name), keys.encode(task)),
                *(Put(keys.subtask(*pair), keys.encode(one)) for pair, one in zip(pairs, subtasks, strict=True)),
            ],
        )

    def say_of_binlog(self, subtask: pb.SubTaskRecord, state: State) -> int:
        """Put ``subtask`` with other words on its binlog in the place of the existing one; the revision."""
        pair = subtask.config.task, subtask.config.source_id
        key = keys.subtask(*pair)
        return self._commit(
            f"the subtask of task {pair[0]} on source {pair[1]}",
            [KeyIs(key, state.subtasks[pair].revision)],
            [Put(key, keys.encode(subtask))],
        )

    def drop_subtasks(self, subtasks: Sequence[tuple[str, str]], state: State) -> int:
        """Delete subtasks (task, source) with what their workers wrote, and tasks that have none left with all their
        records; the revision.
        """
        gone = set(subtasks)
        conditions: list[Condition] = [KeyIs(keys.subtask(*pair), state.subtasks[pair].revision) for pair in subtasks]
        operations: list[Operation] = []
        for task in sorted({name for name, _ in subtasks}):
            conditions.append(self._task_as_read(task, state))
            left = [source for source in state.sources_of(task) if (task, source) not in gone]
            operations.append(_task_with(task, left, state))
            leaving = [source for name, source in subtasks if name == task]
            operations += [Delete(keys.subtask(task, source)) for source in leaving]
            if left:
                operations += [Delete(keys.epoch(task, source)) for source in leaving]
                operations += [Delete(keys.shard(task, source)) for source in leaving]
            else:
                operations += [DeletePrefix(of(task)) for of in (keys.epochs, keys.shards, keys.locks)]
        return self._commit("a task", conditions, operations)

    def seal(self, key: str, record: Message, revision: int) -> int:
        """Put the same record, its secrets in another form, in the place of the one of ``revision``; the revision."""
        return self._commit(f"record {key}", [KeyIs(key, revision)], [Put(key, keys.encode(record))])

    def note_key(self, ids: Sequence[str]) -> None:
        """Every secret is encrypted by the first of these keys: update the record if it names another one."""
        found = self._etcd.get(keys.SECRET_KEY)
        if found is None:
            self._commit(
                "the record of the key",
                [KeyAbsent(keys.SECRET_KEY)],
                [Put(keys.SECRET_KEY, keys.encode(pb.SecretKeyRecord(key_id=ids[0])))],
            )
            return
        known = keys.decode(pb.SecretKeyRecord, found.value, found.key).key_id
        if known != ids[0] and known in ids:
            self.seal(keys.SECRET_KEY, pb.SecretKeyRecord(key_id=ids[0]), found.mod_revision)

    def change_lock(self, target: Target, change: Change, state: State) -> int:
        """Open, move or delete the lock of ``target``; the revision.

        No report that the change rests on has changed since, none has appeared: a source that tells of one more
        table is heard before a statement is run without it.
        """
        key = keys.lock(target.task, target.schema, target.table)
        lock = state.locks.get(target.key)
        conditions: list[Condition] = [
            self._task_as_read(target.task, state),
            KeyIs(key, lock.revision) if lock else KeyAbsent(key),
        ]
        for source in state.sources_of(target.task):
            told = state.shards.get((target.task, source))
            shard = keys.shard(target.task, source)
            conditions.append(KeyIs(shard, told.revision) if told else KeyAbsent(shard))
        if isinstance(change, Close):
            return self._commit(f"lock {target.lock_id}", conditions, [Delete(key)])
        return self._commit(
            f"lock {target.lock_id}", conditions, [Put(key, keys.encode(to_record(target, change.lock)))]
        )

    def _task_as_read(self, task: str, state: State) -> Condition:
        entry = state.tasks.get(task)
        return KeyIs(keys.task(task), entry.revision) if entry else KeyAbsent(keys.task(task))

    def _commit(self, what: str, conditions: Sequence[Condition], operations: Sequence[Operation]) -> int:
        """Raises CONFLICT when a condition failed, NOT_LEADER or NO_LEADER when that was the leadership."""
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
    return Put(keys.bound(source), keys.encode(pb.BindingRecord(source_id=source, worker=worker)))


def _task_with(task: str, sources: Sequence[str], state: State) -> Operation:
    entry = state.tasks.get(task)
    if not sources or entry is None:
        return Delete(keys.task(task))
    record = pb.TaskRecord()
    record.CopyFrom(entry.value)
    del record.sources[:]
    record.sources.extend(sources)
    return Put(keys.task(task), keys.encode(record))

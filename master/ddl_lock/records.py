"""Turns the records of sharding DDLs into values, and back. Each target table's next step is decided from them.
Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardmerge.master.ddl_lock.situation import Lock, Member, Parked, Report, Situation, Stage
from shardmerge.master.state import State
from shardmerge.proto import common_pb2
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import state_pb2 as pb

_STAGES = {
    pb.LockRecord.STAGE_GATHERING: Stage.GATHERING,
    pb.LockRecord.STAGE_EXECUTING: Stage.EXECUTING,
    pb.LockRecord.STAGE_RELEASED: Stage.RELEASED,
}
_NUMBERS = {stage: number for number, stage in _STAGES.items()}


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """A target table of a task. It has at most one lock at a time."""

    task: str
    schema: str
    table: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.task, self.schema, self.table

    @property
    def lock_id(self) -> str:
        """The lock's id, as DM writes it.

        >>> Target("merge", "shop", "orders").lock_id
        'merge-`shop`.`orders`'
        """
        return f"{self.task}-`{self.schema}`.`{self.table}`"


def targets(state: State) -> tuple[Target, ...]:
    """Targets that may need a step: those of the shard tables of tasks with a shard-mode, and all that have a lock or a
    parked shard table: it may have been parked just before the task lost its shard-mode."""
    found = {Target(*key) for key in state.locks}
    for (task, source), entry in state.shards.items():
        subtask = state.subtasks.get((task, source))
        if subtask is not None:
            has_mode = subtask.value.config.shard_mode != config.SHARD_MODE_NONE
            found.update(
                Target(task, one.schema, one.table) for one in entry.value.targets if has_mode or has_parked(one)
            )
    return tuple(sorted(found))


def open_locks(task: str, state: State) -> tuple[str, ...]:
    """The ids of the task's locks, including those that are about to be opened for parked shard tables."""
    found = {Target(*key) for key in state.locks if key[0] == task}
    for (name, source), entry in state.shards.items():
        if name == task and (name, source) in state.subtasks:
            found.update(Target(task, one.schema, one.table) for one in entry.value.targets if has_parked(one))
    return tuple(target.lock_id for target in sorted(found))


def has_parked(target: pb.ShardTarget) -> bool:
    return any(table.HasField("parked") for table in target.tables)


def situation(target: Target, state: State) -> Situation:
    """What the task's sources report of ``target``, and its lock."""
    entry = state.locks.get(target.key)
    sources = state.sources_of(target.task)
    return Situation(
        {source: _report(target, source, state) for source in sources},
        to_lock(entry.value) if entry else None,
        frozenset(source for source in sources if not _is_able(target.task, source, state)),
    )


def _is_able(task: str, source: str, state: State) -> bool:
    """Whether the subtask is to run and a live worker has the source."""
    running = state.subtasks[task, source].value.expected == common_pb2.STAGE_RUNNING
    return running and state.worker_of(source) is not None


def to_lock(record: pb.LockRecord) -> Lock:
    return Lock(
        generation=record.generation,
        owner=record.owner,
        statement=record.statement,
        form=record.form,
        before=record.before,
        after=record.after,
        since=record.since,
        # No version writes a lock without a stage; gathering again does no harm.
        stage=_STAGES.get(record.stage, Stage.GATHERING),
        forced=record.forced,
    )


def to_record(target: Target, lock: Lock) -> pb.LockRecord:
    return pb.LockRecord(
        task=target.task,
        target_schema=target.schema,
        target_table=target.table,
        generation=lock.generation,
        owner=lock.owner,
        statement=lock.statement,
        form=lock.form,
        before=lock.before,
        after=lock.after,
        since=lock.since,
        stage=_NUMBERS[lock.stage],
        forced=lock.forced,
    )


def report_of(target: Target, source: str, record: pb.ShardRecord) -> Report:
    """What ``source`` reports of ``target``."""
    own = [one for one in record.targets if (one.schema, one.table) == (target.schema, target.table)]
    members = tuple(member for one in own for member in _members(source, one))
    return Report(members, next((one.executed for one in own), ""), next((one.declined for one in own), ""))


def _report(target: Target, source: str, state: State) -> Report | None:
    entry = state.shards.get((target.task, source))
    return None if entry is None else report_of(target, source, entry.value)


def _members(source: str, target: pb.ShardTarget) -> Iterator[Member]:
    for one in target.tables:
        parked = None
        if one.HasField("parked"):
            at = one.parked
            parked = Parked(
                at.statement, at.form, at.after, at.position, at.since, at.reason, at.contradicts, at.after_run
            )
        yield Member(source, one.schema, one.table, one.structure, parked)

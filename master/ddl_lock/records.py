"""Turns the records of sharding DDLs into values, and back. Each target table's next step is decided from them.
Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardmerge.master.ddl_lock.situation import Lock, LockMember, LockStage, ReportedStatement, Situation, SourceReport
from shardmerge.master.state import State
from shardmerge.proto import common_pb2
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import state_pb2 as pb

_STAGES = {
    pb.LockRecord.STAGE_GATHERING: LockStage.GATHERING,
    pb.LockRecord.STAGE_EXECUTING: LockStage.EXECUTING,
    pb.LockRecord.STAGE_RELEASED: LockStage.RELEASED,
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


def shard_mode_name(subtask: config.SubTaskConfig) -> str:
    """The shard-mode as files and answers have it; "none" without one."""
    return config.ShardMode.Name(subtask.shard_mode).removeprefix("SHARD_MODE_").lower()


def open_locks(task: str, state: State) -> tuple[str, ...]:
    """The ids of the task's locks, including those that are about to be opened for parked shard tables."""
    found = {Target(*key) for key in state.locks if key[0] == task}
    for (name, source), entry in state.shards.items():
        if name == task and (name, source) in state.subtasks:
            found.update(Target(task, one.schema, one.table) for one in entry.value.targets if has_parked(one))
    return tuple(target.lock_id for target in sorted(found))


def has_parked(target: pb.ShardTarget) -> bool:
    return any(table.HasField("parked") for table in target.tables)


class Situations:
    """The situations of the targets of one state. Each record is searched once, however many targets are asked for: a
    migration may lock a thousand tables at once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._sources: dict[str, tuple[str, ...]] = {}
        self._unable: dict[str, frozenset[str]] = {}
        self._reported: dict[tuple[str, str], dict[tuple[str, str], list[pb.ShardTarget]]] = {}

    def of(self, target: Target) -> Situation:
        """What the task's sources report of ``target``, and its lock."""
        state, task = self._state, target.task
        if task not in self._sources:
            sources = self._sources[task] = state.sources_of(task)
            self._unable[task] = frozenset(source for source in sources if not _is_able(task, source, state))
        entry = state.locks.get(target.key)
        return Situation(
            {source: self._report(target, source) for source in self._sources[task]},
            to_lock(entry.value) if entry else None,
            self._unable[task],
        )

    def _report(self, target: Target, source: str) -> SourceReport | None:
        entry = self._state.shards.get((target.task, source))
        if entry is None:
            return None
        place = target.task, source
        if place not in self._reported:
            found = self._reported[place] = defaultdict(list[pb.ShardTarget])
            for one in entry.value.targets:
                found[one.schema, one.table].append(one)
        return _report(source, self._reported[place].get((target.schema, target.table), []))


def situation(target: Target, state: State) -> Situation:
    """That of a single target."""
    return Situations(state).of(target)


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
        stage=_STAGES.get(record.stage, LockStage.GATHERING),
        forced=record.forced,
        reuses_names=record.reuses_names,
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
        reuses_names=lock.reuses_names,
    )


def report_of(target: Target, source: str, record: pb.ShardRecord) -> SourceReport:
    """What ``source`` reports of ``target``."""
    return _report(source, [one for one in record.targets if (one.schema, one.table) == (target.schema, target.table)])


def _report(source: str, own: Sequence[pb.ShardTarget]) -> SourceReport:
    members = tuple(member for one in own for member in _members(source, one))
    return SourceReport(members, next((one.executed for one in own), ""), next((one.declined for one in own), ""))


def _members(source: str, target: pb.ShardTarget) -> Iterator[LockMember]:
    for one in target.tables:
        parked = None
        if one.HasField("parked"):
            at = one.parked
            parked = ReportedStatement(
                at.statement,
                at.form,
                at.after,
                at.position,
                at.since,
                at.reason,
                at.contradicts,
                at.after_run,
                at.reuses_names,
            )
        yield LockMember(source, one.schema, one.table, one.structure, parked)

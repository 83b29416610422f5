"""What `shard-ddl-lock unlock` means for the shard tables that have not reached the statement (pessimistic).

An operator lets a lock's statement run, or lets the tables that are parked at it continue without it. Each table that
reaches the statement later continues at once: for it, too, the target is as the operator has decided. That the lock has
gone on without it is recorded in the transaction that records the run, or that releases the first tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from shardmerge.proto import config_pb2, errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.locks.lock_client import Lock
from shardmerge.worker.ddl.locks.lock_inputs import LockInputs
from shardmerge.worker.ddl.locks.lock_protocol import ParkedStatement
from shardmerge.worker.ddl.locks.lock_run import target_of
from shardmerge.worker.ddl.structure.schema_tracker import Tracked
from shardmerge.worker.target.records import executed_locks, unlocked_statements
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.unlocked_statements import UnlockedStatement
from shardmerge.worker.target.tables.target_table import require_target
from shardmerge.worker.unit.run_context import RunContext

Record = Callable[[Session], None]
"""A part of the caller's transaction."""


def record_nothing(_: Session) -> None:
    """A part of a transaction that records nothing."""


@dataclass(frozen=True, slots=True)
class OperatorUnlocks:
    """For one run of a subtask, and one thread. ``unreached``: the shard tables of all sources that have not reached a
    lock's statement."""

    context: RunContext
    unreached: Callable[[Session, Lock, LockInputs], tuple[TablePlan, ...]]

    def late(self, session: Session, seen: LockInputs, waits: Mapping[int, ParkedStatement]) -> dict[Parked, Tracked]:
        """The parked tables that continue at once, with their structures after it, because an operator has let the lock
        of their statement go on without them. If their target could not take their rows then, they wait for a lock of
        their own."""
        if self._is_optimistic or not waits:
            return {}
        unlocked = unlocked_statements.read(session, self.context.who)
        late: dict[tuple[TargetTable, str], dict[int, ParkedStatement]] = {}
        for number, one in waits.items():
            is_late = any(each.is_passed_by(one.form, one.after) for each in unlocked.get(number, ()))
            if is_late and not one.parked.released:
                late.setdefault((seen.plans[number].target, one.form), {})[number] = one
        return {
            one.parked: one.tracked
            for (target, _), items in late.items()
            if misfit(self.context, session, seen, target, {at: one.tracked for at, one in items.items()}) is None
            for one in items.values()
        }

    def records(self, session: Session, seen: LockInputs, lock: Lock) -> Record:
        """What is to be recorded with the run of the lock's statement."""
        if self._is_optimistic or not lock.forced:
            return record_nothing
        late = self.unreached(session, lock, seen)
        structure = lock.after if lock.after != lock.before else ""
        unlocked = UnlockedStatement(lock.generation, lock.form, structure, lock.since)

        def record(inner: Session) -> None:
            unlocked_statements.write(inner, self.context.who, unlocked, late)

        return record

    def records_of_release(self, session: Session, seen: LockInputs, lock: Lock, numbers: Collection[int]) -> Record:
        """What is to be recorded with the release of the tables with these ``numbers`` by the lock. If no source runs
        its statement, the first source that releases tables records that. One that was parked meanwhile is not late."""
        (schema, task, _), target = self.context.who, target_of(lock)
        if self._is_optimistic or not lock.forced:
            return record_nothing
        run = seen.runs.get(target)
        has_run = run is not None and run.generation == lock.generation
        unlocked = record_nothing if has_run else self.records(session, seen, lock)

        def record(inner: Session) -> None:
            if not has_run and executed_locks.pass_over(inner, schema, task, target, lock.generation):
                unlocked(inner)
            unlocked_statements.delete(inner, self.context.who, dict.fromkeys(numbers, lock.generation))

        return record

    @property
    def _is_optimistic(self) -> bool:
        return self.context.config.shard_mode == config_pb2.SHARD_MODE_OPTIMISTIC


def misfit(
    context: RunContext, session: Session, seen: LockInputs, target: TargetTable, after: Mapping[int, Tracked]
) -> ShardmergeError | None:
    """Why ``target`` cannot take the rows of its shard tables when these have the structures ``after``."""
    source = context.source.source_id
    others = [each for each in seen.plans.values() if each.target == target and each.shard not in after]
    plans = [context.rules.plan(number, source, tracked.table) for number, tracked in after.items()]
    try:
        require_target(session, [*others, *plans], context.config.task, "after an operator's decision")
    except ShardmergeError as error:
        if error.spec not in (errors.replicate.TARGET_TABLE_DIFFERS, errors.replicate.MERGED_TABLE_MISSING):
            raise
        return error
    return None

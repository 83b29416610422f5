"""Compares a sharding-DDL lock with the records at the target.

Under ``shard-mode: optimistic`` a lock rests on what the sources have published in etcd. A shard table that is not
parked executes further statements at once: its records at the target change in the transaction of the statement, and
what is published follows later. So a table that is published as past the lock's statement may have left that structure
already (``DROP INDEX``). Its rows would not fit the target after the statement. Statements that change the records hold
the target's lock of the join: what is read under it stays true until the lock's statement has run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from shardmerge.proto import state_pb2
from shardmerge.proto.ddl_lock_rule import ShardState, shard_state
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.locks.lock_inputs import LockInputs
from shardmerge.worker.ddl.locks.lock_protocol import form_of
from shardmerge.worker.ddl.structure.schema_tracker import SchemaTracker
from shardmerge.worker.ddl.structure.structure_after import StructureMemo, parked_structure_after
from shardmerge.worker.ddl.structure.structure_digest import CanonicalCreates, digest_of
from shardmerge.worker.target.records.parked_tables import Parked

AT_STATEMENT = frozenset({ShardState.READY, ShardState.PASSED})


@dataclass(frozen=True, slots=True)
class _Statement:
    """See :class:`shardmerge.proto.ddl_lock_rule.ParkedTableStatement`."""

    form: str
    after: str
    after_run: str


@dataclass(frozen=True, slots=True)
class RecordedMembers:
    """For one thread. ``source``: the own one. ``memo``: of the target and the kind of source."""

    task: str
    source: str
    canonical: CanonicalCreates
    memo: StructureMemo

    def unreached(
        self, lock: state_pb2.LockRecord, seen: LockInputs, sources: Collection[str], tracker: SchemaTracker
    ) -> tuple[TablePlan, ...]:
        """The shard tables of the lock's target that are neither parked at its statement nor past it. ``sources``:
        those that take part in the lock; others have left the task, and their records remain.

        Raises what :class:`SchemaTracker` raises and STRUCTURE_REFUSES.
        """
        return tuple(
            plan
            for plan, creation, item in self._members(lock, seen, sources)
            if self._state(lock, plan, creation, item, tracker) not in AT_STATEMENT
        )

    def _members(
        self, lock: state_pb2.LockRecord, seen: LockInputs, sources: Collection[str]
    ) -> Iterator[tuple[TablePlan, CreateStatement | None, Parked | None]]:
        names = lock.target_schema, lock.target_table
        recorded: dict[str, tuple[Mapping[int, TablePlan], Mapping[int, CreateStatement], Mapping[int, Parked]]] = {
            source: (each.plans, each.creations, each.parked) for source, each in seen.members.sources.items()
        }
        recorded[self.source] = seen.plans, seen.creations, seen.parked
        for source in sorted(recorded.keys() & {*sources, self.source}):
            plans, creations, parked = recorded[source]
            for number, plan in sorted(plans.items()):
                if plan.target.names == names:
                    yield plan, creations.get(number), parked.get(number)

    def _state(
        self,
        lock: state_pb2.LockRecord,
        plan: TablePlan,
        creation: CreateStatement | None,
        item: Parked | None,
        tracker: SchemaTracker,
    ) -> ShardState:
        if creation is None:  # of an earlier version
            return ShardState.MISSING
        structure = self.canonical.digest(plan.table, creation, tracker)
        if item is None or item.released:
            return shard_state(structure, None, lock)
        statement = _Statement(form_of(item), "", item.after_run)
        if statement.form == lock.form and structure == lock.after:
            tracked = parked_structure_after(tracker, plan, creation, item, self.task, self.memo)
            statement = replace(statement, after=digest_of(tracked.creation))
        return shard_state(structure, statement, lock)

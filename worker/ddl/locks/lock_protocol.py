"""What a source publishes about its shard tables, and what a sharding-DDL lock asks of it. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from shardmerge.proto import state_pb2
from shardmerge.proto.ddl_lock_rule import is_parked_at, moves_values
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.sql.rewrite import unordered_form
from shardmerge.worker.ddl.sql.target_statement import for_table, reuses_names
from shardmerge.worker.ddl.structure.schema_tracker import Tracked
from shardmerge.worker.ddl.structure.structure_after import reparse
from shardmerge.worker.target.records.executed_locks import LockRun
from shardmerge.worker.target.records.parked_tables import Parked

_Stage = state_pb2.LockRecord


@dataclass(frozen=True, slots=True)
class ParkedStatement:
    """The statement at which a table is parked. ``form``: equal for equal statements. ``text``: the statement for the
    target. ``tracked``: the table after it; ``after``: the digest of that structure. ``contradicts``: only an operator
    can let the table continue. ``reuses_names``: see ``ParkedAt``."""

    parked: Parked
    form: str
    text: str
    tracked: Tracked
    after: str
    contradicts: bool
    reuses_names: bool = False

    @property
    def after_run(self) -> str:
        return self.parked.after_run


def parked_statement(item: Parked, plan: TablePlan, tracked: Tracked, after: str) -> ParkedStatement:
    """See :class:`ParkedStatement`."""
    statement, ddl = reparse(item)
    text = for_table(item.text, statement, plan.target)
    reuses = reuses_names(ddl, tracked.table)
    return ParkedStatement(item, form_of(item), text, tracked, after, item.contradicts, reuses)


def form_of(item: Parked) -> str:
    """Equal for equal statements, however they are written."""
    _, ddl = reparse(item)
    return hashlib.sha256(unordered_form(item.text, item.sql_mode, ddl).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Member:
    """A shard table of the source that takes part. ``structure``: digest of its recorded structure. ``waits``: also for
    a table that was released and has no stream yet."""

    plan: TablePlan
    structure: str
    waits: ParkedStatement | None = None


def to_shard_record(
    epoch: int,
    members: Iterable[Member],
    runs: Mapping[TargetTable, LockRun],
    reasons: Mapping[int, str],
    declined: Mapping[TargetTable, str] = MappingProxyType({}),
) -> state_pb2.ShardRecord:
    """The record to publish in etcd. ``members``: by number; ``reasons``: why tables stay parked, other than those that
    are recorded with them. ``declined``: generations of the locks whose statements this source does not run now."""
    targets: dict[TargetTable, state_pb2.ShardTarget] = {}
    for member in members:
        plan, item = member.plan, member.waits
        run = runs.get(plan.target)
        executed = run.generation if run is not None else ""
        empty = state_pb2.ShardTarget(
            schema=plan.target_schema,
            table=plan.target_table,
            executed=executed,
            declined=declined.get(plan.target, ""),
        )
        target = targets.setdefault(plan.target, empty)
        published = target.tables.add(schema=plan.table.schema, table=plan.table.name, structure=member.structure)
        if item is not None and not item.parked.released:
            published.parked.statement = item.text
            published.parked.form = item.form
            published.parked.after = item.after
            published.parked.position = str(item.parked.place.position)
            published.parked.since = item.parked.since
            published.parked.reason = reasons.get(plan.shard, item.parked.why)
            published.parked.contradicts = item.contradicts
            published.parked.after_run = item.after_run
            published.parked.reuses_names = item.reuses_names
    return state_pb2.ShardRecord(epoch=epoch, targets=targets.values())


@dataclass(frozen=True, slots=True)
class Execute:
    """The source must record that the lock's statement has run. ``runs``: it must run it first. It need not when the
    target already has the structure after it."""

    runs: bool


@dataclass(frozen=True, slots=True)
class Release:
    """These tables are released: they resume after the lock's statement."""

    freed: tuple[ParkedStatement, ...]


LockStep = Execute | Release


def next_lock_step(
    lock: state_pb2.LockRecord, source: str, run: LockRun | None, members: Sequence[Member]
) -> LockStep | None:
    """What ``source`` must do for ``lock`` now; None: nothing. ``run``: the last run at the lock's target. ``members``:
    the source's shard tables of that target."""
    if lock.stage == _Stage.STAGE_EXECUTING and lock.owner == source:
        if run is None or run.generation != lock.generation:
            return Execute(must_run(lock, run))
    elif lock.stage == _Stage.STAGE_RELEASED:
        freed = tuple(item for member in members if (item := _freed(lock, member)) is not None)
        return Release(freed) if freed else None
    return None


def must_run(lock: state_pb2.LockRecord, run: LockRun | None) -> bool:
    """Whether the lock's statement must run. It need not where the target has the structure after it, because the other
    shard tables have executed it before, unless no structure shows what it has done."""
    return run is None or run.structure != lock.after or moves_values(lock)


def _freed(lock: state_pb2.LockRecord, member: Member) -> ParkedStatement | None:
    """The statement at which the table is parked, if it is the lock's."""
    item = member.waits
    if item is None or item.parked.released or not is_parked_at(member.structure, item, lock):
        return None
    return item

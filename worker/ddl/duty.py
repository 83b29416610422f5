"""What a source tells of its shard tables, and what a sharding-DDL lock asks of it. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from proto import state_pb2
from proto.ddl_standing import waits_before
from worker.ddl.behind import read_again
from worker.ddl.parked import Parked
from worker.ddl.rewrite import form_of
from worker.ddl.run_locks import LockRun
from worker.ddl.shape import placed
from worker.ddl.tracker import Tracked
from worker.plan import TablePlan, TargetTable

_Stage = state_pb2.LockRecord


@dataclass(frozen=True, slots=True)
class Waits:
    """A parked table's statement: ``form`` as of equal statements, ``text`` as merged tables get it, ``tracked`` the
    table behind it, ``after`` the digest of that."""

    parked: Parked
    form: str
    text: str
    tracked: Tracked
    after: str


def waits_of(item: Parked, plan: TablePlan, tracked: Tracked, after: str) -> Waits:
    """See :class:`Waits`."""
    statement, ddl = read_again(item)
    form = hashlib.sha256(form_of(item.text, item.sql_mode, ddl).encode()).hexdigest()[:16]
    return Waits(item, form, placed(item.text, statement, plan.target), tracked, after)


@dataclass(frozen=True, slots=True)
class Member:
    """A shard table of the source that takes part. ``structure``: digest of what is recorded of it; ``waits``: also of
    one that was released and has no stream yet."""

    plan: TablePlan
    structure: str
    waits: Waits | None = None


def shard_record(epoch: int, members: Iterable[Member], runs: Mapping[TargetTable, LockRun]) -> state_pb2.ShardRecord:
    """What is told in etcd; ``members``: by number."""
    targets: dict[TargetTable, state_pb2.ShardTarget] = {}
    for member in members:
        plan, item = member.plan, member.waits
        run = runs.get(plan.target)
        executed = run.generation if run is not None else ""
        empty = state_pb2.ShardTarget(schema=plan.target_schema, table=plan.target_table, executed=executed)
        target = targets.setdefault(plan.target, empty)
        told = target.tables.add(schema=plan.table.schema, table=plan.table.name, structure=member.structure)
        if item is not None and not item.parked.released:
            told.parked.statement = item.text
            told.parked.form = item.form
            told.parked.after = item.after
            told.parked.position = str(item.parked.place.position)
            told.parked.since = item.parked.since
            told.parked.reason = item.parked.why
            told.parked.contradicts = item.parked.contradicts
    return state_pb2.ShardRecord(epoch=epoch, targets=targets.values())


@dataclass(frozen=True, slots=True)
class Execute:
    """The source is to say that the lock's statement has run; ``runs``: and to run it first. It need not where the
    target corresponds to what lies behind it already."""

    runs: bool


@dataclass(frozen=True, slots=True)
class Release:
    """The lock's statement lies behind these tables."""

    freed: tuple[Waits, ...]


Duty = Execute | Release


def duty_of(lock: state_pb2.LockRecord, source: str, run: LockRun | None, members: Sequence[Member]) -> Duty | None:
    """What ``source`` is to do for ``lock`` now; None: nothing. ``run``: what was run last at the lock's target;
    ``members``: the source's shard tables of that target."""
    if lock.stage == _Stage.STAGE_EXECUTING and lock.owner == source:
        if run is None or run.generation != lock.generation:
            return Execute(run is None or run.structure != lock.after)
    elif lock.stage == _Stage.STAGE_RELEASED:
        freed = tuple(item for member in members if (item := _freed(lock, member)) is not None)
        return Release(freed) if freed else None
    return None


def _freed(lock: state_pb2.LockRecord, member: Member) -> Waits | None:
    """The statement that the table waits before, if it is the lock's."""
    item = member.waits
    if item is None or item.parked.released or not waits_before(member.structure, item, lock):
        return None
    return item

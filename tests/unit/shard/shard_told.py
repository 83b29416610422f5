"""What a worker of the small world of sharding DDLs tells of its tables, and what a lock asks of it."""

from __future__ import annotations

from functools import lru_cache

from master.ddl_lock_records import Target, report_of, to_record
from master.ddl_lock_values import Lock, Report
from proto import state_pb2
from tests.unit.shard.shard_log import (
    SCHEMA,
    TARGET,
    TASK,
    BrokenRuleError,
    Columns,
    DdlEvent,
    columns_of,
    creation_of,
    place_of,
    run_at,
    table_of,
)
from tests.unit.shard.shard_state import Executes, Half, Releases, Shared, plan_of
from worker.ddl import duty as duties
from worker.ddl.digests import digest_of
from worker.ddl.parked import Parked
from worker.ddl.records import StatementPlace
from worker.ddl.run_locks import LockRun
from worker.ddl.session import PLAIN
from worker.ddl.tracker import Tracked
from worker.join import standing as standings
from worker.plan import TablePlan


@lru_cache(None)
def parked_at(event: DdlEvent) -> Parked:
    """The event's table waits before it (Actor.park). When it came is not told apart: tables that come to equal
    statements come in the order of their names."""
    statement, place = event.statement, StatementPlace.of(event.statement)
    behind = place_of(place.position.pos + 1)
    since = 1.0 + event.level
    return Parked(event.table, statement.text, SCHEMA, 0, False, PLAIN, place, behind, since)


def ran_at(shared: Shared, lock: Lock) -> Shared:
    """Behind the statement at the target. Raises BrokenRuleError where it would be refused, or has run (I6); one that
    leaves the tables as they were may run twice (worker/ddl/execute.py)."""
    if any(generation == lock.generation for _, generation in shared.ran):
        if lock.before == lock.after:
            return shared
        raise BrokenRuleError(f"the statement of lock {lock.generation} runs twice (I6)")
    columns = run_at(shared.columns, lock.statement)
    return shared._replace(ran=(*shared.ran, (lock.form, lock.generation)), columns=columns)


@lru_cache(None)
def members_of(
    source: str, columns: tuple[Columns, ...], parked: tuple[Parked, ...], half: Half
) -> tuple[duties.Member, ...]:
    """What an agent sees of its tables (ShardAgent._look)."""
    waits = {item.number: item for item in parked}
    found: list[duties.Member] = []
    for number in sorted(standings.taking_part(half.dealing, half.joining, waits)):
        plan = plan_of(source, number, columns[number])
        structure = digest_of(creation_of(columns[number]))
        item = waits.get(number)
        waiting = _waits(item, plan) if item is not None else None
        found.append(duties.Member(plan, structure, waiting))
    return tuple(found)


@lru_cache(None)
def _waits(item: Parked, plan: TablePlan) -> duties.Waits:
    columns = columns_of(plan.table)
    behind = columns if item.released else run_at(columns, item.text)
    tracked = Tracked(table_of(plan.table.name, behind), creation_of(behind))
    return duties.waits_of(item, plan, tracked, digest_of(tracked.creation))


@lru_cache(None)
def report_of_members(source: str, members: tuple[duties.Member, ...], run: LockRun | None) -> Report:
    runs = {TARGET: run} if run is not None else {}
    return report_of(Target(TASK, *TARGET.names), source, duties.shard_record(1, members, runs))


@lru_cache(None)
def _record(lock: Lock) -> state_pb2.LockRecord:
    return to_record(Target(TASK, *TARGET.names), lock)


@lru_cache(None)
def duty_of(
    source: str, lock: Lock | None, members: tuple[duties.Member, ...], run: LockRun | None, *, early: bool
) -> Executes | Releases | None:
    if lock is None:
        return None
    record = _record(lock)
    if early and record.stage == state_pb2.LockRecord.STAGE_EXECUTING:
        record = state_pb2.LockRecord.FromString(record.SerializeToString())
        record.stage = state_pb2.LockRecord.STAGE_RELEASED
    match duties.duty_of(record, source, run, members):
        case duties.Execute(runs=runs):
            return Executes(runs)
        case duties.Release(freed=freed):
            return Releases(tuple(item.parked.number for item in freed))
        case None:
            return None


def forget() -> None:
    """What the program has answered by now: it is about to answer otherwise."""
    for known in (members_of, _waits, report_of_members, _record, duty_of):
        known.cache_clear()

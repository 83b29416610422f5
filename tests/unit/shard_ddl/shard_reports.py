"""Derives what a worker of the sharding DDL model publishes about its tables, and what a lock requires of it."""

from __future__ import annotations

from functools import lru_cache

from shardmerge.master.ddl_lock.records import Target, report_of, to_record
from shardmerge.master.ddl_lock.situation import Lock, SourceReport
from shardmerge.proto import state_pb2
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.locks import lock_protocol as duties
from shardmerge.worker.ddl.structure.schema_tracker import Tracked
from shardmerge.worker.ddl.structure.structure_digest import digest_of
from shardmerge.worker.target.records import joining_tables
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.executed_locks import LockRun
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION
from tests.unit.shard_ddl.shard_log import (
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
from tests.unit.shard_ddl.shard_state import Executes, Half, Releases, Shared, plan_of


@lru_cache(None)
def parked_at(event: DdlEvent) -> Parked:
    """Return the record of the event's table, parked at it (park of worker/ddl/execute/executor.py). Its time is the
    same for equal levels: tables at equal statements are ordered by their names."""
    statement, place = event.statement, StatementPlace.of(event.statement)
    behind = place_of(place.position.pos + 1)
    since = 1.0 + event.level
    return Parked(event.table, statement.text, SCHEMA, 0, False, UNKNOWN_SESSION, place, behind, since)


def ran_at(shared: Shared, lock: Lock) -> Shared:
    """Return the shared state after the statement has run at the target. Raises BrokenRuleError where the target would
    refuse it, or has run it (I6); a statement that leaves the tables unchanged may run twice
    (worker/ddl/execute/run_once.py)."""
    if any(generation == lock.generation for _, generation in shared.ran):
        if lock.before == lock.after:
            return shared
        raise BrokenRuleError(f"the statement of lock {lock.generation} runs twice (I6)")
    columns = run_at(shared.columns, lock.statement)
    return shared._replace(ran=(*shared.ran, (lock.form, lock.generation)), columns=columns)


@lru_cache(None)
def members_of(
    source: str,
    columns: tuple[Columns, ...],
    parked: tuple[Parked, ...],
    half: Half,
    departing: frozenset[int] = frozenset(),
) -> tuple[duties.Member, ...]:
    """Return what the lock agent sees of its tables (worker/ddl/locks/lock_agent.py). ``departing``: of the parked
    tables, those whose rows the lanes still apply."""
    waits = {item.number: item for item in parked}
    found: list[duties.Member] = []
    for number in sorted(joining_tables.member_numbers(half.dealing, half.joining, waits)):
        plan = plan_of(source, number, columns[number])
        structure = digest_of(creation_of(columns[number]))
        item = waits.get(number) if number not in departing else None
        waiting = _waits(item, plan) if item is not None else None
        found.append(duties.Member(plan, structure, waiting))
    return tuple(found)


@lru_cache(None)
def _waits(item: Parked, plan: TablePlan) -> duties.ParkedStatement:
    columns = columns_of(plan.table)
    behind = columns if item.released else run_at(columns, item.text)
    tracked = Tracked(table_of(plan.table.name, behind), creation_of(behind))
    return duties.parked_statement(item, plan, tracked, digest_of(tracked.creation))


@lru_cache(None)
def report_of_members(source: str, members: tuple[duties.Member, ...], run: LockRun | None) -> SourceReport:
    runs = {TARGET: run} if run is not None else {}
    return report_of(Target(TASK, *TARGET.names), source, duties.to_shard_record(1, members, runs, {}))


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
    match duties.next_lock_step(record, source, run, members):
        case duties.Execute(runs=runs):
            return Executes(runs)
        case duties.Release(freed=freed):
            return Releases(tuple(item.parked.number for item in freed))
        case None:
            return None


def forget() -> None:
    """Forget the program's cached answers: a test is about to change them."""
    for known in (members_of, _waits, report_of_members, _record, duty_of):
        known.cache_clear()

"""Derives what a simulated worker publishes about its tables, and what a lock requires of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
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
from tests.simulator.source_log import (
    SCHEMA,
    TARGET,
    TASK,
    BrokenRuleError,
    Columns,
    DdlEvent,
    Structure,
    columns_of,
    creation_of,
    place_of,
    run_at,
    table_of,
)
from tests.simulator.worker_state import Executes, Half, Ran, Releases, Shared, plan_of


def parked_at(event: DdlEvent, number: int, since: float = 0.0, after_run: str = "") -> Parked:
    """Return the record of a table that is parked at the event (park of worker/ddl/execute/executor.py). ``since``: 0
    if that is the same for equal levels: tables at equal statements are then ordered by their names."""
    statement, place = event.statement, StatementPlace.of(event.statement)
    resume_at, since = place_of(place.position.pos + 1), since or 1.0 + event.level
    return Parked(
        number, statement.text, SCHEMA, 0, False, UNKNOWN_SESSION, place, resume_at, since, after_run=after_run
    )


def accepts(shared: Shared, lock: Lock) -> bool:
    """Return whether the target does not refuse the lock's statement."""
    try:
        run_at(shared.columns[-1], lock.statement)
    except BrokenRuleError:
        return False
    return True


def ran_at(shared: Shared, lock: Lock) -> Shared:
    """Return the shared state after the statement has run at the target. Raises BrokenRuleError where the target would
    refuse it, or has run it (I6); a statement that leaves the tables unchanged may run twice
    (worker/ddl/execute/run_once.py)."""
    if any(each.generation == lock.generation for each in shared.ran):
        if lock.before == lock.after:
            return shared
        raise BrokenRuleError(f"the statement of lock {lock.generation} runs twice (I6)")
    columns = run_at(shared.columns[-1], lock.statement)
    ran = (*shared.ran, Ran(lock.statement, lock.generation))
    return shared._replace(ran=ran, columns=(*shared.columns, columns))


@lru_cache(4096)
def digest(columns: Columns) -> str:
    return digest_of(creation_of(columns))


@lru_cache(4096)
def members_of(
    source: str,
    tables: tuple[Structure, ...],
    parked: tuple[Parked, ...],
    half: Half,
    departing: frozenset[int] = frozenset(),
) -> tuple[duties.Member, ...]:
    """Return what the lock agent sees of its tables (worker/ddl/locks/lock_agent.py). ``departing``: of the parked
    tables, those whose rows the lanes still apply."""
    waits = {item.number: item for item in parked}
    found: list[duties.Member] = []
    for number in sorted(joining_tables.member_numbers(half.dealing, half.joining, waits)):
        plan = plan_of(source, number, tables[number])
        item = waits.get(number) if number not in departing else None
        waiting = _waits(item, plan) if item is not None else None
        found.append(duties.Member(plan, digest(tables[number].columns), waiting))
    return tuple(found)


def _waits(item: Parked, plan: TablePlan) -> duties.ParkedStatement:
    found = _waits_at(item.text, plan, is_released=item.released)
    return replace(found, parked=item, contradicts=item.contradicts)


@lru_cache(4096)
def _waits_at(text: str, plan: TablePlan, *, is_released: bool) -> duties.ParkedStatement:
    """Return the statement of a table that is parked at ``text``, wherever that is."""
    columns = columns_of(plan.table)
    after = columns if is_released else run_at(columns, text)
    tracked = Tracked(table_of(plan.table.name, after), creation_of(after))
    place = StatementPlace(place_of(0), 0)
    item = Parked(plan.shard, text, SCHEMA, 0, False, UNKNOWN_SESSION, place, place_of(1), 0.0, released=is_released)
    return duties.parked_statement(item, plan, tracked, digest(after))


@lru_cache(4096)
def report_of_members(source: str, members: tuple[duties.Member, ...], run: LockRun | None) -> SourceReport:
    runs = {TARGET: run} if run is not None else {}
    return report_of(Target(TASK, *TARGET.names), source, duties.to_shard_record(1, members, runs, {}))


@lru_cache(4096)
def record_of(lock: Lock) -> state_pb2.LockRecord:
    return to_record(Target(TASK, *TARGET.names), lock)


def duty_of(
    source: str, lock: Lock | None, members: Collection[duties.Member], run: LockRun | None, *, early: bool
) -> Executes | Releases | None:
    if lock is None:
        return None
    record = record_of(lock)
    if early and record.stage == state_pb2.LockRecord.STAGE_EXECUTING:
        record = state_pb2.LockRecord.FromString(record.SerializeToString())
        record.stage = state_pb2.LockRecord.STAGE_RELEASED
    match duties.next_lock_step(record, source, run, tuple(members)):
        case duties.Execute(runs=runs):
            return Executes(runs)
        case duties.Release(freed=freed):
            return Releases(tuple(item.parked.number for item in freed))
        case None:
            return None


def forget() -> None:
    """Forget the program's cached answers: a test is about to change them."""
    for known in (members_of, _waits_at, report_of_members, record_of):
        known.cache_clear()

"""Defines the states of the sharding DDL model, as values: records at the target, and a worker's memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from shardmerge.master.ddl_lock.situation import Lock, SourceReport
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import Elsewhere, Entering, Leaving, own_tracks
from shardmerge.worker.ddl.execute.run_once import Begun
from shardmerge.worker.ddl.locks.parked_queue import ParkedQueue
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.executed_locks import LockRun
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import Partitioning
from tests.unit.shard_ddl.shard_log import (
    RULES,
    SCHEMA,
    BrokenRuleError,
    Columns,
    Key,
    columns_of,
    name_of,
    offset_of,
    table_of,
)


class Durable(NamedTuple):
    """A subtask's records at the target, and its rows there. ``main``, ``join``: the streams' checkpoints, as numbers
    of events; None: no such stream. ``columns``: the recorded structures by number. ``rows``: each with the number of
    statements that had run at the target before the row was written."""

    dealing: Partitioning
    joining: Joining | None
    main: int
    join: int | None
    passed: StatementPlace | None
    join_passed: StatementPlace | None
    columns: tuple[Columns, ...]
    parked: tuple[Parked, ...]
    begun: Begun | None
    rows: frozenset[tuple[Key, int]]


class Timed(NamedTuple):
    """A table that enters or leaves. ``at``: the event before which the table enters or leaves the stream."""

    number: int
    columns: Columns
    at: int
    place: StatementPlace


class Stands(NamedTuple):
    """A :class:`StreamTables` in a form that compares quickly; ``plans``: numbers and columns."""

    columns: tuple[Columns, ...]
    plans: tuple[tuple[int, Columns], ...]
    dealing: Partitioning
    others: frozenset[TableName]
    only: frozenset[TableName] | None
    arriving: tuple[Timed, ...] = ()
    departing: tuple[Timed, ...] = ()


class Stream(NamedTuple):
    """State of a stream. ``at``: the number of its next event. ``recorded``: set when the statement at this event is
    recorded, but the driver has not resumed yet: the stream's state after the statement, and the parked tables.
    ``base``: what the stream was created for, and the structures at that time; None: it is the subtask's own stream.
    ``executed``: the number of the first event after the last statement that this run has executed."""

    at: int
    stands: Stands
    recorded: tuple[Stands, tuple[Parked, ...]] | None = None
    base: tuple[Joining, tuple[Columns, ...]] | None = None
    executed: int = 0


class Executes(NamedTuple):
    """The worker must execute the lock's statement. ``has_run``: the worker knows that the statement has run."""

    runs: bool
    has_run: bool = False


class Releases(NamedTuple):
    """The worker must release these tables, by number."""

    tables: tuple[int, ...]


class Half(NamedTuple):
    """A pass of the lock agent that has read only the subtask's row so far."""

    dealing: Partitioning
    joining: Joining | None


class Look(NamedTuple):
    """Result of a pass of the lock agent: what it must publish, and what it must do for which lock."""

    report: SourceReport
    duty: Executes | Releases | None
    lock: Lock | None


class Process(NamedTuple):
    """A worker's memory. ``waiting``: the tables in its :class:`ParkedQueue`: parked, with the event where their rows
    resume, or released. ``again``: tables that are recorded as parked again, but are not in ``waiting`` yet."""

    main: Stream
    join: Stream | None
    waiting: tuple[tuple[Parked, int | None], ...]
    look: Look | Half | None = None
    again: tuple[Parked, ...] = ()


class Source(NamedTuple):
    """State of a source. ``reported``: what the source's worker has published for the locks."""

    durable: Durable
    process: Process
    reported: SourceReport | None


class Shared(NamedTuple):
    """State that all sources share. ``lock``: of the target; ``ran``: forms and generations of the statements that the
    target has run, in order; ``columns``: of the target after them; ``run``: the last lock that is recorded as run."""

    lock: Lock | None
    ran: tuple[tuple[str, str], ...]
    columns: Columns
    run: LockRun | None


@lru_cache(None)
def tables_of(columns: tuple[Columns, ...]) -> tuple[Table, ...]:
    return tuple(table_of(name_of(number), each) for number, each in enumerate(columns))


@lru_cache(None)
def plan_of(source: str, number: int, columns: Columns) -> TablePlan:
    return RULES.plan(number, source, table_of(name_of(number), columns))


@lru_cache(None)
def stream_tables_of(stands: Stands, source: str) -> StreamTables:
    tracks = own_tracks(plan_of(source, number, columns) for number, columns in stands.plans)
    names = ((number, (SCHEMA, name_of(number))) for number in range(len(stands.columns)))
    tracks |= {number: Elsewhere(name) for number, name in names if name in stands.others}
    for kind, items in ((Entering, stands.arriving), (Leaving, stands.departing)):
        for each in items:
            tracks[each.number] = kind(plan_of(source, each.number, each.columns), offset_of(each.at), each.place)
    return StreamTables(
        tables_of(stands.columns), tracks, stands.dealing, TableScope(RULES, stands.others, stands.only)
    )


def _timed_of(items: Mapping[int, Entering] | Mapping[int, Leaving]) -> tuple[Timed, ...]:
    return tuple(
        Timed(number, columns_of(item.plan.table), item.offset.byte, item.place)
        for number, item in sorted(items.items())
    )


def stands_of(tables: StreamTables) -> Stands:
    """Raises BrokenRuleError for what a stream cannot be."""
    if found := tables.violations():
        raise BrokenRuleError("; ".join(found))
    return Stands(
        tuple(columns_of(table) for table in tables.tables),
        tuple((plan.shard, columns_of(plan.table)) for plan in tables.plans_in_order),
        tables.partitioning,
        tables.scope.others,
        tables.scope.only,
        _timed_of(tables.entering),
        _timed_of(tables.leaving),
    )


def waiting_of(calls: tuple[tuple[Parked, int | None], ...]) -> ParkedQueue:
    """Return the waiting tables in the form that a worker's streams and its lock agent share."""
    made = ParkedQueue()
    for item, behind in calls:
        if behind is None:
            made.release([item])
        else:
            made.park({item.number: item}, {item.number: offset_of(behind)})
    return made

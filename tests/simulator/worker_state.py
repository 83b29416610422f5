"""Defines the states of the simulated workers, as values: records at the target, and a worker's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from shardmerge.master.ddl_lock.situation import Lock, SourceReport
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.actions import DdlContext, ShardTarget
from shardmerge.worker.ddl.decide.routed_statements import RoutedScope
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import Elsewhere, Entering, Leaving, Own, Track
from shardmerge.worker.ddl.execute.run_once import Begun
from shardmerge.worker.ddl.locks.parked_queue import ParkedQueue
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.rules.table_window import WindowCursor
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.executed_locks import LockRun
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import Partitioning
from tests.simulator.source_log import (
    RULES,
    SCHEMA,
    TASK,
    BrokenRuleError,
    Columns,
    DdlEvent,
    Key,
    Structure,
    columns_of,
    offset_of,
    table_of,
)

Lanes = tuple[int, ...]
"""Of each lane of a stream, the number of its next event."""


class Written(NamedTuple):
    """A row at the target. ``at``: the event that has written it; ``ran``: how many statements had run at the target
    before; ``number``: of its shard table."""

    key: Key
    at: int
    ran: int
    number: int


class Durable(NamedTuple):
    """A subtask's records at the target, and its rows there. ``main``, ``join``: the streams' checkpoints; None: no
    such stream. ``tables``: the recorded structures by number."""

    dealing: Partitioning
    joining: Joining | None
    main: Lanes
    join: Lanes | None
    passed: StatementPlace | None
    join_passed: StatementPlace | None
    tables: tuple[Structure, ...]
    parked: tuple[Parked, ...]
    rows: frozenset[Written]


@dataclass(eq=False, slots=True)
class StreamState:
    """A stream's tables at a place, and what is looked up in them for each event. Equal states are one object."""

    source: str
    tables: StreamTables
    _plans: dict[TableName, TablePlan] = field(default_factory=dict[TableName, TablePlan])
    _holds: dict[tuple[str, int], bool] = field(default_factory=dict[tuple[str, int], bool])
    _stops: dict[tuple[int, str], bool] = field(default_factory=dict[tuple[int, str], bool])

    def __post_init__(self) -> None:
        plans = (*self.tables.plans_in_order, *self.tables.timed_plans)
        self._plans = {(plan.table.schema, plan.table.name): plan for plan in plans}

    def plan(self, name: str) -> TablePlan | None:
        """Return the plan by which its lanes read rows under a name."""
        return self._plans.get((SCHEMA, name))

    def holds(self, name: str, at: int) -> bool:
        """Return whether its lanes apply a row under a name, which is event ``at``."""
        found = self._holds.get((name, at))
        if found is None:
            windows = WindowCursor(self.tables.windows)
            windows.advance(offset_of(at))
            timed = {plan.table.name for plan in self.tables.timed_plans}
            is_held = name in timed or self.tables.scope.holds(SCHEMA, name)
            found = self._holds[name, at] = is_held and windows.is_open((SCHEMA, name))
        return found

    def stops_at(self, event: DdlEvent) -> bool:
        """Return whether its lanes stop at a statement."""
        statement = event.statement
        key = statement.offset.byte, statement.text
        found = self._stops.get(key)
        if found is None:
            found = RoutedScope(self.tables.statements)(statement)
            found = found and RoutedScope(self.tables.at_barrier(statement.offset).scope)(statement)
            self._stops[key] = found
        return found

    @property
    def context(self) -> DdlContext:
        """Return the tables around a statement, but for the number of a table that another stream has left it."""
        plans = self.tables.plans.values()
        shards = {(plan.table.schema, plan.table.name): ShardTarget(plan, len(plans)) for plan in plans}
        return DdlContext(TASK, self.source, shards, _is_routed, _is_view, self.tables.scope)


def _is_routed(schema: str, table: str) -> bool:
    return RULES.route(schema, table) is not None


def _is_view(_schema: str, _table: str) -> bool:
    return False


class Stream(NamedTuple):
    """State of a stream. ``recorded``: set when the statement at which all lanes are is recorded, but the driver has
    not resumed yet: the stream's state after the statement, and what the driver then reports. ``base``: what the stream
    was created for; None: it is the subtask's own stream. ``executed``: the number of the first event after the last
    statement that this run has executed."""

    lanes: Lanes
    state: StreamState
    recorded: tuple[StreamState, Calls, int] | None = None
    base: Joining | None = None
    executed: int = 0


class Executes(NamedTuple):
    """The worker must execute the lock's statement. ``replaced``: an operator has replaced it by nothing."""

    runs: bool
    replaced: bool = False
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


@dataclass(frozen=True, slots=True)
class Announces:
    """A call of a :class:`ParkedQueue`, as are the next ones. ``places``: numbers of tables and of events."""

    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Parks:
    items: tuple[Parked, ...]


@dataclass(frozen=True, slots=True)
class Frees:
    items: tuple[Parked, ...]


@dataclass(frozen=True, slots=True)
class Commits:
    """``lowest``: None: it is not known."""

    lowest: int | None


Calls = tuple[Announces | Parks | Frees | Commits, ...]


class Process(NamedTuple):
    """A worker's memory. ``waiting``: the calls that its :class:`ParkedQueue` has had; ``again``: those that it gets
    next for tables that are recorded as parked again. ``knows_lanes``: all lanes have reported where they are."""

    main: Stream
    join: Stream | None
    waiting: Calls
    look: Look | Half | None = None
    again: Calls = ()
    knows_lanes: bool = True


class Source(NamedTuple):
    """State of a source. ``reported``: what the source's worker has published for the locks."""

    durable: Durable
    process: Process
    reported: SourceReport | None


class Ran(NamedTuple):
    """A statement that has changed the target. ``generation``: of its lock; "" for an operator's."""

    text: str
    generation: str


class Shared(NamedTuple):
    """State that all sources share. ``lock``: of the target; ``ran``: what the target has run, in order; ``columns``:
    of the target before and after each of these; ``run``: the last lock that is recorded as run. ``begun``: the
    statements that were begun, by source and generation. ``forced``: an operator has decided about a lock, so that
    tables may reach a statement after it has run. ``holder``: the source that has the server's lock of a statement."""

    lock: Lock | None
    ran: tuple[Ran, ...]
    columns: tuple[Columns, ...]
    run: LockRun | None
    begun: tuple[tuple[str, str, Begun], ...] = ()
    forced: bool = False
    holder: str = ""


@lru_cache(4096)
def tables_of(structures: tuple[Structure, ...]) -> tuple[Table, ...]:
    return tuple(table_of(*each) for each in structures)


@lru_cache(4096)
def plan_of(source: str, number: int, structure: Structure) -> TablePlan:
    return RULES.plan(number, source, table_of(*structure))


_STATES: dict[object, StreamState] = {}


def state_of(tables: StreamTables, source: str, before: Mapping[int, Track] | None = None) -> StreamState:
    """Return the state. ``before``: the tracks before the last step. Raises BrokenRuleError for what must not be."""
    if found := tables.violations(before):
        raise BrokenRuleError("; ".join(found))
    structures = tuple(Structure(table.name, columns_of(table)) for table in tables.tables)
    tracks = tuple(sorted((number, type(track).__name__, _facts(track)) for number, track in tables.tracks.items()))
    key = source, structures, tracks, tables.partitioning, tables.scope.others, tables.scope.only
    known = _STATES.get(key)
    if known is None:
        known = _STATES[key] = StreamState(source, tables)
    return known


def _facts(track: Track) -> object:
    """Return what distinguishes tracks of one number and kind."""
    match track:
        case Own(plan=plan):
            return plan.table.name, columns_of(plan.table)
        case Entering(plan=plan, offset=offset) | Leaving(plan=plan, offset=offset):
            return plan.table.name, columns_of(plan.table), offset
        case Elsewhere(name=name, record=record):
            return name, record
        case _:
            return track.name


@lru_cache(4096)
def queue_of(calls: Calls) -> ParkedQueue:
    """Return the waiting tables in the form that a worker's streams and its lock agent share."""
    made = ParkedQueue()
    for call in calls:
        match call:
            case Announces(places=places):
                made.announce({number: offset_of(at) for number, at in places})
            case Parks(items=items):
                made.park(
                    {item.number: item for item in items},
                    {item.number: offset_of(item.resume_at.pos) for item in items},
                )
            case Frees(items=items):
                made.release(items)
            case Commits(lowest=lowest):
                made.committed(None if lowest is None else offset_of(lowest))
    return made


def forget() -> None:
    """Forget the states and the program's cached answers."""
    _STATES.clear()
    queue_of.cache_clear()

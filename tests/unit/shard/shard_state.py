"""What is recorded at the target and known to a worker in the small world of sharding DDLs: values."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from master.ddl_lock_values import Lock, Report
from tests.unit.shard.shard_log import RULES, Columns, Key, columns_of, name_of, offset_of, table_of
from worker.ddl.execute import Begun
from worker.ddl.parked import Parked
from worker.ddl.passing import TablesStanding
from worker.ddl.records import StatementPlace
from worker.ddl.run_locks import LockRun
from worker.ddl.tables import TableName, TableScope
from worker.ddl.waiting import WaitingTables
from worker.join.record import Joining
from worker.plan import TablePlan
from worker.replicate.dealing import Dealing
from worker.table import Table


class Durable(NamedTuple):
    """A subtask's records at the target, and its rows there. ``main``, ``join``: the streams' checkpoints, as numbers
    of events; None: no such stream. ``columns``: the recorded structures by number. ``rows``: each with the number of
    statements that had run at the target before it came."""

    dealing: Dealing
    joining: Joining | None
    main: int
    join: int | None
    passed: StatementPlace | None
    join_passed: StatementPlace | None
    columns: tuple[Columns, ...]
    parked: tuple[Parked, ...]
    begun: Begun | None
    rows: frozenset[tuple[Key, int]]


class Stands(NamedTuple):
    """A :class:`TablesStanding` that can be told from others at once; ``plans``: numbers and columns."""

    columns: tuple[Columns, ...]
    plans: tuple[tuple[int, Columns], ...]
    dealing: Dealing
    others: frozenset[TableName]
    only: frozenset[TableName] | None
    entering: frozenset[TableName]


class Stream(NamedTuple):
    """``at``: the event that it comes to. ``recorded``: what is recorded of the statement there already, while the
    driver goes on from before it: what stands behind it, who waits. ``base``: what the stream was made for, and the
    structures then; None: it is the subtask's own."""

    at: int
    stands: Stands
    recorded: tuple[Stands, tuple[Parked, ...]] | None = None
    base: tuple[Joining, tuple[Columns, ...]] | None = None


class Executes(NamedTuple):
    """``has_run``: the worker knows that the statement has run."""

    runs: bool
    has_run: bool = False


class Releases(NamedTuple):
    """Numbers of the tables."""

    tables: tuple[int, ...]


class Half(NamedTuple):
    """A look that has read the subtask's row, and no more yet."""

    dealing: Dealing
    joining: Joining | None


class Look(NamedTuple):
    """What a look has found: what is to be told, what is to be done for which lock."""

    report: Report
    duty: Executes | Releases | None
    lock: Lock | None


class Process(NamedTuple):
    """What a worker has in memory. ``waiting``: what was told :class:`WaitingTables` of tables that it still has:
    parked, with where their rows go on, or released."""

    main: Stream
    join: Stream | None
    waiting: tuple[tuple[Parked, int | None], ...]
    look: Look | Half | None = None


class Source(NamedTuple):
    """``told``: what the source's worker has told the locks."""

    durable: Durable
    process: Process
    told: Report | None


class Shared(NamedTuple):
    """``lock``: of the target; ``ran``: forms and generations of the statements that the target has run, in order;
    ``columns``: of the target behind them; ``run``: the last lock recorded to have run."""

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
def standing(stands: Stands, source: str) -> TablesStanding:
    return TablesStanding(
        tables_of(stands.columns),
        {number: plan_of(source, number, columns) for number, columns in stands.plans},
        stands.dealing,
        TableScope(RULES, stands.others, stands.only),
        stands.entering,
    )


def stands_of(standing: TablesStanding) -> Stands:
    return Stands(
        tuple(columns_of(table) for table in standing.tables),
        tuple((plan.shard, columns_of(plan.table)) for plan in standing.in_order),
        standing.dealing,
        standing.scope.others,
        standing.scope.only,
        standing.entering,
    )


def waiting_of(calls: tuple[tuple[Parked, int | None], ...]) -> WaitingTables:
    """The tables that wait, as a worker's streams and its lock agent share them."""
    made = WaitingTables()
    for item, behind in calls:
        if behind is None:
            made.release([item])
        else:
            made.park({item.number: item}, offset_of(behind))
    return made

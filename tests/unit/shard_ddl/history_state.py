"""Defines the state of the random histories of sharding DDLs: the records of tasks, subtasks and shard tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from shardmerge.proto import state_pb2
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.stored_override import StoredOverride
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.execute.run_once import Begun
from shardmerge.worker.ddl.locks.parked_override import OverriddenStatement
from shardmerge.worker.target.records.executed_locks import LockRun
from shardmerge.worker.target.records.parked_tables import Parked
from tests.simulator.source_log import RULES, SCHEMA
from tests.unit.shard_ddl.history_events import AlterEvent, Event, Histories, TableHistory
from tests.unit.worker.ddl.schema_join.join_model import COLLATION, shape_of, text_of
from tests.unit.worker.ddl.schema_join.join_rows import Model

Member = tuple[str, int]


@dataclass(slots=True)
class Shard:
    """A shard table as one task has it. ``at``: the number of its next event. ``items``: the recorded structure.
    ``skips_to``: ALTERs before this event are contained in the structure already."""

    number: int
    history: TableHistory
    name: str
    items: tuple[str, ...]
    at: int = 0
    dropped: frozenset[str] = frozenset()
    parked: Parked | None = None
    skips_to: int = 0

    @property
    def event(self) -> Event | None:
        return self.history.events[self.at] if self.at < len(self.history.events) else None

    @property
    def statement(self) -> AlterEvent:
        """The statement at which it is parked."""
        event = self.event
        assert isinstance(event, AlterEvent)
        return event


@dataclass(slots=True)
class SubTask:
    """A task at one source. ``error``: why it is paused; "": it is not. ``running``: the operator wants it to run.
    ``has_worker``: a live worker has the source. ``one_lane``: one lane applies the rows. The rest is the worker's
    memory: ``view``: the lock as it was read; ``injected``: the overrides that have run; ``withdrawn``: the table that
    no lock may let continue, because it is about to continue by itself; ``declined``: the generation of the lock whose
    statement this source does not run now."""

    source: str
    shards: list[Shard]
    one_lane: bool
    ops: list[StoredOverride] = field(default_factory=list[StoredOverride])
    error: str = ""
    running: bool = True
    has_worker: bool = True
    published: state_pb2.ShardRecord | None = None
    view: state_pb2.LockRecord | None = None
    injected: set[OverriddenStatement] = field(default_factory=set[OverriddenStatement])
    withdrawn: int | None = None
    declined: str = ""

    @property
    def works(self) -> bool:
        return self.running and self.has_worker and not self.error

    def kill(self) -> None:
        """Lose the worker's memory."""
        self.view, self.withdrawn, self.declined = None, None, ""
        self.injected = set()


@dataclass(slots=True)
class TaskState:
    """A task, its target and its lock. ``by_operator``: an operator has decided what the target runs, so that values
    may differ from the sources. ``version``: changes with each record in etcd on which a decision of the master rests.
    ``runs``: the generations whose statements have changed the target."""

    name: str
    target: Model
    subtasks: dict[str, SubTask]
    lock: state_pb2.LockRecord | None = None
    run: LockRun | None = None
    begun: dict[str, Begun] = field(default_factory=dict[str, Begun])
    version: int = 0
    by_operator: bool = False
    refused: bool = False
    runs: list[str] = field(default_factory=list[str])

    def shards(self) -> dict[Member, Shard]:
        return {(source, shard.number): shard for source, subtask in self.subtasks.items() for shard in subtask.shards}

    def is_done(self) -> bool:
        return all(shard.event is None for shard in self.shards().values()) and self.lock is None


def first_state(name: str, histories: Histories) -> TaskState:
    """The task before all events."""
    unique = any(index.unique for index in shape_of(*histories.start).indexes)
    subtasks = {
        f"s{at}": SubTask(
            f"s{at}", [Shard(n, table, table.name, histories.start) for n, table in enumerate(tables)], one_lane=unique
        )
        for at, tables in enumerate(histories.tables)
    }
    return TaskState(name, Model(histories.start), subtasks)


@lru_cache(None)
def creation_of(items: tuple[str, ...]) -> CreateStatement:
    return CreateStatement(text_of(*items), COLLATION)


@lru_cache(None)
def table_of(name: str, items: tuple[str, ...]) -> Table:
    shape = shape_of(*items)
    columns = tuple(
        Column(each.name, ValueKind.INTEGER, each.type.bare, nullable=each.nullable) for each in shape.columns
    )
    unique = (("id",), *(index.columns for index in shape.indexes if index.unique))
    return Table(SCHEMA, name, columns, (0,), "PRIMARY", unique, False, "InnoDB")


@lru_cache(None)
def plan_of(source: str, number: int, name: str, items: tuple[str, ...]) -> TablePlan:
    return RULES.plan(number, source, table_of(name, items))


def plan_now(source: str, shard: Shard) -> TablePlan:
    return plan_of(source, shard.number, shard.name, shard.items)


def position_of(shard: Shard, at: int) -> SourcePosition:
    """The position of an event of a shard table in its source's binlog."""
    return SourcePosition("bin.000001", 1_000_000 * (shard.number + 1) + 10 * at, "", "server")

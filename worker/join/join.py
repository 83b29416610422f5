"""The joining tables' own way: a snapshot beside the subtask's stream, then a short stream of their own.

Until the subtask's lanes take them over, the joining tables' rows are written by their own lanes, under the
checkpoints of stream JOIN; the subtask's lanes pass them over.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeVar

from proto import hooks, worker_pb2
from proto.config import defaults
from proto.errors import ShardmergeError
from worker import meta
from worker.connection import Session, Side, coding, connect
from worker.context import SubTaskContext
from worker.ddl import records
from worker.ddl.driver import StatementDriver
from worker.ddl.operator import Ops
from worker.ddl.passing import TablesStanding
from worker.ddl.tables import TableName, TableScope
from worker.ddl.waiting import WaitingTables
from worker.join.record import Joining
from worker.join.standing import joining_at, standing_of
from worker.lane_service import LaneService
from worker.plan import TablePlan
from worker.plans import make_plans, recorded_plans
from worker.position import RelayOffset, SourcePosition
from worker.replicate import checkpoint as checkpoints
from worker.replicate.checkpoint import Checkpoint
from worker.replicate.meeting import Meeting
from worker.replicate.stream import Stream
from worker.replicate.unit import Part, ReplicateUnit, Standing, first_checkpoints
from worker.snapshot.handover import Handover
from worker.snapshot.store import SnapshotStore, read_handover
from worker.snapshot.unit import SnapshotUnit
from worker.unit import Failed, Finished, Outcome, ProcessUnit, Stopped, StopSignal

T = TypeVar("T")

_LOCATE_SECONDS = 600.0
_ANSWER_SECONDS = 300.0
_NEAR_BYTES = 1 << 20
"""So much of the relay log is applied in less time than it takes to bring the lanes together."""


class JoinPhase(enum.Enum):
    STARTING = "starting"
    COPYING = "copying"
    FOLLOWING = "following"


@dataclass(frozen=True, slots=True)
class _Way:
    """The joining tables' stream under way: their tables now, what their chunks hold, where their lanes began."""

    driver: StatementDriver
    handover: Handover | None
    found: tuple[Checkpoint, ...]


class TableJoin:
    """Made for one run of the subtask. :meth:`run` may be called again after it has failed.

    ``context``: of the run, with the rules under which the tables are copied.
    """

    def __init__(
        self,
        context: SubTaskContext,
        service: LaneService,
        source_position: Callable[[], SourcePosition],
        joining: Joining,
        meeting: Meeting,
        waiting: WaitingTables | None = None,
        ops: Ops = tuple,
    ) -> None:
        """``meeting``: that of both streams; ``waiting``: of a subtask with a shard-mode; ``ops``: see
        :data:`worker.ddl.operator.Ops`."""
        self._ops = ops
        self._meeting = meeting
        self._waiting = waiting
        self._context = context
        self._service = service
        self._source_position = source_position
        self._joining = joining
        self.names: frozenset[TableName] = joining.names(context.tables)
        self._phase = JoinPhase.STARTING
        self._unit: ProcessUnit | None = None
        self._begin: RelayOffset | None = None
        self._way: _Way | None = None

    def run(self, stop: StopSignal) -> Outcome:
        """Copy the tables, then follow their changes until ``stop``. Raises nothing but programming errors."""
        try:
            return self._run(stop)
        except ShardmergeError as error:
            return Stopped() if stop.is_set else Failed(error)

    def _run(self, stop: StopSignal) -> Outcome:
        self._phase = JoinPhase.STARTING
        if self._way is not None:  # statements may have been passed since
            self._context = replace(self._context, tables=self._way.driver.standing.tables)
            self._joining, self._way = self.joining, None
        joining = self._joining
        made = joining_plans(self._context, joining.numbers, joining.dealing.one_lane)
        plans = joining.dealing.still_loose(made)
        found = self.checkpoints()
        if not found and not self._joining.replays:
            relay = self._context.relay
            if self._begin is None:
                self._begin = relay.locate(self._joining.start, _LOCATE_SECONDS, stop)
            self._phase = JoinPhase.COPYING
            hooks.reach("join.copying")
            outcome = self._run_unit(SnapshotUnit(self._context, plans, self._scope), stop)
            if not isinstance(outcome, Finished):
                return outcome
        handover = None
        if not self._joining.replays:
            with self._context.relay.one_generation() as relay_id:
                handover = self._handover(plans, stop, replicating=bool(found))
            if not found:
                assert handover is not None  # noqa: S101 - the tables have been copied: their chunks are recorded
                found = self._begin_stream(plans, handover, relay_id)
        self._way = _Way(self._driver(plans), handover, found)
        self._phase = JoinPhase.FOLLOWING
        return self._run_unit(self._lanes(self._way), stop)

    @property
    def numbers(self) -> frozenset[int]:
        """Of the tables that it was made for."""
        return self._joining.numbers

    @property
    def replays(self) -> bool:
        """Whether the tables' history is at the target already: they have waited before a sharding DDL."""
        return self._joining.replays

    @property
    def joining(self) -> Joining:
        """As it is recorded now."""
        way = self._way
        if way is None:
            return self._joining
        return joining_at(self._joining, way.driver.standing, self._context.tables)

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Where the joining tables' lanes stand, asked of the target."""
        return self._at_target(lambda session: checkpoints.read_all(session, *self._context.who, Stream.JOIN))

    @property
    def lanes(self) -> ReplicateUnit | None:
        """Those of the joining tables; None before they run."""
        return self._unit if isinstance(self._unit, ReplicateUnit) else None

    @property
    def standing(self) -> TablesStanding:
        """The joining tables where their lanes are. Only once they have run."""
        assert self._way is not None  # noqa: S101 - for the type checker
        return self._way.driver.standing

    @property
    def handed_over(self) -> frozenset[int]:
        """The tables whose chunks say nothing more of their changes, once :meth:`is_near` has been true."""
        way = self._way
        return frozenset() if way is None or way.handover is None else way.handover.shards

    def lowest(self) -> RelayOffset | None:
        """The lowest offset that may be needed again; None while unknown (nothing may be purged)."""
        unit = self._unit
        return unit.lowest() if isinstance(unit, ReplicateUnit) else self._begin

    def is_near(self) -> bool:
        """Whether the tables are copied and their lanes so close to the relay's head that they can be taken over."""
        unit, way = self._unit, self._way
        if way is None or not isinstance(unit, ReplicateUnit):
            return False
        lowest = unit.lowest()
        if lowest is None or (way.handover is not None and lowest < way.handover.done_at):
            return False
        if way.driver.standing.entering:
            return False
        relay = self._context.relay
        return relay.bytes_between(lowest, relay.head().offset) <= _NEAR_BYTES

    def status(self) -> worker_pb2.JoinStatus:
        """For query-status."""
        status = worker_pb2.JoinStatus(
            tables=sorted(f"{schema}.{table}" for schema, table in self.names), phase=self._phase.value
        )
        unit = self._unit
        match None if unit is None else unit.status():
            case worker_pb2.LoadStatus() as load:
                status.load.CopyFrom(load)
            case worker_pb2.SyncStatus() as sync:
                status.bytes_behind = sync.bytes_behind
            case None:
                pass
        return status

    # --- parts

    def _run_unit(self, unit: ProcessUnit, stop: StopSignal) -> Outcome:
        self._unit = unit
        return unit.run(stop)

    @property
    def _scope(self) -> TableScope:
        return TableScope(self._context.rules, only=self.names)

    def _lanes(self, way: _Way) -> ReplicateUnit:
        standing = way.driver.standing
        return ReplicateUnit(
            replace(self._context, tables=standing.tables),
            self._service,
            standing.in_order,
            way.handover,
            self._source_position,
            Standing(way.found, standing.dealing),
            way.driver,
            Part(Stream.JOIN, self._meeting),
        )

    def _driver(self, plans: tuple[TablePlan, ...]) -> StatementDriver:
        joining, tables = self._joining, self._context.tables
        by_number = {plan.shard: plan for plan in plans}

        def columns(standing: TablesStanding) -> Mapping[str, str]:
            return {"joining": joining_at(joining, standing, tables).to_json()}

        standing = standing_of(joining, self._context.rules, tables, by_number)
        entries = {entry.place: by_number[entry.number] for entry in joining.entries}
        return StatementDriver(self._context, Stream.JOIN, standing, columns, self._waiting, entries, self._ops)

    def _handover(self, plans: tuple[TablePlan, ...], stop: StopSignal, *, replicating: bool) -> Handover | None:
        context = self._context
        return self._at_target(
            lambda session: read_handover(
                session,
                *self._context.who,
                plans,
                context.relay,
                context.source_endpoint,
                stop,
                replicating=replicating,
            )
        )

    def _begin_stream(self, plans: tuple[TablePlan, ...], handover: Handover, relay_id: str) -> tuple[Checkpoint, ...]:
        """The stream starts at the lowest high watermark; checkpoints and record in one transaction."""
        context = self._context
        lanes = context.config.replicate.lanes or defaults.LANES
        one_lane = frozenset(plan.target_name for plan in plans if plan.one_lane)
        loose = frozenset(plan.shard for plan in plans if plan.loose)
        dealing = replace(self._joining.dealing, lanes=lanes, one_lane=one_lane, loose=loose)
        joining = replace(self._joining, dealing=dealing)
        _, offset = handover.lowest
        first = first_checkpoints(lanes, context.epoch, relay_id, context.relay.position_at(offset), offset)
        hooks.reach("join.before_stream")

        def insert(session: Session) -> None:
            checkpoints.insert(session, *self._context.who, first, Stream.JOIN)

        self._at_target(
            lambda session: meta.record_joining(session, *self._context.who, context.epoch, joining.to_json(), insert)
        )
        hooks.reach("join.stream")
        self._joining = joining
        return first

    def _at_target(self, work: Callable[[Session], T]) -> T:
        # Longer than others wait: the hand-over reads the records of all chunks at once.
        return self._context.at_target(work, seconds=_ANSWER_SECONDS)


def joining_plans(
    context: SubTaskContext, numbers: frozenset[int], one_lane: frozenset[str] = frozenset()
) -> tuple[TablePlan, ...]:
    """The plans of these tables, by number, every target made or checked. Raises what :func:`make_plans` raises."""
    config = context.config
    endpoint, source_id = context.source_endpoint, config.source_id
    with (
        closing(connect(endpoint, Side.SOURCE, name=source_id, read_timeout=_ANSWER_SECONDS)) as source,
        closing(connect(context.target_endpoint, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)) as target,
        coding(endpoint, Side.SOURCE, source_id),
    ):
        with coding(context.target_endpoint, Side.TARGET, "target"):
            begun = records.is_begun(target, *context.who)
        if begun:
            # The target may be as it is behind the statement already: it is looked at there.
            return recorded_plans(context.rules, source_id, context.tables, numbers, one_lane)
        return make_plans(
            context.rules,
            source_id,
            context.tables,
            source,
            target,
            config.meta_schema,
            numbers,
            defer=config.load.defer_indexes,
        )


def drop_joining(
    session: Session, who: tuple[str, str, str], epoch: int, joining: Joining, left: Joining | None
) -> None:
    """Record that of ``joining`` only ``left`` still join (None: nothing). Raises ``pymysql.MySQLError`` and FENCED."""
    found = checkpoints.read_all(session, *who, Stream.JOIN) if left is None else ()
    store = SnapshotStore(*who, epoch)
    store.ensure(session)
    dropped = joining.dealing.shards - (left.dealing.shards if left is not None else frozenset())

    def forget(session: Session) -> None:
        # What was not loaded of them is not waited for by anybody.
        store.forget(session, dropped)
        if found:
            checkpoints.remove(session, *who, found, Stream.JOIN)

    meta.record_joining(session, *who, epoch, left.to_json() if left is not None else "", forget)

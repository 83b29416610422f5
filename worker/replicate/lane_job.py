"""Runs lanes as one Spark job: serves them, acts at their barriers, and derives the outcome from how they end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from shardmerge.proto import errors
from shardmerge.proto.config import defaults
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.core.task_runner import TaskDone, TaskFailed, TaskOutcome
from shardmerge.worker.ddl.decide.stream_statements import StreamStatements
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import LaterStructure
from shardmerge.worker.ddl.driver import StatementDriver
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.replicate.alignment import AlignedLanes, AlignmentPoint, StreamRole
from shardmerge.worker.replicate.bounds.stream_limit import StreamLimit
from shardmerge.worker.replicate.lane.lane import LaneTask
from shardmerge.worker.replicate.lane.lane_change import LaneChange, LanePlans, LaterPlan
from shardmerge.worker.replicate.lane.lane_spec import LaneSpec, LaneStart
from shardmerge.worker.replicate.lane_coordinator import BarrierFailure, BarrierPlace, Event, LaneCoordinator, LaneGone
from shardmerge.worker.replicate.lane_shares import LaneShares
from shardmerge.worker.replicate.running import LaneRegistry, RunningReplicate
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.rules.table_window import TableWindow, edges_of
from shardmerge.worker.snapshot.handover import Handover
from shardmerge.worker.target.apply.target_session import ApplySettings
from shardmerge.worker.target.quarantine.skipped_events import skip_places
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.unit.contract import Failed, Finished, Outcome, Stopped
from shardmerge.worker.unit.run_context import RunContext

log = get_logger()

_BARRIER_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """The lanes of one job.

    ``checkpoints``: in offsets of the current relay log. ``handover``: what the snapshot's chunks hold; None: there is
    no snapshot. ``stream_limit``: where the whole stream ends. ``until``: where the job ends, None: with the stream.
    ``safe_mode``: what they write may already be at the target. ``windows``: of tables that enter or leave the stream
    without a barrier; their plans are the driver's. ``later``: plans that apply from later places on.
    """

    checkpoints: tuple[Checkpoint, ...]
    plans: tuple[TablePlan, ...]
    rules: Rules
    handover: Handover | None
    stream_limit: StreamLimit
    until: RelayOffset | None = None
    safe_mode: bool = False
    windows: tuple[TableWindow, ...] = ()
    later: tuple[LaterPlan, ...] = ()

    @property
    def handover_left(self) -> Handover | None:
        """The hand-over, unless every lane is beyond it."""
        handover = self.handover
        if handover is not None and min(item.offset for item in self.checkpoints) >= handover.done_at:
            return None
        return handover


class LaneJob:
    """One Spark job of lanes; :meth:`run` is called once.

    ``aligned``: where the lanes wait while they are aligned with the other stream's. ``tables_changed``: called with
    the stream's new tables after each barrier, before the lanes resume. ``coordinator`` exists before the lanes do.
    """

    def __init__(
        self,
        context: RunContext,
        registry: LaneRegistry,
        driver: StatementDriver,
        role: StreamRole,
        lanes: LaneGroup,
        aligned: AlignedLanes,
        tables_changed: Callable[[StreamTables], None],
        stop: StopSignal,
    ) -> None:
        self._context = context
        self._registry = registry
        self._driver = driver
        self._role = role
        self._lanes = lanes
        self._aligned = aligned
        self._tables_changed = tables_changed
        self._unit_stop = stop
        self._scope_at_start = self._scope()
        self._plans_at_start = (*lanes.plans, *driver.tables.timed_plans)
        self._lane_plans = LanePlans.of(self._plans_at_start, self._scope_at_start, lanes.windows, lanes.later)
        self._edges = _edges(lanes.windows, lanes.later)
        self.coordinator = LaneCoordinator(
            context.config.task,
            context.source.source_id,
            context.epoch,
            len(lanes.checkpoints),
            stop.child(),
            lanes.until,
            lanes.stream_limit,
            role.stream,
        )
        for wake in (context.relay.wake, aligned.wake):
            self.coordinator.stop.call_when_set(wake)

    def run(self) -> Outcome:
        """Run the lanes until they have ended. Finished: every lane has reached its end."""
        context, coordinator = self._context, self.coordinator
        if self._lanes.checkpoints[0].relay_id != self._driver.relay_id:
            # The places at which tables enter or leave the stream are of the relay log with which the run began.
            raise errors.relay.RELAY_RESTARTED(source=context.source.source_id, relay_id=self._driver.relay_id)
        in_scope = self._barrier_statements()
        context.compiled.admit((*self._plans_at_start, *(item.plan for item in self._lanes.later)))
        running = RunningReplicate(
            coordinator,
            context.access,
            in_scope,
            self._limit,
            self._alignment_at,
            context.compiled,
            lambda: self._edges,
            self._shares(),
        )
        self._registry.register_lanes(running)
        threading.Thread(target=coordinator.watch, name="lane-watch", daemon=True).start()
        keeper = threading.Thread(target=self._handle_barriers, name="barriers", daemon=True)
        keeper.start()
        try:
            outcomes = context.task_runner.run(
                f"{self._role.stream.job_name} {context.config.task} {context.source.source_id}",
                coordinator.lanes,
                LaneTask(self._spec()),
                coordinator.stop,
            )
        finally:
            coordinator.stop.set()
            self._registry.unregister_lanes(coordinator)
            keeper.join()
        return job_outcome(outcomes, coordinator.event, is_stopped=self._unit_stop.is_set)

    # --- what the lanes are served

    def _shares(self) -> LaneShares | None:
        """None where a lane needs events of other lanes: to derive rows, or to find the rows that an operator skips."""
        lanes, relay = self._lanes, self._context.relay
        if self.coordinator.lanes == 1 or self._driver.tables.partitioning.cascades or skip_places(self._driver.ops()):
            return None
        handover = lanes.handover_left
        return LaneShares(
            self._context.source.source_id,
            self.coordinator.lanes,
            self._lane_plans,
            lambda place: relay.opened(place).format_description,
            handover.done_at if handover is not None else None,
        )

    def _barrier_statements(self) -> Callable[[Statement], bool]:
        """The statements before which the lanes must stop."""
        # A lane that was stopped right before a statement reaches it again.
        passed = self._driver.last_passed()
        rules = self._lanes.rules
        known = StreamStatements(self._driver.tables, rules)

        def in_scope(statement: Statement) -> bool:
            nonlocal known
            if self._driver.has_executed(statement) or (passed is not None and passed.covers(statement)):
                return False
            concerns, tables = known, self._driver.tables
            if concerns.tables is not tables:
                concerns = known = StreamStatements(tables, rules)
            # A statement on tables that enter the stream at a later place is executed already.
            return concerns(statement)

        return in_scope

    def _limit(self, end: RelayOffset) -> RelayOffset | None:
        limits = (
            self._lanes.stream_limit.limit,
            *((self._role.alignment.limit,) if self._role.alignment is not None else ()),
        )
        return min((place for limit in limits if (place := limit(end)) is not None), default=None)

    def _alignment_at(self, place: RelayOffset) -> AlignmentPoint | None:
        alignment, end = self._role.alignment, self._lanes.stream_limit.found
        return None if alignment is None or (end is not None and end == place) else alignment.point_at(place)

    # --- barriers

    def _handle_barriers(self) -> None:
        """Until the streams end, act at each barrier that all lanes have reached. Runs in a thread of its own."""
        coordinator = self.coordinator
        current = self._lane_plans
        while not coordinator.stop.is_set:
            place = coordinator.wait_reached(_BARRIER_SECONDS)
            if place is None:
                continue
            try:
                tables = self._handle_barrier(place)
            except ShardmergeError as error:
                coordinator.refuse(error)
                return
            except Exception as error:
                log.exception("unexpected error at a barrier")
                coordinator.refuse(errors.worker.INTERNAL(kind=type(error).__name__, where="a barrier", reason=error))
                return
            if tables is None:
                return
            self._tables_changed(tables)
            windows, later = tables.windows, later_plans(tables.later)
            self._edges = _edges(windows, later)
            plans = (*tables.plans_in_order, *tables.timed_plans)
            change, current = LaneChange.between(
                current, plans, self._scope(), windows, later, is_statement=isinstance(place, Statement)
            )
            self._context.compiled.admit((*change.plans, *(item.plan for item in later)))
            coordinator.resume(place, change.to_bytes())

    def _handle_barrier(self, place: BarrierPlace) -> StreamTables | None:
        """The tables with which the lanes continue; None: they have to end."""
        stop = self.coordinator.stop
        if isinstance(place, Statement):
            return self._driver.act(place, stop, self._may_execute)
        return self._driver.tables if self._aligned.wait_resumed(place.offset, stop) else None

    def _may_execute(self, end: RelayOffset) -> bool:
        """Whether a statement that ends at group end ``end`` may be executed before the lanes reach it: the stream must
        not end before it, and lanes that run to a barrier must continue there with the records that they had."""
        if self._lanes.until is not None:
            return False
        limit = self._lanes.stream_limit.limit(end)
        return limit is None or end <= limit

    # --- start

    def _scope(self) -> TableScope:
        return replace(self._driver.tables.scope, rules=self._lanes.rules)

    def _spec(self) -> LaneSpec:
        context, config, lanes = self._context, self._context.config, self._lanes
        return LaneSpec(
            address=context.lane_address,
            secret=context.run_secret,
            epoch=context.epoch,
            lanes=len(lanes.checkpoints),
            apply=ApplySettings(
                task=config.task,
                source=context.source.source_id,
                meta_schema=config.meta_schema,
                target=context.target_endpoint.without_secrets(),
                safe_mode=config.replicate.safe_mode or lanes.safe_mode,
                stream=self._role.stream,
                quarantine=config.replicate.quarantine,
            ),
            plans=self._plans_at_start,
            scope=self._scope_at_start,
            windows=lanes.windows,
            later=lanes.later,
            starts=tuple(LaneStart(item.seq, item.offset) for item in lanes.checkpoints),
            relay_directory=str(context.relay.directory.absolute()),
            relay_id=lanes.checkpoints[0].relay_id,
            handover=lanes.handover_left,
            batch_rows=config.replicate.batch_rows or defaults.BATCH_ROWS,
            batch_bytes=config.replicate.batch_bytes or defaults.BATCH_BYTES,
            until=lanes.until,
            skips=skip_places(self._driver.ops()),
            cascades=self._driver.tables.partitioning.cascades,
        )


def later_plans(later: Mapping[int, LaterStructure]) -> tuple[LaterPlan, ...]:
    """The plans that apply from later places of the stream on."""
    return tuple(LaterPlan(item.offset, item.plan) for _, item in sorted(later.items()))


def _edges(windows: tuple[TableWindow, ...], later: tuple[LaterPlan, ...]) -> tuple[RelayOffset, ...]:
    """The places over which no block extends, ascending."""
    return tuple(sorted({*edges_of(windows), *(item.begin for item in later)}))


def job_outcome(outcomes: Sequence[TaskOutcome], event: Event | None, *, is_stopped: bool) -> Outcome:
    """The outcome of a job whose tasks have ended. ``event``: why the driver's side ended the streams.

    A lane's own error explains most; after that, what the driver's side noticed.
    """
    if all(isinstance(outcome, TaskDone) for outcome in outcomes):
        return Finished()
    failures = [outcome.error for outcome in outcomes if isinstance(outcome, TaskFailed)]
    match event:
        case BarrierFailure(error=error):
            return Stopped() if is_stopped else Failed(error)
        case LaneGone(error=error):
            own = [item for item in failures if item.spec is not errors.worker.STREAM_LOST]
            return Failed(min(own, key=lambda item: item.spec.retryable, default=error))
        case None:
            if failures and not is_stopped:
                return Failed(min(failures, key=lambda item: item.spec.retryable))
            return Stopped()

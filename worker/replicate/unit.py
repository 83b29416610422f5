"""The replicate unit: runs jobs of lanes (lane_job.py), one after the other, until pause, stop, failure or the end.

Usually one job is enough. If rows must be partitioned differently than the lanes' checkpoints record (another number of
lanes, other rules, a target that has to keep to one lane), lanes with the old partitioning first run in a job of their
own, which drains to one barrier. Lanes that may repeat changes first run in safe mode, in a job that ends after them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from shardmerge.proto import errors, failpoints, worker_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.recorded_tracks import plans_before
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.driver import StatementDriver
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.relay.source_clock import SourceClock
from shardmerge.worker.replicate.alignment import MAIN_ROLE, AlignedLanes, StreamRole
from shardmerge.worker.replicate.bounds.stop_point import StopSearch
from shardmerge.worker.replicate.bounds.stream_limit import StreamLimit
from shardmerge.worker.replicate.held_count import HeldCount
from shardmerge.worker.replicate.lag import AppliedThrough, CatchUp, SourceProgress, unfetched_bytes
from shardmerge.worker.replicate.lane.lane_change import LaterPlan
from shardmerge.worker.replicate.lane_coordinator import LaneCoordinator, LaneState
from shardmerge.worker.replicate.lane_job import LaneGroup, LaneJob, later_plans
from shardmerge.worker.replicate.running import LaneRegistry
from shardmerge.worker.replicate.status import StatusInputs, lanes_activity, sync_status
from shardmerge.worker.replicate.target_waits import TargetWaits
from shardmerge.worker.replicate.watermark_recorder import WatermarkRecorder
from shardmerge.worker.rules import Rules
from shardmerge.worker.snapshot.handover import Handover
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records import subtask_record
from shardmerge.worker.target.records.bounds import Bound
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.target.records.partitioning import (
    DrainTo,
    Keep,
    Partitioning,
    Repartition,
    next_step,
    repartitioned,
)
from shardmerge.worker.unit.contract import Failed, Finished, Outcome, Stopped
from shardmerge.worker.unit.run_context import RunContext

log = get_logger()

_LOCATE_SECONDS = 600.0
_PROGRESS_SECONDS = 1.0


def first_checkpoints(
    lanes: int, epoch: int, relay_id: str, start: SourcePosition, offset: RelayOffset
) -> tuple[Checkpoint, ...]:
    """Every lane's checkpoint at the position where replication begins."""
    return tuple(Checkpoint(lane, epoch, 0, relay_id, offset, 0, start, 0.0) for lane in range(lanes))


def translate_checkpoints(relay: Relay, found: tuple[Checkpoint, ...], stop: StopSignal) -> tuple[Checkpoint, ...]:
    """Checkpoints with offsets of the current relay log, which may be another one or may have lost its tail."""
    with relay.one_generation() as relay_id:
        head = relay.head().offset
        return tuple(
            item
            if item.relay_id == relay_id and item.offset <= head
            else replace(
                item,
                relay_id=relay_id,
                offset=relay.locate(item.position, _LOCATE_SECONDS, stop, inside=item.skip_events > 0),
            )
            for item in found
        )


def end_of_group(relay: Relay, stop: StopSignal) -> Callable[[RelayOffset], RelayOffset]:
    """For :func:`shardmerge.worker.target.records.partitioning.next_step`: the end of the group that begins at an
    offset."""
    return lambda offset: relay.next_group_end(offset, _LOCATE_SECONDS, stop)


@dataclass(frozen=True, slots=True)
class StartState:
    """The lanes' state when the unit starts.

    ``partitioning``: how rows were partitioned to them; None: not recorded yet. ``safe_mode_until``: changes before it
    may already be at the target; None: none are. ``stop_search``: finds where the lanes end; None: nowhere. ``end``:
    where both streams of the subtask end, if it has an end and may have two streams.
    """

    checkpoints: tuple[Checkpoint, ...]
    partitioning: Partitioning | None
    safe_mode_until: Bound | None = None
    stop_search: StopSearch | None = None
    end: StreamLimit | None = None


class ReplicateUnit:
    """A :class:`shardmerge.worker.unit.contract.ProcessUnit`. Needs a relay log that reaches back to the lowest of
    the checkpoints.

    The tables of ``driver`` and the context's configuration: the wanted lanes; ``start_state``: the recorded lanes,
    under the context's epoch. The lanes of joining tables are never repartitioned.
    """

    def __init__(
        self,
        context: RunContext,
        registry: LaneRegistry,
        handover: Handover | None,
        clock: SourceClock,
        start_state: StartState,
        driver: StatementDriver,
        role: StreamRole = MAIN_ROLE,
    ) -> None:
        self._context = context
        self._registry = registry
        self._plans = driver.tables.plans_in_order
        self._handover = handover
        self._watermarks = WatermarkRecorder(context, handover)
        self._clock = clock
        self.applied_through = AppliedThrough()
        self._start_state = start_state
        self._driver = driver
        self._recorded_plans = driver.tables.recorded_plans
        self._role = role
        self._stream_limit = StreamLimit(None)
        self._coordinator: LaneCoordinator | None = None
        self._source_progress = SourceProgress()
        self._progress_lock = threading.Lock()
        self._catch_up = CatchUp()
        self._sampled: RelayOffset | None = None
        self._has_wanted_plans = False
        self._held_count = HeldCount(context, self._newly_held)
        self._aligned = AlignedLanes()
        self._target_waits = TargetWaits(lambda: self._context, self._views, self._target_names)

    def run(self, stop: StopSignal) -> Outcome:
        inner = stop.child()
        threading.Thread(target=self._watch_source, args=(inner,), name="source-trail", daemon=True).start()
        threading.Thread(target=self._held_count.follow, args=(inner,), name="held-count", daemon=True).start()
        threading.Thread(target=self._target_waits.follow, args=(inner,), name="target-waits", daemon=True).start()
        try:
            return self._run(stop, inner)
        except ShardmergeError as error:
            return Failed(error)
        finally:
            inner.set()

    def _run(self, stop: StopSignal, inner: StopSignal) -> Outcome:
        context = self._context
        found, recorded = self._start_state.checkpoints, self._start_state.partitioning
        wanted = self._driver.tables.partitioning
        if self._role.stream is Stream.JOIN and recorded is not None:
            wanted = recorded
        found = translate_checkpoints(context.relay, found, inner)
        self._watermarks.record_passed(min(item.offset for item in found))
        done_at = self._handover.done_at if self._handover is not None else None
        if self._start_state.end is not None:
            self._stream_limit = self._start_state.end
        elif self._start_state.stop_search is not None:
            self._stream_limit = self._start_state.stop_search.stream_limit(found, done_at, inner)
        safe_mode_end = self._safe_mode_until(found, inner)
        while not stop.is_set:
            found = translate_checkpoints(context.relay, found, inner)
            safe_mode = safe_mode_end is not None and min(item.offset for item in found) < safe_mode_end
            match next_step(found, recorded, wanted, context.source.source_id, end_of_group(context.relay, inner)):
                case Keep() if safe_mode:
                    outcome = self._run_job(found, self._plans, context.rules, stop, safe_mode_end, safe_mode=True)
                    found = self._read_checkpoints()
                    if not isinstance(outcome, Finished) or self._has_ended(found):
                        return outcome
                    # Statements may have changed the tables, and what is recorded.
                    recorded = wanted = self._driver.tables.partitioning
                case Keep():
                    self._has_wanted_plans = True
                    return self._run_job(found, self._plans, context.rules, stop)
                case Repartition(at=at):
                    found, recorded = self._repartition(found, at, wanted), wanted
                case DrainTo(barrier=barrier):
                    assert recorded is not None  # noqa: S101 - for the type checker: only recorded lanes drain
                    self._log_repartition(len(found), wanted)
                    plans = recorded.plans(context.source.source_id, context.tables)
                    rules = recorded.compiled_rules()
                    by_number = {plan.shard: plan for plan in plans}
                    later_structures = {
                        number: replace(item, plan=by_number[number])
                        for number, item in self._driver.tables.later.items()
                        if number in by_number
                    }
                    plans = plans_before(rules, plans, later_structures)
                    outcome = self._run_job(
                        found, plans, rules, stop, barrier, safe_mode=safe_mode, later=later_plans(later_structures)
                    )
                    if not isinstance(outcome, Finished):
                        return outcome
                    found = self._read_checkpoints()
        return Stopped()

    def _run_job(
        self,
        found: tuple[Checkpoint, ...],
        plans: tuple[TablePlan, ...],
        rules: Rules,
        stop: StopSignal,
        until: RelayOffset | None = None,
        *,
        safe_mode: bool = False,
        later: tuple[LaterPlan, ...] | None = None,
    ) -> Outcome:
        """Run one job of lanes. Finished: every lane has reached ``until``, or the stream's end.

        ``safe_mode``: what the lanes write may already be at the target. ``later``: plans that apply from later places
        on; None: those of the driver.
        """
        tables = self._driver.tables
        job = LaneJob(
            self._context,
            self._registry,
            self._driver,
            self._role,
            LaneGroup(
                found,
                plans,
                rules,
                self._handover,
                self._stream_limit,
                until,
                safe_mode,
                tables.windows,
                later_plans(tables.later) if later is None else later,
            ),
            self._aligned,
            self._change_tables,
            stop,
        )
        self._coordinator = job.coordinator
        self._held_count.refresh()
        failpoints.hit("lanes.starting")
        return job.run()

    def _change_tables(self, tables: StreamTables) -> None:
        """The stream has other tables from a barrier on."""
        self._context = replace(self._context, tables=tables.tables)
        self._plans = tables.plans_in_order
        self._recorded_plans = tables.recorded_plans

    def wait_aligned(self, seconds: float) -> RelayOffset | None:
        """Wait up to ``seconds`` until all lanes are aligned; returns their offset, None: not yet."""
        return self._aligned.wait_aligned(seconds)

    def resume(self) -> None:
        """Let the aligned lanes continue, with the driver's present tables."""
        self._aligned.resume()

    def status(self) -> worker_pb2.SyncStatus:
        end, coordinator = self._clock.position(), self._coordinator
        if coordinator is None:
            return worker_pb2.SyncStatus(
                master_binlog=str(end),
                binlog_type="relay",
                stop_at=self._stop_at,
                unknown="its lanes have not started",
            )
        relay = self._context.relay
        head = relay.head()
        ahead = relay.clock_offset.correction
        around = StatusInputs(
            now=time.time() + ahead,
            source_ahead=ahead,
            elapsed=time.monotonic() - coordinator.started_at,
            head=head,
            source_end=end,
            unfetched_seconds=self._unfetched_seconds(),
            bytes_behind=lambda offset: relay.bytes_between(offset, head.offset),
            next_commit_time=relay.next_commit_time,
            source_unknown=relay.unknown() or self._clock.unknown(),
            source_age=self._clock.age(),
            target_waits=self._target_waits.of_lane,
        )
        status = sync_status(coordinator.views(), around, self._held_count.keys)
        status.stop_at = self._stop_at
        lowest = coordinator.lowest()
        status.next_server = "" if lowest is None else relay.next_server(lowest)
        return status

    def _newly_held(self) -> int:
        views = self._coordinator.views() if self._coordinator is not None else ()
        return sum(view.report.held_keys for view in views if view.report is not None)

    @property
    def _stop_at(self) -> str:
        ending = self._start_state.stop_search
        return ending.stop.shown if ending is not None and ending.stop is not None else ""

    def activity(self) -> str:
        """What its lanes wait for, unless it is only events; "" otherwise."""
        return self._driver.activity() or (
            lanes_activity(self._coordinator.views(), self._target_waits.of_lane)
            if self._coordinator is not None
            else ""
        )

    def connections(self) -> dict[int, int]:
        """The connections of the lanes to the target, by lane; without lanes that have none."""
        reports = ((view.lane, view.report) for view in self._views())
        return {lane: report.connection_id for lane, report in reports if report is not None and report.connection_id}

    def _views(self) -> tuple[LaneState, ...]:
        return self._coordinator.views() if self._coordinator is not None else ()

    def _target_names(self) -> tuple[str, ...]:
        return tuple(sorted({plan.target_name for plan in self._plans}))

    def _unfetched_seconds(self) -> float | None:
        now = time.monotonic()
        with self._progress_lock:
            self._source_progress.add(now, self._clock.position())
            since = self._source_progress.unfetched_since(self._context.relay.head().position)
        return None if since is None else now - since

    def _watch_source(self, stop: StopSignal) -> None:
        """Sample the source's end, so that the status can report since when the relay lags; and record when all
        watermarks are cleared."""
        while not stop.wait(_PROGRESS_SECONDS):
            self._unfetched_seconds()
            self._sample_catch_up()
            self._sample_applied()
            self._watermarks.record_passed(self.lowest())

    def _sample_catch_up(self) -> None:
        lowest, relay = self.lowest(), self._context.relay
        if lowest is None or relay.unknown() or self._clock.unknown():
            return
        head = relay.head()
        behind = relay.bytes_between(lowest, head.offset) + unfetched_bytes(head.position, self._clock.position())
        before, self._sampled = self._sampled, lowest
        applied = relay.bytes_between(before, lowest) if before is not None and before < lowest else 0
        with self._progress_lock:
            self._catch_up.add(time.monotonic(), behind, applied)

    def _sample_applied(self) -> None:
        status = self.status()
        if not status.unknown and (status.oldest_ms or not status.bytes_behind):
            end = None if status.oldest_ms else self._clock.position()
            self.applied_through.add(time.monotonic(), status.oldest_ms / 1000, end)

    def applied_seconds(self) -> float | None:
        """See :meth:`AppliedThrough.seconds`: also while no lane runs."""
        end = None if self._clock.unknown() else self._clock.position()
        return self.applied_through.seconds(time.monotonic(), end)

    def remaining_seconds(self) -> float | None:
        """Estimated seconds until everything of the source is applied; None: unknown."""
        with self._progress_lock:
            return self._catch_up.remaining_seconds()

    @property
    def context(self) -> RunContext:
        """What it works with; like :attr:`plans`, for a comparison that runs in parallel."""
        return self._context

    @property
    def plans(self) -> tuple[TablePlan, ...] | None:
        """The plans for the recorded structures, one object until they change; None while lanes with older plans run to
        a barrier."""
        return self._recorded_plans if self._has_wanted_plans else None

    def lowest(self) -> RelayOffset | None:
        """The lowest offset a lane may need again; None while unknown (nothing may be purged)."""
        return self._coordinator.lowest() if self._coordinator is not None else None

    # --- start

    def _safe_mode_until(self, found: tuple[Checkpoint, ...], stop: StopSignal) -> RelayOffset | None:
        """The offset before which rows may already be at the target; None: every lane is beyond it."""
        bound = self._start_state.safe_mode_until
        if bound is None or all(item.position.reaches(bound.position) for item in found):
            return None
        with self._context.relay.one_generation():
            return self._context.relay.locate(bound.position, _LOCATE_SECONDS, stop, first_if_before=True)

    def _has_ended(self, found: tuple[Checkpoint, ...]) -> bool:
        end = self._stream_limit.found
        return end is not None and all(item.offset >= end for item in found)

    # --- the target's records

    def _read_checkpoints(self) -> tuple[Checkpoint, ...]:
        context = self._context
        return context.at_target(lambda session: checkpoints.read_begun(session, context.who))

    def _repartition(
        self, found: tuple[Checkpoint, ...], at: Checkpoint, wanted: Partitioning
    ) -> tuple[Checkpoint, ...]:
        """Rewrite the lanes' checkpoints and the recorded partitioning in one transaction. Raises FENCED."""
        context, epoch = self._context, self._context.epoch
        following = repartitioned(found, at, wanted.lanes, epoch)
        failpoints.hit("lanes.before_dealing")

        def rewrite(session: Session) -> None:
            checkpoints.replace_all(session, context.who, found, following)
            failpoints.hit("lanes.dealing")

        context.at_target(
            lambda session: subtask_record.record_repartition(session, context.who, epoch, wanted.to_json(), rewrite)
        )
        failpoints.hit("lanes.dealt")
        return following

    def _log_repartition(self, found: int, wanted: Partitioning) -> None:
        notice = errors.replicate.LANES_CHANGED(
            task=self._context.config.task, source=self._context.source.source_id, wanted=wanted.lanes, found=found
        )
        log.info("lanes run to a barrier", notice=str(notice))

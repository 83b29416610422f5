"""The replicate unit: one Spark job of lanes that live until pause, stop, failure or a barrier.

Lanes whose rows are to be dealt otherwise than their checkpoints say (another number of lanes, other rules, a target
that has to keep to one lane) first run as they were, in a job of its own that ends at one barrier.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from proto import errors, hooks, worker_pb2
from proto.config import defaults
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker import meta
from worker.bounds import Bound
from worker.connection import Session
from worker.context import SubTaskContext
from worker.ddl.driver import StatementDriver
from worker.ddl.passing import TablesStanding
from worker.ddl.routed import RoutedScope
from worker.ddl.tables import TableScope
from worker.gate import Gate
from worker.lane_service import LaneService, RunningReplicate
from worker.plan import TablePlan
from worker.position import RelayOffset, SourcePosition
from worker.quarantine.count import HeldCount
from worker.relay.model import Statement
from worker.relay.relay import Relay
from worker.replicate import checkpoint as checkpoints
from worker.replicate.board import LaneBoard, LaneGone, Place, Refused
from worker.replicate.change import LaneChange
from worker.replicate.checkpoint import Checkpoint
from worker.replicate.dealing import Dealing, Keep, Meet, Rewrite, dealing_of, dealt_anew, next_step
from worker.replicate.handed import HandedOver
from worker.replicate.lag import SourceTrail
from worker.replicate.lane import LaneSpec, LaneStart, LaneTask
from worker.replicate.meeting import Meeting, MeetingPlace
from worker.replicate.skips import skips_of
from worker.replicate.status import Surroundings, doing, sync_status
from worker.replicate.stream import Stream
from worker.replicate.target import ApplySettings
from worker.rules import Rules
from worker.snapshot.handover import Handover
from worker.spark import TaskDone, TaskFailed, TaskOutcome
from worker.stop_at import Ending
from worker.unit import Failed, Finished, Outcome, Stopped, StopSignal

log = get_logger()

_LOCATE_SECONDS = 600.0
_TRAIL_SECONDS = 1.0
_BARRIER_SECONDS = 0.2


def first_checkpoints(
    lanes: int, epoch: int, relay_id: str, start: SourcePosition, offset: RelayOffset
) -> tuple[Checkpoint, ...]:
    """Every lane's checkpoint at the place where replication begins."""
    return tuple(Checkpoint(lane, epoch, 0, relay_id, offset, 0, start, 0.0) for lane in range(lanes))


def translated(relay: Relay, found: tuple[Checkpoint, ...], stop: StopSignal) -> tuple[Checkpoint, ...]:
    """Checkpoints with offsets of the relay at hand, which may be another one or may have lost its tail."""
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
    """For :func:`worker.replicate.dealing.next_step`: the end of the group that begins at an offset."""
    return lambda offset: relay.group_end_behind(offset, _LOCATE_SECONDS, stop)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the subtask's lanes stand, and how rows were dealt to them; None: that has not been recorded yet.

    ``settled``: the target may hold changes from before there already; None: it holds none. ``ending``: where they end;
    None: nowhere.
    """

    checkpoints: tuple[Checkpoint, ...]
    dealing: Dealing | None
    settled: Bound | None = None
    ending: Ending | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of the subtask the lanes do: ``stream``'s. ``meeting``: where they come to stand, together with those
    of the other stream; None: there is none."""

    stream: Stream = Stream.MAIN
    meeting: Meeting | None = None


WHOLE = Part()


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The lanes of one job. ``found``: in offsets of the relay at hand. ``until``: where they end, None: nowhere.
    ``again``: what they write may be at the target already."""

    found: tuple[Checkpoint, ...]
    plans: tuple[TablePlan, ...]
    rules: Rules
    until: RelayOffset | None
    again: bool = False


class ReplicateUnit:
    """See :class:`worker.unit.ProcessUnit`. Needs a relay that reaches back to the lowest of the checkpoints.

    ``plans`` and the context's configuration: as the lanes are to be; ``standing``: as they are, under the
    context's epoch. The lanes of joining tables are never dealt anew: they are to be as they are.
    """

    def __init__(
        self,
        context: SubTaskContext,
        service: LaneService,
        plans: tuple[TablePlan, ...],
        handover: Handover | None,
        source_position: Callable[[], SourcePosition],
        standing: Standing,
        driver: StatementDriver,
        part: Part = WHOLE,
    ) -> None:
        self._context = context
        self._service = service
        self._plans = plans
        self._handover = handover
        self._handed = HandedOver(context, handover)
        self._source_position = source_position
        self._standing = standing
        self._driver = driver
        self._part = part
        self._gate = Gate(None)
        self._board: LaneBoard | None = None
        self._trail = SourceTrail()
        self._trail_lock = threading.Lock()
        self._is_settled = False
        self._held = HeldCount(context, self._begun_to_hold)
        self._stands = threading.Condition()
        self._stands_at: RelayOffset | None = None

    def run(self, stop: StopSignal) -> Outcome:
        inner = stop.child()
        threading.Thread(target=self._follow_source, args=(inner,), name="source-trail", daemon=True).start()
        threading.Thread(target=self._held.follow, args=(inner,), name="held-count", daemon=True).start()
        try:
            return self._run(stop, inner)
        except ShardmergeError as error:
            return Failed(error)
        finally:
            inner.set()

    def _run(self, stop: StopSignal, inner: StopSignal) -> Outcome:
        context = self._context
        found, recorded = self._standing.checkpoints, self._standing.dealing
        lanes = context.config.replicate.lanes or defaults.LANES
        wanted = dealing_of(context.config, lanes, self._plans).behind(recorded)
        if self._part.stream is Stream.JOIN and recorded is not None:
            wanted = recorded
        found = translated(context.relay, found, inner)
        self._handed.note(min(item.offset for item in found))
        done_at = self._handover.done_at if self._handover is not None else None
        if self._standing.ending is not None:
            self._gate = self._standing.ending.gate(found, done_at, inner)
        settled = self._settled(found, inner)
        while not stop.is_set:
            found = translated(context.relay, found, inner)
            again = settled is not None and min(item.offset for item in found) < settled
            match next_step(found, recorded, wanted, context.source.source_id, end_of_group(context.relay, inner)):
                case Keep() if again:
                    outcome = self._run_lanes(_Lanes(found, self._plans, context.rules, settled, again=True), stop)
                    found = self._read_checkpoints()
                    if not isinstance(outcome, Finished) or self._has_ended(found):
                        return outcome
                case Keep():
                    self._is_settled = True
                    return self._run_lanes(_Lanes(found, self._plans, context.rules, None), stop)
                case Rewrite(at=at):
                    found, recorded = self._deal_anew(found, at, wanted), wanted
                case Meet(barrier=barrier):
                    assert recorded is not None  # noqa: S101 - for the type checker: only such lanes meet
                    self._say_change(len(found), wanted)
                    plans = recorded.plans(context.source.source_id, context.tables)
                    outcome = self._run_lanes(_Lanes(found, plans, recorded.compiled_rules(), barrier, again), stop)
                    if not isinstance(outcome, Finished):
                        return outcome
                    found = self._read_checkpoints()
        return Stopped()

    def _run_lanes(self, lanes: _Lanes, stop: StopSignal) -> Outcome:
        """One job of lanes. Finished: every lane has reached ``lanes.until``."""
        context, count = self._context, len(lanes.found)
        inner = stop.child()
        board = LaneBoard(
            context.config.task,
            context.source.source_id,
            context.epoch,
            count,
            inner,
            lanes.until,
            self._gate,
            self._part.stream,
        )
        self._board = board
        self._held.look()
        # A lane that was stopped right before a statement meets it again.
        passed = self._driver.passed()

        def in_scope(statement: Statement) -> bool:
            is_passed = passed is not None and passed.covers(statement)
            scope = replace(self._driver.standing.statements, rules=lanes.rules)
            return not is_passed and RoutedScope(scope, beside=True)(statement)

        context.compiled.admit(lanes.plans)
        running = RunningReplicate(board, context.access, in_scope, self._limit, self._meets_at, context.compiled)
        self._service.register_board(running)
        threading.Thread(target=board.watch, name="lane-watch", daemon=True).start()
        keeper = threading.Thread(target=self._keep_barriers, args=(board, lanes.rules), name="barriers", daemon=True)
        keeper.start()
        try:
            outcomes = context.spark.run(
                f"{self._part.stream.verb} {context.config.task} {context.source.source_id}",
                count,
                LaneTask(self._spec(lanes)),
                inner,
            )
        finally:
            inner.set()
            self._service.unregister_board(board)
            keeper.join()
        if all(isinstance(outcome, TaskDone) for outcome in outcomes):
            return Finished()
        return self._judge(outcomes, board, stop)

    def _keep_barriers(self, board: LaneBoard, rules: Rules) -> None:
        """Until the streams end: act on the statements before which all lanes stand. A thread of its own."""
        while not board.stop.is_set:
            place = board.reached(_BARRIER_SECONDS)
            if place is None:
                continue
            try:
                standing = self._act(place, board.stop)
            except ShardmergeError as error:
                board.refuse(error)
                return
            except Exception as error:
                log.exception("unexpected error at a barrier")
                board.refuse(errors.worker.INTERNAL(kind=type(error).__name__, where="a barrier", reason=error))
                return
            if standing is None:
                return
            plans = standing.in_order
            self._context = replace(self._context, tables=standing.tables)
            self._plans = plans
            self._context.compiled.admit(plans)
            board.resume(place, LaneChange(plans, self._scope(rules)).to_bytes())

    def _act(self, place: Place, stop: StopSignal) -> TablesStanding | None:
        """What the lanes go on with; None: they are to end."""
        if isinstance(place, Statement):
            return self._driver.act(place, stop)
        with self._stands:
            self._stands_at = place.offset
            self._stands.notify_all()
            while not stop.is_set and not self._stands.wait_for(lambda: self._stands_at is None, _BARRIER_SECONDS):
                pass
        return None if stop.is_set else self._driver.standing

    def stands(self, seconds: float) -> RelayOffset | None:
        """Where all lanes stand because of the meeting; None: they do not, after ``seconds``."""
        with self._stands:
            self._stands.wait_for(lambda: self._stands_at is not None, seconds)
            return self._stands_at

    def go_on(self) -> None:
        """The lanes that stand go on, with what is the driver's standing now."""
        with self._stands:
            self._stands_at = None
            self._stands.notify_all()

    def _limit(self, end: RelayOffset) -> RelayOffset | None:
        limits = (self._gate.limit, *((self._part.meeting.limit,) if self._part.meeting is not None else ()))
        return min((place for limit in limits if (place := limit(end)) is not None), default=None)

    def _meets_at(self, place: RelayOffset) -> MeetingPlace | None:
        meeting, end = self._part.meeting, self._gate.found
        return None if meeting is None or (end is not None and end == place) else meeting.at(place)

    def status(self) -> worker_pb2.SyncStatus:
        end, board = self._source_position(), self._board
        if board is None:
            return worker_pb2.SyncStatus(master_binlog=str(end), binlog_type="relay", stop_at=self._stop_at)
        relay = self._context.relay
        head = relay.head()
        around = Surroundings(
            now=time.time(),
            elapsed=time.monotonic() - board.started_at,
            head=head,
            source_end=end,
            unfetched_since=self._unfetched_since(),
            bytes_behind=lambda offset: relay.bytes_between(offset, head.offset),
            first_commit_behind=relay.commit_time_behind,
        )
        status = sync_status(board.views(), around, self._held.keys)
        status.stop_at = self._stop_at
        lowest = board.lowest()
        status.next_server = "" if lowest is None else relay.server_behind(lowest)
        return status

    def _begun_to_hold(self) -> int:
        views = self._board.views() if self._board is not None else ()
        return sum(view.report.held_keys for view in views if view.report is not None)

    @property
    def _stop_at(self) -> str:
        ending = self._standing.ending
        return ending.stop.shown if ending is not None and ending.stop is not None else ""

    def doing(self) -> str:
        """What its lanes wait for, if it is not just events; "" otherwise."""
        return self._driver.doing() or (doing(self._board.views()) if self._board is not None else "")

    def _unfetched_since(self) -> float | None:
        with self._trail_lock:
            self._trail.note(time.time(), self._source_position())
            return self._trail.unfetched_since(self._context.relay.head().position)

    def _follow_source(self, stop: StopSignal) -> None:
        """So that it is known for how long the relay has been behind when somebody asks, and that all watermarks are
        passed."""
        while not stop.wait(_TRAIL_SECONDS):
            self._unfetched_since()
            self._handed.note(self.lowest())

    @property
    def context(self) -> SubTaskContext:
        """What it works with; for a comparison beside it, as :attr:`plans`."""
        return self._context

    @property
    def plans(self) -> tuple[TablePlan, ...] | None:
        """Those that the lanes follow; None while they run to a barrier by other ones."""
        return self._plans if self._is_settled else None

    def lowest(self) -> RelayOffset | None:
        """The lowest offset a lane may need again; None while unknown (nothing may be purged)."""
        return self._board.lowest() if self._board is not None else None

    # --- start

    def _settled(self, found: tuple[Checkpoint, ...], stop: StopSignal) -> RelayOffset | None:
        """Up to where rows may be at the target already; None: every lane is beyond that."""
        bound = self._standing.settled
        if bound is None or all(item.position.reaches(bound.position) for item in found):
            return None
        with self._context.relay.one_generation():
            return self._context.relay.locate(bound.position, _LOCATE_SECONDS, stop, first_if_before=True)

    def _has_ended(self, found: tuple[Checkpoint, ...]) -> bool:
        end = self._gate.found
        return end is not None and all(item.offset >= end for item in found)

    def _scope(self, rules: Rules) -> TableScope:
        return replace(self._driver.standing.scope, rules=rules)

    def _spec(self, lanes: _Lanes) -> LaneSpec:
        context, config = self._context, self._context.config
        handover = self._handover
        if handover is not None and min(item.offset for item in lanes.found) >= handover.done_at:
            handover = None
        return LaneSpec(
            address=context.lane_address,
            secret=context.run_secret,
            epoch=context.epoch,
            lanes=len(lanes.found),
            apply=ApplySettings(
                task=config.task,
                source=context.source.source_id,
                meta_schema=config.meta_schema,
                target=context.target_endpoint.without_secrets(),
                safe_mode=config.replicate.safe_mode or lanes.again,
                stream=self._part.stream,
                quarantine=config.replicate.quarantine,
            ),
            plans=lanes.plans,
            scope=self._scope(lanes.rules),
            begins=tuple(LaneStart(item.seq, item.offset) for item in lanes.found),
            relay_directory=str(context.relay.directory.absolute()),
            relay_id=lanes.found[0].relay_id,
            handover=handover,
            batch_rows=config.replicate.batch_rows or defaults.BATCH_ROWS,
            batch_bytes=config.replicate.batch_bytes or defaults.BATCH_BYTES,
            until=lanes.until,
            skips=skips_of(self._driver.ops()),
        )

    # --- the target's records

    def _read_checkpoints(self) -> tuple[Checkpoint, ...]:
        context = self._context
        return context.at_target(lambda session: checkpoints.read_begun(session, *context.who))

    def _deal_anew(self, found: tuple[Checkpoint, ...], at: Checkpoint, wanted: Dealing) -> tuple[Checkpoint, ...]:
        """Rewrite the lanes' checkpoints and the record of how rows are dealt, in one transaction. Raises FENCED."""
        context, epoch = self._context, self._context.epoch
        following = dealt_anew(found, at, wanted.lanes, epoch)
        hooks.reach("lanes.before_dealing")

        def rewrite(session: Session) -> None:
            checkpoints.replace_all(session, *context.who, found, following)
            hooks.reach("lanes.dealing")

        context.at_target(lambda session: meta.deal_anew(session, *context.who, epoch, wanted.to_json(), rewrite))
        hooks.reach("lanes.dealt")
        return following

    def _say_change(self, found: int, wanted: Dealing) -> None:
        notice = errors.replicate.LANES_CHANGED(
            task=self._context.config.task, source=self._context.source.source_id, wanted=wanted.lanes, found=found
        )
        log.info("lanes run to a barrier", notice=str(notice))

    # --- end

    def _judge(self, outcomes: list[TaskOutcome], board: LaneBoard, stop: StopSignal) -> Outcome:
        """The first lane's own error explains most; then what this side noticed."""
        failures = [outcome.error for outcome in outcomes if isinstance(outcome, TaskFailed)]
        match board.event:
            case Refused(error=error):
                return Stopped() if stop.is_set else Failed(error)
            case LaneGone(error=error):
                own = [item for item in failures if item.spec is not errors.worker.STREAM_LOST]
                return Failed(min(own, key=lambda item: item.spec.retryable, default=error))
            case None:
                if failures and not stop.is_set:
                    return Failed(min(failures, key=lambda item: item.spec.retryable))
                return Stopped()

"""The replicate unit: one Spark job of lanes that live until pause, stop, failure or a barrier."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pymysql

from proto import errors, worker_pb2
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.connection import Session, Side, coded, connect
from worker.context import SubTaskContext
from worker.ddl.routed import RoutedScope, shown, touched
from worker.lane_service import LaneService, RunningReplicate
from worker.plan import TablePlan
from worker.position import RelayOffset, SourcePosition
from worker.relay.model import Statement
from worker.replicate import checkpoint as checkpoints
from worker.replicate.apply import ApplySettings
from worker.replicate.board import BarrierReached, LaneBoard, LaneGone
from worker.replicate.checkpoint import Checkpoint
from worker.replicate.lane import LaneSpec, LaneStart, LaneTask
from worker.snapshot.handover import Handover
from worker.spark import TaskFailed, TaskOutcome
from worker.unit import Failed, Outcome, Stopped, StopSignal

log = get_logger()

LANES_DEFAULT = 2
BATCH_ROWS_DEFAULT = 20_000
BATCH_BYTES_DEFAULT = 8 << 20
_LOCATE_SECONDS = 600.0


def first_checkpoints(
    lanes: int, epoch: int, relay_id: str, start: SourcePosition, offset: RelayOffset
) -> tuple[Checkpoint, ...]:
    """Every lane's checkpoint at the place where replication begins."""
    return tuple(Checkpoint(lane, epoch, 0, relay_id, offset, 0, start, 0.0) for lane in range(lanes))


class ReplicateUnit:
    """See :class:`worker.unit.ProcessUnit`. Needs lane checkpoints at the target, and a relay that reaches back
    to the lowest of them."""

    def __init__(
        self,
        context: SubTaskContext,
        service: LaneService,
        plans: tuple[TablePlan, ...],
        handover: Handover | None,
        source_position: Callable[[], SourcePosition],
    ) -> None:
        self._context = context
        self._service = service
        self._plans = plans
        self._handover = handover
        self._source_position = source_position
        self._board: LaneBoard | None = None

    def run(self, stop: StopSignal) -> Outcome:
        context = self._context
        inner = stop.child()
        try:
            found = self._read_checkpoints()
            relay_id, begins = self._begins(found, inner)
            if stop.is_set:
                return Stopped()
            board = LaneBoard(context.config.task, context.source.source_id, context.epoch, len(found), inner)
            self._board = board
            self._service.register_board(RunningReplicate(board, RoutedScope(context.rules)))
            threading.Thread(target=board.watch, name="lane-watch", daemon=True).start()
            try:
                outcomes = context.spark.run(
                    f"replicate {context.config.task} {context.source.source_id}",
                    len(found),
                    LaneTask(self._spec(relay_id, begins)),
                    inner,
                )
            finally:
                inner.set()
                self._service.unregister(context.config.task, context.epoch)
        except ShardmergeError as error:
            return Failed(error)
        return self._judge(outcomes, board, stop)

    def status(self) -> worker_pb2.SyncStatus:
        position = self._source_position()
        if self._board is None:
            return worker_pb2.SyncStatus(master_binlog=str(position), binlog_type="relay")
        relay = self._context.relay
        head = relay.head()
        lowest = self._board.lowest()
        behind = relay.bytes_between(lowest, head.offset) if lowest is not None else 0
        return self._board.status(head, position, behind)

    def lowest(self) -> RelayOffset | None:
        """The lowest offset a lane may need again; None while unknown (nothing may be purged)."""
        return self._board.lowest() if self._board is not None else None

    # --- start

    def _read_checkpoints(self) -> tuple[Checkpoint, ...]:
        context = self._context
        config = context.config
        session = self._target()
        try:
            found = checkpoints.read_begun(session, config.meta_schema, config.task, context.source.source_id)
        except pymysql.MySQLError as error:
            raise coded(error, context.target_endpoint, Side.TARGET, "target") from error
        finally:
            session.close()
        wanted = config.replicate.lanes or LANES_DEFAULT
        if len(found) != wanted:
            notice = errors.replicate.LANES_CHANGED(
                task=config.task, source=context.source.source_id, wanted=wanted, found=len(found)
            )
            log.warning("lane count kept", error=str(notice))
        return found

    def _target(self) -> Session:
        return connect(self._context.target_endpoint, Side.TARGET, name="target", read_timeout=60)

    def _begins(self, found: tuple[Checkpoint, ...], stop: StopSignal) -> tuple[str, tuple[LaneStart, ...]]:
        """Checkpoints as offsets of the relay at hand, which may be another one or may have lost its tail."""
        relay = self._context.relay
        with relay.one_generation() as relay_id:
            head = relay.head().offset
            begins = tuple(
                LaneStart(
                    item.seq,
                    item.offset
                    if item.relay_id == relay_id and item.offset <= head
                    else relay.locate(item.position, _LOCATE_SECONDS, stop),
                )
                for item in found
            )
        return relay_id, begins

    def _spec(self, relay_id: str, begins: tuple[LaneStart, ...]) -> LaneSpec:
        context, config = self._context, self._context.config
        handover = self._handover
        if handover is not None and min(begin.offset for begin in begins) >= handover.done_at:
            handover = None
        return LaneSpec(
            address=context.lane_address,
            epoch=context.epoch,
            lanes=len(begins),
            apply=ApplySettings(
                task=config.task,
                source=context.source.source_id,
                meta_schema=config.meta_schema,
                target=context.target_endpoint,
                safe_mode=config.replicate.safe_mode,
            ),
            plans=self._plans,
            rules=context.rules,
            begins=begins,
            relay_id=relay_id,
            handover=handover,
            batch_rows=config.replicate.batch_rows or BATCH_ROWS_DEFAULT,
            batch_bytes=config.replicate.batch_bytes or BATCH_BYTES_DEFAULT,
        )

    # --- end

    def _judge(self, outcomes: list[TaskOutcome], board: LaneBoard, stop: StopSignal) -> Outcome:
        """The first lane's own error explains most; then what this side noticed."""
        failures = [outcome.error for outcome in outcomes if isinstance(outcome, TaskFailed)]
        match board.event:
            case BarrierReached(statement=statement):
                return Failed(self._not_handled(statement))
            case LaneGone(error=error):
                own = [item for item in failures if item.spec is not errors.worker.STREAM_LOST]
                return Failed(min(own, key=lambda item: item.spec.retryable, default=error))
            case None:
                if failures and not stop.is_set:
                    return Failed(min(failures, key=lambda item: item.spec.retryable))
                return Stopped()

    def _not_handled(self, statement: Statement) -> ShardmergeError:
        return errors.ddl.NOT_HANDLED(
            source=self._context.source.source_id,
            task=self._context.config.task,
            position=statement.position,
            tables=touched(statement),
            statement=shown(statement),
        )

"""The gRPC service for Spark tasks: it sends raw events and receives reports and chunk requests.

It connects three owners and holds no data: the source's relay, the running units' lane coordinators (replicate) and
dispensers (snapshot). A caller that carries another epoch than the running one, another source than the bound
one, or not the secret of the run (shardmerge.worker.core.spark.run_access), gets the answer that its run has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator

import grpc

from shardmerge.proto import errors, relay_pb2, relay_pb2_grpc
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.proto.task_history.event import NO_HISTORY, History
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.daemon.task_history import LaneRetries
from shardmerge.worker.ddl.decide.routed_statements import short_text, tables_text
from shardmerge.worker.relay.model import AtHead, AtStatement, BlockData, BlockPlace, ReachedUntil, Statement
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.replicate.lane_coordinator import BarrierPlace, LaneCoordinator
from shardmerge.worker.replicate.lane_totals import LaneTotals
from shardmerge.worker.replicate.running import RunningReplicate
from shardmerge.worker.rules.transform.client import failed_to_answer
from shardmerge.worker.rules.transform.expressions import Expressions
from shardmerge.worker.rules.transform.projection import evaluate
from shardmerge.worker.unit.run_context import RunningSnapshot

_LOCATE_SECONDS = 600.0
_WAIT_SECONDS = 0.5
_MOST_ROWS_BYTES = (1 << 30) + (64 << 20)
"""Largest size of the rows of one evaluation: MySQL sends no row larger than 1 GiB, and Arrow adds its own overhead."""


class TaskService(relay_pb2_grpc.RelayServicer):
    """The service; one per worker. ``relay``: the bound source's present relay, None while the worker is free."""

    def __init__(self, relay: Callable[[], Relay | None], history: History = NO_HISTORY) -> None:
        self._relay = relay
        self._retries = LaneRetries(history)
        self._lock = threading.Lock()
        self._large = threading.Lock()
        self._replicates: dict[tuple[str, Stream], RunningReplicate] = {}
        self._snapshots: dict[str, RunningSnapshot] = {}
        self.totals = LaneTotals()
        """What the lanes have done, for metrics."""

    # --- registration of units

    def register_lanes(self, running: RunningReplicate) -> None:
        with self._lock:
            self._replicates[running.coordinator.task, running.coordinator.stream] = running

    def register_dispenser(self, running: RunningSnapshot) -> None:
        with self._lock:
            self._snapshots[running.task] = running

    def unregister_lanes(self, coordinator: LaneCoordinator) -> None:
        """The lanes of this coordinator have ended; one that has replaced it stays."""
        with self._lock:
            running = self._replicates.get((coordinator.task, coordinator.stream))
            if running is not None and running.coordinator is coordinator:
                del self._replicates[coordinator.task, coordinator.stream]

    def unregister_dispenser(self, task: str, epoch: int) -> None:
        """The snapshot of this epoch has ended; one of a newer epoch stays."""
        with self._lock:
            snapshot = self._snapshots.get(task)
            if snapshot is not None and snapshot.epoch == epoch:
                snapshot.stop.set()
                del self._snapshots[task]

    def _replicate(self, who: relay_pb2.TaskIdentity) -> RunningReplicate | None:
        with self._lock:
            running = self._replicates.get((who.task, Stream(who.stream)))
        if running is None or (running.coordinator.source, running.coordinator.epoch) != (who.source, who.epoch):
            return None
        return running if who.index < running.coordinator.lanes and running.access.admits(who) else None

    def _snapshot(self, who: relay_pb2.TaskIdentity) -> RunningSnapshot | None:
        with self._lock:
            running = self._snapshots.get(who.task)
        if running is None or (running.source, running.epoch) != (who.source, who.epoch):
            return None
        return running if who.index < running.readers and running.access.admits(who) else None

    def _relay_of(self, who: relay_pb2.TaskIdentity) -> Relay | None:
        """The bound source's relay, if the task reads this source: after a rebind the worker has another source."""
        relay = self._relay()
        return relay if relay is not None and relay.source_id == who.source else None

    # --- the service

    def Subscribe(
        self, request: relay_pb2.SubscribeRequest, context: grpc.ServicerContext
    ) -> Iterator[relay_pb2.RelayFrame]:
        relay = self._relay_of(request.who)
        lanes = self._replicate(request.who) if request.barriers else None
        snapshot = None if request.barriers else self._snapshot(request.who)
        reader = lanes or snapshot
        if relay is None or reader is None:
            yield _closed(relay_pb2.Closed.REASON_STOP)
            return
        stop = reader.coordinator.stop if isinstance(reader, RunningReplicate) else reader.stop
        mine = stop.child()
        ended = threading.Event()
        failures: list[ShardmergeError] = []

        def over() -> None:
            # Called when the call is over, however it ended: a lane's process that died is noticed here.
            mine.set()
            if lanes is not None and not ended.is_set() and not lanes.coordinator.stop.is_set:
                lanes.coordinator.lane_gone(request.who.index, next(iter(failures), None))

        if not context.add_callback(over):
            return
        start = RelayOffset.from_proto(getattr(request, "from"))
        until = RelayOffset.from_proto(request.until) if request.HasField("until") else None
        index = request.who.index
        try:
            yield from self._stream(relay, start, until, reader, index, mine, ended, by_reference=request.by_reference)
        except ShardmergeError as error:
            # The lane may be stopped before it has read this frame: the reason of its end would be lost.
            failures.append(error)
            yield relay_pb2.RelayFrame(
                closed=relay_pb2.Closed(reason=relay_pb2.Closed.REASON_FAILED, error=error_to_proto(error))
            )
        if stop.is_set:
            ended.set()

    def _stream(
        self,
        relay: Relay,
        start: RelayOffset,
        until: RelayOffset | None,
        reader: RunningReplicate | RunningSnapshot,
        index: int,
        mine: StopSignal,
        ended: threading.Event,
        *,
        by_reference: bool,
    ) -> Iterator[relay_pb2.RelayFrame]:
        """``ended`` is set before the last frame of a stream that has reached ``until``. Raises errors of the relay."""
        opened = relay.opened(start)
        yield relay_pb2.RelayFrame(
            opened=relay_pb2.Opened(
                relay_id=opened.relay_id,
                format_description=opened.format_description,
                position=opened.position.to_proto(),
                **{"from": start.to_proto()},
            )
        )
        while not mine.is_set:
            reached = yield from self._serve(relay, start, until, reader, index, mine, by_reference=by_reference)
            if reached is None:
                break
            alignment = reader.alignment_at(reached) if isinstance(reader, RunningReplicate) else None
            if alignment is None or isinstance(reader, RunningSnapshot):
                ended.set()
                yield _closed(relay_pb2.Closed.REASON_UNTIL)
                return
            yield from self._at_barrier(reader, alignment, relay.position_at(reached), mine)
            start = reached
        yield _closed(relay_pb2.Closed.REASON_STOP)

    def _serve(
        self,
        relay: Relay,
        start: RelayOffset,
        until: RelayOffset | None,
        reader: RunningReplicate | RunningSnapshot,
        index: int,
        mine: StopSignal,
        *,
        by_reference: bool,
    ) -> Generator[relay_pb2.RelayFrame, None, RelayOffset | None]:
        """The frames from ``start`` on; returns the offset where the subscription ended, None if it was stopped."""
        limit, edges = (reader.limit, reader.edges) if isinstance(reader, RunningReplicate) else (None, None)
        # A lane may have committed some events of its first block, and counts all of them.
        shares, is_first = reader.shares if isinstance(reader, RunningReplicate) else None, True
        for item in relay.subscribe(
            start, until, reader.in_scope, mine, by_reference=by_reference, limit=limit, edges=edges
        ):
            if mine.is_set:
                return None
            match item:
                case BlockData():
                    yield _block(item, item.events if shares is None or is_first else shares.of(index, item))
                    is_first = False
                case BlockPlace():
                    yield _block(item)
                case AtHead(head=head):
                    yield relay_pb2.RelayFrame(
                        idle=relay_pb2.Idle(head=head.offset.to_proto(), position=head.position.to_proto())
                    )
                case AtStatement(statement=statement):
                    if isinstance(reader, RunningSnapshot):
                        raise errors.snapshot.STATEMENT_UNDER_CHUNK(
                            source=reader.source,
                            task=reader.task,
                            position=statement.position,
                            tables=tables_text(statement),
                            statement=short_text(statement),
                        )
                    yield from self._at_barrier(reader, statement, statement.position, mine)
                case ReachedUntil(offset=offset):
                    return offset
        return None

    def _at_barrier(
        self, running: RunningReplicate, place: BarrierPlace, position: SourcePosition, mine: StopSignal
    ) -> Iterator[relay_pb2.RelayFrame]:
        """Hold the stream at ``place`` until the driver resumes it, or until the stream has to end."""
        at = place.group_start if isinstance(place, Statement) else place.offset
        coordinator = running.coordinator
        number = coordinator.barrier(place)
        yield relay_pb2.RelayFrame(barrier=relay_pb2.Barrier(id=number, at=at.to_proto(), position=position.to_proto()))
        while not mine.is_set:
            change = coordinator.wait_resumed(number, _WAIT_SECONDS)
            if change is not None:
                if running.shares is not None:
                    running.shares.change(change)
                yield relay_pb2.RelayFrame(resumed=relay_pb2.Resumed(id=number, change=change))
                return
            # The lane's own connections are kept alive meanwhile: the driver may need hours.
            yield relay_pb2.RelayFrame(idle=relay_pb2.Idle(head=at.to_proto(), position=position.to_proto()))

    def Locate(self, request: relay_pb2.LocateRequest, context: grpc.ServicerContext) -> relay_pb2.LocateResponse:
        relay, snapshot = self._relay_of(request.who), self._snapshot(request.who)
        if relay is None or snapshot is None:
            raise errors.replicate.FENCED(task=request.who.task, source=request.who.source, epoch=request.who.epoch)
        mine = snapshot.stop.child()
        context.add_callback(mine.set)
        with relay.one_generation() as relay_id:
            offset = relay.locate(SourcePosition.from_proto(request.position), _LOCATE_SECONDS, mine)
        return relay_pb2.LocateResponse(relay_id=relay_id, offset=offset.to_proto())

    def AdmitChunk(
        self, request: relay_pb2.AdmitChunkRequest, context: grpc.ServicerContext
    ) -> relay_pb2.AdmitChunkResponse:
        relay, snapshot = self._relay_of(request.who), self._snapshot(request.who)
        if relay is None or snapshot is None:
            raise errors.replicate.FENCED(task=request.who.task, source=request.who.source, epoch=request.who.epoch)
        found = snapshot.dispenser.admit(request.who, request.chunk, SourcePosition.from_proto(request.position))
        if found is None:
            return relay_pb2.AdmitChunkResponse(interrupted=True)
        return relay_pb2.AdmitChunkResponse(relay_id=found.relay_id, offset=found.offset.to_proto())

    def Credentials(
        self, request: relay_pb2.CredentialsRequest, context: grpc.ServicerContext
    ) -> relay_pb2.CredentialsResponse:
        reader = self._snapshot(request.who)
        if reader is not None:
            return reader.access.credentials_of_reader()
        lanes = self._replicate(request.who)
        return relay_pb2.CredentialsResponse(stop=True) if lanes is None else lanes.access.credentials_of_lane()

    def ReportLane(self, request: relay_pb2.LaneReport, context: grpc.ServicerContext) -> relay_pb2.ReportAck:
        running = self._replicate(request.who)
        if running is None:
            return relay_pb2.ReportAck(stop=True)
        self._check_place(request)
        self.totals.add(request)
        self._retries.observe(request)
        relay = self._relay_of(request.who)
        return relay_pb2.ReportAck(
            stop=running.coordinator.report(request),
            source_ahead=0.0 if relay is None else relay.clock_offset.correction,
        )

    def _check_place(self, report: relay_pb2.LaneReport) -> None:
        """Raises PLACE_REFUSED for a place beyond the relay log: the relay log is purged up to the committed places."""
        relay = self._relay_of(report.who)
        if relay is None or not report.HasField("committed"):
            return
        place = RelayOffset.from_proto(report.committed)
        if not relay.is_reachable(place):
            who = report.who
            raise errors.worker.PLACE_REFUSED(lane=who.index, task=who.task, source=who.source, place=place)

    def Evaluate(self, request: relay_pb2.EvaluateRequest, context: grpc.ServicerContext) -> relay_pb2.EvaluateResponse:
        return _evaluated(self._expressions(request), request.rows)

    def EvaluateLarge(
        self, request_iterator: Iterator[relay_pb2.EvaluateRequest], context: grpc.ServicerContext
    ) -> relay_pb2.EvaluateResponse:
        first = next(request_iterator, relay_pb2.EvaluateRequest())
        expressions = self._expressions(first)
        # One at a time: each may need several times the memory of a source's largest row.
        with self._large:
            rows = bytearray(first.rows)
            for request in request_iterator:
                rows += request.rows
                if len(rows) > _MOST_ROWS_BYTES:
                    raise errors.replicate.ROWS_UNREADABLE(reason=f"they have more than {_MOST_ROWS_BYTES} bytes")
            return _evaluated(expressions, bytes(rows))

    def _expressions(self, request: relay_pb2.EvaluateRequest) -> Expressions:
        """The compiled expressions that the request names. Raises FENCED, EXPRESSIONS_UNKNOWN."""
        who = request.who
        running = [each for each in (self._snapshot(who), self._replicate(who)) if each is not None]
        if not running:
            raise errors.replicate.FENCED(task=who.task, source=who.source, epoch=who.epoch)
        asked = next((found for each in running if (found := each.compiled.find(request.expressions))), None)
        if asked is None:
            raise errors.replicate.EXPRESSIONS_UNKNOWN(task=who.task, source=who.source)
        return asked

    def TakeChunk(
        self, request: relay_pb2.TakeChunkRequest, context: grpc.ServicerContext
    ) -> relay_pb2.TakeChunkResponse:
        snapshot = self._snapshot(request.who)
        if snapshot is None:
            return relay_pb2.TakeChunkResponse(stop=True)
        return snapshot.dispenser.take(request.who, request.os_pid)

    def ReportChunk(self, request: relay_pb2.ChunkReport, context: grpc.ServicerContext) -> relay_pb2.ReportAck:
        snapshot = self._snapshot(request.who)
        return relay_pb2.ReportAck(stop=snapshot is None or snapshot.dispenser.report(request))


def _evaluated(expressions: Expressions, rows: bytes) -> relay_pb2.EvaluateResponse:
    """The response to an evaluation. Every failure is raised as a coded error."""
    try:
        return evaluate(expressions, rows)
    except ShardmergeError:
        raise
    except Exception as error:  # Py4J's and sockets' errors alike: the JVM does not answer
        raise failed_to_answer(error) from error


def _closed(reason: relay_pb2.Closed.Reason) -> relay_pb2.RelayFrame:
    return relay_pb2.RelayFrame(closed=relay_pb2.Closed(reason=reason))


def _block(item: BlockPlace | BlockData, events: bytes = b"") -> relay_pb2.RelayFrame:
    """``events``: those of the block that the reader needs; none of a block that the reader reads itself."""
    block = relay_pb2.Block(
        start=item.start.to_proto(),
        end=item.end.to_proto(),
        by_reference=not isinstance(item, BlockData),
        ends_group=item.ends_group,
        group_start=item.group_start.to_proto(),
        first_event=item.first_event,
        end_position=item.end_position.to_proto(),
        commit_time=item.commit_time,
    )
    if isinstance(item, BlockData):
        block.events = events
        block.place_at.extend(place.at for place in item.places)
        block.place_byte.extend(place.byte for place in item.places)
    return relay_pb2.RelayFrame(block=block)

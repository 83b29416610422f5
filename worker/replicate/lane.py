"""A lane: one long-lived Spark task that applies one hash bucket of keys.

It subscribes to the relay at its own checkpoint, decodes, keeps its rows, and commits whenever its input
runs dry or a bound is reached: one row after a few milliseconds when idle, thousands compacted by key
under backlog.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import grpc

from proto import errors, hooks, relay_pb2, relay_pb2_grpc, rpc
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.binlog.decoder import BlockDecoder
from worker.plan import TablePlan
from worker.position import RelayOffset, SourcePosition
from worker.replicate.apply import ApplySettings, TargetWriter
from worker.replicate.batch import Batch
from worker.replicate.checkpoint import Checkpoint
from worker.rows import RowChange
from worker.rules import Rules
from worker.snapshot.handover import Handover
from worker.spark import TaskDone, TaskFailed, TaskOutcome, TaskStopped

log = get_logger()

_QUEUED_FRAMES = 8  # a stalled target stops the feeder, then gRPC's flow control the worker: memory stays flat
_CHECKPOINT_SECONDS = 1.0
_REPORT_SECONDS = 0.25
_SIZE_AT = 9  # byte of the event's size in its header
_LOG_POS_AT = 13  # byte of log_pos in an event's header


@dataclass(frozen=True, slots=True)
class LaneStart:
    """Where a lane begins in *this* relay log, if its checkpoint is still the one of ``seq``."""

    seq: int
    offset: RelayOffset


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """What every lane of one run gets; pickled into the Spark tasks.

    ``begins``: by lane; the checkpoint's offset, translated when it is of another relay log.
    ``handover``: None once every chunk's high watermark has been passed.
    """

    address: str
    epoch: int
    lanes: int
    apply: ApplySettings
    plans: tuple[TablePlan, ...]
    rules: Rules
    begins: tuple[LaneStart, ...]
    relay_id: str
    handover: Handover | None
    batch_rows: int
    batch_bytes: int


class _Stopped(Exception):
    """The stream was closed on purpose."""


class LaneTask:
    """The Spark task's body; one object per run, called once per lane with the lane's number."""

    def __init__(self, spec: LaneSpec) -> None:
        self._spec = spec

    def __call__(self, index: int) -> TaskOutcome:
        lane = _Lane(self._spec, index)
        try:
            lane.run()
        except _Stopped:
            return TaskStopped()
        except ShardmergeError as error:
            if error.spec is errors.replicate.FENCED:
                # Spark no longer listens to a zombie: its process's own log is where this can be seen.
                print(f"fenced pid={os.getpid()} {error}", file=sys.stderr, flush=True)
            lane.report_failure(error)
            return TaskFailed(error)
        finally:
            lane.close()
        return TaskDone()


class _Lane:
    def __init__(self, spec: LaneSpec, index: int) -> None:
        self._spec = spec
        self._index = index
        source = spec.apply.source
        self._who = relay_pb2.TaskIdentity(task=spec.apply.task, source=source, epoch=spec.epoch, index=index)
        self._plans = {(plan.table.schema, plan.table.name): plan for plan in spec.plans}
        self._handover = spec.handover
        self._writer = TargetWriter(spec.apply, index, spec.epoch)
        self._channel = rpc.channel(spec.address)
        self._stub = relay_pb2_grpc.RelayStub(self._channel)
        self._decoder = BlockDecoder(self._resolve, source_keys=spec.handover is not None, source=source)
        self._batch = Batch(index, spec.lanes)
        self._reporter = _Reporter(self._stub, self._who)
        self._frames: queue.Queue[relay_pb2.RelayFrame | ShardmergeError] = queue.Queue(_QUEUED_FRAMES)
        self._call: grpc.Call | None = None
        self._closed = threading.Event()
        self._file = ""

    def run(self) -> None:
        """Until the stream is closed. Raises _Stopped or the coded error that ended the lane."""
        found = self._writer.read_checkpoint()
        self._committed = replace(found, relay_id=self._spec.relay_id, offset=self._first_offset(found))
        self._next = self._committed
        self._committed_at = time.monotonic()
        self._file = found.position.file
        self._reporter.start(self._committed)
        self._subscribe()
        while True:
            frame = self._next_frame()
            match frame.WhichOneof("frame"):
                case "opened":
                    self._expect(frame.opened.relay_id)
                    self._decoder.open(frame.opened.format_description)
                    self._file = frame.opened.position.file or self._file
                case "block":
                    self._take(frame.block)
                case "idle":
                    self._commit_if_due(dry=True)
                    self._writer.keep_alive()
                case "barrier":
                    self._reach_barrier(frame.barrier)
                case "closed":
                    _raise_closed(frame.closed)
                case _:
                    pass
            self._commit_if_due(dry=self._frames.empty())

    def close(self) -> None:
        self._closed.set()
        if self._call is not None:
            self._call.cancel()
        self._reporter.stop()
        self._writer.close()
        self._channel.close()

    def report_failure(self, error: ShardmergeError) -> None:
        """Tell the worker at once: Spark tells only when every lane has ended."""
        self._reporter.failed(error)

    def _first_offset(self, found: Checkpoint) -> RelayOffset:
        """The checkpoint's place in the relay log at hand."""
        begin = self._spec.begins[self._index]
        if found.seq == begin.seq:
            return begin.offset
        if found.relay_id == self._spec.relay_id:
            # An earlier attempt of this very run (Spark may retry a task) has committed since.
            return found.offset
        raise errors.worker.STREAM_LOST(
            lane=self._index, address=self._spec.address, reason="another attempt has moved the checkpoint"
        )

    # --- input

    def _subscribe(self) -> None:
        request = relay_pb2.SubscribeRequest(
            who=self._who, barriers=True, **{"from": self._committed.offset.to_proto()}
        )
        stream = self._stub.Subscribe(request)
        self._call = stream
        threading.Thread(target=self._feed, args=(stream,), name="lane-feed", daemon=True).start()

    def _feed(self, stream: Iterator[relay_pb2.RelayFrame]) -> None:
        # A thread of its own, so that the lane can see whether more is waiting.
        try:
            for frame in stream:
                self._enqueue(frame)
            reason = "the stream ended"
        except grpc.RpcError as error:
            coded = rpc.coded_from_rpc(error, f"worker at {self._spec.address}")
            reason = str(coded)
        self._enqueue(errors.worker.STREAM_LOST(lane=self._index, address=self._spec.address, reason=reason))

    def _enqueue(self, item: relay_pb2.RelayFrame | ShardmergeError) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._frames.put(item, timeout=0.5)
                return

    def _next_frame(self) -> relay_pb2.RelayFrame:
        self._reporter.phase = "reading"
        item = self._frames.get()
        if isinstance(item, ShardmergeError):
            raise item
        return item

    def _expect(self, relay_id: str) -> None:
        if relay_id != self._spec.relay_id:
            raise errors.worker.STREAM_LOST(
                lane=self._index, address=self._spec.address, reason="the relay log began anew"
            )

    def _resolve(self, schema: str, table: str) -> TablePlan | None:
        plan = self._plans.get((schema, table))
        if plan is None and self._spec.rules.route(schema, table) is not None:
            raise errors.replicate.TABLE_UNKNOWN(
                source=self._spec.apply.source, schema=schema, table=table, position=self._next.position
            )
        return plan

    # --- work

    def _take(self, block: relay_pb2.Block) -> None:
        self._reporter.phase = "applying"
        events = block.events
        skip = 0
        if self._next.skip_events > block.first_event:
            # A restart inside a large group: its first events were committed before.
            skip = self._next.skip_events - block.first_event
        changes = self._decoder.decode(events, skip)
        if self._handover is not None:
            changes = self._beyond_watermarks(changes, block)
        add, file = self._batch.add, block.end_position.file
        for change in changes:
            at = change.byte + _LOG_POS_AT
            add(change, file, int.from_bytes(events[at : at + 4], "little"))
        position = SourcePosition.from_proto(block.end_position)
        if block.ends_group:
            self._move(RelayOffset.from_proto(block.end), 0, position, block.commit_time)
        else:
            counted = block.first_event + _count_events(events)
            self._move(
                RelayOffset.from_proto(block.group_start),
                max(counted, self._next.skip_events if skip else 0),
                position,
                block.commit_time,
            )

    def _move(self, offset: RelayOffset, skip_events: int, position: SourcePosition, commit_time: float) -> None:
        self._next = self._committed.moved(offset, skip_events, position, commit_time or self._next.commit_time)

    def _beyond_watermarks(self, changes: list[RowChange], block: relay_pb2.Block) -> list[RowChange]:
        """Only what the snapshot does not hold already (I5); for keys up to their chunk's high watermark."""
        handover = self._handover
        if handover is None:
            return changes
        start = RelayOffset.from_proto(block.start)
        if start >= handover.done_at:
            self._handover = None
            return changes
        return handover.apply(changes, lambda change: RelayOffset(start.segment, start.byte + change.byte))

    def _reach_barrier(self, barrier: relay_pb2.Barrier) -> None:
        self._commit_if_due(dry=True)
        self._reporter.barrier(barrier.id, self._committed)

    def _commit_if_due(self, *, dry: bool) -> None:
        batch, spec = self._batch, self._spec
        # A row may be followed by hours of backlog that is other lanes': it does not wait for that.
        old = time.monotonic() - self._committed_at >= _CHECKPOINT_SECONDS
        if not batch.is_empty:
            if dry or old or batch.changes >= spec.batch_rows or batch.bytes >= spec.batch_bytes:
                self._commit()
        elif self._next is not self._committed and old:
            # A lane without rows still moves, so that a restart never re-reads hours.
            self._commit()

    def _commit(self) -> None:
        self._reporter.phase = "committing"
        hooks.reach(f"lane{self._index}.commit")
        following = replace(self._next, seq=self._committed.seq + 1)
        applied_at = self._writer.commit(self._batch, following)
        self._reporter.committed(following, self._batch.changes, applied_at)
        self._committed = self._next = following
        self._committed_at = time.monotonic()
        if not self._batch.is_empty:
            self._batch = Batch(self._index, self._spec.lanes)


def _count_events(events: bytes) -> int:
    """Events in a piece of a group; their sizes were checked by the decoder."""
    count = at = 0
    while at < len(events):
        at += int.from_bytes(events[at + _SIZE_AT : at + _SIZE_AT + 4], "little")
        count += 1
    return count


def _raise_closed(closed: relay_pb2.Closed) -> None:
    if closed.reason == relay_pb2.Closed.REASON_FAILED:
        raise rpc.error_from_proto(closed.error)
    raise _Stopped


class _Reporter:
    """Tells the worker what the lane is doing, from a thread of its own so that commits do not wait."""

    def __init__(self, stub: relay_pb2_grpc.RelayStub, who: relay_pb2.TaskIdentity) -> None:
        self._stub = stub
        self._report = relay_pb2.LaneReport(who=who, os_pid=os.getpid())
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lane-report", daemon=True)
        self.phase = "starting"

    def start(self, at: Checkpoint) -> None:
        self._fill(at)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._wake.set()

    def committed(self, at: Checkpoint, changes: int, applied_at: float) -> None:
        self._fill(at)
        with self._lock:
            self._report.rows += changes
            if changes:
                self._report.commit_time = at.commit_time
                self._report.applied_time = applied_at

    def barrier(self, number: int, at: Checkpoint) -> None:
        self._fill(at)
        with self._lock:
            self._report.barrier = number
        self._wake.set()

    def failed(self, error: ShardmergeError) -> None:
        """A last report, sent by the caller's thread."""
        self.stop()
        with self._lock:
            self._report.failed.CopyFrom(rpc.error_to_proto(error))
        self._send()

    def _fill(self, at: Checkpoint) -> None:
        with self._lock:
            self._report.committed.CopyFrom(at.offset.to_proto())
            self._report.position.CopyFrom(at.position.to_proto())

    def _run(self) -> None:
        while not self._ended.is_set():
            self._send()
            self._wake.wait(_REPORT_SECONDS)
            self._wake.clear()

    def _send(self) -> None:
        message = relay_pb2.LaneReport()
        with self._lock:
            self._report.phase = "barrier" if self._report.barrier else self.phase
            message.CopyFrom(self._report)
        try:
            self._stub.ReportLane(message, timeout=5.0)
        except (grpc.RpcError, ValueError) as error:
            # The stream tells the lane when the worker is gone; a lost report is none.
            log.debug("report not taken", reason=type(error).__name__)

"""A lane: one long-lived Spark task that applies one hash bucket of keys.

It subscribes to the relay at its own checkpoint, decodes, keeps its rows, and commits whenever its input
runs dry or a bound is reached: one row after a few milliseconds when idle, thousands compacted by key
under backlog.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc

from proto import errors, hooks, relay_pb2, relay_pb2_grpc, rpc
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.binlog.decoder import BlockDecoder
from worker.binlog.little import event_end, event_size
from worker.credentials import fetch_credentials
from worker.ddl.tables import TableName, TableScope
from worker.plan import TablePlan
from worker.position import RelayOffset, SourcePosition
from worker.relay.local import LocalLog
from worker.replicate.apply import TargetWriter
from worker.replicate.batch import Batch
from worker.replicate.change import LaneChange
from worker.replicate.checkpoint import Checkpoint
from worker.replicate.frames import Frames
from worker.replicate.placement import Bucket
from worker.replicate.reporter import LanePhase, Reporter, tell_failure
from worker.replicate.skips import SkippedRow, Skips, located, named_in, own_part
from worker.replicate.target import ApplySettings
from worker.rows import RowChange
from worker.rowstage.server import Judge
from worker.rowstage.stage import RowStage
from worker.rowstage.waiting import Waiting
from worker.snapshot.handover import Handover
from worker.spark import TaskBody, TaskDone, TaskOutcome, TaskStopped
from worker.transform.client import Asker

log = get_logger()

_CHECKPOINT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LaneStart:
    """Where a lane begins in *this* relay log, if its checkpoint is still the one of ``seq``."""

    seq: int
    offset: RelayOffset


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """What every lane of one run gets; pickled into the Spark tasks.

    ``secret``: the secret of the run. ``apply.target`` carries no password; each lane fetches it.
    ``begins``: by lane; the checkpoint's offset, translated when it is of another relay log.
    ``relay_directory``: of relay log ``relay_id``, at the worker's machine.
    ``handover``: None once every chunk's high watermark has been passed.
    ``until``: the group end at which the lanes commit and end; None: they live on. ``skips``: row events that an
    operator has told to pass over.
    """

    address: str
    secret: str = field(repr=False)
    epoch: int
    lanes: int
    apply: ApplySettings
    plans: tuple[TablePlan, ...]
    scope: TableScope
    begins: tuple[LaneStart, ...]
    relay_directory: str
    relay_id: str
    handover: Handover | None
    batch_rows: int
    batch_bytes: int
    until: RelayOffset | None = None
    skips: Skips = frozenset()


class _Stopped(Exception):
    """The stream was closed on purpose."""


class LaneTask(TaskBody):
    """The Spark task's body; one object per run, called once per lane with the lane's number."""

    def __init__(self, spec: LaneSpec) -> None:
        self._spec = spec

    def __call__(self, index: int) -> TaskOutcome:
        spec = self._spec
        found = fetch_credentials(spec.address, _identity(spec, index))
        if found is None:
            return TaskStopped()
        apply = replace(spec.apply, target=spec.apply.target.with_secrets(found.target))
        lane = _Lane(replace(spec, apply=apply), index)
        try:
            lane.run()
        except _Stopped:
            return TaskStopped()
        finally:
            lane.close()
        return TaskDone()

    def failed(self, index: int, error: ShardmergeError) -> None:
        if error.spec is errors.replicate.FENCED:
            # Spark no longer listens to a zombie: its process's own log is where this can be seen.
            print(f"fenced pid={os.getpid()} {error}", file=sys.stderr, flush=True)
        tell_failure(self._spec.address, _identity(self._spec, index), error)


def _identity(spec: LaneSpec, index: int) -> relay_pb2.TaskIdentity:
    apply = spec.apply
    return relay_pb2.TaskIdentity(
        task=apply.task,
        source=apply.source,
        epoch=spec.epoch,
        index=index,
        stream=apply.stream.value,
        run_secret=spec.secret,
    )


class _Lane:
    def __init__(self, spec: LaneSpec, index: int) -> None:
        self._spec = spec
        self._index = index
        source = spec.apply.source
        self._who = _identity(spec, index)
        self._plans = _by_name(spec.plans)
        self._scope = spec.scope
        self._handover = spec.handover
        self._channel = rpc.channel(spec.address)
        self._stub = relay_pb2_grpc.RelayStub(self._channel)
        self._frames = Frames()
        self._log = LocalLog(Path(spec.relay_directory), spec.relay_id, source)
        self._reporter = Reporter(self._stub, self._who, self._frames.full)
        self._writer = TargetWriter(spec.apply, index, spec.epoch, self._reporter.retrying)
        self._decoder = BlockDecoder(
            self._resolve,
            source_keys=spec.handover is not None,
            source=source,
            bucket=Bucket(index, spec.lanes),
            filters=True,
        )
        self._asker = Asker(spec.address, self._who)
        judge = Judge(spec.apply.target, spec.apply.meta_schema)
        self._stage = RowStage(judge, Bucket(index, spec.lanes), self._asker)
        self._stage.set_plans(spec.plans)
        self._batch = self._new_batch()
        self._waiting = Waiting()
        self._skipped: list[SkippedRow] = []
        self._call: grpc.Call | None = None
        self._file = ""

    def run(self) -> None:
        """Until the stream is closed. Raises _Stopped or the coded error that ended the lane."""
        self._reporter.start()
        found = self._writer.read_checkpoint()
        self._read_held()
        self._committed = replace(found, relay_id=self._spec.relay_id, offset=self._first_offset(found))
        self._next = self._committed
        self._committed_at = self._eager_at = time.monotonic()
        self._file = found.position.file
        self._reporter.began(self._committed)
        self._subscribe()
        while True:
            frame = self._next_frame()
            if frame is None:
                self._commit_if_due(dry=True)
                continue
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
                case "resumed":
                    self._go_on(LaneChange.from_bytes(frame.resumed.change))
                case "closed":
                    if frame.closed.reason == relay_pb2.Closed.REASON_UNTIL:
                        self._reach_end()
                        return
                    _raise_closed(frame.closed)
                case _:
                    pass
            self._commit_if_due(dry=self._frames.empty())

    def close(self) -> None:
        self._frames.close()
        if self._call is not None:
            self._call.cancel()
        self._reporter.stop()
        self._log.close()
        self._writer.close()
        self._stage.close()
        self._asker.close()
        self._channel.close()

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
        until = self._spec.until
        request = relay_pb2.SubscribeRequest(
            who=self._who,
            barriers=True,
            by_reference=self._log.is_at_hand(),
            until=until.to_proto() if until is not None else None,
            **{"from": self._committed.offset.to_proto()},
        )
        stream = self._stub.Subscribe(request)
        self._call = stream
        threading.Thread(target=self._feed, args=(stream,), name="lane-feed", daemon=True).start()

    def _feed(self, stream: Iterator[relay_pb2.RelayFrame]) -> None:
        # A thread of its own, so that the lane can see whether more is waiting.
        try:
            for frame in stream:
                self._frames.put(frame)
            reason = "the stream ended"
        except grpc.RpcError as error:
            coded = rpc.coded_from_rpc(error, f"worker at {self._spec.address}", self._spec.address)
            reason = str(coded)
        self._frames.put(errors.worker.STREAM_LOST(lane=self._index, address=self._spec.address, reason=reason))

    def _next_frame(self) -> relay_pb2.RelayFrame | None:
        """None when rows wait for their commit and nothing has come by then."""
        self._reporter.enter(LanePhase.READING)
        wait = None if self._is_empty else max(self._eager_at - time.monotonic(), 0.0)
        item = self._frames.get(wait)
        if isinstance(item, ShardmergeError):
            raise item
        return item

    @property
    def _is_empty(self) -> bool:
        return self._batch.is_empty and not self._waiting.changes

    def _expect(self, relay_id: str) -> None:
        if relay_id != self._spec.relay_id:
            raise errors.worker.STREAM_LOST(
                lane=self._index, address=self._spec.address, reason="the relay log began anew"
            )

    def _resolve(self, schema: str, table: str) -> TablePlan | None:
        plan = self._plans.get((schema, table))
        if plan is None and self._scope.holds(schema, table):
            raise errors.replicate.TABLE_UNKNOWN(
                source=self._spec.apply.source, schema=schema, table=table, position=self._next.position
            )
        return plan and self._stage.decoded_by(plan)

    # --- work

    def _take(self, block: relay_pb2.Block) -> None:
        self._reporter.enter(LanePhase.APPLYING)
        events = self._read(block) if block.by_reference else block.events
        skip = 0
        if self._next.skip_events > block.first_event:
            # A restart inside a large group: its first events were committed before.
            skip = self._next.skip_events - block.first_event
        file = block.end_position.file
        passed_over = named_in(self._spec.skips, SourcePosition.from_proto(block.end_position), events)
        if passed_over and block.place_at:
            places = ", ".join(str(SourcePosition(file, pos)) for pos in sorted(passed_over))
            raise errors.replicate.SKIP_AMBIGUOUS(source=self._spec.apply.source, position=places)
        try:
            if passed_over or self._in_handover(block):
                self._take_singly(events, skip, block, passed_over)
                count = _count_events(events)
            else:
                count = self._decoder.pick(events, skip, file, self._batch)
                if self._batch.staged:
                    self._settle(events)
        except ShardmergeError as error:
            raise located(error, file, self._decoder.event_end) from error
        position = SourcePosition.from_proto(block.end_position)
        if block.ends_group:
            self._move(RelayOffset.from_proto(block.end), 0, position, block.commit_time)
        else:
            counted = block.first_event + count
            self._move(
                RelayOffset.from_proto(block.group_start),
                max(counted, self._next.skip_events if skip else 0),
                position,
                block.commit_time,
            )

    def _take_singly(self, events: bytes, skip: int, block: relay_pb2.Block, passed_over: frozenset[int]) -> None:
        """Row by row: those that the snapshot holds are left out, those of events to be ``passed_over`` recorded."""
        self._settle_waiting()  # what came before them
        file = self._batch.file = block.end_position.file
        changes, unread = self._decoder.decode_around(events, skip, passed_over)
        changes, unmapped = self._stage.settle(
            changes, lambda change: _end_of(change, events), lambda change: _end_of(change, events) in passed_over
        )
        unread += [(_end_of(change, events), plan, error) for change, plan, error in unmapped]
        if self._in_handover(block):
            changes = self._beyond_watermarks(changes, block)
        for change in changes:
            pos = _end_of(change, events)
            if pos not in passed_over:
                self._batch.add(change, pos)
                continue
            own = own_part(change, SourcePosition(file, pos), Bucket(self._index, self._spec.lanes))
            if own is not None:
                self._skipped.append(own)
        for pos, plan, error in unread:
            self._skipped.append(SkippedRow(plan, "unreadable", "", "", str(error), SourcePosition(file, pos)))

    def _settle(self, events: bytes) -> None:
        """Take what the row stage leaves of the changes that the decoder gave to it."""
        if self._stage.gathers:
            own = self._stage.own(self._batch.take_staged())
            file = self._batch.file
            self._waiting.add((change, SourcePosition(file, _end_of(change, events))) for change in own)
            if self._waiting.is_full:
                self._settle_waiting()
            return
        changes, _ = self._stage.settle(self._batch.take_staged(), lambda change: _end_of(change, events))
        for change in changes:
            self._batch.add(change, _end_of(change, events))

    def _settle_waiting(self) -> None:
        waiting, self._waiting = self._waiting, Waiting()
        if not waiting.changes:
            return
        for change, place in self._stage.settled(waiting.changes, waiting.places):
            self._batch.file = place.file
            self._batch.add(change, place.pos)

    def _read(self, block: relay_pb2.Block) -> bytes:
        start, end = RelayOffset.from_proto(block.start), RelayOffset.from_proto(block.end)
        try:
            return self._log.read(start, end)
        except (OSError, EOFError) as error:
            raise errors.worker.RELAY_UNREADABLE(
                lane=self._index, start=start, end=end, directory=self._spec.relay_directory, reason=error
            ) from error

    def _move(self, offset: RelayOffset, skip_events: int, position: SourcePosition, commit_time: float) -> None:
        self._next = self._committed.moved(offset, skip_events, position, commit_time or self._next.commit_time)

    def _in_handover(self, block: relay_pb2.Block) -> bool:
        """Whether keys of this block may still lie before their chunk's high watermark."""
        if self._handover is not None and RelayOffset.from_proto(block.start) >= self._handover.done_at:
            self._handover = None
        return self._handover is not None

    def _beyond_watermarks(self, changes: list[RowChange], block: relay_pb2.Block) -> list[RowChange]:
        """Only what the snapshot does not hold already (I5)."""
        start = RelayOffset.from_proto(block.start)
        if self._handover is None:
            return changes
        if not block.place_at:
            return self._handover.apply(changes, lambda change: RelayOffset(start.segment, start.byte + change.byte))
        # The events are not the relay log's own bytes: it counts on which side of a group end their group lies.
        at, byte = list(block.place_at), list(block.place_byte)
        return self._handover.apply(
            changes, lambda change: RelayOffset(start.segment, byte[bisect_right(at, change.byte) - 1])
        )

    def _reach_barrier(self, barrier: relay_pb2.Barrier) -> None:
        # Without rows too: what lies before the barrier is never to be decoded again, with other structures.
        if self._next is not self._committed:
            self._commit()
        self._reporter.barrier(barrier.id, self._committed)

    def _go_on(self, change: LaneChange) -> None:
        self._plans = _by_name(change.plans)
        self._scope = change.scope
        self._stage.set_plans(change.plans)
        self._decoder.forget()
        self._read_held()  # of tables that have joined, too
        self._reporter.passed()

    def _read_held(self) -> None:
        """Between two batches."""
        self._writer.read_held()
        self._batch = self._new_batch()

    def _new_batch(self) -> Batch:
        return Batch(self._index, self._spec.lanes, by_shard=self._writer.holds)

    def _reach_end(self) -> None:
        """Everything up to ``until`` has been taken: commit it, and say so before the process ends."""
        if self._next is not self._committed:
            self._commit()
        self._reporter.report_now()

    def _commit_if_due(self, *, dry: bool) -> None:
        batch, spec = self._batch, self._spec
        now = time.monotonic()
        # A row may be followed by hours of backlog that is other lanes': it does not wait for that.
        old = now - self._committed_at >= _CHECKPOINT_SECONDS
        if not self._is_empty:
            # An empty queue is not yet dry input: on a busy machine the feeder brings block after block just too late,
            # and a lane that commits each alone falls behind for ever. So it gathers as long as its last commit took.
            eager = dry and now >= self._eager_at
            rows = batch.rows + len(self._waiting.changes)
            if eager or old or rows >= spec.batch_rows or batch.size >= spec.batch_bytes:
                self._commit()
        elif self._next is not self._committed and old:
            # A lane without rows still moves, so that a restart never re-reads hours.
            self._commit()

    def _commit(self) -> None:
        self._reporter.enter(LanePhase.COMMITTING)
        began_at = time.monotonic()
        self._settle_waiting()
        hooks.reach(f"lane{self._index}.commit")
        following = replace(self._next, seq=self._committed.seq + 1)
        applied_at = self._writer.commit(self._batch, following, self._skipped)
        self._say_skipped()
        self._reporter.committed(following, self._batch.changes, applied_at, self._writer.held_keys)
        self._committed = self._next = following
        self._committed_at = time.monotonic()
        self._eager_at = self._committed_at + min(self._committed_at - began_at, _CHECKPOINT_SECONDS)
        if not self._batch.is_empty:
            self._batch = self._new_batch()

    def _say_skipped(self) -> None:
        apply = self._spec.apply
        for row in self._skipped:
            log.warning(
                "a row is skipped by an operator's word",
                task=apply.task,
                source=apply.source,
                lane=self._index,
                position=str(row.position),
                table=f"{row.plan.table.schema}.{row.plan.table.name}",
                target=row.plan.target_name,
                operation=row.operation,
            )
        self._skipped = []


def _by_name(plans: tuple[TablePlan, ...]) -> dict[TableName, TablePlan]:
    return {(plan.table.schema, plan.table.name): plan for plan in plans}


def _end_of(change: RowChange, events: bytes) -> int:
    """Where the change's event ends in the source's file."""
    return event_end(events, change.byte)


def _count_events(events: bytes) -> int:
    """Events in a piece of a group; their sizes were checked by the decoder."""
    count = at = 0
    while at < len(events):
        at += event_size(events, at)
        count += 1
    return count


def _raise_closed(closed: relay_pb2.Closed) -> None:
    if closed.reason == relay_pb2.Closed.REASON_FAILED:
        raise rpc.error_from_proto(closed.error)
    raise _Stopped

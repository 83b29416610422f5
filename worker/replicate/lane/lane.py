"""A lane: one long-lived Spark task that applies one hash bucket of keys.

It subscribes to the relay at its own checkpoint and applies the blocks of its stream (block_applier.py). It commits
when its input runs dry or a bound is reached (commit_timer.py): one row after a few milliseconds when idle, thousands
compacted by key under backlog. At a barrier it commits, reports, and waits for the plans with which it continues.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc

from shardmerge.proto import errors, relay_pb2, relay_pb2_grpc
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc import client
from shardmerge.proto.rpc.coded_errors import error_from_proto
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.spark.task_credentials import fetch_credentials
from shardmerge.worker.core.task_runner import TaskBody, TaskDone, TaskOutcome, TaskStopped
from shardmerge.worker.relay.serve.local_files import LocalLog
from shardmerge.worker.replicate.lane.block_applier import BlockApplier
from shardmerge.worker.replicate.lane.frame_queue import FrameQueue
from shardmerge.worker.replicate.lane.lane_change import LaneChange
from shardmerge.worker.replicate.lane.lane_spec import LaneSpec
from shardmerge.worker.replicate.lane.reporter import LanePhase, Reporter, report_failure


class _Stopped(Exception):
    """The stream was closed on purpose."""


class LaneTask(TaskBody):
    """The Spark task's body; one object per run, called once per lane with the lane's number."""

    def __init__(self, spec: LaneSpec) -> None:
        self._spec = spec

    def __call__(self, index: int) -> TaskOutcome:
        spec = self._spec
        found = fetch_credentials(spec.address, spec.identity(index))
        if found is None:
            return TaskStopped()
        apply = replace(spec.apply, target=spec.apply.target.with_secrets(found.target))
        lane = _Lane(replace(spec, apply=apply), index)
        try:
            lane.run()
        except _Stopped:
            lane.report_last()
            return TaskStopped()
        finally:
            lane.close()
        return TaskDone()

    def failed(self, index: int, error: ShardmergeError) -> None:
        if error.spec is errors.replicate.FENCED:
            # Spark no longer reads what a zombie reports: only its process's own log shows this.
            print(f"fenced pid={os.getpid()} {error}", file=sys.stderr, flush=True)
        report_failure(self._spec.address, self._spec.identity(index), error)


class _Lane:
    """The life of one lane: its stream, its barriers, its reports and its end."""

    def __init__(self, spec: LaneSpec, index: int) -> None:
        self._spec = spec
        self._index = index
        self._identity = spec.identity(index)
        self._channel = client.channel(spec.address)
        self._stub = relay_pb2_grpc.RelayStub(self._channel)
        self._frames = FrameQueue()
        self._log = LocalLog(Path(spec.relay_directory), spec.relay_id, spec.apply.source)
        self._reporter = Reporter(self._stub, self._identity, self._frames.full)
        self._applier = BlockApplier(spec, index, self._reporter.retrying, self._reporter.connected)
        self._call: grpc.Call | None = None

    def run(self) -> None:
        """Apply the stream until it is closed. Raises _Stopped or the coded error that ended the lane."""
        applier = self._applier
        self._reporter.start()
        first = applier.begin()
        self._reporter.began(first)
        self._subscribe(first.offset)
        while True:
            frame = self._next_frame()
            if frame is None:
                self._commit_if_due(dry=True)
                continue
            match frame.WhichOneof("frame"):
                case "opened":
                    self._check_relay_id(frame.opened.relay_id)
                    applier.open(frame.opened.format_description)
                case "block":
                    block = frame.block
                    self._reporter.enter(LanePhase.APPLYING)
                    applier.apply(block, self._read(block) if block.by_reference else block.events)
                case "idle":
                    self._reporter.reached_head()
                    self._commit_if_due(dry=True)
                    applier.keep_alive()
                case "barrier":
                    self._reach_barrier(frame.barrier)
                case "resumed":
                    self._change_plans(LaneChange.from_bytes(frame.resumed.change))
                    self._reporter.left_barrier()
                case "closed":
                    if frame.closed.reason == relay_pb2.Closed.REASON_UNTIL:
                        self._reach_end()
                        return
                    _raise_closed(frame.closed)
                case _:
                    pass
            self._commit_if_due(dry=self._frames.empty())

    def _change_plans(self, change: LaneChange) -> None:
        try:
            self._applier.change_plans(change)
        except ValueError as error:  # the lane has missed a change: it must begin again with the driver's plans
            raise errors.worker.STREAM_LOST(lane=self._index, address=self._spec.address, reason=error) from error

    def report_last(self) -> None:
        """Report what was committed since the last report, before the lane ends as requested."""
        self._reporter.report_now()

    def close(self) -> None:
        self._frames.close()
        if self._call is not None:
            self._call.cancel()
        self._reporter.stop()
        self._log.close()
        self._applier.close()
        self._channel.close()

    # --- input

    def _subscribe(self, start: RelayOffset) -> None:
        until = self._spec.until
        request = relay_pb2.SubscribeRequest(
            who=self._identity,
            barriers=True,
            by_reference=self._log.is_available(),
            until=until.to_proto() if until is not None else None,
            **{"from": start.to_proto()},
        )
        stream = self._stub.Subscribe(request)
        self._call = stream
        threading.Thread(target=self._feed, args=(stream,), name="lane-feed", daemon=True).start()

    def _feed(self, stream: Iterator[relay_pb2.RelayFrame]) -> None:
        # Runs in a thread of its own, so that the lane can see whether more frames wait.
        try:
            for frame in stream:
                self._frames.put(frame)
            reason = "the stream ended"
        except grpc.RpcError as error:
            coded = client.coded_from_rpc(error, f"worker at {self._spec.address}", self._spec.address)
            reason = str(coded)
        self._frames.put(errors.worker.STREAM_LOST(lane=self._index, address=self._spec.address, reason=reason))

    def _next_frame(self) -> relay_pb2.RelayFrame | None:
        """The next frame; None if rows are due for a commit before one arrives."""
        seconds = self._applier.seconds_to_commit()
        self._reporter.enter(LanePhase.READING, gathers=seconds is not None)
        item = self._frames.get(seconds)
        if isinstance(item, ShardmergeError):
            raise item
        return item

    def _check_relay_id(self, relay_id: str) -> None:
        if relay_id != self._spec.relay_id:
            raise errors.worker.STREAM_LOST(
                lane=self._index, address=self._spec.address, reason="the relay log began anew"
            )

    def _read(self, block: relay_pb2.Block) -> bytes:
        """The bytes of a block that was sent by reference, from the relay log's files."""
        start, end = RelayOffset.from_proto(block.start), RelayOffset.from_proto(block.end)
        try:
            return self._log.read(start, end)
        except (OSError, EOFError) as error:
            raise errors.worker.RELAY_UNREADABLE(
                lane=self._index, start=start, end=end, directory=self._spec.relay_directory, reason=error
            ) from error

    # --- commits

    def _reach_barrier(self, barrier: relay_pb2.Barrier) -> None:
        # Also without rows: events before the barrier must never be decoded again, with other structures.
        if self._applier.has_uncommitted:
            self._commit()
        self._reporter.barrier(barrier.id, self._applier.committed)

    def _reach_end(self) -> None:
        """Commit everything up to ``until``, and report it before the process ends."""
        if self._applier.has_uncommitted:
            self._commit()
        self._reporter.report_now()

    def _commit_if_due(self, *, dry: bool) -> None:
        if self._applier.is_commit_due(dry=dry):
            self._commit()

    def _commit(self) -> None:
        self._reporter.enter(LanePhase.COMMITTING)
        commit = self._applier.commit()
        self._reporter.committed(
            commit.checkpoint,
            commit.changes,
            commit.applied_at,
            commit.held_keys,
            commit.counts,
            is_awaited=commit.passed_edge,
        )


def _raise_closed(closed: relay_pb2.Closed) -> None:
    if closed.reason == relay_pb2.Closed.REASON_FAILED:
        raise error_from_proto(closed.error)
    raise _Stopped

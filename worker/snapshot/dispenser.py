"""Hands planned chunks to the readers and receives their reports. Thread-safe.

A reader that asks again without having reported its chunk gets that chunk again: the answer was lost, or
Spark has started the reader a second time. Two readers of one chunk do no harm: its record lets only one commit.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shardmerge.proto import relay_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_from_proto
from shardmerge.worker.core.position import Located, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.limits.rate_limiter import ChunkSize, RateLimiter
from shardmerge.worker.snapshot.limits.reader_times import ReaderTimes
from shardmerge.worker.snapshot.progress import SnapshotProgress
from shardmerge.worker.snapshot.statement_watch import StatementWatch

_WAIT_SECONDS = 1.0
_LOOK_SECONDS = 0.1
_PLANNER = -1  # beside the readers' numbers


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """A chunk that is recorded and waits for a reader."""

    plan: TablePlan
    chunk: Chunk


class Dispenser:
    """The queue of planned chunks of one run. ``stop``: the unit's signal; once it is set, every reader gets the answer
    to stop. ``clock``: seconds, monotonic. Chunks of a table whose copy is interrupted are not handed out."""

    def __init__(
        self,
        progress: SnapshotProgress,
        stop: StopSignal,
        limiter: RateLimiter,
        watch: StatementWatch,
        clock: Callable[[], float] = time.monotonic,
        times: ReaderTimes | None = None,
    ) -> None:
        """``watch``: finds the statements that interrupt the copies of tables. ``times``: adds up the readers' time."""
        self._watch = watch
        self._progress = progress
        self._stop = stop
        self._limiter = limiter
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[PlannedChunk] = deque()
        self._taken: dict[int, PlannedChunk] = {}
        self._complete = False
        self._closed = False
        self._failure: ShardmergeError | None = None
        self._throttle_reason = ""
        self._retried: dict[int, ShardmergeError] = {}
        self.times = ReaderTimes() if times is None else times

    # --- calls of the load monitor

    def throttle(self, why: str) -> None:
        """Let no chunk begin while the source is too busy. ``why``: the reason, one phrase; "": chunks may begin."""
        with self._changed:
            self._throttle_reason = why
            self._changed.notify_all()

    @property
    def is_throttled(self) -> bool:
        with self._changed:
            return bool(self._throttle_reason)

    # --- calls of the planner

    def add(self, chunks: Iterable[PlannedChunk]) -> None:
        """Add chunks that are recorded in the store already."""
        with self._changed:
            self._retried.pop(_PLANNER, None)
            self._waiting.extend(chunks)
            self._changed.notify_all()

    def complete(self) -> None:
        """The plan has no more chunks."""
        with self._changed:
            self._retried.pop(_PLANNER, None)
            self._complete = True
            self._changed.notify_all()

    def planning_is_retried(self, error: ShardmergeError) -> None:
        """Chunks are planned again after ``error``, until some are added or the plan is complete."""
        with self._changed:
            self._retried[_PLANNER] = error

    def fail(self, error: ShardmergeError) -> None:
        """Fail the snapshot: every reader has to stop. The first error is kept."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def close(self) -> None:
        """End the unit: every reader has to stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def failure(self) -> ShardmergeError | None:
        with self._changed:
            return self._failure

    @property
    def is_ending(self) -> bool:
        """Whether the readers and the planner have to stop."""
        return self._stop.is_set or self._closed or self._failure is not None

    def wait_ending(self, seconds: float) -> bool:
        """Wait up to ``seconds``; True as soon as :attr:`is_ending`."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not self.is_ending:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, _LOOK_SECONDS))
            return True

    def waiting_for(self) -> str:
        """Why no chunk begins although some are planned; "" when none has to wait."""
        with self._changed:
            if self._waiting and self._throttle_reason:
                return self._throttle_reason
            left = self._limiter.wait(self._clock()) if self._waiting else 0.0
            return f"{self._limiter.tightest_limit}: the next chunk begins in {left:.1f} s" if left > 0 else ""

    @property
    def retried(self) -> ShardmergeError | None:
        """After which error chunks are planned or read again now; None: none is."""
        with self._changed:
            return next((self._retried[who] for who in sorted(self._retried)), None)

    # --- calls of the readers

    def take(self, who: relay_pb2.TaskIdentity, os_pid: int) -> relay_pb2.TakeChunkResponse:
        """The next chunk for reader ``who.index``; waits up to a second while there is none or none may begin."""
        deadline = time.monotonic() + _WAIT_SECONDS
        with self._changed:
            while True:
                if self.is_ending:
                    return relay_pb2.TakeChunkResponse(stop=True)
                mine = self._taken.get(who.index)
                now = self._clock()
                if mine is None and self._waiting:
                    interrupted = self._watch.known()
                    if interrupted:
                        self._waiting = deque(item for item in self._waiting if item.plan.shard not in interrupted)
                if mine is None and self._waiting and not self._throttle_reason and self._limiter.wait(now) <= 0:
                    mine = self._taken[who.index] = self._waiting.popleft()
                    self._limiter.begin(who.index, now)
                if mine is not None:
                    self._progress.idle(who.index)
                    self.times.begins(who.index)
                    return relay_pb2.TakeChunkResponse(chunk=_spec(mine))
                if self._complete and not self._waiting:
                    return relay_pb2.TakeChunkResponse(finished=True)
                left = deadline - time.monotonic()
                if left <= 0:
                    return relay_pb2.TakeChunkResponse(wait=True)
                is_throttled = bool(self._waiting)
                # The stop signal does not wake this condition.
                self._changed.wait(min(left, _LOOK_SECONDS))
                waited = self.times.throttled if is_throttled else self.times.waited
                waited(self._clock() - now)

    def admit(
        self, who: relay_pb2.TaskIdentity, chunk: relay_pb2.ChunkSpec, position: SourcePosition
    ) -> Located | None:
        """Wait until the relay log contains ``position``; returns its offset. None: the chunk must not be committed,
        because a statement before it has interrupted the copy of its table, or because the reader does not hold it.

        Raises what :class:`StatementWatch` raises.
        """
        with self._changed:
            mine = self._taken.get(who.index)
        if mine is None or not _is(mine, chunk):
            return None
        high = self._watch.locate(position)
        return high if self._watch.admits(mine.plan.shard, high) else None

    def report(self, report: relay_pb2.ChunkReport) -> bool:
        """Count a reader's report; True: the reader has to stop. A report about a chunk that the reader does not hold
        changes nothing."""
        index = report.who.index
        if report.HasField("failed"):
            self.fail(error_from_proto(report.failed))
            return True
        with self._changed:
            mine = self._taken.get(index)
            if mine is not None and _is(mine, report.chunk):
                if report.worked_seconds:
                    self.times.worked(index, report.worked_seconds, report.write_seconds)
                if report.HasField("retried"):
                    self._retried[index] = error_from_proto(report.retried)
                else:
                    self._retried.pop(index, None)
                if report.interrupted:
                    del self._taken[index]
                    self._progress.idle(index)
                elif report.HasField("high"):
                    del self._taken[index]
                    self._limiter.read(index, ChunkSize(report.rows, report.bytes))
                    self._progress.loaded(index, mine.plan.shard, report.rows, report.bytes, report.seconds)
                else:
                    self._progress.reading(index, mine.plan.shard, report.rows, report.bytes)
            return self.is_ending


def _spec(planned: PlannedChunk) -> relay_pb2.ChunkSpec:
    table, chunk = planned.plan.table, planned.chunk
    return relay_pb2.ChunkSpec(
        source_schema=table.schema,
        source_table=table.name,
        number=chunk.number,
        lower=chunk.lower,
        upper=chunk.upper,
    )


def _is(planned: PlannedChunk, spec: relay_pb2.ChunkSpec) -> bool:
    table = planned.plan.table
    return (spec.source_schema, spec.source_table, spec.number) == (
        table.schema,
        table.name,
        planned.chunk.number,
    )

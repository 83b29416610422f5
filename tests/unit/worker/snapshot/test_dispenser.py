"""Each chunk goes to one reader, is handed out again when the reader dies, and all readers end together."""

from __future__ import annotations

import threading

from shardmerge.proto import errors, relay_pb2
from shardmerge.proto.common_pb2 import SourcePosition
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.dispenser import Dispenser, PlannedChunk
from shardmerge.worker.snapshot.limits.rate_limiter import ChunkSize, RateLimiter, RateLimits
from shardmerge.worker.snapshot.progress import SnapshotProgress
from tests.unit.worker.snapshot.shards import PLAN
from tests.unit.worker.snapshot.statements import no_statements

_HIGH = SourcePosition(file="f.1", pos=4)


def _who(index: int) -> relay_pb2.TaskIdentity:
    return relay_pb2.TaskIdentity(task="t", source="s1", epoch=1, index=index)


def _chunk(number: int) -> PlannedChunk:
    return PlannedChunk(PLAN, Chunk(number, (b"%d" % number,), (b"%d" % (number + 1),)))


class _Scene:
    def __init__(self, chunks: int, limits: RateLimits = RateLimits()) -> None:  # noqa: B008 - frozen
        self.now = 100.0
        self.stop = StopSignal()
        self.progress = SnapshotProgress([PLAN])
        self.progress.planned(PLAN.shard, chunks, complete=False)
        limiter = RateLimiter(limits, ChunkSize(10, 50))
        self.watch = no_statements()
        self.dispenser = Dispenser(self.progress, self.stop, limiter, self.watch, lambda: self.now)
        self.dispenser.add(_chunk(number) for number in range(chunks))

    def take(self, index: int) -> relay_pb2.TakeChunkResponse:
        return self.dispenser.take(_who(index), 1)

    def take_or_end(self, index: int) -> relay_pb2.TakeChunkResponse:
        """As a reader does: while the answer is to wait, ask again."""
        while (answer := self.take(index)).wait:
            pass
        return answer

    def done(self, index: int, chunk: relay_pb2.ChunkSpec, rows: int = 10) -> bool:
        return self.dispenser.report(
            relay_pb2.ChunkReport(who=_who(index), chunk=chunk, rows=rows, bytes=rows * 5, high=_HIGH)
        )


def test_what_is_retried_is_shown_until_it_has_worked() -> None:
    scene = _Scene(2)
    conflict = errors.relay.SOURCE_CONFLICT(source="s1", host="h", port=1, reason="held", errno=1205)
    seen: list[bool] = []

    def look() -> None:
        seen.append(scene.dispenser.retried is not None)

    scene.dispenser.planning_is_retried(conflict)
    look()
    scene.dispenser.add([_chunk(2)])
    look()
    chunk = scene.take(0).chunk
    for retried in (True, False, True):
        report = relay_pb2.ChunkReport(who=_who(0), chunk=chunk)
        if retried:
            report.retried.CopyFrom(error_to_proto(conflict))
        scene.dispenser.report(report)
        look()
    scene.done(0, chunk)
    look()
    scene.dispenser.planning_is_retried(conflict)
    scene.dispenser.complete()
    look()
    assert seen == [True, False, True, False, True, False, False]


def test_every_chunk_is_handed_out_once() -> None:
    scene = _Scene(5)
    scene.dispenser.complete()
    seen: list[int] = []
    for turn in range(5):
        answer = scene.take(turn % 2)
        seen.append(answer.chunk.number)
        assert not scene.done(turn % 2, answer.chunk)
    assert seen == [0, 1, 2, 3, 4]
    assert scene.take(0).finished
    assert scene.take(1).finished


def test_a_reader_that_did_not_report_gets_its_chunk_again() -> None:
    scene = _Scene(2)
    first = scene.take(0)
    assert scene.take(0) == first
    assert scene.take(1).chunk.number == 1
    scene.done(0, first.chunk)
    scene.dispenser.complete()
    assert scene.take(0).finished


def test_progress_of_a_chunk_does_not_end_it() -> None:
    scene = _Scene(1)
    chunk = scene.take(0).chunk
    assert not scene.dispenser.report(relay_pb2.ChunkReport(who=_who(0), chunk=chunk, rows=3, bytes=9))
    assert scene.progress.status().reading_rows == 3
    assert scene.take(0).chunk == chunk
    assert scene.progress.status().reading_rows == 0, "what the reader was reading is discarded"
    scene.done(0, chunk, rows=4)
    scene.done(0, chunk, rows=4)
    assert scene.progress.status().finished_rows == 4, "a report that comes twice counts once"


def test_a_reader_waits_while_the_plan_has_none_and_hears_of_the_next() -> None:
    scene = _Scene(0)
    assert scene.take(0).wait
    answers: list[relay_pb2.TakeChunkResponse] = []
    reader = threading.Thread(target=lambda: answers.append(scene.take_or_end(0)))
    reader.start()
    scene.dispenser.add([_chunk(7)])
    reader.join(300)
    assert answers[0].chunk.number == 7


def test_a_failing_reader_stops_everybody() -> None:
    scene = _Scene(3)
    mine, other = scene.take(0).chunk, scene.take(1).chunk
    failed = error_to_proto(errors.replicate.FENCED(task="t", source="s1", epoch=1))
    assert scene.dispenser.report(relay_pb2.ChunkReport(who=_who(0), chunk=mine, failed=failed))
    assert scene.done(1, other), "the chunk counts, the reader ends"
    assert scene.take(1).stop
    assert scene.dispenser.failure is not None
    assert scene.dispenser.failure.spec is errors.replicate.FENCED
    assert scene.progress.status().finished_chunks == 1


def test_stop_reaches_a_reader_that_waits() -> None:
    scene = _Scene(0)
    answers: list[relay_pb2.TakeChunkResponse] = []
    reader = threading.Thread(target=lambda: answers.append(scene.take_or_end(0)))
    reader.start()
    scene.stop.set()
    reader.join(300)
    assert answers[0].stop


def test_a_chunk_that_has_to_wait_is_neither_given_nor_the_end() -> None:
    scene = _Scene(3, RateLimits(rows=10))
    scene.dispenser.complete()
    first = scene.take(0)
    assert first.chunk.number == 0
    assert scene.take(1).wait
    assert scene.dispenser.waiting_for() == "snapshot.rows-per-second: the next chunk begins in 1.0 s"
    # Asking again for what it holds is no new chunk.
    assert scene.take(0) == first
    assert not scene.done(0, first.chunk, rows=25)
    scene.now += 2.4
    assert scene.take(1).wait
    scene.now += 0.2
    second = scene.take(1)
    assert second.chunk.number == 1
    assert not scene.done(1, second.chunk, rows=0)
    third = scene.take(0)
    assert third.chunk.number == 2
    assert not scene.done(0, third.chunk)
    assert scene.take(0).finished
    assert scene.take(1).finished
    assert scene.dispenser.waiting_for() == ""


def test_readers_that_wait_for_their_time_stop_at_once() -> None:
    scene = _Scene(2, RateLimits(rows=1))
    scene.take(0)
    assert scene.take(1).wait
    scene.stop.set()
    assert scene.take(1).stop


def test_while_the_source_is_busy_no_chunk_begins_but_those_that_have_continue() -> None:
    scene = _Scene(2)
    first = scene.take(0)
    scene.dispenser.throttle("too busy")
    assert scene.dispenser.waiting_for() == "too busy"
    assert scene.take(1).wait
    assert scene.take(0) == first
    assert not scene.done(0, first.chunk)
    scene.dispenser.throttle("")
    assert scene.dispenser.waiting_for() == ""
    assert scene.take(1).chunk.number == 1


def test_the_time_of_readers_is_counted() -> None:
    """A reader that waits for a limit is throttled; one that waits for the plan has no work."""
    scene = _Scene(2, RateLimits(rows=1))
    began, chunk = scene.now, scene.take(0).chunk

    def sleeps(seconds: float) -> None:
        scene.now += 2.0

    scene.dispenser._changed.wait = sleeps  # type: ignore[method-assign]  # pyright: ignore[reportPrivateUsage]
    assert scene.take(1).chunk.number == 1, "as soon as the limit allows it"
    scene.dispenser.report(
        relay_pb2.ChunkReport(
            who=_who(0), chunk=chunk, rows=10, bytes=50, high=_HIGH, worked_seconds=3.0, write_seconds=2.0
        )
    )
    assert scene.dispenser.times.read().by_cause == {"read": 1.0, "write": 2.0, "throttle": 10.0, "wait": 0.0}
    assert scene.take(0).wait, "the plan has no more chunks yet"
    found = scene.dispenser.times.read().by_cause
    assert found["throttle"] == 10.0
    assert found["wait"] == scene.now - began - 10.0 > 0

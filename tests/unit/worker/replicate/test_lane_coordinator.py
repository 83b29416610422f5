"""When all lanes stand at a barrier."""

from __future__ import annotations

import threading
import time

from shardmerge.proto import common_pb2, errors, relay_pb2
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.replicate.alignment import AlignmentPoint
from shardmerge.worker.replicate.lane_coordinator import LaneCoordinator, LaneGone


def statement(byte: int) -> Statement:
    begin = RelayOffset(1, byte)
    return Statement(
        begin, RelayOffset(1, byte + 40), RelayOffset(1, byte + 90), SourcePosition("b.1", byte), "d", "x", None
    )


def board(lanes: int = 2, until: RelayOffset | None = None) -> LaneCoordinator:
    return LaneCoordinator("t", "s", 1, lanes, StopSignal(), until)


def say(to: LaneCoordinator, lane: int, byte: int, barrier: int = 0) -> bool:
    return to.report(
        relay_pb2.LaneReport(
            who=relay_pb2.TaskIdentity(index=lane), committed=RelayOffset(1, byte).to_proto(), barrier=barrier
        )
    )


def test_all_lanes_have_to_stand_there() -> None:
    made, place = board(), statement(500)
    number = made.barrier(place)
    assert made.barrier(place) == number
    say(made, 0, 500, number)
    assert made.wait_reached(0) is None, "nobody has heard of the other lane"
    say(made, 1, 400)
    assert made.wait_reached(0) is None
    say(made, 1, 500, number)
    assert made.wait_reached(0) == place


def test_a_lane_that_does_not_exist_is_stopped_and_ends_nothing() -> None:
    made = board()
    failed = relay_pb2.LaneReport(who=relay_pb2.TaskIdentity(index=2), failed=common_pb2.ErrorDetail(code=1))
    assert made.report(failed)
    assert made.event is None and not made.stop.is_set


def test_what_a_lane_reports_as_the_reason_of_its_end_is_the_error() -> None:
    """Another lane, whose stream ends because of that, is later."""
    made = board()
    cause = errors.relay.ACCESS_DENIED(source="s", host="h", port=1, user="u", reason="r", errno=1045)
    failed = relay_pb2.LaneReport(who=relay_pb2.TaskIdentity(index=0), failed=error_to_proto(cause))
    assert made.report(failed)
    made.lane_gone(1)
    assert isinstance(made.event, LaneGone)
    assert (made.event.error.spec, made.event.error.workaround) == (errors.relay.ACCESS_DENIED, cause.workaround)


def test_a_lane_that_is_lost_names_what_it_retried() -> None:
    made = board()
    busy = errors.replicate.TARGET_BUSY(host="h", port=1, reason="too many connections", errno=1040)
    made.report(relay_pb2.LaneReport(who=relay_pb2.TaskIdentity(index=1), retrying=error_to_proto(busy)))
    made.lane_gone(1)
    assert isinstance(made.event, LaneGone)
    assert made.event.error.spec is errors.worker.LANE_STOPPED
    for part in ("its connection to the worker has ended", str(busy), busy.workaround):
        assert part in made.event.error.message
    other = board()
    other.lane_gone(0, errors.worker.STREAM_LOST(lane=0, address="h:1", reason="r"))
    assert isinstance(other.event, LaneGone)
    assert other.event.error.spec is errors.worker.LANE_STOPPED


def test_a_lane_that_counts_from_0_again_has_no_negative_rate() -> None:
    made = board(1)
    for rows in (100, 3):
        made.report(relay_pb2.LaneReport(who=relay_pb2.TaskIdentity(index=0), rows=rows))
    assert made.views()[0].recent_rps == 0


def test_the_lane_that_continues_gets_the_change_and_the_barrier_is_over() -> None:
    made, place = board(), statement(500)
    number = made.barrier(place)
    for lane in range(2):
        say(made, lane, 500, number)
    assert made.wait_resumed(number, 0) is None
    made.resume(place, b"change")
    assert made.wait_resumed(number, 0) == b"change"
    assert made.wait_reached(0) is None
    say(made, 0, 500, number)
    say(made, 1, 500, number)
    assert made.wait_reached(0) is None, "a late report of the same barrier"


def test_one_barrier_after_the_other() -> None:
    made, first, second = board(), statement(500), statement(700)
    number = made.barrier(first)
    for lane in range(2):
        say(made, lane, 500, number)
    made.resume(first, b"one")
    following = made.barrier(second)
    say(made, 0, 700, following)
    assert made.wait_reached(0) is None, "the other lane still stands at the first"
    assert made.wait_resumed(number, 0) == b"one"
    say(made, 1, 700, following)
    assert made.wait_reached(0) == second


def test_a_lane_that_stays_at_another_place_holds_all() -> None:
    made = board()
    one, two = made.barrier(statement(500)), made.barrier(statement(700))
    say(made, 0, 500, one)
    say(made, 1, 700, two)
    assert made.wait_reached(0) is None


def test_a_lane_whose_stream_has_ended_before_it_counts_no_more() -> None:
    made, place = board(until=RelayOffset(1, 500)), statement(400)
    number = made.barrier(place)
    say(made, 0, 500)
    say(made, 1, 400, number)
    assert made.wait_reached(0) == place


def test_a_statement_and_a_meeting_at_one_byte_are_two_places() -> None:
    made = board()
    assert made.barrier(statement(460)) != made.barrier(AlignmentPoint(RelayOffset(1, 500), 1))
    number = made.barrier(AlignmentPoint(RelayOffset(1, 500), 1))
    for lane in range(2):
        say(made, lane, 500, number)
    assert made.wait_reached(0) == AlignmentPoint(RelayOffset(1, 500), 1)


def test_two_meetings_at_one_place_are_two_barriers() -> None:
    """Nothing has come between them: who was let go from the first comes to stand at the second."""
    made = board()
    first, second = (AlignmentPoint(RelayOffset(1, 500), number) for number in (1, 2))
    number = made.barrier(first)
    for lane in (0, 1):
        say(made, lane, 500, number)
    made.resume(first, b"one")
    following = made.barrier(second)
    assert made.wait_resumed(following, 0) is None
    for lane in (0, 1):
        say(made, lane, 500, following)
    assert made.wait_reached(0) == second


def test_a_lane_that_waits_where_its_stream_ends_has_not_ended() -> None:
    """The end may be found after this lane has reached the alignment, and before another one does."""
    made, place = board(3, until=RelayOffset(1, 500)), AlignmentPoint(RelayOffset(1, 500), 1)
    number = made.barrier(place)
    say(made, 0, 500, number)
    say(made, 1, 400)
    say(made, 2, 500)
    assert made.wait_reached(0) is None, "lane 1 is before it"
    say(made, 1, 500, number)
    assert made.wait_reached(0) == place


def test_a_stop_ends_the_waits_at_once() -> None:
    made = board()
    threading.Timer(0.05, made.stop.set).start()
    began = time.monotonic()
    assert made.wait_reached(60) is None
    assert made.wait_resumed(1, 60) is None
    assert time.monotonic() - began < 20

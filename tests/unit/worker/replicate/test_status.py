"""What query-status makes of the lanes' reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from shardmerge.proto import errors, relay_pb2
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.model import Head, Statement
from shardmerge.worker.replicate.lane.reporter import LanePhase
from shardmerge.worker.replicate.lane_coordinator import BarrierFailure, LaneCoordinator, LaneState
from shardmerge.worker.replicate.status import StatusInputs, lanes_activity, sync_status, waiting_for, without_progress

END = SourcePosition("bin.000001", 1000)
DEADLOCK = errors.replicate.TARGET_CONFLICT(host="h", port=3306, reason="Deadlock found", errno=1213)
AROUND = StatusInputs(
    now=1000.0,
    elapsed=100.0,
    head=Head(RelayOffset(1, 1000), END, 990.0),
    source_end=END,
    unfetched_seconds=None,
    bytes_behind=lambda offset: 1000 - offset.byte,
    next_commit_time=lambda offset: 900.0 + offset.byte / 100,
)
DDL = Statement(
    RelayOffset(1, 500), RelayOffset(1, 540), RelayOffset(1, 600), END, "shard_1", "ALTER TABLE\n t ADD c INT", None
)


def report(
    lane: int = 0,
    byte: int = 1000,
    phase: LanePhase = LanePhase.READING,
    *,
    rows: int = 10,
    barrier: int = 0,
    seconds: float = 0.0,
    held_back: bool = False,
) -> relay_pb2.LaneReport:
    return relay_pb2.LaneReport(
        who=relay_pb2.TaskIdentity(index=lane),
        phase=phase,
        committed=RelayOffset(1, byte).to_proto(),
        position=SourcePosition("bin.000001", byte).to_proto(),
        rows=rows,
        barrier=barrier,
        commit_time=980.0,
        applied_time=980.5,
        phase_seconds=seconds,
        held_back=held_back,
    )


def view(made: relay_pb2.LaneReport | None, *, silent: float = 0.0, barrier: Statement | None = None) -> LaneState:
    lane = made.who.index if made is not None else 0
    return LaneState(lane, made, silent, 5.0, barrier)


def test_in_sync() -> None:
    status = sync_status([view(report(0)), view(report(1, rows=20))], AROUND)
    assert status.synced
    assert (status.bytes_behind, status.oldest_ms, status.seconds_behind_master) == (0, 0, 0)
    assert (status.total_rows, status.total_rps, status.recent_rps) == (30, 0, 10)
    assert status.lag_ms == pytest.approx(500)
    assert [lane.lag_ms for lane in status.lanes] == [pytest.approx(500)] * 2
    assert [lane.waits_for for lane in status.lanes] == ["events"] * 2


def test_the_position_after_events_that_the_source_has_skipped() -> None:
    """On MySQL with GTIDs, the first events of a file come again: they end before the position of the copy."""
    further = replace(AROUND, head=Head(RelayOffset(1, 1000), SourcePosition("bin.000001", 3000, "u:1-7"), 990.0))
    status = sync_status([view(report(0)), view(report(1))], further)
    assert (status.syncer_binlog, status.syncer_binlog_gtid) == ("(bin.000001, 3000)", "u:1-7")
    status = sync_status([view(report(0)), view(report(1, 400))], further)
    assert status.syncer_binlog == "(bin.000001, 400)"


def test_behind_the_oldest_transaction_counts() -> None:
    status = sync_status([view(report(0)), view(report(1, 400))], AROUND)
    assert not status.synced
    assert status.bytes_behind == 600
    assert status.oldest_ms == pytest.approx(96_000)
    assert status.seconds_behind_master == pytest.approx(96)
    assert [lane.bytes_behind for lane in status.lanes] == [0, 600]
    assert [lane.oldest_ms for lane in status.lanes] == [0, pytest.approx(96_000)]
    assert status.syncer_binlog == "(bin.000001, 400)"


def test_what_the_relay_has_not_fetched_is_backlog_too() -> None:
    around = replace(AROUND, source_end=SourcePosition("bin.000001", 1700), unfetched_seconds=30.0)
    status = sync_status([view(report(0, 900))], around)
    assert not status.synced
    assert status.bytes_behind == 800
    assert status.oldest_ms == pytest.approx(91_000)
    drained = sync_status([view(report(0))], around)
    assert not drained.synced
    assert drained.bytes_behind == 700
    assert drained.oldest_ms == pytest.approx(30_000)


def test_the_clock_of_the_source_is_ahead() -> None:
    """Commit times and ``now`` are the source's, times of applying are the lanes'."""
    ahead = replace(AROUND, source_ahead=7.0)
    status = sync_status([view(report(0)), view(report(1))], ahead)
    assert status.lag_ms == pytest.approx(7_500)
    assert status.lanes[0].lag_ms == pytest.approx(7_500)
    assert sync_status([view(report(0)), view(report(1, 400))], ahead).oldest_ms == pytest.approx(96_000)
    before = sync_status([view(report(0))], replace(AROUND, source_ahead=-7.0))
    assert before.lag_ms == 0
    nothing = relay_pb2.LaneReport(who=relay_pb2.TaskIdentity(index=0), phase=LanePhase.READING, commit_time=5.0)
    assert sync_status([view(nothing)], ahead).lag_ms == 0


def test_nothing_is_in_sync_before_source_and_lanes_have_answered() -> None:
    assert not sync_status([view(report(0))], replace(AROUND, source_end=SourcePosition("", 0))).synced
    assert not sync_status([view(report(0)), view(None)], AROUND).synced
    unread = relay_pb2.LaneReport(who=relay_pb2.TaskIdentity(index=0), phase=LanePhase.STARTING)
    status = sync_status([view(unread)], AROUND)
    assert not status.synced
    assert status.bytes_behind == 0
    assert not status.syncer_binlog


def test_a_lane_that_does_not_report_makes_the_progress_unknown() -> None:
    status = sync_status([view(report(0)), view(report(1), silent=6.4)], AROUND)
    assert not status.synced
    assert status.unknown == "lane 1 has not reported for 6 s"
    assert (status.bytes_behind, status.lag_ms, status.oldest_ms) == (0, 0, 0)
    assert [lane.unknown for lane in status.lanes] == ["", "has not reported for 6 s"]
    assert lanes_activity([view(report(0)), view(report(1), silent=6.4)]) == "lane 1: a sign of life, for 6 s"
    assert sync_status([view(report(0)), view(None)], AROUND).unknown == "lane 0 has not started"
    assert sync_status([], AROUND).unknown == "its lanes have not started"


def test_a_source_that_cannot_be_read_makes_the_progress_unknown() -> None:
    status = sync_status([view(report(0))], replace(AROUND, source_unknown="the source has not answered for 20 s"))
    assert not status.synced
    assert status.unknown == "the source has not answered for 20 s"
    assert (status.bytes_behind, status.lag_ms) == (0, 0)


def test_the_lag_of_a_transaction_of_long_ago_is_not_the_present_one() -> None:
    old = replace(view(report(0)), applied_seconds=10.5)
    status = sync_status([old], AROUND)
    assert status.synced
    assert (status.lag_ms, status.lanes[0].lag_ms) == (0, 0)
    status = sync_status([old, view(report(1))], AROUND)
    assert (status.lag_ms, status.lanes[0].lag_ms) == (pytest.approx(500), 0)


def test_a_lag_is_not_less_than_the_age_of_what_is_not_applied() -> None:
    """The target has not answered for 18 s, so no transaction was applied in the last seconds."""
    stuck = replace(view(report(0, 400)), applied_seconds=18.0)
    status = sync_status([stuck], replace(AROUND, now=922.0))
    assert status.oldest_ms == pytest.approx(18_000)
    assert (status.lag_ms, status.lanes[0].lag_ms) == (pytest.approx(18_000), pytest.approx(18_000))
    unfetched = sync_status([replace(view(report(0)), applied_seconds=18.0)], replace(AROUND, unfetched_seconds=7.0))
    assert unfetched.lag_ms == pytest.approx(7_000), "the relay itself is behind"


def test_a_lag_of_0_was_compared_with_the_source() -> None:
    idle = replace(view(report(0)), applied_seconds=100.0)
    assert sync_status([idle], replace(AROUND, source_age=1.2)).lag_ms == 0
    assert sync_status([idle], replace(AROUND, source_age=9.0)).lag_ms == pytest.approx(9_000)


def test_a_subtask_that_has_stopped_has_no_progress() -> None:
    status = without_progress(sync_status([view(report(0, 400))], AROUND), "it is paused")
    assert (status.synced, status.unknown) == (False, "it is paused")
    assert (status.bytes_behind, status.oldest_ms, status.seconds_behind_master, list(status.lanes)) == (0, 0, 0, [])
    assert status.total_rows == 10


def test_what_a_lane_waits_for() -> None:
    assert waiting_for(view(None)) == "its Spark task to start"
    assert waiting_for(view(report(phase=LanePhase.APPLYING))) == ""
    committing = report(phase=LanePhase.COMMITTING, seconds=12.4)
    assert waiting_for(view(committing)) == "the target, which has been committing for 12 s"
    held = report(phase=LanePhase.COMMITTING, seconds=12.4, held_back=True)
    assert waiting_for(view(held)).endswith("; the stream is held back")
    retried = report(phase=LanePhase.RETRYING)
    retried.attempt = 3
    retried.retrying.CopyFrom(error_to_proto(DEADLOCK))
    assert waiting_for(view(retried)) == "attempt 3 after errno 1213, target-lock-conflict"
    at_barrier = view(report(phase=LanePhase.BARRIER, barrier=7), barrier=DDL)
    assert waiting_for(at_barrier) == "every lane to reach the barrier before: ALTER TABLE t ADD c INT"
    assert waiting_for(view(report(), silent=30.0)) == "a sign of life, for 30 s"


def test_the_error_of_a_retry_in_progress_is_reported() -> None:
    retried = report(phase=LanePhase.RETRYING)
    retried.attempt = 3
    retried.retrying.CopyFrom(error_to_proto(DEADLOCK))
    [lane] = sync_status([view(retried)], AROUND).lanes
    assert (lane.phase, lane.attempt, lane.error.code) == ("retrying", 3, errors.replicate.TARGET_CONFLICT.code)
    assert lane.error.args["errno"] == "1213"


def test_one_phrase_names_the_lane_that_is_worst_off() -> None:
    quiet, busy = view(report(0)), view(report(1, phase=LanePhase.COMMITTING, seconds=0.1))
    assert lanes_activity([quiet, busy]) == ""
    slow = view(report(1, phase=LanePhase.COMMITTING, seconds=9.0))
    assert lanes_activity([quiet, slow]) == "lane 1: the target, which has been committing for 9 s"
    retried = report(2, phase=LanePhase.RETRYING)
    retried.attempt = 2
    retried.retrying.CopyFrom(error_to_proto(DEADLOCK))
    assert lanes_activity([quiet, slow, view(retried)]).startswith("lane 2: attempt 2")


def test_rates_are_those_of_the_last_seconds() -> None:
    board = LaneCoordinator("t", "s", 1, 1, StopSignal())
    board.report(report(0, rows=0))
    board.report(report(0, rows=1000))
    [seen] = board.views()
    assert 0 < seen.recent_rps <= 4000, "two reports at once count as a quarter of a second"


def test_lanes_that_are_through_do_not_hold_up_a_barrier() -> None:
    """Streams with an end: one lane has reached it, the other stands before a statement that lies before it."""
    board = LaneCoordinator("t", "s", 1, 2, StopSignal(), until=RelayOffset(1, 800))
    number = board.barrier(DDL)
    board.report(report(0, 800))
    assert board.wait_reached(0) is None
    board.report(report(1, 500, LanePhase.BARRIER, barrier=number))
    assert board.wait_reached(0) == DDL


def test_a_barrier_is_passed_by_every_stream_once() -> None:
    """Also by one that comes to it late; what a lane told before that does not bring it back."""
    board = LaneCoordinator("t", "s", 1, 2, StopSignal())
    number = board.barrier(DDL)
    for lane in (0, 1):
        board.report(report(lane, 500, LanePhase.BARRIER, barrier=number))
    assert board.wait_resumed(number, 0) is None
    board.resume(DDL, b"change")
    assert board.wait_reached(0) is None
    assert board.wait_resumed(number, 0) == b"change"
    board.report(report(0, 500, LanePhase.BARRIER, barrier=number))
    assert board.wait_reached(0) is None
    assert board.barrier(DDL) == number
    assert board.wait_reached(0) is None
    assert not board.stop.is_set


def test_a_barrier_that_is_refused_ends_the_streams() -> None:
    board = LaneCoordinator("t", "s", 1, 1, StopSignal())
    board.barrier(DDL)
    board.refuse(DEADLOCK)
    assert board.event == BarrierFailure(DEADLOCK)
    assert board.stop.is_set


def test_lanes_at_different_places_have_not_reached_a_barrier() -> None:
    board = LaneCoordinator("t", "s", 1, 2, StopSignal())
    number = board.barrier(DDL)
    board.report(report(0, 800))
    board.report(report(1, 500, LanePhase.BARRIER, barrier=number))
    assert board.wait_reached(0) is None
    assert board.lowest() == RelayOffset(1, 500)


def test_a_lane_that_has_not_read_its_checkpoint_keeps_everything() -> None:
    board = LaneCoordinator("t", "s", 1, 2, StopSignal())
    board.report(report(0, 800))
    board.report(relay_pb2.LaneReport(who=relay_pb2.TaskIdentity(index=1), phase=LanePhase.STARTING))
    assert board.lowest() is None


def test_the_lock_that_a_lane_waits_for_is_shown() -> None:
    lock = "a row lock of `shop`.`orders`, which connection 7 of the target may hold"
    committing = view(report(phase=LanePhase.COMMITTING, seconds=12.4))
    expected = f"the target, which has been committing for 12 s and waits for {lock}"
    assert waiting_for(committing, _always(lock)) == expected
    assert lanes_activity([committing], _always(lock)) == f"lane 0: {expected}"
    [lane] = sync_status([committing], replace(AROUND, target_waits=_always(lock))).lanes
    assert lane.waits_for == expected


def _always(lock: str) -> Callable[[int], str]:
    return lambda _: lock

"""Tests lanes that fail, hang or are started twice: this is detected, and nothing is applied twice."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from shardmerge.proto import errors, relay_pb2, relay_pb2_grpc
from shardmerge.proto.rpc import client
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.core.lane_hash import Bucket
from shardmerge.worker.core.mysql.connection import Side
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.task_runner import TaskBody, TaskOutcome
from shardmerge.worker.relay.model import BlockData
from shardmerge.worker.relay.serve.local_files import LocalLog
from shardmerge.worker.replicate import lane_coordinator as board_module
from shardmerge.worker.replicate.lane import lane as lane_module
from shardmerge.worker.replicate.lane import lane_spec
from shardmerge.worker.replicate.lane.committer import Committer
from shardmerge.worker.replicate.lane_coordinator import LaneCoordinator, LaneGone
from shardmerge.worker.replicate.lane_shares import LaneShares
from shardmerge.worker.replicate.running import RunningReplicate
from shardmerge.worker.replicate.unit import ReplicateUnit, StartState, first_checkpoints
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records import subtask_record
from shardmerge.worker.target.records.checkpoint import Checkpoint
from shardmerge.worker.unit.contract import Failed, Outcome, Stopped
from tests.integration.lane_rig import driver_of
from tests.integration.snapshot_rig import META, RUN_SECRET, SOURCE, TASK, Rig, count_rows, subtask_config
from tests.support.binlog import split
from tests.support.fixed_clock import FixedClock
from tests.support.mariadb import MariaDB
from tests.support.task_runners import Threads
from tests.support.wait import until

LANES = 2
CANARY = "cAnAry51f0"


class Recording(Threads):
    """Stores the body, so that a test can start it a second time as Spark would."""

    body: TaskBody

    def run(self, name: str, count: int, body: TaskBody, stop: StopSignal) -> list[TaskOutcome]:
        self.body = body
        return super().run(name, count, body, stop)


@pytest.fixture
def rig(make_server: Callable[..., MariaDB], tmp_path: Path) -> Iterator[Rig]:
    source, target = make_server("source"), make_server("target")
    source.execute(
        "CREATE DATABASE shard_1",
        "CREATE TABLE shard_1.log (v INT, w VARCHAR(20))",
        "CREATE TABLE shard_1.orders (id INT PRIMARY KEY, note VARCHAR(600))",
    )
    with Rig(source, target, tmp_path, subtask_config(target)) as made:
        yield made


def _unit(rig: Rig, spark: Threads, lanes: int = LANES, skip_events: int = 0) -> ReplicateUnit:
    """``skip_events``: how many events after the start the lanes have committed before."""
    context = rig.context(spark)
    session = rig.session(Side.TARGET)
    begin = rig.relay.locate(rig.start, 300, StopSignal())
    first = tuple(
        replace(item, skip_events=skip_events)
        for item in first_checkpoints(lanes, rig.epoch, rig.relay.relay_id, rig.start, begin)
    )
    subtask_record.begin(
        session,
        SubtaskKey(META, TASK, SOURCE),
        rig.epoch,
        subtask_record.Phase.REPLICATE,
        rig.start,
        rig.tables,
        lambda inner: checkpoints.insert(inner, SubtaskKey(META, TASK, SOURCE), first),
    )
    session.close()
    driver = driver_of(context, rig.plans, lanes)
    return ReplicateUnit(context, rig.service, None, FixedClock(rig.start), StartState(first, None), driver)


class _Running:
    """A running unit in a thread."""

    def __init__(self, unit: ReplicateUnit) -> None:
        self.stop = StopSignal()
        self.outcomes: list[Outcome] = []
        self._thread = threading.Thread(target=lambda: self.outcomes.append(unit.run(self.stop)))
        self._thread.start()

    def join(self) -> Outcome:
        self._thread.join(300)
        [outcome] = self.outcomes
        return outcome


def test_a_second_attempt_of_a_lane_begins_where_the_first_committed(rig: Rig) -> None:
    """Spark may run a task again within one epoch; rows of a table without a key would show repeated changes."""
    spark = Recording()
    running = _Running(_unit(rig, spark))
    rig.source.execute("INSERT INTO shard_1.log VALUES (1, 'a'), (1, 'a'), (2, 'b')")
    until(lambda: count_rows(rig.target, "shard_1.log") == 3, "the rows are applied")
    running.stop.set()
    assert running.join() == Stopped()

    stop = StopSignal()
    board = LaneCoordinator(TASK, SOURCE, rig.epoch, LANES, stop)
    rig.service.register_lanes(RunningReplicate(board, rig.access(), lambda _: False))
    again = threading.Thread(target=lambda: Threads().run("again", LANES, spark.body, stop))
    again.start()
    rig.source.execute("INSERT INTO shard_1.log VALUES (3, 'c')")
    until(lambda: count_rows(rig.target, "shard_1.log WHERE v = 3") == 1, "the later row is applied")
    stop.set()
    again.join(300)
    assert count_rows(rig.target, "shard_1.log") == 4


def test_a_lane_that_resumes_inside_a_large_group_applies_the_rest_of_it(rig: Rig) -> None:
    """The group comes in pieces, and the checkpoint counts the events of all of them."""
    note = "n" * 600
    rig.source.execute(
        "BEGIN", *(f"INSERT INTO shard_1.orders VALUES ({number}, '{note}')" for number in range(1000)), "COMMIT"
    )
    rig.source.execute("INSERT INTO shard_1.log VALUES (1, 'end')")
    until(lambda: rig.relay.head().position.pos > rig.start.pos + 1000 * len(note), "the group is in the relay log")
    begin = rig.relay.locate(rig.start, 300, StopSignal())
    served = rig.relay.subscribe(begin, rig.relay.head().offset, None, StopSignal())
    group = [block for block in served if isinstance(block, BlockData) and block.group_start == begin]
    assert len(group) > 2
    skip = group[1].first_event + 9
    events = [made for block in group for made in split(block.events)]
    done = sum(made[4] in (EventType.WRITE_ROWS_V1, EventType.WRITE_ROWS_V2) for made in events[:skip])
    assert 0 < done < 1000

    running = _Running(_unit(rig, Threads(), lanes=1, skip_events=skip))
    until(lambda: running.outcomes or count_rows(rig.target, "shard_1.log") == 1, "the row after the group is applied")
    assert not running.outcomes
    assert rig.target.query("SELECT COUNT(*), MIN(id) FROM shard_1.orders") == [(1000 - done, done)]
    running.stop.set()
    assert running.join() == Stopped()


def test_what_spark_gets_of_a_lane_holds_no_password(rig: Rig) -> None:
    """Spark stores the task in its block manager, and may write it to disk; the lane fetches the password itself."""
    rig.target.execute(f"CREATE USER lane@'127.0.0.1' IDENTIFIED BY '{CANARY}'", "GRANT ALL ON *.* TO lane@'127.0.0.1'")
    rig.target_endpoint = replace(rig.target_endpoint, user="lane", password=CANARY)
    spark = Recording()
    running = _Running(_unit(rig, spark))
    rig.source.execute("INSERT INTO shard_1.log VALUES (1, 'a')")
    until(lambda: count_rows(rig.target, "shard_1.log") == 1, "the row is applied")
    running.stop.set()
    assert running.join() == Stopped()
    assert CANARY.encode() not in pickle.dumps(spark.body)


@pytest.mark.turns
def test_a_lane_that_fails_before_it_subscribes_ends_the_run(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other lanes have no reason to end by themselves."""
    read = Committer.read_checkpoint

    def refused(self: Committer) -> Checkpoint:
        if vars(self)["_lane"] == 1:
            raise errors.replicate.TARGET_BUSY(host="h", port=1, reason="too many connections", errno=1040)
        return read(self)

    monkeypatch.setattr(Committer, "read_checkpoint", refused)
    outcome = _Running(_unit(rig, Threads())).join()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.replicate.TARGET_BUSY


def test_a_bug_before_a_lane_has_begun_ends_the_run(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run must not wait minutes for a timeout of the lane."""
    monkeypatch.setattr(board_module, "_SILENCE_SECONDS", 1e9)

    def bucket(index: int, lanes: int) -> Bucket:
        if index == 1:
            raise ZeroDivisionError("by nought")
        return Bucket(index, lanes)

    monkeypatch.setattr(lane_spec, "Bucket", bucket)
    outcome = _Running(_unit(rig, Threads())).join()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.worker.INTERNAL
    where = f"Spark task 1 of replicate {TASK} {SOURCE}"
    assert outcome.error.message == f"unexpected ZeroDivisionError in {where}: by nought"


def test_the_error_of_the_relay_is_that_of_the_run_also_if_no_lane_reads_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first lane's stream ends with the error; then all lanes get the stop, maybe before one has read it."""

    def read_nothing(_: relay_pb2.Closed) -> None:
        raise lane_module._Stopped  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(lane_module, "_raise_closed", read_nothing)
    running = _Running(_unit(rig, Threads()))
    rig.source.execute("INSERT INTO shard_1.log VALUES (1, 'a')")
    until(lambda: count_rows(rig.target, "shard_1.log") == 1, "the lanes run")
    rig.source.execute("RESET MASTER", *(f"KILL {number}" for number in rig.source.dump_threads()))
    failure = until(rig.relay.failure, "the relay has stopped")
    outcome = running.join()
    assert isinstance(outcome, Failed)
    assert (outcome.error.spec, outcome.error.workaround) == (failure.spec, failure.workaround)


def test_lanes_without_the_relay_logs_files_get_its_bytes_through_the_stream(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such lanes run on executors on other machines."""

    def read(_: LocalLog, start: RelayOffset, end: RelayOffset) -> bytes:
        raise AssertionError("there is no such file")

    def is_at_hand(_: LocalLog) -> bool:
        return False

    monkeypatch.setattr(LocalLog, "is_available", is_at_hand)
    monkeypatch.setattr(LocalLog, "read", read)
    running = _Running(_unit(rig, Threads()))
    rig.source.execute("INSERT INTO shard_1.log VALUES (1, 'a'), (1, 'a'), (2, 'b')")
    until(lambda: count_rows(rig.target, "shard_1.log") == 3, "the rows are applied")
    running.stop.set()
    assert running.join() == Stopped()


def test_lanes_beside_the_relay_log_read_its_files(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that can no longer be read there does not end the lane: the next run requests it anew."""
    reads: list[RelayOffset] = []
    read = LocalLog.read

    def once(self: LocalLog, start: RelayOffset, end: RelayOffset) -> bytes:
        reads.append(start)
        if count_rows(rig.target, "shard_1.log"):
            raise EOFError("segment 1 is shorter")
        return read(self, start, end)

    monkeypatch.setattr(LocalLog, "read", once)
    running = _Running(_unit(rig, Threads()))
    rig.source.execute("INSERT INTO shard_1.log VALUES (1, 'a'), (1, 'a'), (2, 'b')")
    until(lambda: count_rows(rig.target, "shard_1.log") == 3, "the rows are applied")
    assert reads
    rig.source.execute("INSERT INTO shard_1.log VALUES (3, 'c')")
    outcome = running.join()
    assert isinstance(outcome, Failed)
    assert outcome.error.spec is errors.worker.RELAY_UNREADABLE
    assert outcome.error.spec.retryable
    assert "segment 1 is shorter" in outcome.error.message


def _nowhere(_: LocalLog) -> bool:
    return False


def test_lanes_elsewhere_receive_only_the_events_that_they_need(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    whole: list[int] = []
    of = LaneShares.of

    def counted(self: LaneShares, lane: int, block: BlockData) -> bytes:
        part = of(self, lane, block)
        sent.append(len(part))
        whole.append(len(block.events))
        return part

    monkeypatch.setattr(LocalLog, "is_available", _nowhere)
    monkeypatch.setattr(LaneShares, "of", counted)
    note = "n" * 500
    rig.source.execute(
        *(f"INSERT INTO shard_1.orders VALUES ({number}, '{note}')" for number in range(1500)),
        # To another lane, or not; and away.
        *(f"UPDATE shard_1.orders SET id = {number + 10_000} WHERE id = {number}" for number in range(0, 1500, 3)),
        *(f"DELETE FROM shard_1.orders WHERE id = {number}" for number in range(1, 1500, 3)),
        "INSERT INTO shard_1.log VALUES (1, 'end'), (1, 'end')",
    )
    running = _Running(_unit(rig, Threads()))
    until(lambda: count_rows(rig.target, "shard_1.log") == 2, "the rows are applied")
    query = "SELECT * FROM shard_1.orders ORDER BY id"
    until(lambda: rig.target.query(query) == rig.source.query(query), "both lanes have applied theirs")
    running.stop.set()
    assert running.join() == Stopped()
    # Each lane asks for each block: without shares the sums are equal. The first block of a lane is not among them.
    # Half of the updates concern both lanes.
    assert sum(whole) > 1_000_000
    assert sum(sent) < 0.7 * sum(whole)


def test_a_silent_lane_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "_SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(board_module, "_WATCH_SECONDS", 0.05)
    stop = StopSignal()
    board = LaneCoordinator(TASK, SOURCE, 1, LANES, stop)
    watching = threading.Thread(target=board.watch)
    watching.start()
    watching.join(300)
    assert stop.is_set
    assert isinstance(board.event, LaneGone)


def test_a_failed_report_ends_the_run() -> None:
    stop = StopSignal()
    board = LaneCoordinator(TASK, SOURCE, 1, LANES, stop)
    detail = error_to_proto(errors.replicate.FENCED(task=TASK, source=SOURCE, epoch=1))
    assert board.report(relay_pb2.LaneReport(who=relay_pb2.TaskIdentity(index=1), failed=detail))
    assert stop.is_set


def test_what_no_lane_can_have_committed_changes_nothing(rig: Rig) -> None:
    """An impossible position would purge the relay log, and a failure of a lane that does not exist would end the
    run."""
    stop = StopSignal()
    board = LaneCoordinator(TASK, SOURCE, rig.epoch, LANES, stop)
    rig.service.register_lanes(RunningReplicate(board, rig.access(), lambda _: False))
    head = rig.relay.locate(rig.start, 300, stop)

    def report(index: int, place: RelayOffset, failed: bool = False) -> relay_pb2.LaneReport:
        who = relay_pb2.TaskIdentity(task=TASK, source=SOURCE, epoch=rig.epoch, index=index, run_secret=RUN_SECRET)
        error = error_to_proto(errors.replicate.FENCED(task=TASK, source=SOURCE, epoch=1)) if failed else None
        return relay_pb2.LaneReport(who=who, committed=place.to_proto(), failed=error)

    with client.channel(rig.address) as channel:
        stub = relay_pb2_grpc.RelayStub(channel)
        for lane in range(LANES):
            assert not stub.ReportLane(report(lane, head)).stop
        far = rig.relay.head().offset
        for place in (RelayOffset(far.segment, far.byte + 1_000_000), RelayOffset(far.segment + 9, 4)):
            for failed in (False, True):
                with pytest.raises(grpc.RpcError) as caught:
                    stub.ReportLane(report(0, place, failed))
                assert client.coded_from_rpc(caught.value, "the worker").spec is errors.worker.PLACE_REFUSED
        assert stub.ReportLane(report(LANES, head, failed=True)).stop
        assert stub.ReportLane(report(LANES, head)).stop
    assert not stop.is_set
    assert board.event is None
    assert board.lowest() == head


def test_nothing_is_synced_before_the_source_has_answered(rig: Rig) -> None:
    unit = _unit(rig, Threads())
    running = _Running(unit)
    rig.source.execute("INSERT INTO shard_1.log VALUES (1, 'a')")
    until(lambda: count_rows(rig.target, "shard_1.log") == 1, "the row is applied")
    vars(unit)["_source_position"] = lambda: rig.start.__class__("", 0)
    assert not unit.status().synced
    running.stop.set()
    assert running.join() == Stopped()

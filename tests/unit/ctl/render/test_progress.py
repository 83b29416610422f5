"""Rates, goals and hopeless waits."""

from __future__ import annotations

import pytest

from shardmerge.ctl.render.progress import RateMemory, Until, is_reached, problems, read, unreachable_goal
from shardmerge.proto import common_pb2
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.worker_pb2 import SubTaskStatus
from tests.support import canned_master as canned

SYNCED = canned.subtask(canned.syncing(synced=True))
BEHIND = canned.subtask(canned.syncing(synced=False))
LOADING = canned.subtask(canned.loading(0.5))
FINISHED = canned.subtask(canned.loading(1.0), stage=common_pb2.STAGE_FINISHED)
NEW = canned.subtask(None, stage=common_pb2.STAGE_NEW)
PAUSED = canned.subtask(canned.syncing(synced=True), stage=common_pb2.STAGE_PAUSED)


@pytest.mark.parametrize(
    ("subtasks", "finished", "synced"),
    [
        ((), False, False),
        ((SYNCED, SYNCED), False, True),
        ((SYNCED, BEHIND), False, False),
        ((SYNCED, LOADING), False, False),
        ((SYNCED, NEW), False, False),
        ((SYNCED, PAUSED), False, False),
        ((SYNCED, FINISHED), False, True),
        ((FINISHED, FINISHED), True, True),
    ],
)
def test_goals(subtasks: tuple[SubTaskStatus, ...], finished: bool, synced: bool) -> None:
    answer = canned.status(*subtasks)
    assert is_reached(answer, Until.FINISHED) is finished
    assert is_reached(answer, Until.SYNCED) is synced


@pytest.mark.parametrize(
    ("oldest_ms", "waited", "complete", "reached"),
    [
        (500, 4.0, True, True),
        (500, 3.0, True, False),
        (5000, 8.0, True, False),
        (5000, 9.0, True, True),
        (0, 9.0, False, False),
    ],
)
def test_a_source_that_never_pauses_is_synced_up_to_the_begin(
    oldest_ms: int, waited: float, complete: bool, reached: bool
) -> None:
    sync = canned.syncing(synced=False)
    sync.oldest_ms, sync.complete = oldest_ms, complete
    assert is_reached(canned.status(canned.subtask(sync)), Until.SYNCED, waited) is reached
    sync.unknown = "lane 1 has not reported for 6 s"
    assert not is_reached(canned.status(canned.subtask(sync)), Until.SYNCED, waited)


def test_a_source_that_could_not_be_asked_is_not_there_yet() -> None:
    answer = canned.status(SYNCED, SYNCED)
    answer.sources.append(pb.SourceSubTasks(result=False, source_status=pb.SourceStatus(source="gone")))
    assert not is_reached(answer, Until.SYNCED)


def test_waiting_in_vain_is_for_errors_without_retries() -> None:
    lasting = canned.subtask(None, stage=common_pb2.STAGE_PAUSED, errors=(canned.detail(retryable=False),))
    passing = canned.subtask(None, stage=common_pb2.STAGE_PAUSED, errors=(canned.detail(retryable=True),))
    assert unreachable_goal(canned.status(SYNCED, PAUSED, passing), Until.SYNCED) is None
    report = unreachable_goal(canned.status(SYNCED, lasting), Until.SYNCED)
    assert report is not None
    assert report.message == (
        "task merge on source mysql-02 will not become synced: it is Paused by error 40001 key-collision: row collides"
    )
    assert report.workaround == "keep the shards' keys apart"


def test_a_conflict_of_a_sharding_ddl_is_shown_once() -> None:
    waiting = canned.subtask(canned.syncing(synced=False))
    waiting.sync.unresolved_groups.add().conflict.CopyFrom(canned.detail(50101, message="two statements"))
    [problem] = problems(canned.status(waiting, waiting, BEHIND))
    assert (problem.where, problem.report.code, problem.report.message) == ("task merge", 50101, "two statements")


def test_rates_grow_with_the_counter() -> None:
    memory = RateMemory()
    assert memory.rate(("k",), 0.0, 0) == 0
    assert memory.rate(("k",), 1.0, 100) == 100
    assert memory.rate(("k",), 2.0, 300) == 150
    for second in range(3, 30):
        memory.rate(("k",), float(second), 300 + (second - 2) * 10)
    assert memory.rate(("k",), 30.0, 300 + 28 * 10) == pytest.approx(10)


def test_the_wait_before_the_first_row_does_not_slow_the_rate() -> None:
    memory = RateMemory()
    for second in range(8):
        memory.rate(("k",), float(second), 0)
    assert memory.rate(("k",), 8.0, 500) == 500


def test_a_counter_that_starts_again_starts_the_rate_again() -> None:
    memory = RateMemory()
    memory.rate(("k",), 0.0, 1000)
    assert memory.rate(("k",), 1.0, 10) == 0
    assert memory.rate(("k",), 2.0, 20) == 10


def test_what_is_read_of_a_snapshot() -> None:
    memory = RateMemory()
    read(canned.status(canned.subtask(canned.loading(0.1, rate=0))), memory, 0.0)
    progress = read(canned.status(canned.subtask(canned.loading(0.2, rate=0))), memory, 1.0)
    (part,) = progress.snapshots
    assert (part.source, part.stage, part.finished_rows) == ("mysql-01", "Running", 200_000)
    assert part.rate == 100_000
    assert part.eta == pytest.approx(8.0)
    assert part.share == pytest.approx(0.2)
    first, second, _ = part.tables
    assert first.rate == 100_000
    assert first.eta == pytest.approx((333_333 - 200_000) / 100_000)
    assert second.eta is None
    assert not first.done


def test_the_rate_of_the_worker_is_preferred() -> None:
    progress = read(canned.status(LOADING), RateMemory(), 0.0)
    assert progress.snapshots[0].rate == 50_000
    assert progress.snapshots[0].eta == 10.0


def test_only_chunks_say_that_a_table_is_done() -> None:
    load = canned.loading(0.5)
    load.tables[1].finished_rows = 999_999
    (part,) = read(canned.status(canned.subtask(load)), RateMemory(), 0.0).snapshots
    assert [table.done for table in part.tables] == [True, False, False]
    load.plan_complete = False
    (part,) = read(canned.status(canned.subtask(load)), RateMemory(), 0.0).snapshots
    assert [table.done for table in part.tables] == [False, False, False]
    assert part.planning


def test_while_tables_are_planned_it_is_not_all() -> None:
    load = canned.loading(1.0)
    load.plan_complete = False
    (part,) = read(canned.status(canned.subtask(load)), RateMemory(), 0.0).snapshots
    assert part.share < 1


def test_in_sync_the_lag_is_that_of_the_last_transaction() -> None:
    (part,) = read(canned.status(SYNCED), RateMemory(), 0.0).replicates
    assert part.lag == pytest.approx(0.007)
    assert [lane.lag for lane in part.lanes] == [pytest.approx(0.007), pytest.approx(0.008)]


def test_what_is_read_of_replication_and_problems() -> None:
    answer = canned.status(BEHIND, NEW, canned.subtask(None, errors=(canned.detail(),)))
    answer.sources[0].source_status.relay_status.result.CopyFrom(canned.detail(message="relay broke"))
    answer.sources.append(pb.SourceSubTasks(result=False, msg="worker away", source_status=pb.SourceStatus(source="x")))
    memory = RateMemory()
    read(answer, memory, 0.0)
    progress = read(answer, memory, 1.0)
    (part,) = progress.replicates
    assert part.rates == (1200.0, 1200.0)
    assert part.lag == 12.5
    assert [lane.lag for lane in part.lanes] == [12.5, 12.5]
    assert [lane.waiting_for for lane in part.lanes] == ["events", ""]
    assert [idle.source for idle in progress.idle] == ["mysql-02", "mysql-03"]
    assert not progress.snapshots
    assert [problem.where for problem in progress.problems] == [
        "relay of mysql-01",
        "task merge on mysql-03",
        "source x",
    ]
    assert "worker away" in progress.problems[2].report.message

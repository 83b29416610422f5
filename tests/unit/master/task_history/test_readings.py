"""From the status of subtasks to a sample."""

from __future__ import annotations

from shardmerge.master.task_history.readings import Reading, has_lag, reading_of, sample_of
from shardmerge.proto import common_pb2, worker_pb2


def _sync(**fields: float | str) -> worker_pb2.SubTaskStatus:
    return worker_pb2.SubTaskStatus(
        stage=common_pb2.STAGE_RUNNING,
        unit=common_pb2.UNIT_REPLICATE,
        epoch=7,
        sync=worker_pb2.SyncStatus(**fields),  # pyright: ignore[reportArgumentType]
    )


def test_the_lag_is_the_larger_of_the_last_transaction_and_the_oldest() -> None:
    one = reading_of("s", _sync(total_rows=10, recent_rps=3, lag_ms=20, oldest_ms=4_000, bytes_behind=9))
    assert one == Reading("s", (7, common_pb2.UNIT_REPLICATE), 10, 3.0, 4.0, 9)
    assert reading_of("s", _sync(unknown="no report", lag_ms=20)).lag is None


def test_a_subtask_that_does_not_run_has_no_lag_and_no_rate() -> None:
    paused = worker_pb2.SubTaskStatus(stage=common_pb2.STAGE_PAUSED, sync=worker_pb2.SyncStatus(recent_rps=5))
    assert reading_of("s", paused) == reading_of("s", None) == Reading("s")


def test_a_copy_has_a_rate_and_no_lag() -> None:
    load = worker_pb2.LoadStatus(finished_rows=100, rows_per_second=9)
    status = worker_pb2.SubTaskStatus(stage=common_pb2.STAGE_RUNNING, unit=common_pb2.UNIT_SNAPSHOT, epoch=3, load=load)
    assert reading_of("s", status) == Reading("s", (3, common_pb2.UNIT_SNAPSHOT), 100, 9.0, None, 0)


def test_a_sample_has_the_worst_lag_and_the_sum_of_the_rates() -> None:
    before = {"a": Reading("a", (1, 2), 100), "b": Reading("b", (1, 2), 0)}
    now = [Reading("a", (1, 2), 700, 1.0, 0.5, 10), Reading("b", (1, 2), 60, 1.0, 2.0, 5), Reading("c")]
    sample = sample_of(now, before, 1_000.9, 600.0)
    assert (sample.at, sample.seconds, sample.rate, sample.bytes_behind) == (1_000, 600, 1.1, 15)
    assert (sample.lag, sample.highest_lag, sample.sources, sample.unknown) == (2.0, 2.0, 3, 1)


def test_rows_of_another_run_are_not_compared() -> None:
    before = {"a": Reading("a", (1, 2), 1_000_000)}
    assert sample_of([Reading("a", (2, 2), 5, 4.0)], before, 0, 600.0).rate == 4.0
    assert sample_of([Reading("a", (2, 2), 2_000_000, 4.0)], before, 0, 600.0).rate == 4.0
    assert sample_of([Reading("a", (1, 2), 5, 4.0)], before, 0, 600.0).rate == 4.0
    assert sample_of([Reading("a", (1, 2), 5, 4.0)], {}, 0, 0.0).rate == 4.0


def test_without_a_known_lag_there_is_none() -> None:
    sample = sample_of([Reading("a"), Reading("b")], {}, 0, 600.0)
    assert not has_lag(sample)

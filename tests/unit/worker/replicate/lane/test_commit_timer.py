"""When a lane commits."""

from __future__ import annotations

from shardmerge.worker.replicate.lane.commit_timer import CommitTimer


def timer() -> CommitTimer:
    return CommitTimer(most_rows=1000, most_bytes=5000, now=10.0)


def test_dry_input_is_committed_at_once() -> None:
    made = timer()
    assert made.is_due(10.0, 1, 10, dry=True)
    assert not made.is_due(10.0, 1, 10, dry=False)


def test_a_batch_of_full_size_is_committed_while_input_waits() -> None:
    made = timer()
    assert not made.is_due(10.0, 999, 4999, dry=False)
    assert made.is_due(10.0, 1000, 10, dry=False)
    assert made.is_due(10.0, 1, 5000, dry=False)


def test_a_row_waits_a_second_at_most() -> None:
    made = timer()
    assert not made.is_due(10.9, 1, 10, dry=False)
    assert made.is_due(11.0, 1, 10, dry=False)


def test_after_a_commit_rows_gather_for_as_long_as_it_took() -> None:
    made = timer()
    made.committed(began_at=20.0, now=20.25)
    assert made.eager_at == 20.5
    assert not made.is_due(20.4, 1, 10, dry=True)
    assert made.is_due(20.5, 1, 10, dry=True)


def test_rows_gather_a_second_at_most_after_a_slow_commit() -> None:
    made = timer()
    made.committed(began_at=20.0, now=50.0)
    assert made.eager_at == 51.0


def test_without_rows_the_checkpoint_moves_once_a_second() -> None:
    made = timer()
    made.committed(began_at=20.0, now=20.0)
    assert not made.is_move_due(20.9)
    assert made.is_move_due(21.0)

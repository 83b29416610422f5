"""How samples are stored and thinned."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.master.task_history.blocks import (
    DAY,
    SAMPLES,
    SampleBlock,
    block_at,
    block_named,
    days_to_thin,
    is_sampled,
    thinned,
    valid,
)
from shardmerge.master.task_history.readings import has_lag, merged
from shardmerge.proto import state_pb2 as pb


def _sample(at: int, lag: float, rate: float, unknown: int) -> pb.HistorySample:
    return pb.HistorySample(at=at, seconds=600, lag=lag, highest_lag=lag, rate=rate, sources=2, unknown=unknown)


_SAMPLES = st.lists(
    st.builds(_sample, st.integers(0, 3 * DAY), st.floats(0, 1e4), st.floats(0, 1e6), st.integers(0, 2)),
    min_size=1,
    max_size=60,
)


@given(st.integers(0, 10**9), st.integers(1, DAY))
def test_a_block_holds_its_time_and_comes_back_from_its_name(now: int, interval: int) -> None:
    block = block_at(float(now), interval)
    assert block.begin <= now < block.begin + block.seconds
    assert block.seconds <= DAY
    assert block_named(block.name) == block


def test_names_that_are_none_of_this_version() -> None:
    assert [block_named(name) for name in ("", "5", "x-1", "1-x", "1-0", "1-2-3")] == [None] * 6


def test_an_interval_has_one_sample() -> None:
    sample = pb.HistorySample(at=1_190)
    assert is_sampled([sample], 1_199.0, 600)
    assert not is_sampled([sample], 1_200.0, 600)
    assert not is_sampled([], 1_200.0, 600)
    # A clock that goes back makes no second sample of a time.
    assert is_sampled([sample], 500.0, 600)


@given(_SAMPLES)
def test_thinning_keeps_the_highest_lag_and_the_time_covered(samples: list[pb.HistorySample]) -> None:
    thin = thinned(samples)
    assert [one.at for one in thin] == sorted(one.at for one in thin)
    assert len({int(one.at) // 3_600 for one in thin}) == len(thin)
    assert sum(one.seconds for one in thin) == sum(one.seconds for one in samples)
    known = [one.highest_lag for one in samples if has_lag(one)]
    assert max(known, default=None) == max((one.highest_lag for one in thin if has_lag(one)), default=None)
    assert max(one.rate for one in thin) <= max(one.rate for one in samples) + 0.1


def test_a_lag_that_no_source_knows_is_not_zero() -> None:
    unknown = pb.HistorySample(at=1, seconds=600, rate=5, sources=2, unknown=2)
    assert not has_lag(merged([unknown, unknown]))
    known = pb.HistorySample(at=2, seconds=600, lag=3, highest_lag=4, rate=7, sources=2, unknown=1)
    both = merged([unknown, known])
    assert (has_lag(both), both.lag, both.highest_lag, both.rate) == (True, 3, 4, 6)


def test_days_are_thinned_a_day_after_their_end() -> None:
    fine, whole = SampleBlock(DAY + 3_600, 3_600), SampleBlock(DAY, DAY)
    assert days_to_thin([fine], 3 * DAY - 1.0) == {}
    assert days_to_thin([fine, whole], 3.0 * DAY) == {DAY: [fine]}


def test_blocks_within_a_thinned_day_count_no_more() -> None:
    """The leader may be killed between the record of the day and the removal of its blocks."""
    fine, whole, later = SampleBlock(DAY + 3_600, 3_600), SampleBlock(DAY, DAY), SampleBlock(2 * DAY, 3_600)
    assert valid([later, fine]) == [fine, later]
    assert valid([later, fine, whole]) == [whole, later]


def test_a_block_has_few_samples() -> None:
    assert {block_at(float(now), 600) for now in range(0, 3_600, 600)} == {SampleBlock(0, 600 * SAMPLES)}

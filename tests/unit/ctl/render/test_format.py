"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.ctl.render import format


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.007, "7 ms"),
        (12.34, "12.3 s"),
        (185, "3m 05s"),
        (7260, "2h 01m"),
        (90000, "1d 01h"),
        (-1, "–"),
        (math.nan, "–"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert format.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (200 << 20, "200 MiB"), (3 << 60, "3072.0 PiB")],
)
def test_size(count: int, text: str) -> None:
    assert format.size(count) == text


def test_rows_and_rates() -> None:
    assert format.rows(1234567) == "1,234,567"
    assert [format.rate(value) for value in (0, 0.5, 9.96, 51234.4, math.inf)] == ["–", "0.5", "10", "51,234", "–"]


@given(st.integers(0, 2**63), st.integers(1, 2**63))
def test_a_hundred_percent_only_when_all_is_done(done: int, total: int) -> None:
    share = format.share(done, total)
    assert 0 <= share <= 1
    if done < total and share < 1:
        assert format.percent(share) != "100 %"
        assert float(format.percent(share).removesuffix(" %")) < 100


def test_share_of_nothing() -> None:
    assert format.share(0, 0) == 0


@given(st.lists(st.floats(0, 1e9), max_size=30))
def test_sparkline_has_a_bar_per_value(values: list[float]) -> None:
    assert len(format.sparkline(tuple(values))) == len(values)


def test_sparkline() -> None:
    assert format.sparkline((0, 50, 100)) == "▁▅█"
    assert format.sparkline((0, 0)) == "▁▁"


def test_a_number_that_is_no_time() -> None:
    assert [format.moment(each) for each in (1e12, 1e20, float("inf"), float("nan"))] == ["?"] * 4
    assert format.moment(0) == "1970-01-01 00:00:00"

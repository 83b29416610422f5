"""Tests how far a worker's clock is ahead, by an answer that carries it."""

from __future__ import annotations

import pytest

from shardmerge.master.workers.clocks import difference


def test_half_of_the_time_that_the_answer_took_is_the_error() -> None:
    found = difference("w1", clock=1_002.5, before=1_000.0, after=1_001.0)
    assert found is not None
    assert (found.whose, found.than) == ("worker w1", "the master")
    assert (found.ahead, found.error) == (pytest.approx(2.0), pytest.approx(0.5))


def test_a_worker_of_an_earlier_version_sends_no_clock() -> None:
    assert difference("w1", clock=0.0, before=1_000.0, after=1_001.0) is None

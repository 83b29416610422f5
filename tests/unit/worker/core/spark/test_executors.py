"""Slots of a cluster: since when some are missing, and how long a worker waits for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardmerge.worker.core.spark import executors
from shardmerge.worker.core.spark.executors import Slots, start_seconds, wait_for_slots


def test_slots_that_are_missing_for_long() -> None:
    slots = Slots(8).then(8, 8, 1.0)
    assert slots.short_since is None
    slots = slots.then(4, 8, 10.0).then(0, 8, 20.0)
    assert slots == Slots(0, 10.0)
    assert not slots.is_lacking(4, 29.0, 20.0)
    assert slots.is_lacking(4, 30.0, 20.0)
    # Tasks that fit on what is left are not concerned.
    assert not Slots(4, 10.0).is_lacking(4, 99.0, 20.0)
    assert Slots(4, 10.0).is_lacking(5, 99.0, 20.0)
    assert slots.then(8, 8, 40.0) == Slots(8)


@pytest.mark.parametrize(
    ("master", "seconds"), [("spark://10.0.0.1:7077", 20.0), ("yarn", 120.0), ("k8s://https://10.0.0.1:443", 120.0)]
)
def test_containers_take_longer_to_start(master: str, seconds: float) -> None:
    assert start_seconds(master) == seconds


def _counts(monkeypatch: pytest.MonkeyPatch, *counts: int) -> Callable[[], int]:
    """Return a count that changes with each poll, and let a poll take half a second."""
    clock = [0.0]

    class _Time:
        @staticmethod
        def monotonic() -> float:
            return clock[0]

        @staticmethod
        def sleep(_: float) -> None:
            clock[0] += 0.5

    monkeypatch.setattr(executors, "time", _Time)
    left = list(counts)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.parametrize(
    ("promised", "counts", "found"),
    [
        (8, (0, 0, 4, 8), 8),
        (8, (4, 4, 4), 4),
        (8, (0,), 0),
        (None, (0, 0, 4, 4, 8, 8, 8, 8, 8), 8),
        (None, (0,), 0),
    ],
)
def test_waiting_for_slots(
    monkeypatch: pytest.MonkeyPatch, promised: int | None, counts: tuple[int, ...], found: int
) -> None:
    assert wait_for_slots(_counts(monkeypatch, *counts), promised) == found

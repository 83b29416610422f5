"""The window of metrics is bounded in time, in samples and in bytes."""

from __future__ import annotations

import threading
import zlib
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto.diagnostics.metrics_window import MetricsRecorder, MetricsWindow
from shardmerge.proto.metrics import own_both
from shardmerge.proto.metrics.family import Sample
from tests.support.wait import until


def test_samples_leave_by_age_and_number() -> None:
    window = MetricsWindow(seconds=100, interval=10)
    for at in range(0, 300, 10):
        window.add(float(at), b"x")
    assert [sample.at for sample in window.samples()] == [float(at) for at in range(200, 300, 10)]
    window.add(1_000.0, b"y")
    assert [zlib.decompress(sample.packed) for sample in window.samples()] == [b"y"]


@given(st.lists(st.integers(0, 3_000), max_size=50), st.integers(0, 1 << 30))
def test_the_bytes_are_bounded(sizes: list[int], seed: int) -> None:
    window = MetricsWindow(seconds=1_000, interval=1, most_bytes=5_000)
    random = Random(seed)
    for at, size in enumerate(sizes):
        window.add(float(at), random.randbytes(size))
        assert window.bytes == sum(len(sample.packed) for sample in window.samples()) <= 5_000
    samples = window.samples()
    assert [sample.at for sample in samples] == sorted(sample.at for sample in samples)
    if sizes:
        assert samples[-1].at == len(sizes) - 1


def test_a_sample_that_is_larger_than_all_bytes_is_not_kept() -> None:
    window = MetricsWindow(most_bytes=100)
    window.add(1.0, Random(1).randbytes(1_000))
    assert window.samples() == () and window.bytes == 0


def test_a_clock_that_is_set_back_keeps_the_bounds() -> None:
    window = MetricsWindow(seconds=100, interval=10)
    for number in range(50):
        window.add(1_000.0 - number, b"x")
    assert len(window.samples()) == 10


def test_the_recorder_continues_after_an_error() -> None:
    calls = 0

    def samples() -> list[Sample]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("once")
        return [own_both.READY.sample(1)]

    window, stop = MetricsWindow(), threading.Event()
    recorder = MetricsRecorder(samples, window, interval=0.001)
    recorder.start(stop)
    try:
        until(lambda: len(window.samples()) >= 2, "two samples are kept")
    finally:
        stop.set()
    assert b"dm_ready 1.0" in zlib.decompress(recorder.samples()[-1].packed)
    assert recorder.last_seconds > 0

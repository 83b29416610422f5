"""The processor share of a process, read by several readers."""

from __future__ import annotations

import time

from shardmerge.proto.metrics.process import ProcessReader


def test_a_second_reader_does_not_shorten_the_measured_time() -> None:
    reader = ProcessReader("dm-test", "1")
    first = reader.read(0.0, {}, is_ready=True)
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    # Within a second the figure stays: a few milliseconds of full work are not 100 %.
    assert reader.read(0.0, {}, is_ready=True).cpu_percent == first.cpu_percent
    assert reader.read(0.0, {}, is_ready=True).cpu_seconds >= first.cpu_seconds

"""The queue between stream and lane holds little, whatever the frames' size."""

from __future__ import annotations

import threading

import pytest

from shardmerge.proto import errors, relay_pb2
from shardmerge.worker.replicate.lane.frame_queue import FrameQueue
from tests.support.wait import until


def frame(size: int) -> relay_pb2.RelayFrame:
    return relay_pb2.RelayFrame(block=relay_pb2.Block(events=bytes(size)))


class Feeding(threading.Thread):
    def __init__(self, frames: FrameQueue, sizes: list[int]) -> None:
        super().__init__(daemon=True)
        self._frames, self._sizes = frames, sizes
        self.put = 0
        self.start()

    def run(self) -> None:
        for size in self._sizes:
            self._frames.put(frame(size))
            self.put += 1


@pytest.mark.parametrize(
    ("sizes", "fit"),
    [([1] * 20, 4), ([40] * 20, 2), ([100] * 3, 1), ([1000] * 3, 1), ([10, 1000, 10], 1)],
)
def test_it_holds_a_few_frames_and_a_few_bytes(sizes: list[int], fit: int) -> None:
    frames = FrameQueue(most_frames=4, most_bytes=100)
    feeding = Feeding(frames, sizes)
    until(lambda: feeding.put == fit, "as many as fit have been put")
    got: list[int] = []
    for _ in sizes:
        item = frames.get()
        assert isinstance(item, relay_pb2.RelayFrame)
        got.append(len(item.block.events))
    feeding.join(300)
    assert got == sizes
    assert frames.empty()


def test_full_reports_that_the_stream_waits() -> None:
    frames = FrameQueue(most_frames=4, most_bytes=100)
    assert not frames.full()
    frames.put(frame(100))
    assert frames.full()
    frames.get()
    assert not frames.full()
    for _ in range(4):
        frames.put(frame(1))
    assert frames.full()


def test_nothing_came() -> None:
    assert FrameQueue().get(0.0) is None


def test_a_closed_one_frees_its_feeder() -> None:
    frames = FrameQueue(most_frames=1)
    feeding = Feeding(frames, [1, 1, 1])
    until(lambda: feeding.put == 1, "the first has been put")
    frames.close()
    feeding.join(300)
    assert feeding.put == 3
    assert frames.get() is not None
    assert frames.empty()


def test_an_error_needs_no_room_of_its_own() -> None:
    frames = FrameQueue(most_frames=2, most_bytes=10)
    frames.put(frame(10))
    frames.put(errors.worker.STREAM_LOST(lane=0, address="a", reason="r"))
    assert isinstance(frames.get(), relay_pb2.RelayFrame)
    assert not isinstance(frames.get(), relay_pb2.RelayFrame)

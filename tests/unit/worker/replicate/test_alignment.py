"""The offset at which two streams are aligned: a group end after all that was served; no stream is served beyond it."""

from __future__ import annotations

import threading

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.replicate.alignment import AlignedLanes, StreamAlignment


class Streams(RuleBasedStateMachine):
    """A relay log that grows by groups, some of them published in pieces, and two streams that are served."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = [0]  # of groups
        self.published = [0]  # boundaries of events, also those of an incomplete group
        self.served = [0, 0]
        self.alignment = StreamAlignment(lambda: RelayOffset(1, self.ends[-1]))
        self.place: int | None = None
        self.requested = False

    @rule(size=st.integers(1, 9))
    def a_group_is_published(self, size: int) -> None:
        end = self.published[-1] + size
        self.published.append(end)
        self.ends.append(end)

    @rule(size=st.integers(1, 9))
    def a_piece_of_a_large_group_is_published(self, size: int) -> None:
        self.published.append(self.published[-1] + size)

    @rule(stream=st.integers(0, 1), far=st.integers(1, 5))
    def a_stream_continues(self, stream: int, far: int) -> None:
        """As worker/relay/serve/subscription.py does: it asks for the next boundary, and is served up to there or the
        end."""
        ahead = [end for end in self.published if end > self.served[stream]][:far]
        if not ahead:
            return
        at = self.alignment.limit(RelayOffset(1, self.served[stream]))
        if at is not None and self.served[stream] >= at.byte:
            return
        wanted = ahead[-1]
        limit = self.alignment.limit(RelayOffset(1, wanted))
        self.served[stream] = wanted if limit is None else min(wanted, limit.byte)

    @rule()
    def the_alignment_is_requested(self) -> None:
        self.alignment.request()
        self.requested = True

    @precondition(lambda self: self.requested)
    @rule()
    def the_alignment_is_cancelled(self) -> None:
        self.alignment.cancel()
        self.requested = False
        self.place = None

    @invariant()
    def the_place_is_a_group_end_that_stays(self) -> None:
        found = self.alignment.place
        if self.place is not None:
            assert found is not None
            assert found.byte == self.place
        if found is not None:
            assert self.requested
            assert found.byte in self.ends
            self.place = found.byte

    @invariant()
    def nothing_beyond_it_is_served(self) -> None:
        assert self.place is None or max(self.served) <= self.place


TestStreams = Streams.TestCase


def test_streams_are_aligned_once_the_incomplete_group_has_ended() -> None:
    head = RelayOffset(1, 100)
    alignment = StreamAlignment(lambda: head)
    assert alignment.limit(RelayOffset(1, 150)) is None  # in the middle of a group
    alignment.request()
    assert alignment.limit(RelayOffset(1, 160)) is None
    assert alignment.place is None
    head = RelayOffset(1, 200)
    assert alignment.limit(RelayOffset(1, 250)) == RelayOffset(1, 200)
    head = RelayOffset(1, 300)
    assert alignment.limit(RelayOffset(1, 150)) == RelayOffset(1, 200)
    alignment.cancel()
    assert alignment.limit(RelayOffset(1, 300)) is None


class _Barrier(threading.Thread):
    """The unit's barrier thread, with all lanes aligned at ``offset``."""

    def __init__(self, aligned: AlignedLanes, offset: RelayOffset) -> None:
        super().__init__(daemon=True)
        self.stop = StopSignal()
        self.may_continue: bool | None = None
        self._aligned, self._offset = aligned, offset
        self.start()

    def run(self) -> None:
        self.may_continue = self._aligned.wait_resumed(self._offset, self.stop)


def test_aligned_lanes_continue_once_they_are_resumed() -> None:
    aligned = AlignedLanes()
    assert aligned.wait_aligned(0) is None
    barrier = _Barrier(aligned, RelayOffset(1, 100))
    assert aligned.wait_aligned(10) == RelayOffset(1, 100)
    assert barrier.is_alive()
    aligned.resume()
    barrier.join(10)
    assert barrier.may_continue is True
    assert aligned.wait_aligned(0) is None


def test_aligned_lanes_that_are_stopped_end() -> None:
    aligned = AlignedLanes()
    barrier = _Barrier(aligned, RelayOffset(1, 100))
    assert aligned.wait_aligned(10) is not None
    barrier.stop.set()
    barrier.join(10)
    assert barrier.may_continue is False

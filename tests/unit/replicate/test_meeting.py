"""Where two streams come to stand: no stream is served beyond it, and it is a group end behind all that was served."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker.position import RelayOffset
from worker.replicate.meeting import Meeting


class Streams(RuleBasedStateMachine):
    """A relay log that grows by groups, some of them published in pieces, and two streams that are served."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = [0]  # of groups
        self.published = [0]  # boundaries of events, those of a group under way too
        self.served = [0, 0]
        self.meeting = Meeting(lambda: RelayOffset(1, self.ends[-1]))
        self.place: int | None = None
        self.called = False

    @rule(size=st.integers(1, 9))
    def a_group_comes(self, size: int) -> None:
        end = self.published[-1] + size
        self.published.append(end)
        self.ends.append(end)

    @rule(size=st.integers(1, 9))
    def a_piece_of_a_large_group_comes(self, size: int) -> None:
        self.published.append(self.published[-1] + size)

    @rule(stream=st.integers(0, 1), far=st.integers(1, 5))
    def a_stream_goes_on(self, stream: int, far: int) -> None:
        """As worker/relay/subscription.py does: it asks for the next boundary, and is served up to there or the end."""
        ahead = [end for end in self.published if end > self.served[stream]][:far]
        if not ahead:
            return
        at = self.meeting.limit(RelayOffset(1, self.served[stream]))
        if at is not None and self.served[stream] >= at.byte:
            return
        wanted = ahead[-1]
        limit = self.meeting.limit(RelayOffset(1, wanted))
        self.served[stream] = wanted if limit is None else min(wanted, limit.byte)

    @rule()
    def all_are_called(self) -> None:
        self.meeting.call()
        self.called = True

    @precondition(lambda self: self.called)
    @rule()
    def it_is_dissolved(self) -> None:
        self.meeting.dissolve()
        self.called = False
        self.place = None

    @invariant()
    def the_place_is_a_group_end_that_stays(self) -> None:
        found = self.meeting.place
        if self.place is not None:
            assert found is not None
            assert found.byte == self.place
        if found is not None:
            assert self.called
            assert found.byte in self.ends
            self.place = found.byte

    @invariant()
    def nothing_beyond_it_is_served(self) -> None:
        assert self.place is None or max(self.served) <= self.place


TestStreams = Streams.TestCase


def test_all_come_to_stand_once_the_group_under_way_has_ended() -> None:
    head = RelayOffset(1, 100)
    meeting = Meeting(lambda: head)
    assert meeting.limit(RelayOffset(1, 150)) is None  # in the middle of a group
    meeting.call()
    assert meeting.limit(RelayOffset(1, 160)) is None
    assert meeting.place is None
    head = RelayOffset(1, 200)
    assert meeting.limit(RelayOffset(1, 250)) == RelayOffset(1, 200)
    head = RelayOffset(1, 300)
    assert meeting.limit(RelayOffset(1, 150)) == RelayOffset(1, 200)
    meeting.dissolve()
    assert meeting.limit(RelayOffset(1, 300)) is None

"""Where the lanes of two streams come to stand, so that one may take over the other's tables.

It is the relay's head at a moment when nothing beyond it has been served to either stream. Every lane is served up to
there and no further, commits, and waits; the wait is as long as the slower stream takes to come.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from worker.position import RelayOffset


@dataclass(frozen=True, slots=True)
class MeetingPlace:
    """Where all come to stand in the meeting of this number: two meetings may be at one place."""

    offset: RelayOffset
    number: int


class Meeting:
    """Shared by the streams of one subtask; thread-safe. ``head``: the relay's, a group end."""

    def __init__(self, head: Callable[[], RelayOffset]) -> None:
        self._head = head
        self._lock = threading.Lock()
        self._called = False
        self._served: RelayOffset | None = None
        self._place: RelayOffset | None = None
        self._number = 0

    def limit(self, end: RelayOffset) -> RelayOffset | None:
        """Of every stream: see :data:`worker.relay.subscription.Limit`."""
        with self._lock:
            if self._place is None and self._called:
                head = self._head()
                # A large group under way is served in pieces, beyond the head.
                if self._served is None or head >= self._served:
                    self._place = head
            if self._place is None and (self._served is None or end > self._served):
                self._served = end
            return self._place

    def at(self, place: RelayOffset) -> MeetingPlace | None:
        """The meeting at that place; None: there is none."""
        with self._lock:
            return MeetingPlace(place, self._number) if place == self._place else None

    @property
    def place(self) -> RelayOffset | None:
        """Where all come to stand; None: nowhere, or that is not known yet."""
        with self._lock:
            return self._place

    def call(self) -> None:
        """All streams are to come to stand."""
        with self._lock:
            self._called = True
            self._number += 1

    def dissolve(self) -> None:
        """Whoever stands goes on when told to; nobody else comes to stand."""
        with self._lock:
            self._called = False
            self._place = None

"""Aligns the lanes of two streams at one offset, so that one stream can take over the other's tables.

The offset is the relay's head at a moment when nothing beyond it has been served to either stream. Every lane is served
up to there and no further, commits, and waits until the slower stream arrives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.stream import Stream

_WAIT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class AlignmentPoint:
    """The offset of one alignment. ``number``: identifies it, because two alignments may be at the same offset."""

    offset: RelayOffset
    number: int


class StreamAlignment:
    """Aligns the streams of one subtask, which share it; thread-safe. ``head``: the relay's head, a group end."""

    def __init__(self, head: Callable[[], RelayOffset], wake_streams: Callable[[], None] = lambda: None) -> None:
        """``head``: the relay log's published end; ``wake_streams``: lets streams look that wait at that end."""
        self._head = head
        self._wake_streams = wake_streams
        self._lock = threading.Lock()
        self._requested = False
        self._served: RelayOffset | None = None
        self._place: RelayOffset | None = None
        self._number = 0

    def limit(self, end: RelayOffset) -> RelayOffset | None:
        """The limit of every stream: see :data:`shardmerge.worker.relay.serve.subscription.Limit`."""
        with self._lock:
            if self._place is None and self._requested:
                head = self._head()
                # An incomplete large group is served in pieces, beyond the head.
                if self._served is None or head >= self._served:
                    self._place = head
            if self._place is None and (self._served is None or end > self._served):
                self._served = end
            return self._place

    def point_at(self, place: RelayOffset) -> AlignmentPoint | None:
        """The alignment at that offset; None: there is none."""
        with self._lock:
            return AlignmentPoint(place, self._number) if place == self._place else None

    @property
    def place(self) -> RelayOffset | None:
        """The offset at which all lanes wait; None: none is requested, or it is not determined yet."""
        with self._lock:
            return self._place

    def request(self) -> None:
        """Request that all streams stop at one offset."""
        with self._lock:
            self._requested = True
            self._number += 1
        self._wake_streams()

    def cancel(self) -> None:
        """End the alignment: no further lane stops. Lanes that wait continue when their unit resumes them."""
        with self._lock:
            self._requested = False
            self._place = None


@dataclass(frozen=True, slots=True)
class StreamRole:
    """Which stream of the subtask the lanes apply. ``alignment``: aligns them with the lanes of the other stream; None:
    there is no other stream."""

    stream: Stream = Stream.MAIN
    alignment: StreamAlignment | None = None


MAIN_ROLE = StreamRole()


class AlignedLanes:
    """Whether all lanes of one unit are aligned, and where. Thread-safe.

    The unit's barrier thread reports it (:meth:`wait_resumed`); the thread that aligns both streams waits for it
    (:meth:`wait_aligned`) and lets the lanes continue (:meth:`resume`).
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._offset: RelayOffset | None = None

    def wait_aligned(self, seconds: float) -> RelayOffset | None:
        """Wait up to ``seconds`` until all lanes are aligned; returns their offset, None: not yet."""
        with self._changed:
            self._changed.wait_for(lambda: self._offset is not None, seconds)
            return self._offset

    def resume(self) -> None:
        """Let the aligned lanes continue."""
        with self._changed:
            self._offset = None
            self._changed.notify_all()

    def wait_resumed(self, offset: RelayOffset, stop: StopSignal) -> bool:
        """All lanes are aligned at ``offset``: wait until they may continue. False: ``stop`` came first."""
        with self._changed:
            self._offset = offset
            self._changed.notify_all()
            while not self._changed.wait_for(lambda: self._offset is None or stop.is_set, _WAIT_SECONDS):
                pass
        return not stop.is_set

    def wake(self) -> None:
        """Let :meth:`wait_resumed` look at its stop signal at once."""
        with self._changed:
            self._changed.notify_all()

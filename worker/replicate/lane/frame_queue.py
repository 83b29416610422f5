"""The queue between a lane's stream and the lane, bounded in frames and in bytes.

A stalled target stops the lane, a full queue stops the thread that feeds it, and then flow control stops the worker's
stream: the memory of all of them is bounded whatever the backlog.
"""

from __future__ import annotations

import threading
from collections import deque

from shardmerge.proto import relay_pb2
from shardmerge.proto.errors import ShardmergeError

MOST_FRAMES = 8
MOST_BYTES = 4 << 20

Item = relay_pb2.RelayFrame | ShardmergeError


class FrameQueue:
    """One thread puts, one gets. A frame larger than the bound (one huge row) is accepted while the queue is empty."""

    def __init__(self, most_frames: int = MOST_FRAMES, most_bytes: int = MOST_BYTES) -> None:
        self._most_frames, self._most_bytes = most_frames, most_bytes
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._closed = False

    def put(self, item: Item) -> None:
        """Wait for room, then append; has no effect once the queue is closed."""
        size = _size(item)
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has_room(size))
            if not self._closed:
                self._items.append(item)
                self._bytes += size
                self._changed.notify_all()

    def get(self, seconds: float | None = None) -> Item | None:
        """The next item, as soon as there is one; None if there is none after ``seconds``."""
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._items), seconds):
                return None
            item = self._items.popleft()
            self._bytes -= _size(item)
            self._changed.notify_all()
            return item

    def empty(self) -> bool:
        return not self._items

    def full(self) -> bool:
        """Whether the stream waits because the queue is full."""
        return len(self._items) >= self._most_frames or self._bytes >= self._most_bytes

    def close(self) -> None:
        """Discard what is put from now on, and what a waiting call of :meth:`put` would append."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _has_room(self, size: int) -> bool:
        if not self._items:
            return True
        return len(self._items) < self._most_frames and self._bytes + size <= self._most_bytes


def _size(item: Item) -> int:
    return len(item.block.events) if isinstance(item, relay_pb2.RelayFrame) else 0

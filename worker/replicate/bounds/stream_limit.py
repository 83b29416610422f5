"""Limits how far the lanes of a run may be served; checked before anything is sent to them."""

from __future__ import annotations

import threading
from typing import Protocol

from shardmerge.worker.core.position import RelayOffset


class EndFinder(Protocol):
    """Finds where lanes end. ``end``: a published offset beyond those of all earlier calls. Once it has found an end,
    it returns the same one."""

    def find(self, end: RelayOffset) -> RelayOffset | None: ...


class StreamLimit:
    """How far the lanes of one run may be served: :meth:`limit` is a
    :data:`shardmerge.worker.relay.serve.subscription.Limit`. Thread-safe."""

    def __init__(self, search: EndFinder | None) -> None:
        """``search`` None: the stream has no end."""
        self._search = search
        self._lock = threading.Lock()
        self._found: RelayOffset | None = None

    @property
    def found(self) -> RelayOffset | None:
        """Where the lanes end, once it is known."""
        return self._found

    def limit(self, end: RelayOffset) -> RelayOffset | None:
        """Raises what its search raises: then nothing after the offsets of earlier calls may be served."""
        if self._search is None:
            return None
        with self._lock:
            if self._found is None:
                self._found = self._search.find(end)
            return self._found

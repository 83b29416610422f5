"""How far the lanes of a run may be served, asked before anything is sent to them."""

from __future__ import annotations

import threading
from typing import Protocol

from worker.position import RelayOffset


class Search(Protocol):
    """``end``: published, beyond every place asked about before. The same answer once there is one."""

    def find(self, end: RelayOffset) -> RelayOffset | None: ...


class Gate:
    """One run's answer to how far its lanes may be served: a :data:`worker.relay.subscription.Limit`. Thread-safe."""

    def __init__(self, search: Search | None) -> None:
        """None: it goes on for ever."""
        self._search = search
        self._lock = threading.Lock()
        self._found: RelayOffset | None = None

    @property
    def found(self) -> RelayOffset | None:
        """Where the lanes end, once that is known."""
        return self._found

    def limit(self, end: RelayOffset) -> RelayOffset | None:
        """Raises what its search raises: then nothing behind what was asked about before may be served."""
        if self._search is None:
            return None
        with self._lock:
            if self._found is None:
                self._found = self._search.find(end)
            return self._found

"""Counts the keys of a subtask that are in quarantine, for `query-status`, without a query for each status."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.target.quarantine import held_store
from shardmerge.worker.unit.run_context import RunContext

log = get_logger()

_LOOK_SECONDS = 1.0


class HeldCount:
    """Queries the target once a second while rows may be held.

    ``begun``: how many keys the running lanes have begun to hold; what exceeds its value at the last query is added at
    once.
    """

    def __init__(self, context: RunContext, begun: Callable[[], int]) -> None:
        self._context = context
        self._begun = begun
        self._lock = threading.Lock()
        self._counted = 0
        self._begun_then = 0
        self._is_known = False

    @property
    def keys(self) -> int:
        """Never too low: keys that were released since the last query still count."""
        begun = self._begun()
        with self._lock:
            return self._counted + max(begun - self._begun_then, 0)

    def follow(self, stop: StopSignal) -> None:
        """Query until ``stop``, in a thread of its own; ends by itself if nothing is held and nothing can be held."""
        while self._may_change() and not stop.wait(_LOOK_SECONDS):
            self.refresh()

    def _may_change(self) -> bool:
        return self._context.config.replicate.quarantine or not self._is_known or self.keys > 0

    def refresh(self) -> None:
        """Query the target; without an answer the last one stays. Must also be called whenever other lanes begin."""
        begun = self._begun()
        try:
            counted = self._context.at_target(lambda session: held_store.count_keys(session, self._context.who))
        except ShardmergeError as error:
            log.debug("held keys not counted", error=str(error))
            return
        with self._lock:
            self._counted, self._begun_then, self._is_known = counted, begun, True

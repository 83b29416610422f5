"""How many keys of a subtask are held, as `query-status` tells it without asking the target each time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.context import SubTaskContext
from worker.quarantine import store
from worker.unit import StopSignal

log = get_logger()

_LOOK_SECONDS = 1.0


class HeldCount:
    """Asks the target once a second while rows may be held. ``begun``: keys that the lanes now at work say they have
    begun to hold; more of them than at the last look count at once."""

    def __init__(self, context: SubTaskContext, begun: Callable[[], int]) -> None:
        self._context = context
        self._begun = begun
        self._lock = threading.Lock()
        self._counted = 0
        self._begun_then = 0
        self._is_known = False

    @property
    def keys(self) -> int:
        """Never too few: keys that were released since the last look still count."""
        begun = self._begun()
        with self._lock:
            return self._counted + max(begun - self._begun_then, 0)

    def follow(self, stop: StopSignal) -> None:
        """Until ``stop``, in a thread of its own; ends by itself where nothing is held and nothing can be."""
        while self._may_change() and not stop.wait(_LOOK_SECONDS):
            self.look()

    def _may_change(self) -> bool:
        return self._context.config.replicate.quarantine or not self._is_known or self.keys > 0

    def look(self) -> None:
        """Ask the target; the last answer stays while it gives none. To be called whenever other lanes begin, too."""
        begun = self._begun()
        try:
            counted = self._context.at_target(lambda session: store.count_keys(session, self._context.who))
        except ShardmergeError as error:
            log.debug("held keys not counted", error=str(error))
            return
        with self._lock:
            self._counted, self._begun_then, self._is_known = counted, begun, True

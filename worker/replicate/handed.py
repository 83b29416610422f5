"""Records that a stream's lanes have passed the high watermarks of their tables' chunks."""

from __future__ import annotations

import threading

from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.connection import Session
from worker.context import SubTaskContext
from worker.position import RelayOffset
from worker.snapshot.handover import Handover
from worker.snapshot.store import SnapshotStore

log = get_logger()


class HandedOver:
    """Of one unit; ``handover``: None where there is nothing to pass. Told from any thread."""

    def __init__(self, context: SubTaskContext, handover: Handover | None) -> None:
        self._context = context
        self._left = handover
        self._lock = threading.Lock()

    def note(self, lowest: RelayOffset | None) -> None:
        """``lowest``: where the last of the lanes has committed to; None: not known.

        Raises nothing: what cannot be recorded now is recorded later, or by the next run.
        """
        with self._lock:
            left = self._left
            if left is None or lowest is None or lowest < left.done_at:
                return
            context = self._context
            store = SnapshotStore(*context.who, context.epoch)

            def record(session: Session) -> None:
                store.record_passed(session, left.shards)

            try:
                context.at_target(record)
            except ShardmergeError as error:
                log.debug("passed watermarks not recorded", error=str(error))
                return
            self._left = None

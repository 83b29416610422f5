"""Records that a stream's lanes have cleared the high watermarks of their tables' chunks."""

from __future__ import annotations

import threading

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.snapshot.chunk_store import SnapshotStore
from shardmerge.worker.snapshot.handover import Handover
from shardmerge.worker.unit.run_context import RunContext

log = get_logger()


class WatermarkRecorder:
    """Records it for one unit, once. ``handover``: None if there are no watermarks to clear. Thread-safe."""

    def __init__(self, context: RunContext, handover: Handover | None) -> None:
        self._context = context
        self._left = handover
        self._lock = threading.Lock()

    def record_passed(self, lowest: RelayOffset | None) -> None:
        """Record it if ``lowest``, the lowest offset that the lanes have committed (None: unknown), is past all.

        Raises nothing: what cannot be recorded now is recorded later, or by the next run.
        """
        with self._lock:
            left = self._left
            if left is None or lowest is None or lowest < left.done_at:
                return
            context = self._context
            store = SnapshotStore(context.who, context.epoch)

            def record(session: Session) -> None:
                store.record_passed(session, left.shards)

            try:
                context.at_target(record)
            except ShardmergeError as error:
                log.debug("passed watermarks not recorded", error=str(error))
                return
            self._left = None

"""The relay of one source: fetching its binlog, and what the rest of the worker asks of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from proto.common_pb2 import Stage
from proto.errors import ShardmergeError
from worker.connection import Endpoint
from worker.position import RelayOffset, SourcePosition
from worker.relay.keeper import Keeper
from worker.relay.log import SEGMENT_BYTES, RelayLog
from worker.relay.model import PurgePolicy, RelayState
from worker.relay.purge import Purged
from worker.relay.reach import Reach
from worker.relay.reader import Reader, ReaderState
from worker.relay.served import ServedLog
from worker.relay.server_id import ServerIdOf
from worker.relay.switch import Proof, prove


class Relay(ServedLog):
    """Copies one source's binlog to disk and serves it to any number of readers, all methods from any thread.

    ``directory`` is this source's alone. ``server_id``, asked before each dump, must be unique among the source's
    replicas. The log on disk is opened (and mended) at once and can be read before :meth:`start`.
    """

    def __init__(
        self,
        directory: Path,
        source_id: str,
        endpoint: Endpoint,
        flavor: str,
        server_id: ServerIdOf,
        purge: PurgePolicy,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        super().__init__(RelayLog(directory, source_id, segment_bytes))
        self.flavor = flavor
        self._endpoint = endpoint
        self._server_id = server_id
        self._lock = threading.RLock()
        self._reader: Reader | None = None
        self._keeper = Keeper(self._log, purge, self._waits_for_space)
        self._reach = Reach(self._log, self._keeper.needed, self.failure)
        self._paused = False

    def start(self) -> None:
        """Begin to fetch, or fetch again after an error that does not mend itself. Running or paused: nothing."""
        with self._lock:
            if self._paused:
                self._keeper.start()
                return
            if self._reader is not None:
                if self._reader.is_running:
                    return
                self._reach.remember_stranding()
                self._reader.stop()
            self._reader = Reader(self._log, self._endpoint, self._server_id)
            self._reader.start()
            self._keeper.start()

    def pause(self, *, paused: bool) -> None:
        """End the fetching until told otherwise, or go on; what is there is served."""
        with self._lock:
            if paused == self._paused:
                return
            self._paused = paused
            if not paused:
                self.start()
            elif self._reader is not None:
                self._reach.remember_stranding()
                self._reader.stop()
                self._reader = None

    @property
    def is_paused(self) -> bool:
        return self._paused

    def stop(self) -> None:
        """End all threads; what was published stays readable."""
        with self._lock:
            if self._reader is not None:
                self._reader.stop()
                self._reader = None
            self._keeper.stop()

    def status(self) -> RelayState:
        """Never blocks on a server."""
        state = self._reader_state
        return RelayState(
            stage=state.stage,
            error=state.error or self._keeper.sync_error,
            relay_id=self.relay_id,
            head=self._log.head(),
            bytes_on_disk=self._log.bytes_on_disk(),
        )

    def failure(self) -> ShardmergeError | None:
        """The error that stopped the relay until :meth:`start` is called again; None while it tries."""
        return self._reader_state.failed

    @property
    def _reader_state(self) -> ReaderState:
        reader = self._reader
        return reader.state if reader else ReaderState(Stage.STAGE_PAUSED if self._paused else Stage.STAGE_STOPPED)

    def _waits_for_space(self) -> bool:
        state = self._reader_state
        return state.stage == Stage.STAGE_PAUSED and not state.final and not self._paused

    def ensure_from(self, position: SourcePosition, *, fresh: bool = False) -> bool:
        """Make the log reach back to ``position``; True when that needed a new generation.

        Then there is a new ``relay_id``, everything fetched before is gone, and open subscriptions end with
        RELAY_RESTARTED. A log that is stranded (the source no longer has what follows its head, or has another binlog)
        also begins anew: if no checkpoint needs what it has and ``position`` is beyond it, or with ``fresh``, by which
        the caller promises that nobody needs any of it; start() after the failure does not make that forgotten.

        A position is a place in a file, or without one the place behind a GTID set. Raises POSITION_WITHOUT_FILE for
        neither, POSITION_UNORDERED when it cannot be compared with what other subtasks need, and errors of the disk.
        """
        with self._lock:
            beginning = self._reach.beginning(position, fresh=fresh)
            if beginning is None:
                return False
            reader, self._reader = self._reader, None
            if reader is not None:
                reader.stop()
            try:
                self._reach.begin(beginning)
            finally:
                if reader is not None:
                    self.start()
            return True

    def prove_switch(self, endpoint: Endpoint, lowest: SourcePosition | None) -> Proof:
        """See :func:`worker.relay.switch.prove`."""
        return prove(self._log, lowest, endpoint)

    def set_purge(self, policy: PurgePolicy) -> None:
        """From now on; the next look is a whole interval from now at most."""
        self._keeper.set_purge(policy)

    def set_needed(self, provider: Callable[[], RelayOffset | None]) -> None:
        """See :meth:`worker.relay.keeper.Keeper.set_needed`."""
        self._keeper.set_needed(provider)

    def purge_now(self) -> list[int]:
        """See :meth:`worker.relay.keeper.Keeper.purge_now`."""
        return self._keeper.purge_now()

    def purge_before(self, file: str, relay_id: str = "") -> Purged:
        """See :meth:`worker.relay.keeper.Keeper.purge_before`."""
        return self._keeper.purge_before(file, relay_id)

"""The facade of one source's relay: it fetches the binlog, and the rest of the worker uses the relay through it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from shardmerge.proto.common_pb2 import Stage
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.relay.clock_offset import ClockOffset
from shardmerge.worker.relay.fetch.dump_connection import Dump
from shardmerge.worker.relay.fetch.dump_start import plan_start
from shardmerge.worker.relay.fetch.fetch_counts import NOTHING_FETCHED, FetchCounts, FetchFigures
from shardmerge.worker.relay.fetch.fetcher import Fetcher, FetcherState
from shardmerge.worker.relay.fetch.file_times import present_events
from shardmerge.worker.relay.fetch.server_change import AddressProof, prove
from shardmerge.worker.relay.fetch.server_id import ServerIdOf
from shardmerge.worker.relay.fetch.stored_tail import check_read
from shardmerge.worker.relay.log.relay_log import SEGMENT_BYTES, RelayLog
from shardmerge.worker.relay.model import PurgePolicy, RelayState
from shardmerge.worker.relay.purge_policy import Purged
from shardmerge.worker.relay.retention import Retention
from shardmerge.worker.relay.serve.log_reader import LogReader
from shardmerge.worker.relay.start_policy import StartPolicy


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Bytes of the file system that holds the relay log."""

    capacity: int
    available: int


@dataclass(frozen=True, slots=True)
class RelayFigures:
    """For metrics. ``files``: segments on disk; ``space``: None if the disk does not answer."""

    fetched: FetchFigures = NOTHING_FETCHED
    files: int = 0
    space: DiskSpace | None = None


class Relay(LogReader):
    """Copies one source's binlog to disk and serves it to any number of readers, all methods from any thread.

    ``directory`` belongs to this source alone. ``server_id``, called before each dump, must be unique among the
    source's replicas. The log on disk is opened (and recovered) at once and can be read before :meth:`start`.
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
        clock_offset: ClockOffset | None = None,
    ) -> None:
        """``clock_offset``: of the source; None: its clock is the worker's."""
        super().__init__(RelayLog(directory, source_id, segment_bytes))
        self.flavor = flavor
        self._endpoint = endpoint
        self._server_id = server_id
        self._lock = threading.RLock()
        self._fetcher: Fetcher | None = None
        self._retention = Retention(self._log, purge, self._waits_for_space, self._on_lost)
        self._start_policy = StartPolicy(self._log, self._retention.needed, lambda: self._fetcher_state)
        self._paused = False
        self._counts = FetchCounts()
        self.clock_offset = clock_offset if clock_offset is not None else ClockOffset(0.0)

    def start(self) -> None:
        """Start to fetch, or fetch again after a permanent error. Does nothing while running or paused.

        A log whose files another program has removed begins anew, at the position that :meth:`ensure_from` gets next.
        """
        with self._lock:
            self._forget_lost()
            if self._paused:
                self._retention.start()
                return
            if self._fetcher is not None:
                if self._fetcher.is_running:
                    return
                self._start_policy.remember_stranding()
                self._fetcher.stop()
            self._fetcher = Fetcher(self._log, self._endpoint, self._server_id, self._counts, self.clock_offset)
            self._fetcher.start()
            self._retention.start()

    def _on_lost(self, error: ShardmergeError) -> None:
        fetcher = self._fetcher  # without the lock: stop() holds it while it waits for the thread that calls this
        if fetcher is not None:
            fetcher.end_with(error)

    def _forget_lost(self) -> None:
        if self._log.lost() is None:
            return
        if self._fetcher is not None:
            self._fetcher.stop()
            self._fetcher = None
        with suppress(OSError):  # the fetcher reports it
            self._log.forget()

    def pause(self, *, paused: bool) -> None:
        """Stop fetching until it is resumed, or resume it; the stored log is served meanwhile."""
        with self._lock:
            if paused == self._paused:
                return
            self._paused = paused
            if not paused:
                self.start()
            elif self._fetcher is not None:
                self._start_policy.remember_stranding()
                self._fetcher.stop()
                self._fetcher = None

    @property
    def is_paused(self) -> bool:
        return self._paused

    def stop(self) -> None:
        """End all threads; the published log stays readable."""
        with self._lock:
            if self._fetcher is not None:
                self._fetcher.stop()
                self._fetcher = None
            self._retention.stop()

    def status(self) -> RelayState:
        """Never blocks on a server."""
        state = self._fetcher_state
        return RelayState(
            stage=state.stage,
            error=state.error or self._retention.sync_error,
            relay_id=self.relay_id,
            head=self._log.head(),
            bytes_on_disk=self._log.bytes_on_disk(),
        )

    def figures(self) -> RelayFigures:
        """For metrics. Never blocks on a server."""
        try:
            usage = shutil.disk_usage(self._log.directory)
            space: DiskSpace | None = DiskSpace(usage.total, usage.free)
        except OSError:
            space = None
        return RelayFigures(self._counts.figures(), len(self._log.segments()), space)

    def failure(self) -> ShardmergeError | None:
        """The error that stopped the relay until :meth:`start` is called again; None while it runs or retries."""
        return self._fetcher_state.failed

    def unknown(self) -> str:
        """Why the log may lack newer events of the source, for which it does not wait at present; "": it fetches."""
        if self._paused:
            return "the relay is paused"
        state = self._fetcher_state
        error = state.error or self._retention.sync_error
        if error is not None:
            return f"the source's binlog is not fetched: {error}"
        return "" if state.stage == Stage.STAGE_RUNNING else "the source's binlog is not fetched"

    @property
    def _fetcher_state(self) -> FetcherState:
        reader = self._fetcher
        return reader.state if reader else FetcherState(Stage.STAGE_PAUSED if self._paused else Stage.STAGE_STOPPED)

    def _waits_for_space(self) -> bool:
        state = self._fetcher_state
        return state.stage == Stage.STAGE_PAUSED and not state.final and not self._paused

    def ensure_from(self, position: SourcePosition, *, fresh: bool = False) -> bool:
        """Make the log reach back to ``position``; True when that needed a new generation.

        Then there is a new ``relay_id``, everything fetched before is deleted, and open subscriptions end with
        RELAY_RESTARTED. A log that is stranded (the source no longer has the events after its head, or has another
        binlog) is also replaced by a new one: if no checkpoint needs it and ``position`` is beyond it, or with
        ``fresh``, by which the caller guarantees that no subtask needs any of it. A start() after the failure does not
        reset this state.

        A position is in a file, or without a file it is after a GTID set. Raises POSITION_WITHOUT_FILE for
        neither, POSITION_UNORDERED when it cannot be compared with the needs of other subtasks, and errors of the disk.
        While a subtask needs the log, it is replaced only if the source still has everything from the new beginning
        on; otherwise, raises what its dump raises.
        """
        with self._lock:
            beginning = self._start_policy.new_start(position, fresh=fresh)
            if beginning is None:
                return False
            if self._log.generation is not None and not fresh and self._retention.needed() is not None:
                self._check_sent(beginning)
            reader, self._fetcher = self._fetcher, None
            if reader is not None:
                reader.stop()
            try:
                self._start_policy.begin(beginning)
            finally:
                if reader is not None:
                    self.start()
            return True

    def _check_sent(self, beginning: SourcePosition) -> None:
        """Check that the source sends its binlog from ``beginning`` on. Raises what its dump raises."""
        log = self._log
        head = replace(log.head(), position=beginning)
        with closing(Dump.connect(log.source, self._endpoint)) as dump:
            state = dump.state()
            there = dump.gtid_set_at(beginning) if beginning.file and beginning.gtid_set else None
            plan = plan_start(log.source, log.require(), head, True, state, log.directory, there)
            # What the source cannot send it refuses before the format description.
            events = present_events(dump, plan.start)
            next((header for header, _ in events if header.type == EventType.FORMAT_DESCRIPTION), None)

    def check_read(self, position: SourcePosition, commit_time: float) -> None:
        """See :func:`shardmerge.worker.relay.fetch.stored_tail.check_read`."""
        check_read(self._log.source, self._endpoint, position, commit_time)

    def prove_switch(self, endpoint: Endpoint, lowest: SourcePosition | None) -> AddressProof:
        """See :func:`shardmerge.worker.relay.fetch.server_change.prove`."""
        return prove(self._log, lowest, endpoint)

    def set_purge(self, policy: PurgePolicy) -> None:
        """Use this policy from now on; the next check follows after at most one interval."""
        self._retention.set_purge(policy)

    def set_needed(self, provider: Callable[[], RelayOffset | None]) -> None:
        """See :meth:`shardmerge.worker.relay.retention.Retention.set_needed`."""
        self._retention.set_needed(provider)

    def purge_now(self) -> list[int]:
        """See :meth:`shardmerge.worker.relay.retention.Retention.purge_now`."""
        return self._retention.purge_now()

    def purgeable_bytes(self) -> int:
        """See :meth:`shardmerge.worker.relay.retention.Retention.purgeable_bytes`."""
        return self._retention.purgeable_bytes()

    def purge_before(self, file: str, relay_id: str = "") -> Purged:
        """See :meth:`shardmerge.worker.relay.retention.Retention.purge_before`."""
        return self._retention.purge_before(file, relay_id)

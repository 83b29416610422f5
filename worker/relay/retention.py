"""Maintains a relay log on disk: syncs its bytes every second and removes old segments (I7)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.files.durable_file import sync_file
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import LoopThread, Stop, repeat
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.relay.log.files import FIRST_BYTE, disk_error, free_bytes, relay_path
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.model import Head, PurgePolicy
from shardmerge.worker.relay.purge_policy import (
    HeldBecause,
    OldSegment,
    Purged,
    SegmentRange,
    first_from_file,
    first_to_keep,
    knows_file,
)

_SYNC_SECONDS = 1.0


class Retention:
    """A thread that syncs and purges; a purge can also be requested directly.

    ``waits_for_space``: whether fetching is paused until there is disk space: then every round purges. ``on_lost``:
    called with the error in each round in which the log's files are gone.
    """

    def __init__(
        self,
        log: RelayLog,
        policy: PurgePolicy,
        waits_for_space: Callable[[], bool],
        on_lost: Callable[[ShardmergeError], None],
    ) -> None:
        self._on_lost = on_lost
        self.sync_error: ShardmergeError | None = None
        self._log = log
        self._purge = policy
        self._waits_for_space = waits_for_space
        self._logger = get_logger(source=log.source)
        self._needed: Callable[[], RelayOffset | None] = lambda: self._log.first().offset
        self._synced: Head | None = None
        self._purged_at = 0.0
        self._thread: LoopThread | None = None

    def start(self) -> None:
        """Start the thread; does nothing while it runs."""
        if self._thread is None:
            self._thread = LoopThread(f"relay-keep-{self._log.source}", self._keep)
            self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None

    def needed(self) -> RelayOffset | None:
        """The lowest checkpoint of any subtask; None when there is no subtask."""
        return self._needed()

    def set_needed(self, provider: Callable[[], RelayOffset | None]) -> None:
        """Set the function that returns the lowest checkpoint of any subtask (I7), None when there is no subtask.

        Until this is called everything counts as needed. An exception of the provider aborts the purge.
        """
        self._needed = provider

    def set_purge(self, policy: PurgePolicy) -> None:
        """Use this policy from now on; the next check follows after at most one interval."""
        self._purge = policy

    def purge_now(self) -> list[int]:
        """Remove segments by the policy; returns their numbers. Raises errors of the disk and of the provider."""
        needed = self._needed()
        segments = self._log.segments()
        if needed is not None:
            needed = RelayOffset(self._log.floor(needed.segment), FIRST_BYTE)
        now = time.time()
        closed: list[OldSegment] = []
        path = self._log.directory
        try:
            for segment in segments:
                if segment.end is not None:
                    path = relay_path(self._log.directory, segment.number)
                    age = now - path.stat().st_mtime
                    closed.append(OldSegment(segment.number, segment.end.byte, age))
            keep = first_to_keep(closed, needed, self._purge, free_bytes(self._log.directory))
            gone = self._log.drop_before(keep) if keep is not None else []
        except OSError as error:
            raise errors.relay.DISK_FAILED(
                source=self._log.source, path=path, reason=error.strerror, errno=error.errno
            ) from error
        if gone:
            self._logger.info("relay log purged", segments=gone, needed=str(needed))
        return gone

    def purgeable_bytes(self) -> int:
        """Bytes of the closed segments that a purge may remove when space is short. Raises errors of the provider."""
        if not self._purge.remain_space_gib:
            return 0
        needed = self._needed()
        keep = None if needed is None else self._log.floor(needed.segment)
        closed = [(segment.number, segment.end.byte) for segment in self._log.segments() if segment.end is not None]
        return sum(size for number, size in closed if keep is None or number < keep)

    def purge_before(self, file: str, relay_id: str = "") -> Purged:
        """Remove everything before binlog ``file`` of the current server, by whole segments, never a needed one.

        ``relay_id``: the relay log that is meant, "" for any. Raises RELAY_NOT_BEGUN,
        RELAY_SUB_DIR_UNKNOWN, RELAY_FILE_UNKNOWN, and errors of the disk and of the provider.
        """
        # Read the needs first: a task that starts meanwhile needs nothing older than the log has then.
        needed = self._needed()
        # Read the head before its server: right after a fail-over it is still a position of the server before.
        head = self._log.head()
        generation = self._log.require()
        if relay_id not in ("", generation.relay_id):
            raise errors.relay.RELAY_SUB_DIR_UNKNOWN(
                source=self._log.source, given=relay_id, relay_id=generation.relay_id
            )
        if not knows_file(file, head.position):
            raise errors.relay.RELAY_FILE_UNKNOWN(
                source=self._log.source, file=file, first=self._log.first().position, last=head.position
            )
        if needed is not None:
            needed = replace(needed, segment=self._log.floor(needed.segment))
        segments = self._log.segments()
        stretches = [
            SegmentRange(
                segment.number,
                segment.begin.position,
                head.position if segment.end is None else segment.end.position,
                self._log.floor(segment.number),
            )
            for segment in segments
        ]
        choice = first_from_file(
            stretches, file, generation.part_of(head.offset.segment).segment, needed, self._log.lowest_read()
        )
        try:
            gone = frozenset(self._log.drop_before(choice.keep))
        except OSError as error:
            raise disk_error(error, self._log.source, self._log.directory / "relay.json") from error
        removed = [segment.end.byte for segment in segments if segment.number in gone and segment.end is not None]
        first = self._log.first()
        # A reader opened it after it was selected for removal.
        why = HeldBecause.READ if first.offset.segment < choice.keep else choice.why
        if gone:
            self._logger.info("relay log purged", before=file, segments=sorted(gone), needed=str(needed))
        return Purged(len(removed), sum(removed), first.position, why, needed)

    def _keep(self, stop: Stop) -> None:
        """The thread that syncs bytes to disk every second and purges after each interval."""
        self._synced, self._purged_at = None, time.monotonic()
        repeat(self._round, _SYNC_SECONDS, stop)

    def _round(self) -> None:
        if (lost := self._log.lost()) is not None:
            self._on_lost(lost)
            return
        head = self._log.head()
        if head is not self._synced and head.offset.byte > FIRST_BYTE and self._sync(head):
            self._synced = head
        if time.monotonic() >= self._purged_at + self._purge.interval_seconds or self._waits_for_space():
            self._purged_at = time.monotonic()
            try:
                self.purge_now()
            except ShardmergeError as error:
                self._logger.warning("relay log not purged", error=str(error))

    def _sync(self, head: Head) -> bool:
        path = relay_path(self._log.directory, head.offset.segment)
        try:
            sync_file(path)
        except FileNotFoundError:
            return False  # purged or replaced meanwhile
        except OSError as error:
            self.sync_error = errors.relay.DISK_FAILED(
                source=self._log.source, path=path, reason=error.strerror, errno=error.errno
            )
            return False
        self.sync_error = None
        return True

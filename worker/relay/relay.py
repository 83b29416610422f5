"""The relay of one source: what the rest of the worker uses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from proto import errors
from proto.common_pb2 import Stage
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.connection import Endpoint
from worker.position import RelayOffset, SourcePosition
from worker.relay.commits import CommitWalk
from worker.relay.files import FIRST_BYTE, disk_error, free_bytes, relay_path, sync_file
from worker.relay.gtid import GtidSet
from worker.relay.log import NOTHING, SEGMENT_BYTES, RelayLog
from worker.relay.model import (
    AtHead,
    AtStatement,
    BlockData,
    Head,
    OpenedData,
    PurgePolicy,
    ReachedUntil,
    RelayState,
    Statement,
    SubscriptionItem,
)
from worker.relay.oldest import first_commit_behind
from worker.relay.passing import first_end_holding
from worker.relay.positions import Ends, end_at, group_end_behind, locate, reaches_back, server_behind, wait_for
from worker.relay.purge import (
    OldSegment,
    Purged,
    Stretch,
    Why,
    first_from_file,
    first_to_keep,
    knows_file,
)
from worker.relay.queried import Queried, query_at
from worker.relay.reader import Reader, ReaderState
from worker.relay.segment import read_description
from worker.relay.server_id import ServerIdOf
from worker.relay.subscription import Limit, subscribe
from worker.relay.switch import Proof, prove
from worker.unit import StopSignal

__all__ = [
    "NOTHING",
    "AtHead",
    "AtStatement",
    "BlockData",
    "Head",
    "OpenedData",
    "PurgePolicy",
    "ReachedUntil",
    "Relay",
    "RelayState",
    "Statement",
    "SubscriptionItem",
]

_SYNC_SECONDS = 1.0
_STRANDING = frozenset(
    {
        errors.relay.SOURCE_LOG_GONE,
        errors.relay.SOURCE_LOG_RESET,
        errors.relay.SOURCE_GTIDS_GONE,
        errors.relay.SOURCE_CHANGED,
    }
)


class Relay:
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
        self.source_id = source_id
        self.flavor = flavor
        self._endpoint = endpoint
        self._server_id = server_id
        self._purge = purge
        self._logger = get_logger(source=source_id)
        self._log = RelayLog(directory, source_id, segment_bytes)
        self._needed: Callable[[], RelayOffset | None] = lambda: self._log.first().offset
        self._lock = threading.RLock()
        self._reader: Reader | None = None
        self._ended = threading.Event()
        self._keeper: threading.Thread | None = None
        self._sync_error: ShardmergeError | None = None
        self._stranded_at: RelayOffset | None = None
        self._paused = False

    def start(self) -> None:
        """Begin to fetch, or fetch again after an error that does not mend itself. Running or paused: nothing."""
        with self._lock:
            if self._paused:
                self._keep_up()
                return
            if self._reader is not None:
                if self._reader.is_running:
                    return
                self._remember_stranding()
                self._reader.stop()
            self._reader = Reader(self._log, self._endpoint, self._server_id)
            self._reader.start()
            self._keep_up()

    def _keep_up(self) -> None:
        if self._keeper is None:
            self._ended.clear()
            self._keeper = threading.Thread(target=self._keep, name=f"relay-keep-{self.source_id}", daemon=True)
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
                self._remember_stranding()
                self._reader.stop()
                self._reader = None

    @property
    def is_paused(self) -> bool:
        return self._paused

    def set_purge(self, policy: PurgePolicy) -> None:
        """From now on; the next look is a whole interval from now at most."""
        self._purge = policy

    def prove_switch(self, endpoint: Endpoint, lowest: SourcePosition | None) -> Proof:
        """See :func:`worker.relay.switch.prove`."""
        return prove(self._log, lowest, endpoint)

    def server_behind(self, offset: RelayOffset) -> str:
        """From whose binlog what follows ``offset`` came, or will come; "" when it is not known."""
        return server_behind(self._log, offset)

    def stop(self) -> None:
        """End all threads; what was published stays readable."""
        with self._lock:
            self._ended.set()
            if self._reader is not None:
                self._reader.stop()
                self._reader = None
            if self._keeper is not None:
                self._keeper.join()
                self._keeper = None

    @property
    def directory(self) -> Path:
        return self._log.directory

    @property
    def relay_id(self) -> str:
        """Names the generation: relay offsets of another one mean nothing here. "" before it has begun."""
        generation = self._log.generation
        return generation.relay_id if generation else ""

    @contextmanager
    def one_generation(self) -> Generator[str]:
        """For a block that asks for offsets: its ``relay_id``, by which every offset of the block is meant.

        Raises RELAY_RESTARTED (retryable) at the end when a new generation began in between: another subtask may
        need the log to reach further back at any time, and the block's offsets may be of either one.
        """
        relay_id = self.relay_id
        yield relay_id
        if self.relay_id != relay_id:
            raise errors.relay.RELAY_RESTARTED(source=self.source_id, relay_id=relay_id)

    def head(self) -> Head:
        """The published end, always a group end; NOTHING before the log has begun."""
        return self._log.head()

    def first(self) -> Head:
        """The oldest offset kept."""
        return self._log.first()

    def bytes_between(self, start: RelayOffset, end: RelayOffset) -> int:
        """Bytes of events from ``start`` to ``end``, as far as they are kept."""
        return self._log.bytes_between(start, end)

    def group_end_behind(self, offset: RelayOffset, deadline_seconds: float, stop: StopSignal) -> RelayOffset:
        """A group end behind group start ``offset`` at which a subscription may end: near it, that of a group which
        is large enough to be served in pieces.

        Waited for while the head has not passed ``offset`` (see :meth:`subscribe`). Raises OFFSET_PURGED,
        OFFSET_NOT_GROUP_END, LOCATE_TIMEOUT (retryable), and the error that has stopped the relay.
        """
        relay_id = self._log.require().relay_id
        head = wait_for(
            self._log,
            relay_id,
            lambda head: head.offset > offset,
            f"the end of the group at relay offset {offset}",
            deadline_seconds,
            stop,
            self.failure,
        )
        return group_end_behind(self._log, relay_id, offset, head)

    def commit_time_behind(self, offset: RelayOffset) -> float | None:
        """See :func:`worker.relay.oldest.first_commit_behind`; None also for a place of another relay log."""
        try:
            return first_commit_behind(self._log, offset)
        except ShardmergeError:
            return None

    def status(self) -> RelayState:
        """Never blocks on a server."""
        state = self._reader_state
        return RelayState(
            stage=state.stage,
            error=state.error or self._sync_error,
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

    def ensure_from(self, position: SourcePosition, *, fresh: bool = False) -> bool:
        """Make the log reach back to ``position``; True when that needed a new generation.

        Then there is a new ``relay_id``, everything fetched before is gone, and open subscriptions end with
        RELAY_RESTARTED. A log that is stranded (the source no longer has what follows its head, or has another binlog)
        also begins anew: if no checkpoint needs what it has and ``position`` is beyond it, or with ``fresh``, by which
        the caller promises that nobody needs any of it; start() after the failure does not make that forgotten.

        A position is a place in a file, or without one the place behind a GTID set. Raises POSITION_WITHOUT_FILE for
        neither, POSITION_UNORDERED when it cannot be compared with what other subtasks need, and errors of the disk.
        """
        if not position.file and not position.gtid_set:
            raise errors.relay.POSITION_WITHOUT_FILE(source=self.source_id, given="nothing")
        if position.file:
            position = replace(position, pos=max(position.pos, FIRST_BYTE))
        elif not str(GtidSet(position.gtid_set)):
            raise errors.relay.POSITION_WITHOUT_FILE(source=self.source_id, given=position.gtid_set)
        with self._lock:
            if self._log.generation is not None:
                if not reaches_back(self._log, position):
                    position = self._earlier(position, fresh)
                elif not self._begins_anew(position, fresh):
                    return False
            reader, self._reader = self._reader, None
            if reader is not None:
                reader.stop()
            try:
                self._log.begin(position)
                self._stranded_at = None
            finally:
                if reader is not None:
                    self.start()
            return True

    def _earlier(self, position: SourcePosition, fresh: bool) -> SourcePosition:
        """Where the log must begin to reach back to ``position`` and to all that is needed now."""
        first = self._log.first().position
        if first.reaches(position) or fresh or self._needed() is None:
            return position
        if not (position.gtid_set and first.gtid_set):
            raise errors.relay.POSITION_UNORDERED(source=self.source_id, first=first, position=position)
        both = str(GtidSet(first.gtid_set).common(GtidSet(position.gtid_set)))
        if not both:
            raise errors.relay.POSITION_UNORDERED(source=self.source_id, first=first, position=position)
        return SourcePosition("", 0, both)

    def _begins_anew(self, position: SourcePosition, fresh: bool) -> bool:
        """Whether fetching cannot go on from the head and the log may be given up."""
        self._remember_stranding()
        if self._stranded_at is None or self._stranded_at != self._log.head().offset:
            return False
        head = self._log.head().position
        beyond = not head.reaches(position) and (position.reaches(head) or not head.same_server(position))
        return fresh or (self.failure() is not None and beyond and self._needed() is None)

    def _remember_stranding(self) -> None:
        """Where the log stands when the source has nothing to follow it: true until something did follow."""
        failure = self.failure()
        if failure is not None and failure.spec in _STRANDING:
            self._stranded_at = self._log.head().offset

    def locate(
        self,
        position: SourcePosition,
        deadline_seconds: float,
        stop: StopSignal,
        *,
        first_if_before: bool = False,
        inside: bool = False,
        down: bool = False,
        ends: Ends | None = None,
    ) -> RelayOffset:
        """The group end at a source position, once the relay has passed it; see :func:`worker.relay.positions.locate`.

        ``first_if_before``: a position older than the log is its first offset, not an error. ``inside``: what is
        meant lies inside the group that begins there. ``down``: of a position inside a group, where that begins.
        ``ends``: for many ascending positions of one generation.
        Raises, beside what is said there, at once the error that has stopped the relay.
        """
        return locate(
            self._log,
            position,
            deadline_seconds,
            stop,
            self.failure,
            first_if_before=first_if_before,
            inside=inside,
            down=down,
            ends=ends,
        )

    def commits_from(self, at: RelayOffset, certain_before: float = 0.0) -> CommitWalk:
        """A walk over the commits behind group end ``at``."""
        return CommitWalk(self._log, self._log.require().relay_id, at, certain_before)

    def first_commit(
        self, walk: CommitWalk, moment: float, end: SourcePosition, deadline_seconds: float, stop: StopSignal
    ) -> RelayOffset:
        """Where the first group of ``walk`` begins that committed at or after ``moment``, as soon as the relay has it;
        if there is none before ``end``, the group end there. Raises what :meth:`locate` raises."""
        found: RelayOffset | None = None

        def ready(head: Head) -> bool:
            nonlocal found
            found = walk.first(moment, head.offset)
            return found is not None or (head.offset.byte > FIRST_BYTE and head.position.reaches(end))

        reader = self._log.enter_reader(walk.passed.segment)
        try:
            relay_id = self._log.require().relay_id
            wait_for(self._log, relay_id, ready, end, deadline_seconds, stop, self.failure)
        finally:
            self._log.leave_reader(reader)
        return found if found is not None else self.locate(end, deadline_seconds, stop)

    def first_end_holding(self, wanted: GtidSet) -> RelayOffset | None:
        """See :func:`worker.relay.passing.first_end_holding`."""
        return first_end_holding(self._log, self._log.require().relay_id, wanted)

    def position_at(self, offset: RelayOffset) -> SourcePosition:
        """The place at the source of a group end, GTID set and all, as far as it is known.

        Raises OFFSET_PURGED, OFFSET_NOT_GROUP_END.
        """
        relay_id = self._log.require().relay_id
        reader = self._log.enter_reader(offset.segment)
        try:
            return end_at(self._log, relay_id, self._log.segment(relay_id, offset.segment), offset.byte).position
        finally:
            self._log.leave_reader(reader)

    def subscribe(
        self,
        start: RelayOffset,
        until: RelayOffset | None,
        in_scope: Callable[[Statement], bool] | None,
        stop: StopSignal,
        *,
        by_reference: bool = False,
        limit: Limit | None = None,
    ) -> Generator[SubscriptionItem, None, None]:
        """See worker/relay/subscription.py."""
        return subscribe(self._log, start, until, in_scope, stop, self.failure, by_reference=by_reference, limit=limit)

    def opened(self, offset: RelayOffset, deadline_seconds: float = 30) -> OpenedData:
        """What a decoder needs to begin at ``offset``, a group end.

        An offset behind the head is waited for (see :meth:`subscribe`). Raises OFFSET_PURGED,
        OFFSET_NOT_GROUP_END, LOCATE_TIMEOUT (retryable), and the error that has stopped the relay.
        """
        relay_id = self._log.require().relay_id
        wait_for(
            self._log,
            relay_id,
            lambda head: head.offset >= offset and head.offset.byte > FIRST_BYTE,
            f"relay offset {offset}",
            deadline_seconds,
            StopSignal(),
            self.failure,
        )
        reader = self._log.enter_reader(offset.segment)
        try:
            segment = self._log.segment(relay_id, offset.segment)
            end = end_at(self._log, relay_id, segment, offset.byte)
            description = read_description(self._log.directory, offset.segment)
        finally:
            self._log.leave_reader(reader)
        return OpenedData(relay_id, description, end.position)

    def query_at(self, statement: Statement) -> Queried:
        """See worker/relay/queried.py."""
        return query_at(self._log, statement)

    def set_needed(self, provider: Callable[[], RelayOffset | None]) -> None:
        """Who knows the lowest checkpoint of any subtask (I7); it answers None when there is no subtask.

        Until this is called everything counts as needed. A provider that raises stops that purge.
        """
        self._needed = provider

    def purge_now(self) -> list[int]:
        """Remove segments by the policy; their numbers. Raises errors of the disk and of the provider."""
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
                source=self.source_id, path=path, reason=error.strerror, errno=error.errno
            ) from error
        if gone:
            self._logger.info("relay log purged", segments=gone, needed=str(needed))
        return gone

    def purge_before(self, file: str, relay_id: str = "") -> Purged:
        """Remove what lies before binlog ``file`` of the server at hand, by whole segments, never what is needed.

        ``relay_id``: the relay log that is meant, "" for whichever there is. Raises RELAY_NOT_BEGUN,
        RELAY_SUB_DIR_UNKNOWN, RELAY_FILE_UNKNOWN, and errors of the disk and of the provider.
        """
        # What is needed is asked first: a task that begins meanwhile needs nothing older than what is there then.
        needed = self._needed()
        # The head before whom it is from: right after a fail-over it is still a place of the server before.
        head = self._log.head()
        generation = self._log.require()
        if relay_id not in ("", generation.relay_id):
            raise errors.relay.RELAY_SUB_DIR_UNKNOWN(
                source=self.source_id, given=relay_id, relay_id=generation.relay_id
            )
        if not knows_file(file, head.position):
            raise errors.relay.RELAY_FILE_UNKNOWN(
                source=self.source_id, file=file, first=self._log.first().position, last=head.position
            )
        if needed is not None:
            needed = replace(needed, segment=self._log.floor(needed.segment))
        segments = self._log.segments()
        stretches = [
            Stretch(
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
            raise disk_error(error, self.source_id, self._log.directory / "relay.json") from error
        removed = [segment.end.byte for segment in segments if segment.number in gone and segment.end is not None]
        first = self._log.first()
        # Someone came to read it after it was chosen to go.
        why = Why.READ if first.offset.segment < choice.keep else choice.why
        if gone:
            self._logger.info("relay log purged", before=file, segments=sorted(gone), needed=str(needed))
        return Purged(len(removed), sum(removed), first.position, why, needed)

    def _keep(self) -> None:
        """The thread that brings bytes to disk every second and purges in its time."""
        synced: Head | None = None
        looked_at = time.monotonic()
        while not self._ended.wait(_SYNC_SECONDS):
            head = self._log.head()
            if head is not synced and head.offset.byte > FIRST_BYTE:
                synced = head if self._sync(head) else synced
            state = self._reader_state
            out_of_space = state.stage == Stage.STAGE_PAUSED and not state.final and not self._paused
            if time.monotonic() >= looked_at + self._purge.interval_seconds or out_of_space:
                looked_at = time.monotonic()
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
            self._sync_error = errors.relay.DISK_FAILED(
                source=self.source_id, path=path, reason=error.strerror, errno=error.errno
            )
            return False
        self._sync_error = None
        return True

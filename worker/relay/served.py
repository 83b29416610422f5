"""A source's relay log as its readers see it: its ends, places in it, waits for more of it, streams of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from proto import errors
from proto.errors import ShardmergeError
from worker.position import RelayOffset, SourcePosition
from worker.relay.commits import CommitWalk
from worker.relay.files import FIRST_BYTE
from worker.relay.gtid import GtidSet
from worker.relay.log import RelayLog
from worker.relay.model import Head, OpenedData, Statement, SubscriptionItem
from worker.relay.oldest import first_commit_behind
from worker.relay.passing import first_end_holding
from worker.relay.positions import Ends, end_at, group_end_behind, locate, server_behind, wait_for
from worker.relay.queried import Queried, query_at
from worker.relay.segment import read_description
from worker.relay.subscription import Limit, subscribe
from worker.unit import StopSignal


class ServedLog(ABC):
    """The reading side of a relay; all methods from any thread."""

    def __init__(self, log: RelayLog) -> None:
        self.source_id = log.source
        self._log = log

    @abstractmethod
    def failure(self) -> ShardmergeError | None:
        """The error that has stopped the fetching, which waits for more of the log end with; None while it tries."""

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

    def may_be_passed(self, offset: RelayOffset) -> bool:
        """Whether a reader can have reached ``offset``: not beyond the head, and not beyond its segment's end."""
        return self._log.may_be_passed(offset)

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

    def server_behind(self, offset: RelayOffset) -> str:
        """From whose binlog what follows ``offset`` came, or will come; "" when it is not known."""
        return server_behind(self._log, offset)

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

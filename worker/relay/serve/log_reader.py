"""The readers' interface to a source's relay log: its ends, its offsets, waits for new events, subscriptions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.log.files import FIRST_BYTE
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.log.segment import read_description
from shardmerge.worker.relay.model import Head, OpenedData, Statement, SubscriptionItem
from shardmerge.worker.relay.serve.commit_walk import CommitWalk, first_commit_after
from shardmerge.worker.relay.serve.locate import (
    GroupEnds,
    end_at,
    first_end_containing,
    locate,
    next_group_end,
    next_server,
    wait_for,
)
from shardmerge.worker.relay.serve.query_event import LoggedQuery, read_query_event
from shardmerge.worker.relay.serve.subscription import Edges, Limit, subscribe


class LogReader(ABC):
    """The reading side of a relay; all methods from any thread."""

    def __init__(self, log: RelayLog) -> None:
        self.source_id = log.source
        self._log = log
        self._last_end: tuple[str, Head | None] = "", None

    @abstractmethod
    def failure(self) -> ShardmergeError | None:
        """The error that stopped the fetcher, with which waits for new events end; None while it runs or retries."""

    @property
    def directory(self) -> Path:
        return self._log.directory

    @property
    def relay_id(self) -> str:
        """The id of the generation: relay offsets of another one are invalid here. "" before it has begun."""
        generation = self._log.generation
        return generation.relay_id if generation else ""

    @contextmanager
    def one_generation(self) -> Generator[str]:
        """For a block that computes offsets: yields the ``relay_id`` to which all offsets of the block belong.

        Raises RELAY_RESTARTED (retryable) at the end when a new generation began in between: another subtask may
        need the log to reach further back at any time, and the block's offsets could be of either one.
        """
        relay_id = self.relay_id
        yield relay_id
        if self.relay_id != relay_id:
            raise errors.relay.RELAY_RESTARTED(source=self.source_id, relay_id=relay_id)

    @contextmanager
    def _files(self) -> Generator[None]:
        """For a block that reads files of the log: RELAY_REMOVED when another program has removed them."""
        try:
            yield
        except FileNotFoundError as error:
            lost = self._log.lost()
            if lost is None:
                raise
            raise lost from error

    def wake(self) -> None:
        """Let all subscriptions look at once whether they have to end: they wait at the published end otherwise."""
        self._log.wake()

    def head(self) -> Head:
        """The published end, always a group end; NOTHING before the log has begun."""
        return self._log.head()

    def first(self) -> Head:
        """The oldest offset kept."""
        return self._log.first()

    def is_reachable(self, offset: RelayOffset) -> bool:
        """Whether a reader can have reached ``offset``: not beyond the head, and not beyond its segment's end."""
        return self._log.is_reachable(offset)

    def bytes_between(self, start: RelayOffset, end: RelayOffset) -> int:
        """Bytes of events from ``start`` to ``end``, as far as they are kept."""
        return self._log.bytes_between(start, end)

    def next_group_end(self, offset: RelayOffset, deadline_seconds: float, stop: StopSignal) -> RelayOffset:
        """A group end after group start ``offset`` at which a subscription may end: near it, or the end of the group at
        ``offset`` if that is large enough to be served in pieces.

        It waits until the head is after ``offset`` (see :meth:`subscribe`). Raises OFFSET_PURGED,
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
        with self._files():
            return next_group_end(self._log, relay_id, offset, head)

    def next_commit_time(self, offset: RelayOffset) -> float | None:
        """See :func:`shardmerge.worker.relay.serve.commit_walk.first_commit_after`; None also for an offset of
        another relay log."""
        try:
            return first_commit_after(self._log, offset)
        except ShardmergeError:
            return None

    def next_server(self, offset: RelayOffset) -> str:
        """The server from whose binlog the events after ``offset`` came, or will come; "" when unknown."""
        return next_server(self._log, offset)

    def locate(
        self,
        position: SourcePosition,
        deadline_seconds: float,
        stop: StopSignal,
        *,
        first_if_before: bool = False,
        inside: bool = False,
        down: bool = False,
        ends: GroupEnds | None = None,
    ) -> RelayOffset:
        """The group end at a source position, once the relay has reached it; see
        :func:`shardmerge.worker.relay.serve.locate.locate`.

        ``first_if_before``: a position older than the log is its first offset, not an error. ``inside``: the caller
        means a position inside the group that begins there. ``down``: for a position inside a group, its start.
        ``ends``: for many ascending positions of one generation.
        Raises what that function raises, and at once the error that has stopped the relay.
        """
        with self._files():
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
        """A walk over the commits after group end ``at``."""
        return CommitWalk(self._log, self._log.require().relay_id, at, certain_before)

    def first_commit(
        self, walk: CommitWalk, moment: float, end: SourcePosition, deadline_seconds: float, stop: StopSignal
    ) -> RelayOffset:
        """The start of the first group of ``walk`` that committed at or after ``moment``, as soon as the relay has it;
        if there is none before ``end``, the group end there. Raises what :meth:`locate` raises."""
        found: RelayOffset | None = None

        def ready(head: Head) -> bool:
            nonlocal found
            found = walk.first(moment, head.offset)
            return found is not None or (head.offset.byte > FIRST_BYTE and head.position.reaches(end))

        reader = self._log.enter_reader(walk.scanned.segment)
        try:
            relay_id = self._log.require().relay_id
            with self._files():
                wait_for(self._log, relay_id, ready, end, deadline_seconds, stop, self.failure)
        finally:
            self._log.leave_reader(reader)
        return found if found is not None else self.locate(end, deadline_seconds, stop)

    def first_end_containing(self, wanted: GtidSet) -> RelayOffset | None:
        """See :func:`shardmerge.worker.relay.serve.locate.first_end_containing`."""
        with self._files():
            return first_end_containing(self._log, self._log.require().relay_id, wanted)

    def position_at(self, offset: RelayOffset) -> SourcePosition:
        """The source position of a group end, with its GTID set as far as it is known.

        Raises OFFSET_PURGED, OFFSET_NOT_GROUP_END.
        """
        relay_id = self._log.require().relay_id
        known_id, known = self._last_end
        reader = self._log.enter_reader(offset.segment)
        try:
            segment = self._log.segment(relay_id, offset.segment)
            with self._files():
                found = end_at(self._log, relay_id, segment, offset.byte, known if known_id == relay_id else None)
        finally:
            self._log.leave_reader(reader)
        # Of many group ends close together, each would otherwise be found from the index entry before all of them.
        self._last_end = relay_id, found
        return found.position

    def subscribe(
        self,
        start: RelayOffset,
        until: RelayOffset | None,
        in_scope: Callable[[Statement], bool] | None,
        stop: StopSignal,
        *,
        by_reference: bool = False,
        limit: Limit | None = None,
        edges: Edges | None = None,
    ) -> Generator[SubscriptionItem, None, None]:
        """See worker/relay/serve/subscription.py."""
        return subscribe(
            self._log,
            start,
            until,
            in_scope,
            stop,
            self.failure,
            by_reference=by_reference,
            limit=limit,
            edges=edges,
        )

    def statements_from(self, offset: RelayOffset) -> Iterator[Statement]:
        """The statements of groups that begin at group end ``offset`` or after it, up to the present head.

        Raises OFFSET_PURGED, OFFSET_NOT_GROUP_END, RELAY_DAMAGED, RELAY_RESTARTED.
        """
        log = self._log
        relay_id, head = log.require().relay_id, log.head().offset
        reader = log.enter_reader(offset.segment)
        try:
            for number in range(offset.segment, head.segment + 1):
                log.move_reader(reader, number)
                with self._files():
                    index = log.index_of(log.segment(relay_id, number))
                with log.changed:
                    first = bisect_left(index.statements, offset, key=lambda statement: statement.group_start)
                    found = tuple(index.statements[first:])
                for statement in found:
                    if statement.group_end > head:
                        return
                    yield statement
        finally:
            log.leave_reader(reader)

    def opened(self, offset: RelayOffset, deadline_seconds: float = 30) -> OpenedData:
        """The data for a decoder that starts at ``offset``, a group end.

        It waits for an offset after the head (see :meth:`subscribe`). Raises OFFSET_PURGED,
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
            with self._files():
                end = end_at(self._log, relay_id, segment, offset.byte)
                description = read_description(self._log.directory, offset.segment)
        finally:
            self._log.leave_reader(reader)
        return OpenedData(relay_id, description, end.position)

    def read_query_event(self, statement: Statement) -> LoggedQuery:
        """See worker/relay/serve/query_event.py."""
        return read_query_event(self._log, statement)

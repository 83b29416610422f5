"""Serves the relay log to one reader: blocks of whole events, in order, each byte once."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.log.files import FIRST_BYTE, relay_path
from shardmerge.worker.relay.log.index_records import EntryKind
from shardmerge.worker.relay.log.relay_log import Cut, RelayLog
from shardmerge.worker.relay.log.segment import Segment, SegmentIndex
from shardmerge.worker.relay.model import (
    AtHead,
    AtStatement,
    BlockData,
    BlockPlace,
    Head,
    ReachedUntil,
    Statement,
    SubscriptionItem,
)
from shardmerge.worker.relay.serve.group_blocks import (
    LARGEST_BLOCK,
    commit_name,
    committed_blocks,
    payload_blocks,
    placeholder_block,
)
from shardmerge.worker.relay.serve.locate import STOP_CHECK_SECONDS, end_at

IDLE_SECONDS = 1.0
"""Interval of AtHead while there are no new events."""

InScope = Callable[[Statement], bool]
Limit = Callable[[RelayOffset], RelayOffset | None]
"""Called with a published event boundary before anything up to there is served. Returns the group end at which the
subscription ends, once that is known; None: it does not end before the boundary. A returned end does not change."""
Edges = Callable[[], Sequence[RelayOffset]]
"""Returns the group ends, ascending, at which a block must end: the reader changes its tables there. Those that
were not reached yet may change while the subscription waits at a statement."""


def subscribe(
    log: RelayLog,
    start: RelayOffset,
    until: RelayOffset | None,
    in_scope: InScope | None,
    stop: StopSignal,
    failure: Callable[[], ShardmergeError | None] = lambda: None,
    *,
    by_reference: bool = False,
    limit: Limit | None = None,
    edges: Edges | None = None,
) -> Generator[SubscriptionItem, None, None]:
    """Everything from group end ``start`` on, up to group end ``until`` or that of ``limit``, whichever is first:
    compressed transactions as the events in them, XA transactions where they commit
    (worker/relay/serve/group_blocks.py).

    ``by_reference``: blocks of the relay log's own bytes are yielded as BlockPlace.

    Each statement for which ``in_scope`` is true is announced by AtStatement before its group is served (several in
    one group: one after the other). The iterator ends after ReachedUntil, or silently when ``stop`` is set.
    Closing it frees its file and lets purge continue. It waits for a ``start`` after the head: the head moves
    back when a machine failure loses bytes that were not yet on disk, and they return with the same offsets.

    Raises OFFSET_PURGED, OFFSET_NOT_GROUP_END, RELAY_DAMAGED, GROUP_TOO_LARGE, XA_PREPARE_MISSING, RELAY_RESTARTED
    (retryable) as soon as the relay log was replaced, decode.MALFORMED_EVENT and UNSUPPORTED_EVENT for an invalid
    compressed transaction, and the error of ``failure`` (which has stopped the relay permanently) once everything
    published was served.
    """
    relay_id = log.require().relay_id
    reader = log.enter_reader(start.segment)
    try:
        serving = _Subscription(log, relay_id, reader, until, in_scope, stop, failure, limit, edges, by_reference)
        yield from serving.run(start)
    finally:
        log.leave_reader(reader)


@dataclass(slots=True)
class _Place:
    """The segment that is being served, up to ``byte``."""

    segment: Segment
    index: SegmentIndex
    file: int
    byte: int
    group_start: int  # of the group that continues at ``byte``; ``byte`` between groups
    events: int  # of that group before ``byte``
    statement: int  # number of the next statement to look at


@dataclass(slots=True)
class _Subscription:
    _log: RelayLog
    _relay_id: str
    _reader: int
    _until: RelayOffset | None
    _in_scope: InScope | None
    _stop: StopSignal
    _failure: Callable[[], ShardmergeError | None]
    _limit: Limit | None
    _edges: Edges | None
    _by_reference: bool
    _last_cut: Head | None = None

    def run(self, start: RelayOffset) -> Iterator[SubscriptionItem]:
        if self._until is not None and start >= self._until:
            yield ReachedUntil(start)
            return
        yield from self._wait(lambda: self._is_there(start))
        if self._stop.is_set:
            return
        place = self._enter(start.segment, start.byte)
        try:
            # The start must be between two groups, otherwise the checkpoint belongs to another log.
            end_at(self._log, self._relay_id, place.segment, start.byte)
            while not self._stop.is_set:
                at = RelayOffset(place.segment.number, place.byte)
                if self._is_over(at):
                    yield ReachedUntil(at)
                    return
                head = self._log.head()
                found = self._log.next_after(self._relay_id, place.segment, place.index, place.byte)
                if found.segment is not None:
                    os.close(place.file)
                    place.file = -1
                    place = self._enter(found.segment, FIRST_BYTE)
                elif found.cut is not None:
                    yield from self._serve(place, found.cut)
                else:
                    yield from self._wait(lambda head=head, at=at: self._log.head() is not head or self._is_over(at))
        finally:
            if place.file >= 0:
                os.close(place.file)

    def _ends_at(self, published: RelayOffset) -> RelayOffset | None:
        """The end of the subscription, as far as is known; None: not before ``published``."""
        limit = self._limit(published) if self._limit is not None else None
        if limit is None or self._until is None:
            return self._until if limit is None else limit
        return min(limit, self._until)

    def _is_over(self, at: RelayOffset) -> bool:
        end = self._ends_at(at)
        return end is not None and at >= end

    def _is_there(self, start: RelayOffset) -> bool:
        """Whether ``start`` can be read; it cannot before the relay's first event was stored."""
        self._log.require(self._relay_id)
        head = self._log.head().offset
        return start <= head and (head.byte > FIRST_BYTE or start < head)

    def _wait(self, ready: Callable[[], bool]) -> Iterator[AtHead]:
        """AtHead at once and about every second until ``ready`` or a stop. Raises the error that stopped the relay."""
        while not self._stop.is_set:
            # Read this first: events that are published later come from a relay that still runs.
            stopped_by = self._failure()
            head, wakes = self._log.head(), self._log.wakes
            if ready():
                return
            if stopped_by is not None:
                raise stopped_by
            yield AtHead(head)
            again = time.monotonic() + IDLE_SECONDS
            while not self._stop.is_set and (left := again - time.monotonic()) > 0:
                if self._log.wait_beyond(head, min(left, STOP_CHECK_SECONDS), wakes) or self._failure() is not None:
                    break

    def _enter(self, number: int, byte: int) -> _Place:
        segment = self._log.segment(self._relay_id, number)
        self._log.move_reader(self._reader, number)
        try:
            index = self._log.index_of(segment)
            file = os.open(relay_path(self._log.directory, number), os.O_RDONLY)
        except FileNotFoundError:
            self._log.segment(self._relay_id, number)  # raises if it was purged, or the relay log replaced
            raise self._damaged(number, "one of its files is missing") from None
        statement = 0
        while statement < len(index.statements) and index.statements[statement].group_start.byte < byte:
            statement += 1
        return _Place(segment, index, file, byte, byte, 0, statement)

    def _serve(self, place: _Place, cut: Cut) -> Iterator[SubscriptionItem]:
        """Serve the bytes up to ``cut``, in parts if statements in scope or ``until`` are before it."""
        until = self._ends_at(RelayOffset(place.segment.number, cut.end))
        if until is not None and until.segment == place.segment.number and until.byte < cut.end:
            cut = self._cut_at(place, until.byte, cut)
        while not self._stop.is_set and place.byte < cut.end:
            edge = self._next_edge(place, cut.end)
            statement = self._next_in_scope(place, cut.end if edge is None else edge)
            if statement is None:
                yield from self._blocks(place, cut if edge is None else self._cut_at(place, edge, cut))
                continue
            if statement.group_start.byte > place.byte:
                yield from self._blocks(place, self._cut_at(place, statement.group_start.byte, cut))
            yield AtStatement(statement)

    def _next_edge(self, place: _Place, end: int) -> int | None:
        """The next byte before ``end`` at which a block must end."""
        edges = self._edges() if self._edges is not None else ()
        at = bisect_right(edges, RelayOffset(place.segment.number, place.byte)) if edges else 0
        if at == len(edges) or edges[at] >= RelayOffset(place.segment.number, end):
            return None
        return edges[at].byte

    def _blocks(self, place: _Place, cut: Cut) -> Iterator[BlockPlace | BlockData]:
        inside = place.group_start != place.byte or not cut.ends_group
        if cut.special is None and (inside or not cut.payloads):
            yield self._block(place, cut)
            return
        begin = end_at(self._log, self._relay_id, place.segment, place.byte)
        try:
            for block in self._made(place, cut, begin):
                yield block
                if self._stop.is_set:
                    return
        except OSError as error:
            raise self._damaged(place.segment.number, error.strerror or type(error).__name__) from error
        place.byte, place.group_start, place.events = cut.end, cut.group_start, cut.first_event

    def _made(self, place: _Place, cut: Cut, begin: Head) -> Iterator[BlockData]:
        """Blocks whose events are not the relay log's own bytes."""
        source, directory = self._log.source, self._log.directory
        if cut.special is None:
            yield from payload_blocks(source, directory, place.file, begin, cut)
        elif cut.special.kind is EntryKind.PREPARED:
            yield placeholder_block(place.file, begin, cut)
        elif cut.special.prepared:
            yield from committed_blocks(source, directory, place.file, begin, cut, cut.special.prepared[0])
        else:
            name = commit_name(source, directory, place.file, begin, cut)
            raise errors.relay.XA_PREPARE_MISSING(source=source, xid=name, position=begin.position)

    def _next_in_scope(self, place: _Place, end: int) -> Statement | None:
        """The next statement in scope whose group begins before ``end``; each statement is tested once."""
        statements = place.index.statements
        while place.statement < len(statements) and statements[place.statement].group_start.byte < end:
            statement = statements[place.statement]
            place.statement += 1
            if self._in_scope is not None and self._in_scope(statement):
                return statement
        return None

    def _cut_at(self, place: _Place, byte: int, of: Cut) -> Cut:
        # Of many statements close together, each would otherwise be found from the index entry before all of them.
        end = self._last_cut = end_at(self._log, self._relay_id, place.segment, byte, self._last_cut)
        return Cut(byte, True, byte, 0, end.position, end.commit_time, payloads=of.payloads)

    def _block(self, place: _Place, cut: Cut) -> BlockPlace | BlockData:
        number = place.segment.number
        if cut.end - place.byte > LARGEST_BLOCK:
            raise errors.relay.GROUP_TOO_LARGE(
                source=self._log.source,
                position=end_at(self._log, self._relay_id, place.segment, place.byte).position,
                size=cut.end - place.byte,
                limit=LARGEST_BLOCK,
            )
        block = BlockPlace(
            start=RelayOffset(number, place.byte),
            end=RelayOffset(number, cut.end),
            ends_group=cut.ends_group,
            group_start=RelayOffset(number, place.group_start),
            first_event=place.events,
            end_position=cut.position,
            commit_time=cut.commit_time,
        )
        found = block if self._by_reference else self._read(place, block)
        place.byte, place.group_start, place.events = cut.end, cut.group_start, cut.first_event
        return found

    def _read(self, place: _Place, block: BlockPlace) -> BlockData:
        size = block.end.byte - block.start.byte
        data = os.pread(place.file, size, block.start.byte)
        if len(data) != size:
            raise self._damaged(block.start.segment, f"it is shorter than {block.end.byte} bytes")
        fields = (getattr(block, name) for name in BlockPlace.__match_args__)  # asdict() would copy them
        return BlockData(*fields, events=data)

    def _damaged(self, number: int, reason: str) -> errors.ShardmergeError:
        return self._log.lost() or errors.relay.RELAY_DAMAGED(
            source=self._log.source,
            path=relay_path(self._log.directory, number),
            reason=reason,
            directory=self._log.directory,
        )

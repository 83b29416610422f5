"""Finds where a subtask's replication ends in the relay log, before a lane is sent anything after it.

File position: the last group end at or before it. GTID set: the first group end after which nothing of the set remains
(other transactions may precede it in the binlog, and are applied). Time: before the first group that committed at or
after it, so that a task which starts at a time continues exactly where one that stopped at this time has ended. If the
binlog records no commit times, the times of the committing statements count (worker/relay/serve/commit_walk.py). An
idle source has reached a time when its clock has, once everything that it had written by then is relayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.relay.source_clock import SourceEnd
from shardmerge.worker.replicate.bounds.stream_limit import EndFinder, StreamLimit
from shardmerge.worker.target.records.bounds import Bound
from shardmerge.worker.target.records.checkpoint import Checkpoint

_LOCATE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class StopPoint:
    """Where the subtask has to end, as recorded when it was first resolved. ``shown``: as it was configured."""

    bound: Bound
    shown: str


@dataclass(frozen=True, slots=True)
class StopSearch:
    """What a run needs to find its end. ``stop`` None: it has none. ``source_end``: the source's end and clock;
    ``exact``: the binlog records commit times."""

    task: str
    source: str
    relay: Relay
    stop: StopPoint | None
    source_end: Callable[[], SourceEnd]
    exact: bool

    def stream_limit(self, found: Sequence[Checkpoint], at_least: RelayOffset | None, stop: StopSignal) -> StreamLimit:
        """The limit of this run's lanes. ``found``: their checkpoints, in offsets of the current relay log.
        ``at_least``: before that offset the target does not hold the state of one position.

        Raises STOP_BEHIND when a lane is already beyond the end.
        """
        if self.stop is None:
            return StreamLimit(None)
        bound = self.stop.bound
        first = min(item.offset for item in found)
        furthest = max(found, key=lambda item: item.offset)
        search = self._finder(bound, first, stop)
        if bound.moment:
            # Rounded by a second at most if the binlog's times are.
            is_beyond = furthest.commit_time >= bound.moment + (0.0 if self.exact else 1.0)
        elif bound.position.file:
            is_beyond = (
                furthest.position.reaches(bound.position)
                and furthest.position.file_order() != bound.position.file_order()
            )
        else:
            is_beyond = _is_beyond(furthest, bound.position.gtid_set, self.relay)
        limit = StreamLimit(search)
        if is_beyond:
            raise self._stop_behind_error(f"it has applied everything up to {furthest.position} already")
        if at_least is not None and furthest.offset < at_least:
            place = limit.limit(at_least)
            if place is not None and place < at_least:
                raise self._stop_behind_error(f"its snapshot holds changes up to {self.relay.position_at(at_least)}")
        return limit

    def _finder(self, bound: Bound, first: RelayOffset, stop: StopSignal) -> EndFinder:
        if bound.moment:
            return _ByTime(self.relay, bound.moment, first, self.source_end)
        if bound.position.file:
            return _ByPlace(self, bound, stop)
        return _ByGtids(self.relay, GtidSet(bound.position.gtid_set))

    def _stop_behind_error(self, reason: str) -> errors.ShardmergeError:
        assert self.stop is not None  # noqa: S101 - for the type checker
        return errors.replicate.STOP_BEHIND(task=self.task, source=self.source, stop=self.stop.shown, standing=reason)


def _is_beyond(at: Checkpoint, wanted: str, relay: Relay) -> bool:
    """Whether a lane is beyond the first place that holds all of a set."""
    if GtidSet(at.position.gtid_set).lacks(GtidSet(wanted)) or not at.position.gtid_set:
        return False
    if str(GtidSet(at.position.gtid_set)) == str(GtidSet(wanted)):
        return False
    place = relay.first_end_containing(GtidSet(wanted))
    return place is not None and (place < at.offset or place == relay.first().offset)


class _ByPlace:
    def __init__(self, ending: StopSearch, bound: Bound, stop: StopSignal) -> None:
        self._ending = ending
        self._place = bound.position
        self._stop = stop

    def find(self, end: RelayOffset) -> RelayOffset | None:
        ending, relay, place = self._ending, self._ending.relay, self._place
        head = relay.head().position
        if head.reaches(place):
            return relay.locate(place, _LOCATE_SECONDS, self._stop, first_if_before=True, down=True)
        if head.file and not head.same_server(place):
            raise errors.replicate.STOP_OF_ANOTHER_SERVER(
                task=ending.task,
                source=ending.source,
                stop=f"{place.file}:{place.pos}",
                server=place.server,
                now=head.server,
            )
        return None


class _ByGtids:
    def __init__(self, relay: Relay, wanted: GtidSet) -> None:
        self._relay = relay
        self._wanted = wanted
        self._looked_at: object = None

    def find(self, end: RelayOffset) -> RelayOffset | None:
        head = self._relay.head()
        if head is self._looked_at:
            return None
        found = self._relay.first_end_containing(self._wanted)
        self._looked_at = head
        return found


class _ByTime:
    def __init__(self, relay: Relay, moment: float, first: RelayOffset, source_end: Callable[[], SourceEnd]) -> None:
        self._relay = relay
        self._moment = moment
        self._source_end = source_end
        self._walk = relay.commits_from(first)

    def find(self, end: RelayOffset) -> RelayOffset | None:
        found = self._walk.first(self._moment, end)
        if found is not None:
            return found
        seen = self._source_end()
        if seen.since < self._moment:
            return None
        # Nothing beyond what the walk has scanned was allowed: if that is the head, the lanes can end there.
        head = self._relay.head()
        at_end = head.position.reaches(seen.position) and seen.position.reaches(head.position)
        return head.offset if at_end and self._walk.scanned == head.offset else None

"""Where a subtask's replication ends: found in the relay log before a lane is sent anything behind it.

A place in a file: the last group end at or before it. A GTID set: the first group end behind which nothing of the set
is left (others may lie before it in the binlog, and are applied). A time: before the first group that committed at or
after it, so that a task which starts at a time goes on exactly where one that stopped at it has ended. Where the binlog
tells no commit times, the times of the committing statements count (worker/relay/commits.py). An idle source has
reached a time when its clock has, with everything relayed that it had written by then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proto import errors
from worker.bounds import Bound
from worker.gate import Gate, Search
from worker.host import SourceEnd
from worker.position import RelayOffset
from worker.relay.gtid import GtidSet
from worker.relay.relay import Relay
from worker.replicate.checkpoint import Checkpoint
from worker.unit import StopSignal

_LOCATE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Stop:
    """Where the subtask is to end, as recorded when that was first asked for. ``shown``: as it was given."""

    bound: Bound
    shown: str


@dataclass(frozen=True, slots=True)
class Ending:
    """What a run needs to find its end: ``stop`` None: there is none. ``source_end``: the source's clock."""

    task: str
    source: str
    relay: Relay
    stop: Stop | None
    source_end: Callable[[], SourceEnd]
    exact: bool

    def gate(self, found: Sequence[Checkpoint], at_least: RelayOffset | None, stop: StopSignal) -> Gate:
        """``found``: in offsets of the relay at hand. ``at_least``: before that the target is of no one place.

        Raises STOP_BEHIND when a lane is beyond the end already.
        """
        if self.stop is None:
            return Gate(None)
        bound = self.stop.bound
        first = min(item.offset for item in found)
        furthest = max(found, key=lambda item: item.offset)
        search = self._search(bound, first, stop)
        if bound.moment:
            # Rounded by a second at most where the binlog is.
            behind = furthest.commit_time >= bound.moment + (0.0 if self.exact else 1.0)
        elif bound.position.file:
            behind = (
                furthest.position.reaches(bound.position)
                and furthest.position.file_order() != bound.position.file_order()
            )
        else:
            behind = _beyond(furthest, bound.position.gtid_set, self.relay)
        gate = Gate(search)
        if behind:
            raise self._behind(f"it has applied everything up to {furthest.position} already")
        if at_least is not None and furthest.offset < at_least:
            place = gate.limit(at_least)
            if place is not None and place < at_least:
                raise self._behind(f"its snapshot holds changes up to {self.relay.position_at(at_least)}")
        return gate

    def _search(self, bound: Bound, first: RelayOffset, stop: StopSignal) -> Search:
        if bound.moment:
            return _ByTime(self.relay, bound.moment, first, self.source_end)
        if bound.position.file:
            return _ByPlace(self, bound, stop)
        return _ByGtids(self.relay, GtidSet(bound.position.gtid_set))

    def _behind(self, standing: str) -> errors.ShardmergeError:
        assert self.stop is not None  # noqa: S101 - for the type checker
        return errors.replicate.STOP_BEHIND(task=self.task, source=self.source, stop=self.stop.shown, standing=standing)


def _beyond(at: Checkpoint, wanted: str, relay: Relay) -> bool:
    """Whether a lane stands behind the first place that holds all of a set."""
    if GtidSet(at.position.gtid_set).lacks(GtidSet(wanted)) or not at.position.gtid_set:
        return False
    if str(GtidSet(at.position.gtid_set)) == str(GtidSet(wanted)):
        return False
    place = relay.first_end_holding(GtidSet(wanted))
    return place is not None and (place < at.offset or place == relay.first().offset)


class _ByPlace:
    def __init__(self, ending: Ending, bound: Bound, stop: StopSignal) -> None:
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
        found = self._relay.first_end_holding(self._wanted)
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
        # Nothing was allowed beyond what the walk has passed: if that is the head, the lanes can end there.
        head = self._relay.head()
        at_end = head.position.reaches(seen.position) and seen.position.reaches(head.position)
        return head.offset if at_end and self._walk.passed == head.offset else None

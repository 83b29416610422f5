"""Which of several places at one source comes first, and which place a user means: pure."""

from __future__ import annotations

from collections.abc import Sequence

from proto import common_pb2 as pb
from worker.position import SourcePosition
from worker.relay.gtid import GtidSet


def lowest_position(positions: Sequence[SourcePosition]) -> SourcePosition:
    """The first of places that the relay gave out: by file at one server, else by GTID set."""
    lowest = positions[0]
    for position in positions[1:]:
        if lowest.same_server(position):
            before = lowest.reaches(position)
        else:
            before = not GtidSet(lowest.gtid_set).lacks(GtidSet(position.gtid_set))
        lowest = position if before else lowest
    return lowest


def configured_start(given: pb.SourcePosition, server: str, *, by_gtid: bool) -> SourcePosition:
    """The place that a configuration means: a file's if it names one, unless it is to go ``by_gtid``.

    What is given as the GTID set of a place in a file is not relied on.
    """
    if given.file and not (by_gtid and given.gtid_set):
        return SourcePosition(given.file, given.pos, server=server)
    return SourcePosition("", 0, str(GtidSet(given.gtid_set)) or given.gtid_set)

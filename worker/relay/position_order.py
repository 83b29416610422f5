"""Orders positions of one source, and interprets the position of a configuration. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from shardmerge.proto import common_pb2 as pb
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.position import SourcePosition


def lowest_position(positions: Sequence[SourcePosition]) -> SourcePosition:
    """The lowest of positions that the relay returned: by file at one server, else by GTID set."""
    lowest = positions[0]
    for position in positions[1:]:
        if lowest.same_server(position):
            before = lowest.reaches(position)
        else:
            before = not GtidSet(lowest.gtid_set).lacks(GtidSet(position.gtid_set))
        lowest = position if before else lowest
    return lowest


def configured_start(given: pb.SourcePosition, server: str, *, by_gtid: bool) -> SourcePosition:
    """The position that a configuration means: in a file if it names one, unless ``by_gtid`` and it has a GTID set.

    The configured GTID set of a position in a file is not used.
    """
    if given.file and not (by_gtid and given.gtid_set):
        return SourcePosition(given.file, given.pos, server=server)
    return SourcePosition("", 0, str(GtidSet(given.gtid_set)) or given.gtid_set)

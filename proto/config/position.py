"""Parses the start and the end of replication as files and options have them. Pure.

`--start-time` and its formats are TiDB DM's (tiflow, dm/pkg/utils, ParseStartTimeInLoc: "2006-01-02 15:04:05" or with a
T between; newer versions also with an offset after it). A time without an offset is in the source's own time zone
(there: syncer, ``upstreamTZ``), which its worker queries.
"""

from __future__ import annotations

import re

from shardmerge.proto import common_pb2
from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.errors import config

EARLIEST = "earliest"
LATEST = "latest"

_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:Z|[+-]\d\d:?\d\d)?")
_PLACE = re.compile(r"([^\s:]+\.\d+):(\d+)")
_GTID = re.compile(r"(?:\d+-\d+-\d+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?::[^\s,:]+)+)")


def start_at(text: str) -> pb.StartAt:
    """Parse `earliest`, `latest` or a time. Raises START_UNREADABLE."""
    match text:
        case "earliest":
            return pb.StartAt(earliest=True)
        case "latest":
            return pb.StartAt(latest=True)
        case _ if _TIME.fullmatch(text):
            return pb.StartAt(time=text)
        case _:
            raise config.START_UNREADABLE(given=text)


def stop_at(text: str) -> pb.StopAt:
    """A binlog position ("mysql-bin.000003:4711"), a GTID set or a time. Raises STOP_UNREADABLE."""
    if _TIME.fullmatch(text):
        return pb.StopAt(time=text)
    place = _PLACE.fullmatch(text)
    if place is not None:
        position = common_pb2.SourcePosition(file=place[1], pos=int(place[2]))
        return pb.StopAt(position=position)
    parts = [part.strip() for part in text.split(",")]
    if all(_GTID.fullmatch(part) for part in parts):
        return pb.StopAt(position=common_pb2.SourcePosition(gtid_set=",".join(parts)))
    raise config.STOP_UNREADABLE(given=text)


def shown_start(start: pb.StartAt) -> str:
    """The text of the value; "" for none."""
    match start.WhichOneof("at"):
        case "time":
            return start.time
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
        case _:
            return ""


def shown(stop: pb.StopAt) -> str:
    """The text of the value; "" for none."""
    match stop.WhichOneof("at"):
        case "time":
            return stop.time
        case "position":
            position = stop.position
            return position.gtid_set or f"{position.file}:{position.pos}"
        case _:
            return ""

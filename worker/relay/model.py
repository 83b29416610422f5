"""Values that the relay log returns: its ends, its state, the items of a subscription."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.common_pb2 import Stage
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.position import RelayOffset, SourcePosition


@dataclass(frozen=True, slots=True)
class Head:
    """A group end of the relay log. ``commit_time``: Unix seconds of the last commit before it, 0.0 if none."""

    offset: RelayOffset
    position: SourcePosition
    commit_time: float


@dataclass(frozen=True, slots=True)
class Statement:
    """A QUERY event that is not transaction control: DDL, DML in statement format, privileges …

    ``group_start``, ``offset``, ``group_end``: the start of its event group, its own start, the end of the group.
    ``position``: of the group's start at the source. ``schema``: the default schema, "" for none.
    ``sql_mode``: the server's bit mask, None when the event does not contain it.
    """

    group_start: RelayOffset
    offset: RelayOffset
    group_end: RelayOffset
    position: SourcePosition
    schema: str
    text: str
    sql_mode: int | None


@dataclass(frozen=True, slots=True)
class OpenedData:
    """The data for a decoder that starts at an offset. ``format_description``: the whole event, header included."""

    relay_id: str
    format_description: bytes
    position: SourcePosition


@dataclass(frozen=True, slots=True)
class GroupStart:
    """From byte ``at`` on, the events of a block belong to the group that begins at relay byte ``byte``."""

    at: int
    byte: int


@dataclass(frozen=True, slots=True)
class Block:
    """Whole events of one segment. See Block in proto/relay.proto for the fields."""

    start: RelayOffset
    end: RelayOffset
    ends_group: bool
    group_start: RelayOffset
    first_event: int
    end_position: SourcePosition
    commit_time: float


@dataclass(frozen=True, slots=True)
class BlockPlace(Block):
    """A block whose events are the relay log's own bytes from ``start`` to ``end``: the reader reads them from the file
    itself."""


@dataclass(frozen=True, slots=True)
class BlockData(Block):
    """A block with its events. ``places``: empty if they are the relay log's own bytes; else the start of each group's
    events (see worker/relay/serve/group_blocks.py)."""

    events: bytes
    places: tuple[GroupStart, ...] = ()


@dataclass(frozen=True, slots=True)
class AtHead:
    """Everything up to ``head`` was served; repeated about every second while there is nothing new."""

    head: Head


@dataclass(frozen=True, slots=True)
class AtStatement:
    """Everything before the group of ``statement`` was served; the next items continue with that group."""

    statement: Statement


@dataclass(frozen=True, slots=True)
class ReachedUntil:
    """Everything before ``offset`` was served: the subscription's end."""

    offset: RelayOffset


SubscriptionItem = BlockPlace | BlockData | AtHead | AtStatement | ReachedUntil


@dataclass(frozen=True, slots=True)
class PurgePolicy:
    """The rules for the removal of segments that no checkpoint needs.

    ``interval_seconds``: between checks; ``expires_hours``: older segments are removed, 0: their age does not matter;
    ``remain_space_gib``: with less free space the oldest are removed, 0: free space does not matter.
    """

    interval_seconds: float = 3600
    expires_hours: float = 0
    remain_space_gib: float = 15

    @staticmethod
    def from_proto(message: pb.PurgeConfig) -> PurgePolicy:
        return PurgePolicy(message.interval_seconds or 3600, message.expires_hours, message.remain_space_gib)


@dataclass(frozen=True, slots=True)
class RelayState:
    """The present state of the relay.

    ``stage``: STAGE_RUNNING, STAGE_PAUSED (nothing is fetched until
    :meth:`~shardmerge.worker.relay.relay.Relay.start`, or until there is disk space again) or STAGE_STOPPED.
    ``error`` with STAGE_RUNNING: the last attempt failed and the relay retries.
    """

    stage: Stage
    error: ShardmergeError | None
    relay_id: str
    head: Head
    bytes_on_disk: int

"""Values that leave the relay log: its ends, its state, what a subscription yields."""

from __future__ import annotations

from dataclasses import dataclass

from proto import config_pb2 as pb
from proto.common_pb2 import Stage
from proto.errors import ShardmergeError
from worker.position import RelayOffset, SourcePosition


@dataclass(frozen=True, slots=True)
class Head:
    """A group end of the relay log. ``commit_time``: Unix seconds of the last commit before it, 0.0 if none."""

    offset: RelayOffset
    position: SourcePosition
    commit_time: float


@dataclass(frozen=True, slots=True)
class Statement:
    """A QUERY event that is no transaction control: DDL, DML in statement format, privileges …

    ``group_start``, ``offset``, ``group_end``: where its event group begins, the event begins, the group ends.
    ``position``: of the group's start at the source. ``schema``: the default schema, "" for none.
    ``sql_mode``: the server's bit mask, None when the event does not say.
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
    """What a decoder needs to begin at an offset. ``format_description``: the whole event, header included."""

    relay_id: str
    format_description: bytes
    position: SourcePosition


@dataclass(frozen=True, slots=True)
class Place:
    """From byte ``at`` of a block's events on they are of the group that begins at relay byte ``byte``."""

    at: int
    byte: int


@dataclass(frozen=True, slots=True)
class BlockData:
    """Whole events of one segment; see Block in proto/relay.proto for the fields.

    ``places``: none when the events are the relay log's own bytes from ``start`` to ``end``; else where each group's
    events are (see worker/relay/expand.py).
    """

    start: RelayOffset
    end: RelayOffset
    events: bytes
    ends_group: bool
    group_start: RelayOffset
    first_event: int
    end_position: SourcePosition
    commit_time: float
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """A block of the relay log's own bytes from ``start`` to ``end``, which the reader takes from the file itself."""

    start: RelayOffset
    end: RelayOffset
    ends_group: bool
    group_start: RelayOffset
    first_event: int
    end_position: SourcePosition
    commit_time: float


@dataclass(frozen=True, slots=True)
class AtHead:
    """Everything up to ``head`` was served; repeated about every second while nothing comes."""

    head: Head


@dataclass(frozen=True, slots=True)
class AtStatement:
    """Everything before the group of ``statement`` was served; asking for the next item goes past it."""

    statement: Statement


@dataclass(frozen=True, slots=True)
class ReachedUntil:
    """Everything before ``offset`` was served: the subscription's end."""

    offset: RelayOffset


SubscriptionItem = BlockData | BlockPlace | AtHead | AtStatement | ReachedUntil


@dataclass(frozen=True, slots=True)
class PurgePolicy:
    """When segments that no checkpoint needs are removed.

    ``interval_seconds`` between looks; ``expires_hours``: older ones go, 0: age is no reason;
    ``remain_space_gib``: below this much free space the oldest go, 0: space is no reason.
    """

    interval_seconds: float = 3600
    expires_hours: float = 0
    remain_space_gib: float = 15

    @staticmethod
    def from_proto(message: pb.PurgeConfig) -> PurgePolicy:
        return PurgePolicy(message.interval_seconds or 3600, message.expires_hours, message.remain_space_gib)


@dataclass(frozen=True, slots=True)
class RelayState:
    """The relay now.

    ``stage``: STAGE_RUNNING, STAGE_PAUSED (nothing is fetched until :meth:`~worker.relay.relay.Relay.start`, or
    until there is disk space again) or STAGE_STOPPED. ``error`` beside STAGE_RUNNING: the last attempt failed and it
    tries again.
    """

    stage: Stage
    error: ShardmergeError | None
    relay_id: str
    head: Head
    bytes_on_disk: int

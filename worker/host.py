"""What a subtask needs of the worker it runs in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from proto import config_pb2
from worker.lane_service import LaneService
from worker.position import SourcePosition
from worker.relay.relay import Relay
from worker.shard_desk import ShardDesk
from worker.spark import SparkRunner


class Epochs(Protocol):
    """Where fencing tokens come from (etcd)."""

    def acquire(self, task: str, source: str) -> int:
        """A number higher than any before for this subtask. Raises NOT_BOUND, ETCD_UNAVAILABLE."""
        ...


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """Where a source's binlog ended. ``since``: Unix seconds by its own clock, asked before: what is behind the place
    committed later than that."""

    position: SourcePosition
    since: float


NO_END = SourceEnd(SourcePosition("", 0), 0.0)


class SourceClock(Protocol):
    """The source's own binlog end, asked regularly by one thread for all subtasks."""

    def position(self) -> SourcePosition:
        """The last answer; ("", 0) before the first."""
        ...

    def end(self) -> SourceEnd:
        """The last answer; NO_END before the first."""
        ...


@dataclass(frozen=True, slots=True)
class Host:
    """One bound source's surroundings, the same for all of its subtasks.

    ``needed_by_others``: whether a subtask of another task may need the relay log as it is.
    """

    source: config_pb2.SourceConfig
    relay: Relay
    clock: SourceClock
    epochs: Epochs
    spark: SparkRunner
    service: LaneService
    lane_address: str
    needed_by_others: Callable[[str], bool]
    shards: ShardDesk
